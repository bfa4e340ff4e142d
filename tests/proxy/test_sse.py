"""Server-sent events: the same events wherever the stream is split, and no byte changes needlessly."""

from __future__ import annotations

from itertools import pairwise

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_envelope.proxy import sse

_LINES = st.sampled_from(
    [
        *(
            b"data: {}",
            b"data:x",
            b"data",
            b"data:  two",
            b"event: message",
            b"event: other",
            b"id: 7",
            b"id",
        ),
        *(
            b": ping",
            b":",
            b"retry: 50",
            b"retry: soon",
            b"unknown: 1",
            b"",
            b"datas: no",
            b"a line without end",
        ),
    ]
)
_ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


@st.composite
def _streams(draw: st.DrawFn) -> bytes:
    """Lines with line ends of one kind or mixed; the last event may be incomplete."""
    ends = draw(_ENDS.map(st.just)) if draw(st.booleans()) else _ENDS
    return b"".join(line + draw(ends) for line in draw(st.lists(_LINES, max_size=14)))


def _split(stream: bytes, cuts: list[int]) -> tuple[list[sse.Event], bytes]:
    splitter = sse.Splitter(1 << 30)
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    events: list[sse.Event] = []
    for start, end in pairwise(places):
        events += splitter.feed(stream[start:end])
    return events, splitter.rest()


def _told(events: list[sse.Event]) -> list[tuple[bytes | None, bytes, bytes | None, int | None]]:
    """What events say; empty ones say nothing."""
    return [event[1:5] for event in events if event[1:5] != (None, b"message", None, None)]


@given(_streams(), st.lists(st.integers(0, 200), max_size=40))
def test_events_do_not_depend_on_chunks(stream: bytes, cuts: list[int]) -> None:
    at_once, _ = _split(stream, [])
    events, rest = _split(stream, cuts)
    assert _told(events) == _told(at_once)
    assert b"".join(event.raw for event in events) + rest == stream


@given(_streams().map(lambda stream: stream + b"\n\n"))
def test_data_is_what_httpx_reads(stream: bytes) -> None:
    # It also splits at the line separators of Unicode, which these streams do not have.
    headers = {"content-type": "text/event-stream"}
    asked = httpx2.Request("GET", "http://127.0.0.1/")
    response = httpx2.Response(200, headers=headers, content=stream, request=asked)
    theirs = [each.data for each in httpx2.EventSource(response) if each.data]
    ours = [event.data.decode() for event in _split(stream, [])[0] if event.data]
    assert ours == theirs


@given(_streams(), st.binary(max_size=30).map(lambda data: data.replace(b"\r", b"")))
def test_replacing_the_data_keeps_the_rest(stream: bytes, data: bytes) -> None:
    for event in _split(stream, [])[0]:
        if event.data is None:
            continue
        (changed,) = sse.Splitter(1 << 20).feed(event.with_data(data))
        assert changed.data == data
        assert (changed.name, changed.id, changed.retry) == (event.name, event.id, event.retry)


@pytest.mark.parametrize("data", [b"{}", b"two\nlines", b"\n", b""])
def test_an_event_of_our_own(data: bytes) -> None:
    (event,) = sse.Splitter(1 << 20).feed(sse.message(data))
    assert (event.name, event.data) == (b"message", data)


def test_a_byte_order_mark() -> None:
    (event,) = sse.Splitter(100).feed(b"\xef\xbb\xbfdata: x\n\n")
    assert event.data == b"x"
    assert event.raw.startswith(b"\xef\xbb\xbf")


@pytest.mark.parametrize("before", [b"", b"id: 7\n", b": hello\n"])
def test_replacing_the_data_after_a_byte_order_mark(before: bytes) -> None:
    (event,) = sse.Splitter(100).feed(b"\xef\xbb\xbf" + before + b"data: x\ndata\n\n")
    (changed,) = sse.Splitter(100).feed(event.with_data(b"y"))
    assert (changed.data, changed.id) == (b"y", event.id)


def test_an_event_ends_with_its_blank_line() -> None:
    # Waiting for the second half of a line end would hold back an answer.
    for end in (b"\n\n", b"\r\n\r\n", b"\r\r"):
        assert len(list(sse.Splitter(100).feed(b"data: x" + end))) == 1


def test_an_event_of_many_megabytes_is_one_event() -> None:
    data = b'{"rows":[' + b'{"id":1,"name":"some name"},' * 800_000 + b"{}]}"
    stream = sse.message(data)
    events, rest = _split(stream, list(range(0, len(stream), 1 << 16)))
    assert [event.data for event in events] == [data]
    assert rest == b""


def test_an_event_of_many_lines() -> None:
    lines = [b"%d" % number for number in range(300_000)]
    (event,) = sse.Splitter(1 << 30).feed(b"".join(b"data: %b\r\n" % line for line in lines) + b"\r\n")
    assert event.data == b"\n".join(lines)


def test_the_size_of_an_event_is_limited() -> None:
    splitter = sse.Splitter(1000)
    assert len(list(splitter.feed(b"data: x\n\n" * 500))) == 500
    with pytest.raises(sse.TooLong, match="more than 1000 bytes"):
        list(splitter.feed(b"data: " + b"x" * 1000))
