"""Positions in source text and node ids, compared with a naive implementation in UTF-16."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath, PureWindowsPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_envelope.anchors import Anchor, BadNodeId, LineIndex, NodeId, relative_path

letters = st.sampled_from("ab\t é漢😀𝒳\r\n\ufeff\u2028\x0b")
texts = st.one_of(
    st.text(letters, max_size=30),
    st.text(letters, min_size=250, max_size=800),
    st.text(st.characters(codec="utf-8"), max_size=40),
)


def naive(text: str, offset: int) -> tuple[int, int]:
    """Count one by one: only LF, CRLF and CR end a line, and the mark at the start has no width."""
    if offset and text[offset - 1 : offset + 1] == "\r\n":
        offset -= 1
    if text.startswith("\ufeff"):
        text, offset = text[1:], max(offset - 1, 0)
    before = text[:offset]
    last = re.split(r"\r\n|\r|\n", before)[-1]
    return len(re.findall(r"\r\n|\r|\n", before)) + 1, len(last.encode("utf-16-le")) // 2 + 1


@given(texts)
def test_every_offset_is_where_a_naive_walk_says_and_comes_back(text: str) -> None:
    index = LineIndex(text)
    data = text.encode()
    byte = 0
    for offset in range(len(text) + 1):
        line, col = naive(text, offset)
        anchor = Anchor.from_offset("a.py", index, offset)
        assert (anchor.line, anchor.col) == (line, col)
        assert Anchor.from_byte_offset("a.py", index, byte) == anchor
        inside = offset > 0 and text[offset - 1 : offset + 1] == "\r\n"
        back = offset - 1 if inside else max(offset, int(text.startswith("\ufeff")))
        assert anchor.offset_in(index) == back
        assert index.position_at(line, back - index.offset(line, 1) + 1) == (line, col)
        byte += len(text[offset : offset + 1].encode())
    assert byte == len(data)


@given(texts)
def test_bytes_inside_a_character_and_halves_of_a_pair_are_refused(text: str) -> None:
    index = LineIndex(text)
    data = text.encode()
    for byte in range(len(data) + 1):
        if byte < len(data) and data[byte] & 0xC0 == 0x80:
            with pytest.raises(ValueError, match=f"byte offset {byte} is inside a UTF-8 character"):
                index.offset_of_byte(byte)
        else:
            index.offset_of_byte(byte)
    lines = re.split(r"\r\n|\r|\n", text.removeprefix("\ufeff"))
    assert [index.line_text(line) for line in range(1, index.line_count() + 1)] == lines
    for line, content in enumerate(lines, 1):
        units = content.encode("utf-16-le")
        for col in range(1, len(units) // 2 + 2):
            if units[2 * col - 2 : 2 * col][1:] and 0xDC <= units[2 * col - 1] <= 0xDF:
                with pytest.raises(ValueError, match="between the two halves"):
                    index.offset(line, col)
            else:
                assert index.position(index.offset(line, col)) == (line, col)
        with pytest.raises(ValueError, match="out of range"):
            index.offset(line, len(units) // 2 + 2)


@pytest.mark.parametrize(
    ("text", "offset", "expected"),
    [
        ("", 0, (1, 1)),
        ("a\tb", 2, (1, 3)),
        ("😀x", 1, (1, 3)),
        ("a\r\nb", 1, (1, 2)),
        ("a\r\nb", 2, (1, 2)),
        ("a\r\nb", 3, (2, 1)),
        ("a\rb\n", 2, (2, 1)),
        ("a\rb\n", 4, (3, 1)),
        ("a\n\rb", 2, (2, 1)),
        ("a\u2028b\x0bc", 4, (1, 5)),
        ("\ufeffa", 0, (1, 1)),
        ("\ufeffa", 1, (1, 1)),
        ("\ufeffa", 2, (1, 2)),
        ("a\ufeffb", 2, (1, 3)),
        ("\ufeff\r\n\ufeffb", 4, (2, 2)),
    ],
)
def test_positions(text: str, offset: int, expected: tuple[int, int]) -> None:
    assert LineIndex(text).position(offset) == expected == naive(text, offset)


def test_column_one_is_after_a_byte_order_mark() -> None:
    anchor = Anchor("a.py", 1, 1)
    assert anchor.offset_in("\ufeffimport os") == 1
    assert Anchor.from_byte_offset("a.py", b"\xef\xbb\xbfx", 0) == anchor


@pytest.mark.parametrize("offset", [-1, 4, 10**9])
def test_out_of_range_offsets_say_the_range(offset: int) -> None:
    with pytest.raises(ValueError, match=rf"offset {offset} is out of range: 0 to 3"):
        Anchor.from_offset("a", "abc", offset)
    with pytest.raises(ValueError, match=rf"byte offset {offset} is out of range: 0 to 3"):
        Anchor.from_byte_offset("a", b"abc", offset)


def test_out_of_range_lines_and_columns() -> None:
    with pytest.raises(ValueError, match="line 3 is out of range: 1 to 2"):
        Anchor("a", 3, 1).offset_in("x\n")
    with pytest.raises(ValueError, match="col 3 is out of range: 1 to 2 in line 1"):
        Anchor("a", 1, 3).offset_in("x\r\n")
    with pytest.raises(ValueError, match=r"not UTF-8: .* at byte 1"):
        Anchor.from_byte_offset("a", b"a\xff", 0)


def test_half_a_pair_in_the_text_is_one_unit() -> None:
    index = LineIndex("\ud83da😀b")
    assert index.position(3) == (1, 5)
    assert index.position(index.offset_of_byte(8)) == (1, 5)


def test_a_range_ends_on_the_line_of_its_last_character() -> None:
    assert Anchor.from_offset("a", "x\ny\n", 0, 2).end_line == 1
    assert Anchor.from_offset("a", "x\ny\n", 0, 3).end_line == 2
    assert Anchor.from_offset("a", "x\ny\n", 2, 2).end_line == 2
    assert Anchor.from_byte_offset("a", "é\ny".encode(), 0, 4).end_line == 2
    with pytest.raises(ValueError, match="before its start"):
        Anchor.from_offset("a", "xy", 2, 1)


def test_wire_order_and_what_is_absent() -> None:
    full = Anchor("src/a.py", 3, 7, 9, "def f():")
    assert list(full.to_wire().items()) == [
        ("file", "src/a.py"),
        ("line", 3),
        ("col", 7),
        ("endLine", 9),
        ("snippet", "def f():"),
    ]
    assert list(Anchor("a", 1, 1).to_wire()) == ["file", "line", "col"]
    assert Anchor.from_wire({**full.to_wire(), "stale": True}) == full
    with pytest.raises(AttributeError):
        full.line = 2  # type: ignore[misc]


@given(st.integers(1, 10**6), st.integers(1, 500), st.none() | st.integers(0, 99), st.none() | st.text())
def test_wire_comes_back(line: int, col: int, more: int | None, snippet: str | None) -> None:
    anchor = Anchor("a/b.py", line, col, None if more is None else line + more, snippet)
    assert Anchor.from_wire(anchor.to_wire()) == anchor


@pytest.mark.parametrize(
    ("wire", "reason"),
    [
        ({"file": "a"}, "needs line, col"),
        ({"file": "a", "line": 0, "col": 1}, "line is a whole number of at least 1, not 0"),
        ({"file": "a", "line": 1, "col": True}, "col is a whole number"),
        ({"file": "a", "line": "1", "col": 1}, "not '1'"),
        ({"file": "a", "line": 5, "col": 1, "endLine": 4}, "at least 5, not 4"),
        ({"file": "/etc/x", "line": 1, "col": 1}, "starts with no '/'"),
        ({"file": "C:/x", "line": 1, "col": 1}, "no drive"),
        ({"file": "a\\b", "line": 1, "col": 1}, "forward slashes"),
        ({"file": "a/../b", "line": 1, "col": 1}, "has a step '..'"),
        ({"file": "", "line": 1, "col": 1}, "is missing"),
        ({"file": "a", "line": 1, "col": 1, "snippet": 5}, "snippet is a text"),
    ],
)
def test_bad_anchors_say_why(wire: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        Anchor.from_wire(wire)


@pytest.mark.parametrize(
    ("path", "root", "expected"),
    [
        ("/repo/src/a.py", "/repo", "src/a.py"),
        ("/repo/src/a.py", "/repo/", "src/a.py"),
        ("/repo//src/./a.py", "/repo", "src/a.py"),
        ("/repo/x/../a.py", "/repo", "a.py"),
        ("/other/../repo/a.py", "/repo/./", "a.py"),
        ("/repo", "/repo", "."),
        ("/a.py", "/", "a.py"),
        ("src/a.py", "/repo", "src/a.py"),
        ("./src/../a.py", "/repo", "a.py"),
        ("src\\a.py", "/repo", "src/a.py"),
        ("a:b/c d é.py", "/repo", "a:b/c d é.py"),
        (r"C:\repo\src\a.py", r"C:\repo", "src/a.py"),
        (r"c:\Repo\Src\A.py", "C:/repo", "Src/A.py"),
        ("C:/repo/src\\a.py", r"c:\repo\\", "src/a.py"),
        (r"\repo\a.py", r"C:\repo", "a.py"),
        (r"\\server\share\repo\a.py", r"\\SERVER\Share\repo", "a.py"),
        ("//server/share/repo/a.py", r"\\server\share\repo", "a.py"),
        (r"\\?\C:\repo\a.py", r"C:\repo", "a.py"),
        (r"\\?\UNC\server\share\repo\a.py", r"\\server\share\repo", "a.py"),
        ("C:/a.py", "C:/", "a.py"),
        (PureWindowsPath(r"C:\repo\a.py"), PureWindowsPath("c:/repo"), "a.py"),
        (PurePosixPath("/repo/a.py"), PurePosixPath("/repo"), "a.py"),
    ],
)
def test_relative_paths(path: str, root: str, expected: str) -> None:
    assert relative_path(path, root) == expected


@pytest.mark.parametrize(
    ("path", "root"),
    [
        ("/elsewhere/deep/a.py", "/repo"),
        ("/repository/deep/a.py", "/repo"),
        ("/repo/../deep/a.py", "/repo"),
        ("/Repo/deep/a.py", "/repo"),
        ("/", "/repo"),
        ("../deep/a.py", "/repo"),
        ("x/../../deep/a.py", "/repo"),
        ("..\\deep\\a.py", "/repo"),
        (r"D:\repo\deep\a.py", r"C:\repo"),
        (r"C:\other\deep\a.py", r"C:\repo"),
        (r"C:deep\a.py", r"C:\repo"),
        (r"C:\repo\deep\a.py", "/repo"),
        (r"\\server\other\deep\a.py", r"\\server\share"),
        (r"\\repo\deep\a.py", "/repo"),
        ("/repo/deep/a.py", "repo"),
        ("a\0.py", "/repo"),
    ],
)
def test_outside_of_the_root_is_refused_and_no_absolute_path_is_shown(path: str, root: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        relative_path(path, root)
    message = str(caught.value)
    assert not re.search(r"(^|\s|['\"])([A-Za-z]:|[/\\])", message)
    if not path.startswith((".", "x")):
        assert "deep" not in message


segments = st.lists(st.sampled_from(["a", "b.py", "..", ".", "", "ü x", "xx:b"]), max_size=6)


@given(segments, st.sampled_from(["/repo", "C:\\repo", "//srv/share/repo"]), st.sampled_from("/\\"))
def test_whatever_comes_back_is_inside(steps: list[str], root: str, slash: str) -> None:
    path = slash.join([root, *steps])
    try:
        inside = relative_path(path, root)
    except ValueError:
        return
    assert not inside.startswith(("/", "\\"))
    assert ".." not in inside.split("/")
    assert relative_path(f"{root}/{inside}", root) == inside == relative_path(inside, root)


def test_links_are_followed_only_when_asked(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    root.mkdir()
    (tmp_path / "out.py").touch()
    (root / "real.py").touch()
    (root / "in.py").symlink_to(root / "real.py")
    (root / "link.py").symlink_to(tmp_path / "out.py")
    assert relative_path(root / "link.py", root) == "link.py"
    assert relative_path("in.py", root, resolve=True) == "real.py"
    with pytest.raises(ValueError, match=r"^out\.py is outside the root$"):
        relative_path(root / "link.py", root, resolve=True)


@pytest.mark.parametrize(
    ("text", "node"),
    [
        ("py:src/app.py", NodeId("py", "src/app.py")),
        ("py:src/app.py#App.run", NodeId("py", "src/app.py", "App.run")),
        ("ts:a.ts#Box.#secret", NodeId("ts", "a.ts", "Box.#secret")),
        ("c++:a:b/ü x.cc#ns::f<int>", NodeId("c++", "a:b/ü x.cc", "ns::f<int>")),
        ("cs:c%23/a.cs#A", NodeId("cs", "c#/a.cs", "A")),
        ("md:100%.md", NodeId("md", "100%.md")),
        ("md:a%20b.md", NodeId("md", "a%20b.md")),
        ("md:a%2523.md", NodeId("md", "a%23.md")),
    ],
)
def test_node_ids(text: str, node: NodeId) -> None:
    assert NodeId.parse(text) == node
    assert str(node) == text


steps = st.text(st.sampled_from("a.#%235: é漢😀+"), min_size=1, max_size=8).filter(
    lambda s: s not in (".", "..")
)
paths = st.lists(steps, min_size=1, max_size=4).map("/".join)
names = st.none() | st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1, max_size=12)


@given(st.from_regex(r"[A-Za-z][A-Za-z0-9_+.-]{0,6}", fullmatch=True), paths, names)
def test_node_ids_come_back(lang: str, path: str, name: str | None) -> None:
    if re.match("[A-Za-z]:/", path):
        return
    node = NodeId(lang, path, name)
    assert NodeId.parse(str(node)) == node


@given(st.text(st.sampled_from("pyC:#/.%235\\ \n"), max_size=14))
def test_any_text_is_a_node_id_or_a_clear_error(text: str) -> None:
    problem: BadNodeId | None = None
    try:
        node = NodeId.parse(text)
    except BadNodeId as error:
        problem = error
    if problem:
        assert "<lang>:<relpath>[#qualifiedName]" in str(problem)
        assert 1 <= problem.position <= len(text) + 1
    else:
        assert NodeId.parse(str(node)) == node


@pytest.mark.parametrize(
    ("text", "reason", "position"),
    [
        ("", "the language is missing", 1),
        (":a.py", "the language is missing", 1),
        ("py", "no ':' after the language", 3),
        ("p y:a", "' ' cannot be part of a language", 2),
        ("src/app.py", "'/' cannot be part", 4),
        ("3d:a", "starts with a letter", 1),
        ("py:", "the path is missing", 4),
        ("py:#f", "the path is missing", 4),
        ("py:/etc/x", "starts with no '/'", 4),
        ("py:C:\\x", "no drive", 4),
        ("py:a/../b", "a step '..'", 6),
        ("py:a//b", "an empty step", 6),
        ("py:a/", "an empty step", 6),
        ("py:a%23\\b", "forward slashes", 8),
        ("py:a.py#", "nothing follows the '#'", 9),
        ("py:a.py#f\n", "a control character", 10),
    ],
)
def test_bad_node_ids_say_what_where_and_the_form(text: str, reason: str, position: int) -> None:
    with pytest.raises(BadNodeId) as caught:
        NodeId.parse(text)
    assert reason in str(caught.value)
    assert caught.value.position == position
    assert "expected <lang>:<relpath>[#qualifiedName]" in str(caught.value)
