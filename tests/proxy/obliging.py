"""A server that does what a call's arguments say: says large things, waits, dies, starts others, tells on itself.

It speaks JSON-RPC by hand, so that it starts at once.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

MEGABYTE = 1 << 20
ROWS = {
    "type": "object",
    "properties": {"rows": {"type": "array"}},
    "required": ["rows"],
    "additionalProperties": False,
}

RESULT = {"type": "object", "properties": {"result": {"type": "string"}}, "required": ["result"]}


def say(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def answer(message: dict[str, Any], result: bytes) -> None:
    say(b'{"jsonrpc":"2.0","id":%b,"result":' % json.dumps(message["id"]).encode())
    say(result)
    say(b"}\n")


def large(kind: str, size: int) -> bytes:
    """A result of about so many bytes."""
    row = b'{"id":123,"name":"something here","v":[1, 2, 3]}'
    if kind == "text":
        line = b"hello world, a line of text\\n"
        return b'{"content":[{"type":"text","text":"%b"}]}' % (line * (size // len(line)))
    if kind == "wide":
        line = b"hello world, a line of text\\n"
        return b'{"content":[{"type":"text","text":"%b%b"}]}' % ("😀".encode(), line * (size // len(line)))
    if kind == "image":
        return b'{"content":[{"type":"image","mimeType":"image/png","data":"%b"}]}' % (b"QUJD" * (size // 4))
    if kind == "json":
        row = row.replace(b'"', b'\\"')
        return b'{"content":[{"type":"text","text":"[%b]"}]}' % b", ".join([row] * (size // (len(row) + 2)))
    if kind == "string":
        # JSON in a string, as the libraries wrap the text of a tool.
        row = row.replace(b'"', b'\\"')
        text = b"[%b]" % b", ".join([row] * (size // (2 * len(row) + 4)))
        return b'{"content":[{"type":"text","text":"%b"}],"structuredContent":{"result":"%b"}}' % (text, text)
    if kind == "typed in other words":
        # The text says what the structure says, with other escapes and other spaces.
        plain = '{"id":123,"name":"a café/bar here","v":[1,2,3]}'.encode()
        spelled = rb"{\"id\": 123, \"name\": \"a caf\\u00e9\\/bar here\", \"v\": [1, 2, 3]}"
        count = size // (len(plain) + len(spelled) + 3)
        text = rb"{\"rows\": [%b]}" % b", ".join([spelled] * count)
        document = b'{"rows":[%b]}' % b",".join([plain] * count)
        return b'{"content":[{"type":"text","text":"%b"}],"structuredContent":%b}' % (text, document)
    document = b'{"rows":[%b]}' % b",".join([row] * (size // (2 * len(row) + 14)))
    text = document.replace(b'"', b'\\"')
    return b'{"content":[{"type":"text","text":"%b"}],"structuredContent":%b}' % (text, document)


def call(message: dict[str, Any], arguments: dict[str, Any]) -> None:
    name = message["params"]["name"]
    if name in ("text", "wide", "image", "json", "string", "typed", "typed in other words"):
        answer(message, large(name, arguments["bytes"]))
    elif name == "error":
        said = b'{"jsonrpc":"2.0","id":%b,"error":{"code":1,"message":"%b"}}\n'
        say(said % (json.dumps(message["id"]).encode(), b"a line\\n" * (arguments["bytes"] // 8)))
    elif name == "chatty":
        # Time for the input to fill up; then an answer, and at once much more.
        time.sleep(0.3)
        answer(message, large("typed", 100_000))
        say(
            b'{"jsonrpc":"2.0","method":"notifications/message","params":"%b"}\n'
            % (b"x" * arguments["bytes"])
        )
    elif name == "flood":
        # News of the call, then its answer.
        token = json.dumps(message["params"]["_meta"]["progressToken"]).encode()
        for number in range(arguments["count"]):
            say(
                b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%b,'
                b'"progress":%d,"message":"%b"}}\n' % (token, number, b"x" * arguments["bytes"])
            )
        answer(message, b'{"content":[{"type":"text","text":"that is all"}]}')
    elif name == "late":
        # Reads nothing for a while.
        time.sleep(arguments["seconds"])
        answer(message, b'{"content":[{"type":"text","text":"at last"}]}')
    elif name == "exit":
        os._exit(arguments["code"])
    elif name == "die":
        if arguments.get("half"):
            say(b'{"jsonrpc":"2.0","id":')
        os.kill(os.getpid(), arguments["signal"])
    elif name == "silence":
        pass
    elif name == "hang":
        # Reads nothing more.
        while True:
            time.sleep(60)
    elif name == "family":
        # A child and its child, as with npx; all of them ignore polite requests.
        script = "import subprocess,sys,time,signal;signal.signal(15,signal.SIG_IGN);"
        inner = script + "time.sleep(600)"
        outer = (
            script + "p=subprocess.Popen([sys.executable,'-c',sys.argv[1]]);print(p.pid,flush=True);p.wait()"
        )
        child = subprocess.Popen([sys.executable, "-c", outer, inner], stdout=subprocess.PIPE)
        assert child.stdout is not None
        pids = [os.getpid(), child.pid, int(child.stdout.readline())]
        answer(message, json.dumps({"content": [{"type": "text", "text": json.dumps(pids)}]}).encode())
    elif name == "self":
        told = {"pid": os.getpid(), "group": os.getpgid(0), "environ": arguments.get("variable", "")}
        answer(message, json.dumps({"content": [{"type": "text", "text": json.dumps(told)}]}).encode())
    else:
        answer(message, b'{"content":[]}')


def catch(numbers: set[signal.Signals]) -> None:
    while True:
        os.write(2, b"caught %d\n" % signal.sigwait(numbers))


def main() -> None:
    # In a thread of their own: a handler would wait for the next line if a signal came just before it is read.
    numbers = {signal.SIGUSR1, signal.SIGHUP}
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    threading.Thread(target=catch, args=(numbers,), daemon=True).start()
    os.write(2, b"words for people\n")
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if message.get("method") == "tools/list":
            names = [
                "text",
                "wide",
                "image",
                "json",
                "exit",
                "die",
                "silence",
                "hang",
                "family",
                "self",
                "none",
            ]
            tools: list[dict[str, Any]] = [
                {"name": name, "inputSchema": {"type": "object"}} for name in names
            ]
            typed = {"inputSchema": {"type": "object"}, "outputSchema": ROWS}
            tools.append({"name": "string", "inputSchema": {"type": "object"}, "outputSchema": RESULT})
            tools += [{"name": name, **typed} for name in ("typed", "typed in other words")]
            answer(message, json.dumps({"tools": tools}).encode())
        elif message.get("method") == "tools/call":
            call(message, message["params"].get("arguments", {}))
        elif "id" in message:
            answer(message, b"{}")


main()
