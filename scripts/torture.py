"""Breaks what the stdio proxy stands on, and counts what survived: `make torture ARGS="--rounds 250"`.

Strategy: real processes, in a folder of their own. *Survived* means that the client got a whole answer or a coded
failure to everything that it asked, as far as it was still there, and that every handle that it was ever told could
be read afterwards, to the end. *Lost* is anything else.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.proxy.harness import OBLIGING, Running, call, obliging, proxied, read_all, started

SIZE = 60_000
HANDLE = re.compile(r"handle\W+([A-Za-z0-9]{20,43})")
# Answers twice, late, to requests that nobody sent, in halves, and with bytes that are no frame.
UNRULY = r"""
import json, sys, time
text = "word " * 20_000
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
    with obliging(folder) as proxy:
        return len(handles) >= 3 and all(is_readable(proxy, handle) for handle in handles)


def upstream_killed(folder: Path) -> bool:
    """kill -9 of the server, in the middle of a frame or not: every pending request is answered."""
    with obliging(folder) as proxy:
        handle = handle_in(text(proxy, 1))
        proxy.say(call(2, "silence"))
        proxy.say(call(3, "die", {"signal": 9, "half": random.random() < 0.5}))
        died = ["UPSTREAM_DIED" in json.dumps(answer_to(proxy, number)) for number in (2, 3)]
    with obliging(folder) as proxy:
        return all(died) and handle is not None and is_readable(proxy, handle)


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
        for number, kind in enumerate(("twice", "wrong", "noise", "halves") * 2):
            proxy.say(call(number, kind))
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
        for _ in range(-(-count // 20)):
            with several(min(count, 20)) as proxies:
                for proxy in proxies:
                    proxy.say(call(1, "text", {"bytes": SIZE}))
                handles += [handle_in(json.loads(proxy.hear())) for proxy in proxies]
        with obliging(folder) as proxy:
            return all(handle is not None and is_readable(proxy, handle) for handle in handles)

    return run


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=10, help="how often each fault is tried (default: 10)")
    parser.add_argument(
        "--proxies", type=int, default=20, help="how many proxies share a vault (default: 20)"
    )
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    random.seed(asked.seed)
    faults = {
        "proxy killed": (proxy_killed, asked.rounds),
        "server killed": (upstream_killed, asked.rounds),
        "disk full": (disk_full, asked.rounds),
        "client gone": (client_gone, asked.rounds),
        "slow reader": (slow_reader, asked.rounds),
        "unruly server": (unruly_server, asked.rounds),
        f"{asked.proxies} proxies, one vault": (one_vault(asked.proxies), 1),
    }
    any_lost = False
    print(f"{'fault':24} {'tried':>6} {'survived':>9} {'lost':>5}")
    for name, (fault, rounds) in faults.items():
        survived = 0
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as folder:
                try:
                    survived += fault(Path(folder))
                except Exception as error:  # whatever it is, the round is lost
                    print(f"  {name}: {error!r}", file=sys.stderr)
        any_lost |= survived < rounds
        print(f"{name:24} {rounds:6} {survived:9} {rounds - survived:5}", flush=True)
    return int(any_lost)


if __name__ == "__main__":
    os.nice(5)
    sys.exit(main())
