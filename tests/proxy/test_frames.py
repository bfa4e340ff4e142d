"""The members of a frame are read correctly, whatever it holds, and everything else keeps its bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from mcp_envelope.proxy import frames

from ..conftest import examples
from ..strategies import small_values

DEEP = b"[" * 100_000 + b"]" * 100_000


def part(frame: frames.Frame | None, name: str) -> bytes | None:
    value = getattr(frame, name)
    return None if value is UNSET else bytes(value)


def test_the_members_of_a_request() -> None:
    frame = frames.read(b' {"jsonrpc": "2.0", "id" : 1.0, "method":"tools\\/call", "params": {"a": 1e400}}\r')
    assert frame is not None
    assert frame.method == "tools/call"
    assert part(frame, "params") == b'{"a": 1e400}'
    assert part(frame, "id") == b"1.0"
    assert frame.key == frames.id_key(b"1")
    assert not frame.is_response


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b"1", b"1.0"),
        (b"100", b"1e2"),
        (b'"a"', b'"\\u0061"'),
        (b"123456789012345678901234567890", b"123456789012345678901234567890"),
        (b"1e400", b"1E400"),
        (b'"\\ud83d"', b'"\\uD83D"'),
        (b"0.5", b"5e-1"),
    ],
)
def test_ids_are_equal_however_they_are_spelled(one: bytes, other: bytes) -> None:
    assert frames.id_key(one) == frames.id_key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b"1", b'"1"'),
        (b"1", b"true"),
        (b"null", b'"null"'),
        (b"9007199254740993", b"9007199254740992"),
        (b"1e400", b"2e400"),
        (b"[1]", b"1"),
    ],
)
def test_ids_that_differ(one: bytes, other: bytes) -> None:
    assert frames.id_key(one) != frames.id_key(other)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not json",
        b"[1,2]",
        b'"text"',
        b"5",
        b'{"id":1',
        b'{"id":1} {"id":2}',
        b'{"id":01}',
        DEEP,
        b"{" * 5000,
        b"}" * 5000,
        b'{"id":1,"result":' + DEEP[:150_000],
    ],
)
def test_what_is_not_a_message(data: bytes) -> None:
    assert frames.read(data) is None


def test_a_byte_order_mark_hides_nothing() -> None:
    """JavaScript's `fetch` drops it."""
    frame = frames.read(b'\xef\xbb\xbf{"id":1,"result":{}}')
    assert frame is not None
    assert frame.key == ("n", 1)
    assert frames.read_batch(b"\xef\xbb\xbf[{}]") == [b"{}"]


def test_half_a_surrogate_pair_hides_nothing() -> None:
    frame = frames.read(rb'{"id":"a\ud83d","result":{"content":[{"type":"text","text":"\udc00"}]}}')
    assert frame is not None
    assert part(frame, "result") == rb'{"content":[{"type":"text","text":"\ufffd"}]}'


@pytest.mark.parametrize("method", [b"null", b"5", b"{}", b'"\xff"'])
def test_a_method_that_is_not_a_string_hides_nothing(method: bytes) -> None:
    frame = frames.read(b'{"id":1,"method":%b,"result":{}}' % method)
    assert frame is not None
    assert frame.is_response
    assert part(frame, "result") == b"{}"


def test_the_last_of_equal_keys_counts() -> None:
    frame = frames.read(b'{"id":1,"id":2,"method":"ping"}')
    assert frame is not None
    assert frame.key == ("n", 2)


def test_a_hundred_thousand_levels() -> None:
    data = rb'{"jsonrpc":"2.0","\u0069d":7,"result":{"content":[],"x":' + DEEP + rb'},"method":"p\u0069ng"}'
    frame = frames.read(data)
    assert frame is not None
    assert (part(frame, "id"), frame.method) == (b"7", "ping")
    assert part(frame, "result") == b'{"content":[],"x":' + DEEP + b"}"


def test_batches() -> None:
    assert frames.read_batch(b' [ {"id": 1} ,5,[]]') == [b'{"id": 1}', b"5", b"[]"]
    assert frames.read_batch(b"[]") == []
    assert frames.read_batch(b'{"id":1}') is None
    assert frames.read_batch(b"[1,") is None
    assert frames.read_batch(b"[" * 1_000_000 + b"]" * 1_000_000) is None


def test_replacing_members_keeps_the_others_unchanged() -> None:
    data = rb' {"a" : 1.0, "\u0062": 1e400 ,"c":"\u00e9", "d":12345678901234567890123456789012} '
    changed = frames.replaced(data, {"a": b"2", "e": b"[]", "c": None})
    assert changed == rb'{"a":2,"\u0062":1e400,"d":12345678901234567890123456789012,"e":[]}'


def test_values_of_the_wrong_type() -> None:
    assert frames.members_of(UNSET) == {}
    assert frames.members_of(Raw(b"[1]")) == {}
    assert frames.members_of(Raw(b"null")) == {}
    assert frames.members_of(Raw(DEEP)) == {}
    assert frames.text_of(b'"\\ud800"') == "�"
    assert frames.text_of(b"5") is None


@settings(max_examples=examples(60))
@given(st.dictionaries(st.sampled_from(["id", "method", "params", "result", "error", "x"]), small_values))
def test_the_members_are_what_json_says(message: dict[str, Any]) -> None:
    data = json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogatepass")
    frame = frames.read(data)
    if any(0xD800 <= ord(char) < 0xE000 for char in json.dumps(message, ensure_ascii=False)):
        return
    assert frame is not None
    assert (frame.method == message.get("method")) or not isinstance(message.get("method"), str)
    for name in ("id", "params", "result", "error"):
        raw = part(frame, name)
        # An error that is null is none.
        is_there = name in message and (name, message[name]) != ("error", None)
        assert (raw is not None) == is_there
        if raw is not None:
            assert json.loads(raw) == message[name]


@settings(max_examples=examples(300))
@given(st.binary(max_size=80), st.integers(0, 60), st.binary(max_size=4))
def test_no_bytes_raise_an_exception(noise: bytes, at: int, more: bytes) -> None:
    sound = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}'
    for data in (noise, sound[:at] + more + sound[at + 1 :], sound[:at] + noise):
        frames.read(data)
        frames.read_batch(data)
        frames.id_key(data)
        frames.members_of(Raw(data))
