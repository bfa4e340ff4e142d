"""What goes in comes out, byte for byte, except for lists and for results that are over the budget."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

import pytest

from mcp_envelope.vault.ledger import Ledger

from .conversation import EVERYTHING, LARGE, LISTS, ODD, OLDER, STATELESS, UNTOUCHED, Line
from .harness import HERE, PATIENCE, Talk, environment, proxied, started


def passes(talk: Talk, conversation: list[Line]) -> None:
    for who, data in conversation:
        if who == "C":
            assert talk.send(data) == ([], [data])
        else:
            assert talk.reply(data) == ([data], [])


@pytest.mark.parametrize("conversation", [OLDER, STATELESS, ODD], ids=["older", "stateless", "odd"])
@pytest.mark.parametrize("listed", [False, True])
def test_every_kind_of_message_passes(tmp_path: Path, conversation: list[Line], listed: bool) -> None:
    talk = Talk(tmp_path, tokens=8000)
    if listed:
        for who, data in LISTS:
            _ = talk.send(data) if who == "C" else talk.reply(data)
    passes(talk, conversation)


def test_lists_and_large_results_do_not(tmp_path: Path) -> None:
    talk = Talk(tmp_path)
    changed = []
    for who, data in LISTS + LARGE:
        back, onward = talk.send(data) if who == "C" else talk.reply(data)
        if (onward if who == "C" else back) != [data]:
            changed.append(data)
    # Both lists, the budget that is taken out, the result, our own tool; its error comes from nowhere, and passes.
    assert changed == [LISTS[1][1], LISTS[3][1], *[data for _, data in LARGE[:3]]]


def test_observing_changes_nothing_at_all(tmp_path: Path) -> None:
    passes(Talk(tmp_path, tokens=200, observe=True), EVERYTHING)


def through(tmp_path: Path, conversation: list[Line], *options: str, end: bytes = b"") -> tuple[bytes, bytes]:
    """What the server heard and what the client heard, with a proxy between them."""
    script, heard = tmp_path / "conversation", tmp_path / "heard"
    total = 0
    steps = []
    for who, data in conversation:
        total += len(data) + 1 if who == "C" else 0
        steps.append(f"C {total}\n" if who == "C" else f"S {data.hex()}0a\n")
    script.write_text("".join(steps) + (f"S {end.hex()}\n" if end else ""))
    command = proxied(sys.executable, str(HERE / "replay.py"), str(script), str(heard), options=options)
    with started(command, tmp_path, reading=False) as proxy:
        got: list[bytes] = []

        def listen() -> None:
            assert proxy.process.stdout is not None
            while chunk := os.read(proxy.process.stdout.fileno(), 1 << 16):
                got.append(chunk)

        listener = threading.Thread(target=listen)
        listener.start()
        proxy.send(b"".join([data + b"\n" for who, data in conversation if who == "C"]) + end)
        proxy.end_input()
        listener.join(PATIENCE)
        assert proxy.wait() == 0
    return heard.read_bytes(), b"".join(got)


def spoken(conversation: list[Line], who: str) -> bytes:
    return b"".join([data + b"\n" for one, data in conversation if one == who])


def test_through_the_process(tmp_path: Path) -> None:
    """All of it at once; the last line of either side has no end."""
    heard, got = through(tmp_path, UNTOUCHED, "--tokens", "8000", end=b'{"no end":1')
    assert heard == spoken(UNTOUCHED, "C") + b'{"no end":1'
    # Requests that nobody answered are told that the server is gone, each on a line of its own.
    there = spoken(UNTOUCHED, "S") + b'{"no end":1'
    assert got.startswith(there)
    rest = got.removeprefix(there)
    assert rest.startswith(b"\n")
    assert {json.loads(line)["id"] for line in rest.splitlines() if line and b'{"a":1}' not in line} >= {"l"}


def test_through_the_process_that_only_observes(tmp_path: Path) -> None:
    heard, got = through(tmp_path, EVERYTHING, "--tokens", "200", "--observe", end=b"{")
    assert heard == spoken(EVERYTHING, "C") + b"{"
    assert got == spoken(EVERYTHING, "S") + b"{"
    ledger = Ledger(Path(environment(tmp_path)["XDG_STATE_HOME"]) / "mcp-envelope" / "ledger.db")
    assert ledger.totals() == []
    [total] = ledger.totals(observed=True)
    ledger.close()
    assert total.cut >= 1
    assert total.tokens_saved > 10_000
    assert not Path(environment(tmp_path)["MCP_ENVELOPE_VAULT"]).exists()
