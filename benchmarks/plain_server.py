"""A server by hand, as quick as Python allows, for the benchmarks of proxies: what they add is all that counts.

Tools: `small` (a short text), `rows` (1,000 typed records, in both lanes), `large` (a frame of so many bytes).
"""

import json
import sys
from typing import Any

ROW = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "name": {"type": "string"}},
    "required": ["id"],
}
ROWS = {"type": "object", "properties": {"rows": {"type": "array", "items": ROW}}, "required": ["rows"]}
_DATA = {
    "rows": [
        {
            "id": n,
            "name": f"order {n}",
            "status": "shipped",
            "city": "Lisbon",
            "total": n * 1.25,
            "note": "x" * 200,
        }
        for n in range(1000)
    ]
}


def _results() -> dict[str, Any]:
    return {
        "small": {"content": [{"type": "text", "text": "a short answer"}]},
        "rows": {"content": [{"type": "text", "text": json.dumps(_DATA)}], "structuredContent": _DATA},
    }


def main() -> None:
    out = sys.stdout.buffer
    ready = {name: json.dumps(result).encode() for name, result in _results().items()}
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" not in message:
            continue
        method, params = message.get("method"), message.get("params") or {}
        if method == "initialize":
            info = {"name": "plain", "version": "1"}
            version = params["protocolVersion"]
            body = json.dumps({"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info})
            result = body.encode()
        elif method == "tools/list":
            tools: list[dict[str, Any]] = [
                {"name": name, "inputSchema": {"type": "object"}}
                for name in ("small", "large", "json", "typed")
            ]
            tools.append({"name": "rows", "inputSchema": {"type": "object"}, "outputSchema": ROWS})
            result = json.dumps({"tools": tools}).encode()
        elif method == "tools/call" and params["name"] in ready:
            result = ready[params["name"]]
        elif method == "tools/call":
            result = large(params["name"], params["arguments"]["bytes"])
        elif method in ("ping", "logging/setLevel"):
            result = b"{}"
        else:
            error = b'{"code":-32601,"message":"no such method"}'
            out.write(b'{"jsonrpc":"2.0","id":%b,"error":%b}\n' % (json.dumps(message["id"]).encode(), error))
            out.flush()
            continue
        out.write(b'{"jsonrpc":"2.0","id":%b,"result":' % json.dumps(message["id"]).encode())
        out.write(result)
        out.write(b"}\n")
        out.flush()
        del result


def large(kind: str, size: int) -> bytes:
    if kind == "large":
        line = b"a line of text, one of very many\\n"
        return b'{"content":[{"type":"text","text":"%b"}]}' % (line * (size // len(line)))
    row = b'{"id":123,"name":"something here","v":[1, 2, 3]}'
    if kind == "json":
        row = row.replace(b'"', b'\\"')
        return b'{"content":[{"type":"text","text":"[%b]"}]}' % b", ".join([row] * (size // (len(row) + 2)))
    document = b'{"rows":[%b]}' % b",".join([row] * (size // (2 * len(row) + 14)))
    text = document.replace(b'"', b'\\"')
    return b'{"content":[{"type":"text","text":"%b"}],"structuredContent":%b}' % (text, document)


if __name__ == "__main__":
    main()
