"""Cuts in plain text and in JSON strings: at lines, between characters, never inside one."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_envelope.fit.outline import notable_lines, outline
from mcp_envelope.fit.text import Ends, fit_text, string_head
from mcp_envelope.jsontext.document import string_cut, unescaped


def test_text_is_cut_at_a_line() -> None:
    text = "".join(f"line {n}\n" for n in range(1000)).encode()
    fitted = fit_text(text, 400)
    assert fitted is not None
    head, _, mark = fitted.text.rpartition(b"\n")
    assert text.startswith(head + b"\n")
    assert mark.decode() == f"… [lines {fitted.kept_lines + 1} to 1000 left out]"
    assert len(fitted.text) <= 400
    assert fitted.kept_lines == head.count(b"\n") + 1


def test_an_error_keeps_its_beginning_and_its_end() -> None:
    text = "".join(f"line {n}\n" for n in range(1000)).encode()
    fitted = fit_text(text, 400, "both")
    assert fitted is not None
    assert fitted.text.startswith(b"line 0\nline 1\n")
    assert fitted.text.endswith(b"line 998\nline 999\n")
    assert fitted.offset < fitted.kept


def test_a_text_without_lines_is_cut_between_characters() -> None:
    fitted = fit_text("漢字".encode() * 1000, 200)
    assert fitted is not None
    assert fitted.text.decode().startswith("漢字漢字")
    assert fitted.total == 2000


@given(st.text(max_size=400), st.integers(0, 500), st.sampled_from(["head", "both"]))
def test_any_text_fits(text: str, room: int, ends: str) -> None:
    fitted = fit_text(text.encode(), room, ends)  # type: ignore[arg-type]
    if fitted is None:
        assert room < 3
        return
    assert len(fitted.text) <= room or fitted.text == text.encode()
    fitted.text.decode()
    assert fitted.total == len(text)
    if fitted.kept < fitted.total:
        assert fitted.text.decode().startswith(text[: fitted.offset])
        if ends == "both":
            tail = fitted.kept - fitted.offset
            assert fitted.text.decode().endswith(text[len(text) - tail :])
    else:
        assert fitted.text.decode() == text


escaped = st.one_of(
    st.text(max_size=80).map(lambda text: json.dumps(text, ensure_ascii=True)),
    st.text(max_size=80).map(lambda text: json.dumps(text, ensure_ascii=False)),
    st.text('\\"\n/u😀é漢dD8c0', max_size=60).map(json.dumps),
)


@given(escaped, st.integers(1, 500))
def test_a_json_string_is_cut_where_it_may_be(raw: str, limit: int) -> None:
    body = raw.encode()
    at = string_cut(body, min(limit, len(body) - 1))
    assert at <= limit
    kept = json.loads(body[:at] + b'"')
    assert json.loads(raw).startswith(kept)
    kept.encode()  # no half of a pair
    assert limit - at < 12 or at >= len(body) - 1


@given(escaped, st.integers(5, 200), st.integers(0, 60))
def test_the_head_of_a_json_string(raw: str, room: int, min_length: int) -> None:
    text = json.loads(raw)
    if len(raw.encode()) <= room:
        return
    fitted = string_head(raw.encode(), len(text), room, min_length)
    if fitted is None:
        return
    body, kept = fitted
    assert len(body) <= room
    shown = json.loads(body)
    assert shown.startswith(text[:kept])
    assert min_length <= len(shown) <= len(text)
    assert shown.endswith(("…", f"… [+{len(text) - kept} chars]"))


@pytest.mark.parametrize("room", [5, 20, 60])
def test_a_long_string_always_has_a_head(room: int) -> None:
    assert string_head(b'"%b"' % (b"x" * 500), 500, room) is not None


@given(
    st.lists(st.sampled_from(["\\", '"', "\n", "é", "漢", "😀", "a", "\x01"]), max_size=120),
    # A pair of escapes has twelve bytes, and no piece is smaller.
    st.integers(12, 40),
    st.booleans(),
)
def test_a_long_string_is_unescaped_piece_by_piece(chars: list[str], piece: int, ascii_only: bool) -> None:
    said = "".join(chars)
    raw = json.dumps(said, ensure_ascii=ascii_only).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mcp_envelope.jsontext.document._PIECE", piece)
        assert unescaped(raw) == said.encode()


def test_a_long_run_of_backslashes_is_not_walked_over_and_over() -> None:
    assert unescaped(b'"%b"' % (rb"\\\\" * 1_000_000)) == rb"\\" * 1_000_000


LOG = "".join(
    f"12:{n % 60:02} line {n} {'ERROR disk full' if n in (412, 733) else 'ok'}\n" for n in range(1, 1001)
)


@pytest.mark.parametrize("ends", ["head", "tail", "both"])
@pytest.mark.parametrize("room", [300, 700, 1500, 9000])
def test_lines_that_matter_stay_and_every_gap_is_told(ends: Ends, room: int) -> None:
    text = LOG.encode()
    fitted = fit_text(text, room, ends, notable=notable_lines(text, ("line 500 ",)))
    assert fitted is not None
    assert len(fitted.text) <= room
    shown: list[int] = []
    for line in fitted.text.decode().splitlines():
        if gap := re.fullmatch(r"… \[lines (\d+) to (\d+) left out\]", line):
            shown.extend(range(int(gap[1]), int(gap[2]) + 1))
        else:
            assert line + "\n" in LOG
            shown.append(int(line.split()[2]))
    assert shown == list(range(1, 1001))
    assert fitted.kept_lines == sum(line[:1] != "…" for line in fitted.text.decode().splitlines())
    if room >= 1500:
        assert b"line 412 ERROR" in fitted.text
        assert b"line 500 " in fitted.text
    if ends != "head":
        assert b"line 1000 " in fitted.text


def test_a_text_of_one_line_says_how_many_characters_are_missing() -> None:
    fitted = fit_text("é".encode() * 5000, 300, "tail")
    assert fitted is not None
    marks = [int(count) for count in re.findall(r"\[(\d+) characters left out\]", fitted.text.decode())]
    assert fitted.kept + sum(marks) == 5000


def test_outlines() -> None:
    diff = "diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1 +1,2 @@\n-old\n+new\n+newer\n"
    diff += "diff --git a/y/z.md b/y/z.md\n--- /dev/null\n+++ b/y/z.md\n@@ -0,0 +1 @@\n+text\n"
    made = outline(diff.encode())
    assert made is not None
    assert made.within(500) == {"files": ["x.py +2 -1", "y/z.md +1 -0"]}
    made = outline(b"# One\n\ntext\n\n## Two\n\n### Three\n")
    assert made is not None
    assert made.within(500) == {"headings": ["1: # One", "5: ## Two", "7: ### Three"]}
    made = outline(b"import os\n\nclass A:\n    def b(self):\n        pass\n\nasync def c():\n    pass\n")
    assert made is not None
    assert made.within(500)["definitions"] == ["3: class A:", "4: def b(self):", "7: async def c():"]
    made = outline(b"name,size\n" + b"".join(b"n%d,%d\n" % (n, n) for n in range(100)))
    assert made is not None
    assert made.fields["size"]["sum"] == 4950
    log = "".join(f"2026-01-01 {'ERROR' if n == 7 else 'INFO'} message {n}\n" for n in range(100))
    made = outline(log.encode())
    assert made is not None
    assert made.within(500) == {"levels": ["INFO: 99", "ERROR: 1"]}
    assert outline(b"just some prose\nin two lines\n") is None
    long = outline(b"".join(b"# Heading %d\n" % n for n in range(1000)))
    assert long is not None
    shown = long.within(300)
    assert len(shown["headings"]) + shown["more"] == 1000


def test_what_looks_like_a_heading_in_code_is_none() -> None:
    text = b"# One\n\n```bash\n# not this\n~~~\n```sh\n# nor this\n```\n## Two\n"
    made = outline(text + b"~~~~\n# no\n~~~\n# no\n~~~~\n# Three\n")
    assert made is not None
    assert made.within(500) == {"headings": ["1: # One", "9: ## Two", "15: # Three"]}
