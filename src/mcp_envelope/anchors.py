"""Anchors and node ids: positions in source files, and names for what is there.

Strategy: every position is first an offset in code points, because that is what Python strings have. A `LineIndex`
knows where lines start and which characters take two UTF-16 units, so each conversion is one or two binary
searches. Byte offsets go through sparse checkpoints, so a text in any script costs the same. Positions follow
editors: a line ends at LF, CRLF or a lone CR; a tab is one unit; a byte order mark at the beginning belongs to the
file and not to its text, so it has no column. Paths are handled as text, for Windows and POSIX alike on any
machine; nothing is read from disk unless asked for.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import PurePath
from typing import Any, Final, TypeAlias

import msgspec

_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_ASTRAL: Final = re.compile("[\U00010000-\U0010ffff]")
_BOM: Final = "\ufeff"
_STRIDE: Final = 256
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_DRIVE: Final = re.compile(r"[A-Za-z]:")
_LANG: Final = re.compile(r"[A-Za-z][A-Za-z0-9_+.-]*")
_FORM: Final = "<lang>:<relpath>[#qualifiedName], for example py:src/app.py#App.run"


class LineIndex:
    """Positions in one text. Lines and columns count from 1, offsets from 0."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts = [0, *[match.end() for match in _LINE_END.finditer(text)]]
        # Column 1 of the first line is after the mark.
        self._starts[0] = int(text.startswith(_BOM))

    @classmethod
    def from_bytes(cls, data: bytes) -> LineIndex:
        try:
            return cls(data.decode())
        except UnicodeDecodeError as error:
            raise ValueError(f"the source is not UTF-8: {error.reason} at byte {error.start}") from None

    def position(self, offset: int) -> tuple[int, int]:
        """Return line and UTF-16 column of an offset in code points. Between CR and LF is the end of the line."""
        _in_range("offset", offset, 0, len(self.text))
        if self.text[offset - 1 : offset + 1] == "\r\n" and offset:
            offset -= 1
        offset = max(offset, self._starts[0])
        line = bisect_right(self._starts, offset)
        start = self._starts[line - 1]
        return line, offset - start + self._astral_before(offset) - self._astral_before(start) + 1

    def position_of_byte(self, offset: int) -> tuple[int, int]:
        """Return line and UTF-16 column of an offset in UTF-8 bytes."""
        return self.position(self._from_byte(offset))

    def position_at(self, line: int, column: int) -> tuple[int, int]:
        """Return line and UTF-16 column for a line and a column in code points, both from 1."""
        start, end = self._line(line)
        _in_range(f"column of line {line}", column, 1, end - start + 1)
        return self.position(start + column - 1)

    def offset(self, line: int, col: int) -> int:
        """Return the offset in code points of a line and a UTF-16 column."""
        start, end = self._line(line)
        before = self._astral_before(start)
        _in_range(f"col of line {line}", col, 1, end - start + self._astral_before(end) - before + 1)
        unit = start + before + col - 1
        passed = bisect_left(self._astral_units, unit)
        if passed and self._astral_units[passed - 1] + 1 == unit:
            raise ValueError(f"col {col} of line {line} is between the two halves of one character")
        return unit - passed

    def byte_offset(self, line: int, col: int) -> int:
        """Return the offset in UTF-8 bytes of a line and a UTF-16 column."""
        offset = self.offset(line, col)
        if self.text.isascii():
            return offset
        mark = offset // _STRIDE
        return self._bytes[mark] + len(_utf8(self.text[mark * _STRIDE : offset]))

    def line_text(self, line: int) -> str:
        """Return a line without its end and without a byte order mark."""
        start, end = self._line(line)
        return self.text[start:end]

    def line_count(self) -> int:
        return len(self._starts)

    def _line(self, line: int) -> tuple[int, int]:
        _in_range("line", line, 1, len(self._starts))
        start = self._starts[line - 1]
        if line == len(self._starts):
            return start, len(self.text)
        end = self._starts[line] - 1
        return start, end - (end > start and self.text[end - 1 : end + 1] == "\r\n")

    @cached_property
    def _astral(self) -> list[int]:
        return [match.start() for match in _ASTRAL.finditer(self.text)]

    @cached_property
    def _astral_units(self) -> list[int]:
        return [at + index for index, at in enumerate(self._astral)]

    def _astral_before(self, offset: int) -> int:
        return bisect_left(self._astral, offset)

    @cached_property
    def _bytes(self) -> list[int]:
        """Return the byte offset of every 256th character and of the end."""
        marks = [0]
        for at in range(0, len(self.text), _STRIDE):
            marks.append(marks[-1] + len(_utf8(self.text[at : at + _STRIDE])))
        return marks

    def _from_byte(self, offset: int) -> int:
        if self.text.isascii():
            _in_range("byte offset", offset, 0, len(self.text))
            return offset
        _in_range("byte offset", offset, 0, self._bytes[-1])
        mark = bisect_right(self._bytes, offset) - 1
        piece = _utf8(self.text[mark * _STRIDE : (mark + 1) * _STRIDE])
        inside = offset - self._bytes[mark]
        if inside < len(piece) and piece[inside] & 0xC0 == 0x80:
            raise ValueError(f"byte offset {offset} is inside a UTF-8 character")
        # The last checkpoint is the end, which may come early.
        first = min(mark * _STRIDE, len(self.text))
        return first + len(piece[:inside].decode("utf-8", "surrogatepass"))


Source: TypeAlias = str | LineIndex
ByteSource: TypeAlias = bytes | LineIndex


class Anchor(msgspec.Struct, frozen=True, omit_defaults=True, rename={"end_line": "endLine"}):
    """A position in a file of the repository: line and column from 1, the column in UTF-16 units."""

    file: str
    line: int
    col: int
    end_line: int | None = None
    snippet: str | None = None

    def __post_init__(self) -> None:
        if problem := _path_problem(self.file):
            raise ValueError(f"an anchor's file {problem[1]}; relative_path() makes one")
        numbers = [("line", self.line, 1), ("col", self.col, 1)]
        if self.end_line is not None:
            numbers.append(("endLine", self.end_line, self.line))
        for name, value, least in numbers:
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(f"an anchor's {name} is a whole number of at least {least}, not {value!r}")
        if self.snippet is not None and not isinstance(self.snippet, str):
            raise ValueError("an anchor's snippet is a text")

    @classmethod
    def from_offset(
        cls, file: str, source: Source, offset: int, end: int | None = None, *, snippet: str | None = None
    ) -> Anchor:
        """Create an anchor from offsets in code points; `end` is exclusive."""
        index = _index(source)
        line, col = index.position(offset)
        return cls(file, line, col, _last_line(index, offset, end), snippet)

    @classmethod
    def from_byte_offset(
        cls, file: str, source: ByteSource, offset: int, end: int | None = None, *, snippet: str | None = None
    ) -> Anchor:
        """Create an anchor from offsets in UTF-8 bytes."""
        index = _index(source)
        last = None if end is None else index._from_byte(end)
        return cls.from_offset(file, index, index._from_byte(offset), last, snippet=snippet)

    @classmethod
    def from_line_column(
        cls, file: str, source: Source, line: int, column: int, *, snippet: str | None = None
    ) -> Anchor:
        """Create an anchor from a line and a column in code points, both from 1."""
        return cls(file, *_index(source).position_at(line, column), snippet=snippet)

    def offset_in(self, source: Source) -> int:
        """Return the offset in code points. A byte order mark counts; column 1 is after it."""
        return _index(source).offset(self.line, self.col)

    def byte_offset_in(self, source: ByteSource) -> int:
        return _index(source).byte_offset(self.line, self.col)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> dict[str, Any]:
        """Describe the wire form to libraries that ask pydantic what a tool takes or returns."""
        text, number = {"type": "str"}, {"type": "int", "ge": 1}
        of = {"file": text, "line": number, "col": number, "endLine": number, "snippet": text}
        required = ("file", "line", "col")
        fields = {
            name: {"type": "typed-dict-field", "schema": schema, "required": name in required}
            for name, schema in of.items()
        }
        return _described(cls, {"type": "typed-dict", "fields": fields}, cls.from_wire)

    def to_wire(self) -> dict[str, str | int]:
        wire: dict[str, str | int] = msgspec.to_builtins(self)
        return wire

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Anchor:
        """Create an anchor from JSON. Other keys are ignored: an anchor is often part of a larger object."""
        if missing := [key for key in ("file", "line", "col") if key not in wire]:
            raise ValueError(f"an anchor needs {', '.join(missing)}")
        return cls(wire["file"], wire["line"], wire["col"], wire.get("endLine"), wire.get("snippet"))


class BadNodeId(ValueError):
    """A node id that cannot be parsed. The message has the expected form; `position` counts characters from 1."""

    def __init__(self, reason: str, text: str, position: int) -> None:
        self.reason = reason
        self.position = position
        shown = text if len(text) <= 80 else text[:79] + "…"
        super().__init__(f"bad node id {shown!r}: {reason} (at character {position}); expected {_FORM}")


class NodeId:
    """`<lang>:<relpath>[#qualifiedName]`.

    A `#` in the path is written `%23`, and a `%` that would make a `%23` or `%25` is written `%25`. Nothing else is
    encoded, so ids made elsewhere keep their spelling. (Not a dataclass, since msgspec would encode its fields.)
    """

    __slots__ = ("lang", "path", "qualified_name")

    def __init__(self, lang: str, path: str, qualified_name: str | None = None) -> None:
        self.lang = lang
        self.path = path
        self.qualified_name = qualified_name
        text = str(self)
        if not isinstance(self.lang, str) or not _LANG.fullmatch(self.lang):
            raise BadNodeId("the language is a word such as py, ts or c++", text, 1)
        after = len(self.lang) + 2
        if problem := _path_problem(self.path):
            raise BadNodeId(f"the path {problem[1]}", text, after + len(_encoded(self.path[: problem[0]])))
        if self.qualified_name is not None:
            after += len(_encoded(self.path)) + 1
            if not self.qualified_name:
                raise BadNodeId("nothing follows the '#'", text, after)
            if control := _CONTROL.search(self.qualified_name):
                raise BadNodeId("the name holds a control character", text, after + control.start())

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> dict[str, Any]:
        return _described(cls, {"type": "str"}, cls.parse)

    def __repr__(self) -> str:
        return f"NodeId({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NodeId) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def to_wire(self) -> str:
        return str(self)

    def __str__(self) -> str:
        name = "" if self.qualified_name is None else f"#{self.qualified_name}"
        return f"{self.lang}:{_encoded(self.path)}{name}"

    @classmethod
    def parse(cls, text: str) -> NodeId:
        lang, colon, rest = text.partition(":")
        if bad := re.search(r"[^A-Za-z0-9_+.-]", lang):
            raise BadNodeId(f"{bad[0]!r} cannot be part of a language", text, bad.start() + 1)
        if not _LANG.fullmatch(lang):
            raise BadNodeId(
                "the language is missing" if not lang else "a language starts with a letter", text, 1
            )
        if not colon:
            raise BadNodeId("there is no ':' after the language", text, len(text) + 1)
        path, hash_, name = rest.partition("#")
        path = re.sub("%2[35]", lambda code: "#" if code[0] == "%23" else "%", path)
        return cls(lang, path, name if hash_ else None)


def _described(kind: type[Any], wire: dict[str, Any], read: Callable[[Any], Any]) -> dict[str, Any]:
    """Return pydantic's schema of a class with a wire form. It is plain data, so nothing has to be imported."""

    def given(value: Any) -> Any:
        return value if isinstance(value, kind) else read(value)

    return {
        "type": "json-or-python",
        "json_schema": {
            "type": "function-after",
            "function": {"type": "no-info", "function": read},
            "schema": wire,
        },
        "python_schema": {"type": "function-plain", "function": {"type": "no-info", "function": given}},
        "serialization": {"type": "function-plain", "function": kind.to_wire, "return_schema": wire},
    }


def relative_path(path: str | PurePath, root: str | PurePath, *, resolve: bool = False) -> str:
    """Return the path from the root of the repository, with forward slashes; "." is the root itself.

    Takes POSIX and Windows paths on any machine: drive letters, UNC, both slashes. A path without a root counts as
    relative. `..` is resolved in the text and links are not followed, unless `resolve` consults the file system of
    this machine. A path outside the root raises a ValueError that names no directory.
    """
    if resolve:
        path, root = os.path.realpath(os.path.join(root, path)), os.path.realpath(root)
    path, root = str(path), str(root)
    if "\0" in path or "\0" in root:
        raise ValueError("a path cannot hold a NUL character")
    drive, rooted, steps = _split(path, _is_windows(root))
    home_drive, home_rooted, home = _split(root, True)
    name = steps[-1] if steps and steps[-1] != ".." else "the path"
    if not drive and not rooted:
        if ".." in steps[:1]:
            raise ValueError(f"{'/'.join(steps)} is outside the root")
        return "/".join(steps) or "."
    if not home_rooted:
        raise ValueError(f"{name} is absolute and the root is relative, so they cannot be compared")
    # A path like \src\a.py is on the drive that the root is on.
    if (drive or home_drive) != home_drive or not rooted:
        raise ValueError(f"{name} is outside the root")
    above = steps[: len(home)]
    if above != home and not (home_drive and [*map(str.lower, above)] == [*map(str.lower, home)]):
        raise ValueError(f"{name} is outside the root")
    return "/".join(steps[len(home) :]) or "."


def _is_windows(path: str) -> bool:
    return bool(_DRIVE.match(path)) or path[:2] in ("\\\\", "//", "\\/", "/\\")


def _split(path: str, windows: bool) -> tuple[str, bool, list[str]]:
    """Return drive or share in lower case, whether it starts at a root, and the steps without `.` and `..`."""
    share = path[:2] == "\\\\" or (
        windows and path[:2] in ("//", "\\/", "/\\") and path[2:3] not in ("/", "\\")
    )
    path = path.replace("\\", "/")
    drive = ""
    if path[:4] in ("//?/", "//./"):  # the long form of a Windows path
        share = path[4:8].upper() == "UNC/"
        path = "//" + path[8:] if share else path[4:]
    if share:
        server, _, rest = path[2:].partition("/")
        folder, _, rest = rest.partition("/")
        drive, path = f"//{server}/{folder}".lower(), f"/{rest}"
    elif _DRIVE.match(path) and (windows or path[2:3] == "/"):
        drive, path = path[:2].lower(), path[2:]
    rooted = path.startswith("/")
    steps: list[str] = []
    for step in path.split("/"):
        if step == ".." and steps and steps[-1] != "..":
            steps.pop()
        elif step not in ("", ".") and not (step == ".." and rooted):
            steps.append(step)
    return drive, rooted, steps


def _path_problem(path: str) -> tuple[int, str] | None:
    """Return where and why a text isn't a repo-relative path, or None if it is one."""
    if not isinstance(path, str) or not path:
        return 0, "is missing"
    if path.startswith("/"):
        return 0, "is relative to the root of the repository and starts with no '/'"
    if re.match(r"[A-Za-z]:[/\\]", path):
        return 0, "is relative to the root of the repository and has no drive"
    if bad := re.search(r"\\|[\x00-\x1f\x7f]", path):
        return bad.start(), "has forward slashes" if bad[0] == "\\" else "holds a control character"
    if bad := re.search(r"(?:^|(?<=/))(?:\.{0,2})(?=/|$)", path):
        return bad.start(), f"has a step {bad[0]!r}" if bad[0] else "has an empty step"
    return None


def _encoded(path: str) -> str:
    return re.sub("%(?=2[35])", "%25", str(path)).replace("#", "%23")


def _index(source: Source | ByteSource) -> LineIndex:
    if isinstance(source, bytes):
        return LineIndex.from_bytes(source)
    return LineIndex(source) if isinstance(source, str) else source


def _last_line(index: LineIndex, offset: int, end: int | None) -> int | None:
    """Return the line of the last character of a range, or of its start if it is empty."""
    if end is None:
        return None
    if end < offset:
        raise ValueError(f"the range ends at {end}, before its start {offset}")
    index.position(end)
    return index.position(max(offset, end - 1))[0]


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _in_range(what: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ValueError(f"{what} {value} is out of range: {least} to {most}")
