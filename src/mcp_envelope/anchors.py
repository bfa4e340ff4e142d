"""Anchors and node ids: positions in source files, and names for what is there.

Strategy: every position is first an offset in code points, because that is what Python strings have. A `LineIndex`
knows where lines start; within a line, Python's own codecs count. Positions follow editors: a line ends at LF, CRLF
or a lone CR; a tab is one unit; a byte order mark at the beginning belongs to the file and not to its text, so it
has no column. Paths are handled as text, for Windows and POSIX alike on any machine; nothing is read from disk
unless asked for.
"""

from __future__ import annotations

import ntpath
import os
import posixpath
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import PurePath, PurePosixPath, PureWindowsPath
from typing import Any, Final, TypeAlias

import msgspec

_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_BOM: Final = "\ufeff"
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_LANG: Final = re.compile(r"[A-Za-z][A-Za-z0-9_+.-]*")
_FORM: Final = "<lang>:<relpath>[#qualifiedName], for example py:src/app.py#App.run"


class LineIndex:
    """Positions in one text. Lines and columns count from 1, offsets from 0."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._ends = [match.end() for match in _LINE_END.finditer(text)]
        # Column 1 of the first line is after the mark.
        self._starts = [int(text.startswith(_BOM)), *self._ends]

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
        return line, len(_utf16(self.text[self._starts[line - 1] : offset])) // 2 + 1

    def position_at(self, line: int, column: int) -> tuple[int, int]:
        """Return line and UTF-16 column for a line and a column in code points, both from 1."""
        _in_range("column", column, 1, len(self.line_text(line)) + 1, f" in line {line}")
        return self.position(self._starts[line - 1] + column - 1)

    def offset(self, line: int, col: int) -> int:
        """Return the offset in code points of a line and a UTF-16 column."""
        text = self.line_text(line)
        units = _utf16(text)
        _in_range("col", col, 1, len(units) // 2 + 1, f" in line {line}")
        before = units[: 2 * (col - 1)].decode("utf-16-le", "surrogatepass")
        if not text.startswith(before):
            raise ValueError(f"col {col} of line {line} is between the two halves of one character")
        return self._starts[line - 1] + len(before)

    def line_text(self, line: int) -> str:
        """Return a line without its end and without a byte order mark."""
        _in_range("line", line, 1, len(self._starts))
        end = self._ends[line - 1] if line <= len(self._ends) else None
        return self.text[self._starts[line - 1] : end].rstrip("\r\n")

    def line_count(self) -> int:
        return len(self._starts)

    def offset_of_byte(self, at: int) -> int:
        """Return the offset in code points of an offset in UTF-8 bytes."""
        _in_range("byte offset", at, 0, self._byte_starts[-1])
        line = bisect_right(self._byte_starts, at, hi=len(self._ends) + 1) - 1
        start, end = [0, *self._ends, len(self.text)][line : line + 2]
        data, inside = _utf8(self.text[start:end]), at - self._byte_starts[line]
        if inside < len(data) and data[inside] & 0xC0 == 0x80:
            raise ValueError(f"byte offset {at} is inside a UTF-8 character")
        return start + len(data[:inside].decode("utf-8", "surrogatepass"))

    @cached_property
    def _byte_starts(self) -> list[int]:
        """Return the byte where each line starts, and where the text ends."""
        bounds = pairwise([0, *self._ends, len(self.text)])
        return [*accumulate((len(_utf8(self.text[start:end])) for start, end in bounds), initial=0)]


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
        last = None if end is None else index.offset_of_byte(end)
        return cls.from_offset(file, index, index.offset_of_byte(offset), last, snippet=snippet)

    def offset_in(self, source: Source) -> int:
        """Return the offset in code points. A byte order mark counts; column 1 is after it."""
        return _index(source).offset(self.line, self.col)

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

    def given(value: Any, read_wire: Callable[[Any], Any]) -> Any:
        return value if isinstance(value, kind) else read_wire(value)

    from_wire = {
        "type": "function-after",
        "function": {"type": "no-info", "function": read},
        "schema": wire,
    }
    return {
        "type": "json-or-python",
        "json_schema": from_wire,
        "python_schema": {
            "type": "function-wrap",
            "function": {"type": "no-info", "function": given},
            "schema": from_wire,
        },
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
    # The long form of a Windows path is an ordinary one with a prefix.
    shorten = re.compile(r"[\\/]{2}[?.][\\/](UNC[\\/])?", re.IGNORECASE)
    path, root = (
        shorten.sub(lambda found: "//" if found[1] else "", str(each), count=1).replace("\\", "/")
        for each in (path, root)
    )
    if "\0" in path or "\0" in root:
        raise ValueError("a path cannot hold a NUL character")
    is_windows = bool(re.match(r"[A-Za-z]:/", path) or re.match(r"[A-Za-z]:|//", root))
    kind, normal = (PureWindowsPath, ntpath.normpath) if is_windows else (PurePosixPath, posixpath.normpath)
    given = kind(path)
    try:
        if given.drive and not given.root:
            raise ValueError("relative to a folder that only Windows knows")
        return kind(normal(kind(root) / given)).relative_to(normal(root)).as_posix()
    except ValueError:
        name = given.name if given.name not in ("", "..") else "the path"
        raise ValueError(f"{name} is outside the root") from None


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


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass")


def _in_range(what: str, value: int, least: int, most: int, where: str = "") -> None:
    if not least <= value <= most:
        raise ValueError(f"{what} {value} is out of range: {least} to {most}{where}")
