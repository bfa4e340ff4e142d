"""Cuts in plain text and in JSON strings: at lines, between characters, never inside one."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_envelope.fit.outline import notable_lines, outline, table_of
from mcp_envelope.fit.survey import Words
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
    fitted = fit_text(text, room, ends, notable=notable_lines(text, Words({"q": "line 500 "})))
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
    assert made.within(500) == {
        "told": "2 files +3 -1, largest first",
        "files": ["x.py +2 -1", "y/z.md +1 -0"],
    }
    made = outline(b"# One\n\ntext\n\n## Two\n\n### Three\n")
    assert made is not None
    assert made.within(500) == {
        "told": "3 headings",
        "headings": ["1: # One", "5: ## Two", "7: ### Three"],
    }
    made = outline(b"import os\n\nclass A:\n    def b(self):\n        pass\n\nasync def c():\n    pass\n")
    assert made is not None
    assert made.within(500) == {
        "told": "3 definitions: 2 def, 1 class",
        "definitions": ["3: class A:", "4: def b(self):", "7: async def c():"],
    }
    # In less room, without what a function takes.
    assert made.within(115)["definitions"] == ["3: class A", "4: b", "7: c"]
    table = b"name,size\n" + b"".join(b"n%d,%d\n" % (n, n) for n in range(100))
    made = outline(table, table=table_of(table))
    assert made is not None
    assert made.fields["size"]["sum"] == 4950
    log = "".join(f"2026-01-01 {'ERROR' if n == 7 else 'INFO'} message {n}\n" for n in range(100))
    made = outline(log.encode())
    assert made is not None
    assert made.within(500) == {"told": "lines with each word", "linesWith": ["info: 99", "error: 1"]}
    assert outline(b"just some prose\nin two lines\n") is None
    long = outline(b"".join(b"# Heading %d\n" % n for n in range(1000)))
    assert long is not None
    shown = long.within(300)
    *first, gap, last = shown["headings"]
    assert last == "1000: # Heading 999"
    assert gap == f"… {999 - len(first)} more"
    assert len(json.dumps(shown, ensure_ascii=False, separators=(",", ":")).encode()) <= 300


def test_what_looks_like_a_heading_in_code_is_none() -> None:
    text = b"# One\n\n```bash\n# not this\n~~~\n```sh\n# nor this\n```\n## Two\n"
    made = outline(text + b"~~~~\n# no\n~~~\n# no\n~~~~\n# Three\n")
    assert made is not None
    assert made.within(500)["headings"] == ["1: # One", "9: ## Two", "15: # Three"]


def outlined(text: str, room: int = 2000) -> dict[str, Any]:
    made = outline(text.encode(), table=table_of(text.encode()))
    assert made is not None
    return made.within(room)


def test_the_files_with_the_most_changes_come_first() -> None:
    counts = [(number * 37 % 101, number % 5) for number in range(100)]
    text = "".join(
        f"diff --git a/f{number}.py b/f{number}.py\n--- a/f{number}.py\n+++ b/f{number}.py\n@@ -1 +1 @@\n"
        + "+new\n" * added
        + "-old\n" * removed
        for number, (added, removed) in enumerate(counts)
    )
    made = outlined(text, 400)
    added, removed = map(sum, zip(*counts, strict=True))
    assert made["told"] == f"100 files +{added} -{removed}, largest first"
    *first, gap, last = made["files"]
    ordered = sorted(range(100), key=lambda number: -sum(counts[number]))
    assert [int(entry[1 : entry.index(".")]) for entry in first] == ordered[: len(first)]
    assert gap == f"… {99 - len(first)} more"
    assert last.startswith(f"f{ordered[-1]}.py ")


def test_the_commits_of_a_log() -> None:
    text = "".join(
        f"commit {number:040x}\n{'Merge: 1 2' + chr(10) if number == 3 else ''}Author: A <a@example.com>\n"
        f"Date:   Thu Jan 1 00:00:00 2026 +0000\n\n    Change {number}\n\n    commit 1234567 is older\n\n"
        for number in range(9, -1, -1)
    )
    made = outlined(text.replace("0" * 39, "abcdef1" + "0" * 32))
    assert made["told"] == "10 commits"
    assert made["commits"][0] == "abcdef1 Change 9"
    assert len(made["commits"]) == 10


def test_what_a_compiler_and_a_linter_report_is_counted() -> None:
    tsc = "".join(
        f"a.ts({n},7): error TS{(2304, 2339)[n % 3 == 0]}: wrong\n  more of it\n" for n in range(30)
    )
    assert outlined(tsc)["linesWith"] == ["error: 30", "TS2304: 20", "TS2339: 10"]
    ruff = (
        "".join(f"src/a.py:{n}:80: E501 Line too long\n" for n in range(20)) + "Found 20 errors.\n[warning]\n"
    )
    assert outlined(ruff + "warning: a\nwarning: b\n")["linesWith"] == ["warning: 3", "E501: 20"]
    rust = "".join(f"error[E0308]: mismatched types\n --> src/main.rs:{n}:5\n" for n in range(9))
    assert outlined(rust)["linesWith"] == ["error: 9", "E0308: 9"]


def test_a_word_that_is_twice_in_a_line_is_in_one_line() -> None:
    log = "".join(f"ERROR {n}: an error, an Error\n" for n in range(10)) + "INFO fine\n"
    assert outlined(log)["linesWith"] == ["error: 10", "info: 1"]


def test_definitions_are_not_prose() -> None:
    prose = "The\n    class of things, the\n    function call.\n    type of it"
    text = f"def a():\n    '{prose}'\n\ndef b(): pass\nclass C: pass\n"
    assert outlined(text)["told"] == "3 definitions: 2 def, 1 class"
    go = "func (s *Server) Start(port int) error {\n}\n\ntype Server struct {\n}\n\nfunc main() {\n}\n"
    assert outlined(go, 120)["definitions"] == ["1: Start", "4: type Server", "7: main"]
    js = "export default async function run(a) {\n}\nfunction* each() {\n}\nexport class A extends B {\n}\n"
    assert outlined(js, 125)["definitions"] == ["1: run", "3: each", "5: class A"]
    rust = "pub(crate) fn a<T>(x: T) {\n}\nimpl<T> Show for A<T> {\n}\npub struct A;\n"
    assert outlined(rust, 120)["definitions"] == ["1: a", "3: impl Show", "5: struct A"]
    ruby = "class Foo\n  def bar\n  end\n  def self.baz!(x)\n  end\nend\n"
    assert outlined(ruby)["told"] == "3 definitions: 2 def, 1 class"


def test_of_csv_the_rows_that_stand_out_are_kept() -> None:
    rows = [f'{n},{"failed" if n == 412 else "ok"},{n * 37 % 1009},"x, {n}"' for n in range(900)]
    text = ("id,status,size,name\n" + "\n".join(rows) + "\n").encode()
    largest = max(range(900), key=lambda n: n * 37 % 1009)
    lines = [
        text[begin:end].decode().strip()
        for begin, end in notable_lines(text, Words({"q": "777"}), table_of(text))
    ]
    assert rows[412] in lines
    assert rows[777] in lines
    assert rows[largest] in lines
    fitted = fit_text(text, 2000, "tail", notable=notable_lines(text, Words({}), table_of(text)))
    assert fitted is not None
    assert rows[412].encode() in fitted.text
    # If a row has several lines, a line is not a row, and errors are looked for as in any text.
    broken = text.replace(b'"x, 5"', b'"x,\n 5"') + b"900,ERROR,5,x\n"
    assert [broken[begin:end] for begin, end in notable_lines(broken, Words({}), table_of(broken))] == [
        rows[412].encode() + b"\n",
        b"900,ERROR,5,x\n",
    ]


def test_what_is_told_of_the_first_lines_says_so() -> None:
    log = "".join(
        f"2026-01-01 {'ERROR' if n == 7 else 'INFO'} message {n} {'x' * 1000}\n" for n in range(5000)
    )
    assert re.fullmatch(r"lines with each word, in the first \d{4} lines", outlined(log)["told"])
    source = "".join(f"def f{n}():\n    pass  # {'x' * 1000}\n" for n in range(5000))
    told = re.fullmatch(r"(\d+) definitions: \1 def, in the first (\d+) lines", outlined(source)["told"])
    assert told is not None
    assert int(told[1]) == (int(told[2]) + 1) // 2 < 5000
