"""A language server that does what its argument says: work, crash, hang, refuse, know nothing, or nothing yet.

`crash-once FILE` crashes at its first question, leaves a file behind, and works from then on.
`slow-reader` knows only the file that it was shown, until it is asked a second time; `narrow` never knows more.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

HOW = sys.argv[1]
ASKED: set[str] = set()
PROVIDERS = ("definition", "references", "documentSymbol", "hover", "callHierarchy")


def read() -> dict[str, Any]:
    length = 0
    while line := sys.stdin.buffer.readline().strip():
        length = int(line.partition(b":")[2])
    if not length:
        sys.exit()
    message: dict[str, Any] = json.loads(sys.stdin.buffer.read(length))
    return message


def write(**message: Any) -> None:
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    sys.stdout.buffer.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    sys.stdout.buffer.flush()


def crash() -> None:
    print("Fatal: the stack of the type checker is gone", file=sys.stderr, flush=True)
    sys.exit(3)


def span(line: int, start: int, end: int) -> dict[str, Any]:
    return {"start": {"line": line, "character": start}, "end": {"line": line, "character": end}}


def answer(method: str, params: dict[str, Any], texts: dict[str, str]) -> Any:
    if HOW == "still-reading":
        return []
    if "item" in params:
        return [{"from": params["item"], "to": params["item"], "fromRanges": [span(0, 0, 1)] * 2}]
    uri = params["textDocument"]["uri"]
    if method == "textDocument/hover":
        line = texts[uri].splitlines()[params["position"]["line"]]
        return {"contents": {"kind": "plaintext", "value": f"the type of: {line}"}}
    if method == "textDocument/documentSymbol":
        of = {"name": "run", "kind": 6, "range": span(1, 0, 9), "selectionRange": span(1, 8, 9)}
        return [
            {
                "name": "Live",
                "kind": 5,
                "range": span(0, 0, 9),
                "selectionRange": span(0, 6, 9),
                "children": [of],
            }
        ]
    if method == "textDocument/prepareCallHierarchy":
        at = span(params["position"]["line"], 4, 9)
        return [{"name": "?", "kind": 12, "uri": uri, "range": at, "selectionRange": at}]
    if HOW == "narrow" or (HOW == "slow-reader" and method not in ASKED):
        ASKED.add(method)
        return [{"uri": uri, "range": span(20, 4, 9)}]
    if HOW == "slow-reader":
        files = ("core.py", "web.py", "__init__.py")
        return [{"uri": f"{uri.rpartition('/')[0]}/{name}", "range": span(0, 4, 9)} for name in files]
    outside = {"uri": "file:///usr/lib/typing.pyi", "range": span(1, 1, 2)}
    return [{"uri": uri, "range": span(0, 4, 9)}, outside]


def main() -> None:
    texts: dict[str, str] = {}
    crashes = HOW == "crash" or (HOW == "crash-once" and not Path(sys.argv[2]).exists())
    while True:
        message = read()
        method, params = message.get("method"), message.get("params") or {}
        if HOW == "crash-at-start":
            crash()
        if method == "initialize":
            # It asks back, as real ones do.
            write(id="q1", method="workspace/configuration", params={"items": [{}, {}]})
            providers = {} if HOW == "bare" else {f"{name}Provider": True for name in PROVIDERS}
            write(id=message["id"], result={"capabilities": providers})
        elif method == "textDocument/didOpen":
            texts[params["textDocument"]["uri"]] = params["textDocument"]["text"]
        elif method == "textDocument/didChange":
            texts[params["textDocument"]["uri"]] = params["contentChanges"][0]["text"]
        elif "id" in message and method:
            if HOW == "hang":
                time.sleep(3600)
            if HOW == "refuse":
                write(id=message["id"], error={"code": -32803, "message": "still loading"})
                continue
            if crashes:
                if HOW == "crash-once":
                    Path(sys.argv[2]).touch()
                crash()
            write(id=message["id"], result=answer(method, params, texts))


main()
