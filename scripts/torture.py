"""Breaks what the proxy stands on, and counts what survived: `make torture ARGS="--rounds 250"`.

Strategy: real processes, in a folder of their own. *Survived* means that the client got a whole answer or a coded
failure to everything that it asked, as far as it was still there, and that every handle that it was ever told could
be read afterwards, to the end, by the code of a proxy that is started then. *Lost* is anything else.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.proxy import harness
from tests.proxy.harness import (
    OBLIGING,
    SRC,
    Running,
    Talk,
    call,
    frame,
    obliging,
    proxied,
    read_all,
    started,
)
from tests.vault.valkey_server import running_server

from mcp_envelope.vault.vault import open_vault

SIZE = 60_000
HANDLE = re.compile(r"handle\W+([A-Za-z0-9]{20,43})")
# Answers twice, late, to requests that nobody sent, in halves, and with bytes that are no frame.
UNRULY = r"""
import json, sys, time
text = "word " * 20_000
held = ""
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    if asked["method"] != "tools/call":
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": {"tools": []}}) + "\n")
        sys.stdout.flush()
        continue
    result = {"content": [{"type": "text", "text": text}]}
    right = json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result})
    kind = asked["params"]["name"]
    if kind == "late":
        held = right + "\n"
        continue
    right, held = held + right, ""
    said = {
        "twice": right + "\n" + right + "\n",
        "wrong": '{"jsonrpc":"2.0","id":"nobody","result":{}}\n{"jsonrpc":"2.0"}\n' + right + "\n",
        "noise": "no frame at all\n\n{\n[]\n" + right + "\n",
        "halves": right + "\n",
    }[kind]
    for part in (said[: len(said) // 2], said[len(said) // 2 :]):
        sys.stdout.write(part)
        sys.stdout.flush()
        time.sleep(0.01)
"""

# Stores one payload after the other, and says so after each.
WRITER = r"""
import os, sys
from mcp_envelope.payload import Payload
from mcp_envelope.vault.vault import new_handle, open_vault
vault = open_vault(sys.argv[1])
while True:
    handle = new_handle()
    assert vault.keep(handle, Payload(text=handle.encode() * 20_000), "tool") is None
    os.write(1, handle.encode() + b"\n")
"""
# The wall's clock, as it is said to be.
CLOCK = r"""
import os, time
_now, _jump = time.time, os.path.join(os.path.dirname(__file__), "jump")
def jumping():
    try:
        with open(_jump) as file:
            return _now() + float(file.read() or 0)
    except OSError:
        return _now()
time.time = jumping
"""
DAY = 86_400
# Seconds after which something counts as hanging: the machine may have other things to do.
LONG = 300.0


def handle_in(answer: Any) -> str | None:
    found = HANDLE.search(json.dumps(answer).replace("\\", ""))
    return found[1] if found else None


def answer_to(proxy: Running, identifier: Any) -> Any:
    """The answer to a request. What else the server said is skipped, as clients do."""
    while line := proxy.hear():
        try:
            answer = json.loads(line)
        except ValueError:
            continue
        if isinstance(answer, dict) and answer.get("id") == identifier:
            return answer
    raise EOFError("the proxy has ended")


def is_readable(proxy: Running, handle: str) -> bool:
    """Whether a stored result can be read, to its end."""

    def read(**asked: Any) -> Any:
        identifier = f"read {time.monotonic_ns()}"
        proxy.say(call(identifier, "envelope_read", {"handle": handle, **asked}))
        return answer_to(proxy, identifier)["result"]

    try:
        return len(read_all(read, "/content/0/text")) > SIZE // 2
    except AssertionError:
        return False


def are_readable(folder: Path, handles: Iterable[str]) -> bool:
    """The same, by a proxy that lives in this process."""
    talk = Talk(folder, tokens=8000)
    return all(len(talk.read_all(handle, "/content/0/text")) > SIZE // 2 for handle in handles)


def text(proxy: Running, identifier: int) -> Any:
    return proxy.ask(call(identifier, "text", {"bytes": SIZE}))


def proxy_killed(folder: Path) -> bool:
    """kill -9 of the proxy between and during calls: what it announced is there for the next one."""
    handles: list[str] = []
    with obliging(folder) as proxy:
        for number in range(3):
            handles += filter(None, [handle_in(text(proxy, number))])
        for number in range(3, 103):
            proxy.say(call(number, "text", {"bytes": SIZE}))
        time.sleep(random.random() * 0.05)
        proxy.process.kill()
        while line := proxy.hear():
            if line.endswith(b"\n"):
                handles += filter(None, [handle_in(json.loads(line))])
    return len(handles) >= 3 and are_readable(folder, handles)


def upstream_killed(folder: Path) -> bool:
    """kill -9 of the server, in the middle of a frame or not: every pending request is answered."""
    with obliging(folder) as proxy:
        handle = handle_in(text(proxy, 1))
        proxy.say(call(2, "silence"))
        proxy.say(call(3, "die", {"signal": 9, "half": random.random() < 0.5}))
        died = ["UPSTREAM_DIED" in json.dumps(answer_to(proxy, number)) for number in (2, 3)]
    return all(died) and handle is not None and are_readable(folder, [handle])


def writer_killed(folder: Path) -> bool:
    """kill -9 of a program that writes to the vault: what it said is there is there whole, and nothing in part."""
    command = [sys.executable, "-c", WRITER, str(folder / "vault.db")]
    with started(command, folder) as writer:
        said = [writer.hear().strip().decode()]
        time.sleep(random.random() * 0.05)
        writer.process.kill()
        while line := writer.hear():
            said += [line.strip().decode()] if line.endswith(b"\n") else []
    vault = open_vault(str(folder / "vault.db"))
    assert vault is not None
    try:
        there = {entry.handle for entry in vault.store.entries()}
        whole = [b"".join(vault.open(handle).stream()) == handle.encode() * 20_000 for handle in there]
        return set(said) <= there and all(whole)
    finally:
        vault.close()


def valkey_killed(folder: Path) -> bool:
    """kill -9 of Valkey while it is written to: calls are answered, and what was announced is there afterwards."""
    with (
        running_server(folder / "valkey") as valkey,
        obliging(folder, MCP_ENVELOPE_VAULT=valkey.url) as proxy,
    ):
        answers = [text(proxy, number) for number in range(2)]
        for number in range(2, 22):
            proxy.say(call(number, "text", {"bytes": SIZE}))
        time.sleep(random.random() * 0.03)
        valkey.kill()
        answers += [answer_to(proxy, number) for number in range(2, 22)]
        valkey.start()
        whole = all("content" in answer.get("result", {}) for answer in answers)
        handles = list(filter(None, map(handle_in, answers)))
        until = time.monotonic() + LONG
        while time.monotonic() < until:
            # "Try again in a moment", it says.
            proxy.say(call("again", "envelope_read", {"handle": handles[0]}))
            if "VAULT_UNAVAILABLE" not in json.dumps(answer_to(proxy, "again")):
                break
            time.sleep(0.05)
        return whole and len(handles) >= 2 and all(is_readable(proxy, handle) for handle in handles)


def clock_jumps(folder: Path) -> bool:
    """The wall's clock jumps: what has not expired by it is there, and the rest is said to be gone."""
    jump = folder / "jump"
    (folder / "sitecustomize.py").write_text(CLOCK)
    with obliging(folder, PYTHONPATH=f"{folder}{os.pathsep}{SRC}", MCP_ENVELOPE_VAULT_TTL="1h") as proxy:
        before = handle_in(text(proxy, 1))
        for number, seconds in enumerate((-DAY, random.uniform(-DAY, 3000), 0, -5, 3000), 2):
            jump.write_text(str(seconds))
            handle = handle_in(text(proxy, number))
            if handle is None or not is_readable(proxy, handle) or not is_readable(proxy, before or ""):
                return False
        jump.write_text(str(2 * DAY))
        gone = proxy.ask(call("gone", "envelope_read", {"handle": before}))
        after = handle_in(text(proxy, 9))
        return "HANDLE_EXPIRED" in json.dumps(gone) and after is not None and is_readable(proxy, after)


def disk_full(folder: Path) -> bool:
    """No file may grow past 40 KB: results are cut, say that nothing was kept, and name no handle."""
    shell = ["sh", "-c", 'ulimit -f 80; exec "$@"', "-"]
    with started([*shell, *proxied(*OBLIGING)], folder) as proxy:
        answers = [text(proxy, number) for number in range(5)]
        named = [handle for handle in map(handle_in, answers) if handle]
        whole = all("content" in answer.get("result", {}) for answer in answers)
        return whole and all(is_readable(proxy, handle) for handle in named)


def client_gone(folder: Path) -> bool:
    """The client vanishes while answers are on their way: the proxy and its server end by themselves."""
    with obliging(folder) as proxy:
        handle = handle_in(text(proxy, 1))
        for number in range(2, 12):
            proxy.say(call(number, "text", {"bytes": SIZE}))
        proxy.end_input()
        proxy.wait()
    with obliging(folder) as proxy:
        return handle is not None and is_readable(proxy, handle)


def slow_reader(folder: Path) -> bool:
    """A client that asks a lot before it reads anything gets all answers."""
    with obliging(folder, reading=False) as proxy:
        for number in range(30):
            proxy.say(call(number, "text", {"bytes": SIZE}))
        time.sleep(0.3)
        assert proxy.process.stdout is not None
        return {json.loads(proxy.process.stdout.readline())["id"] for _ in range(30)} == set(range(30))


def unruly_server(folder: Path) -> bool:
    """Answers twice, late, to nobody, in halves, with noise between them: each call gets its own answer, cut."""
    with started(proxied(sys.executable, "-c", UNRULY), folder) as proxy:
        for number, kind in enumerate(("twice", "late", "wrong", "noise", "late", "halves") * 2):
            proxy.say(call(number, kind))
            if kind == "late":
                told = {"method": "notifications/cancelled", "params": {"requestId": number}}
                proxy.say(frame({"jsonrpc": "2.0", **told}))
                continue
            answer = answer_to(proxy, number)
            handle = handle_in(answer)
            if len(json.dumps(answer)) > 80_000 or handle is None or not is_readable(proxy, handle):
                return False
    return True


def one_vault(count: int) -> Callable[[Path], bool]:
    """So many proxies on one vault file, at once."""

    def run(folder: Path) -> bool:
        @contextmanager
        def several(number: int) -> Iterator[list[Running]]:
            if not number:
                yield []
                return
            with obliging(folder) as one, several(number - 1) as others:
                yield [one, *others]

        handles: list[str | None] = []
        with several(count) as proxies:
            for number in range(3):
                for proxy in proxies:
                    proxy.say(call(number, "text", {"bytes": SIZE}))
                handles += [handle_in(json.loads(proxy.hear())) for proxy in proxies]
        with obliging(folder) as proxy:
            return all(handle is not None and is_readable(proxy, handle) for handle in handles)

    return run


def survives(fault: Callable[[Path], bool]) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        try:
            return fault(Path(folder))
        except Exception:  # whatever it is, the round is lost
            traceback.print_exc()
            return False


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=10, help="how often each fault is tried (default: 10)")
    parser.add_argument(
        "--proxies", type=int, default=20, help="how many proxies share a vault (default: 20)"
    )
    parser.add_argument("--jobs", type=int, default=1, help="rounds at the same time (default: 1)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append", metavar="FAULT", help="only this fault; may be repeated")
    asked = parser.parse_args()
    random.seed(asked.seed)
    harness.PATIENCE = LONG
    faults = {
        "proxy killed": (proxy_killed, asked.rounds),
        "server killed": (upstream_killed, asked.rounds),
        "writer killed": (writer_killed, asked.rounds),
        "Valkey killed": (valkey_killed, asked.rounds),
        "disk full": (disk_full, asked.rounds),
        "clock jumps": (clock_jumps, asked.rounds),
        "client gone": (client_gone, asked.rounds),
        "slow reader": (slow_reader, asked.rounds),
        "unruly server": (unruly_server, asked.rounds),
        f"{asked.proxies} proxies, one vault": (one_vault(asked.proxies), 1),
    }
    if unknown := set(asked.only or ()) - {*faults}:
        parser.error(f"no such fault: {', '.join(unknown)}; there are {', '.join(faults)}")
    any_lost = False
    print(f"{'fault':24} {'tried':>6} {'survived':>9} {'lost':>5}")
    for name in asked.only or faults:
        fault, rounds = faults[name]
        with ThreadPoolExecutor(asked.jobs) as pool:
            survived = sum(pool.map(survives, [fault] * rounds))
        any_lost |= survived < rounds
        print(f"{name:24} {rounds:6} {survived:9} {rounds - survived:5}", flush=True)
    return int(any_lost)


if __name__ == "__main__":
    os.nice(5)
    sys.exit(main())
