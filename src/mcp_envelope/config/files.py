"""Settings files: found, read when they change, and kept as they last made sense.

A look reads the file, which is small, and parses it only if it says something else. A file that can't be read or
parsed leaves the last good version in force; one that is gone leaves none. In a file that can be parsed, each thing
that is wrong costs only itself: the rest applies, and the complaint names the file, the line, the column and the
name that was probably meant. The parsers give values without positions; those come from a scan of the same text.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec import UNSET

from ..dialects import SettingsFile, registry
from ..spelling import did_you_mean
from .policy import PROFILES, SETTINGS, Given
from .trust import Accepted, is_users_own
from .values import NOTHING, shown

FILE_NAME: Final = "mcp-envelope.toml"
PYPROJECT: Final = "pyproject.toml"
PYPROJECT_TABLE: Final = ("tool", "mcp-envelope")
_OUR_TABLE: Final = re.compile(rb"""^\s*\[\s*tool\s*\.\s*["']?mcp-envelope["']?\s*([].]|$)""", re.MULTILINE)
_LARGEST: Final = 1_000_000
# Seconds, by the coarsest clock of a common file system.
_JUST_NOW: Final = 2.0
# Editors look for it; it is not a setting.
_SCHEMA_KEY: Final = "$schema"
# Our settings lie no deeper.
_DEEPEST: Final = 6

Keys = tuple[str, ...]
Layer = Mapping[str, Given]
# A table in a file: "profile" or "tool" and its name, or nothing for the settings at the top.
Table = tuple[str, str]
TOP: Final[Table] = ("", "")


class Contents(NamedTuple):
    """What a file says, and what is wrong with it. A profile's layer may name its base."""

    layers: Mapping[Table, Layer] = NOTHING
    problems: tuple[str, ...] = ()

    def layer(self, kind: str = "", name: str = "") -> Layer:
        return self.layers.get((kind, name), NOTHING)

    def for_tool(self, tool: str | None) -> list[Layer]:
        """Return the tables for a tool, weakest first: patterns, the closer ones later, then its name."""
        from fnmatch import fnmatchcase

        names = [name for kind, name in self.layers if kind == "tool" and tool is not None]
        found = [name for name in names if name == tool or fnmatchcase(tool or "", name)]
        found.sort(key=lambda name: (name == tool, sum(char not in "*?[]" for char in name)))
        return [self.layer("tool", name) for name in found]

    def without(self, complaint: Callable[[str, Given], str]) -> Contents:
        """Return this without the values that there is a complaint about, which is added to the problems."""
        layers, problems = {}, [*self.problems]
        for table, layer in self.layers.items():
            said = {name: complaint(name, given) for name, given in layer.items()}
            problems += [f"{layer[name].place}: {message}" for name, message in said.items() if message]
            layers[table] = {name: given for name, given in layer.items() if not said[name]}
        return Contents(layers, tuple(problems))

    def with_known_profiles(self, source: Contents) -> Contents:
        """Return this as if nobody had named a profile that isn't built in or in the source."""
        known = (*PROFILES, *(name for kind, name in source.layers if kind == "profile"))

        def complaint(name: str, given: Given) -> str:
            if name not in ("profile", "base") or given.value in known:
                return ""
            return f"there is no profile {shown(given.value)}{did_you_mean(given.value, known)}"

        return self.without(complaint)


# -- watching -----------------------------------------------------------------------------------------------


class FoundFile(NamedTuple):
    path: str
    name: str  # as people are told


class WatchedFile:
    """One file, wherever `find` finds it."""

    def __init__(
        self,
        find: Callable[[], FoundFile | None],
        read: Callable[[str, str, str], Contents],
        without: str,
        accepted: Accepted | None = None,
    ) -> None:
        self.contents = Contents()
        self.path = ""
        # None if there is no file.
        self.name: str | None = None
        self.problem: str | None = None
        # What happened since somebody emptied this.
        self.news: list[str] = []
        # Whether somebody vouches for the file: it was named, is the user's own or is on the list.
        self.is_accepted = accepted is None
        self._accepted = accepted
        self._find = find
        self._read = read
        self._without = without  # what is the case when there is no file
        self._good: bytes | None = None  # the last version that made sense
        self._last: bytes | None = None  # the last version, whether it did or not

    def look(self) -> bool:
        """Look at the file; return whether anything is different now."""
        before = self.contents, self.problem, self.name, self.is_accepted
        found = self._find()
        if found is not None and _is_file(found.path):
            self._load(*found)
        elif self.name is not None:
            self.news.append(f"{self.name} is gone; {self._without}")
            self._forget()
            self.name = self.problem = None
        elif found is not None:
            reason = "it is not an ordinary file" if os.path.exists(found.path) else "no such file"
            reason = "it is a folder" if os.path.isdir(found.path) else reason
            self.problem = f"cannot read {found.name}: {reason}; {self._without}"
        if self._accepted is not None and self._good is not None:
            self.is_accepted = is_users_own(self.path) or self._accepted.holds(self.path, self._good)
        return before != (self.contents, self.problem, self.name, self.is_accepted)

    def _forget(self) -> None:
        self.contents, self._good, self._last = Contents(), None, None

    def _load(self, path: str, name: str) -> None:
        if path != self.path:
            # The last good state of another file says nothing about this one.
            self._forget()
            if self.name is not None and not os.path.exists(self.path):
                self.news.append(f"{self.name} is gone; {name} applies")
        self.path, self.name = path, name
        stays = "none of its settings apply" if self._good is None else "its last good version stays in force"
        before, self._last = self._last, None
        try:
            data = read_bytes(path)
            if not data.strip() and before and abs(time.time() - os.path.getmtime(path)) < _JUST_NOW:
                self._last = before  # perhaps somebody is just writing it: emptied, not yet filled
                return
            self._last = data
            if data != before:
                self.contents = self._read(_decoded(data, name), name, os.path.dirname(path))
                self._good, self.problem = data, None
        except Broken as error:
            self.problem = f"{error}; {stays}"
        except FileNotFoundError:
            pass  # deleted since the look: the next one will see
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            self.problem = f"cannot read {name}: {reason[:1].lower()}{reason[1:]}; {stays}"


def settings_file(path: str | os.PathLike[str] | None, start: Path) -> WatchedFile:
    """Return the file that was named, or else the nearest one from `start` upwards."""
    without = "the built-in settings apply"
    if path is None:
        return WatchedFile(partial(_nearest, start, FILE_NAME, PYPROJECT), read_toml, without, Accepted())
    named = FoundFile(os.path.abspath(path), os.fspath(path))
    return WatchedFile(lambda: named, read_toml, without)


def own_file(file: SettingsFile, start: Path) -> WatchedFile:
    """Return a dialect's own file, the nearest one from `start` upwards."""
    find = partial(_nearest, start, os.path.join(*file.path.split("/")))
    return WatchedFile(find, partial(read_own_file, file), "its settings no longer apply")


def _nearest(start: Path, *files: str) -> FoundFile | None:
    for folder in (start, *start.parents):
        for file in files:
            path = os.path.join(folder, file)
            if _is_file(path) and (file != PYPROJECT or _has_our_table(path)):
                return FoundFile(path, Path(os.path.relpath(path, start)).as_posix())
    return None


def _is_file(path: str) -> bool:
    # /dev/null is how a person says "no file".
    return os.path.isfile(path) or path == os.devnull


def _has_our_table(path: str) -> bool:
    try:  # unparsed: if it is broken, somebody should hear of it
        return _OUR_TABLE.search(read_bytes(path)) is not None
    except (OSError, ValueError):
        return False


def read_bytes(path: str) -> bytes:
    with open(path, "rb") as file:
        data = file.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise ValueError("it is larger than 1 MB")
    return data


def _decoded(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8-sig")
        at = _place(before, len(before))
        raise Broken(f"{name}, {at}: not UTF-8 (byte 0x{data[error.start]:02x})") from None


# -- reading ------------------------------------------------------------------------------------------------


class Broken(Exception):
    """The file cannot be parsed. The message says where and why."""


def read_toml(text: str, name: str, folder: str = "") -> Contents:
    """Return the settings in a TOML file of that name: all of it, or our table in a `pyproject.toml`."""
    from ..jsontext import toml_scanner  # only here: most runs have no file

    text = text.replace("\r\n", "\n")  # as the parser does, so that its columns are ours
    try:
        root: Any = toml_scanner.parse(text)
    except toml_scanner.NotTOML as error:
        raise Broken(f"{name}{', ' if error.place else ''}{error.place}: {error.reason}") from None
    at = PYPROJECT_TABLE if os.path.basename(name) == PYPROJECT else ()
    for key in at:
        root = root.get(key) if isinstance(root, dict) else None
    if root is None:
        return Contents(problems=(f"{name} has no table [{'.'.join(at)}]",))
    reader = _Reader(name, folder, text, toml_scanner.key_offsets(text))
    top = {**reader.table(root, at)}
    profiles, tools = top.pop("profiles", None), top.pop("tools", None)
    reader.read(top, at, SETTINGS, others=("profiles", "tools"))
    for profile, table in reader.table(profiles, (*at, "profiles")).items():
        names = [name for name in SETTINGS if name != "profile"] + ["base"] * (profile not in PROFILES)
        reader.read(table, (*at, "profiles", profile), names, ("profile", profile))
    for tool, table in reader.table(tools, (*at, "tools")).items():
        reader.read(table, (*at, "tools", tool), SETTINGS, ("tool", tool))
    found = reader.contents
    return found.with_known_profiles(found)


def read_own_file(file: SettingsFile, text: str, name: str, folder: str = "") -> Contents:
    """Return the settings in a dialect's own file: JSON, comments and trailing commas allowed."""
    from ..jsontext import scanner

    try:
        scan = scanner.scan(text, lambda path: len(path) < _DEEPEST)
    except scanner.NotJSON as error:
        raise Broken(f"{name}{', ' if error.place else ''}{error.place}: {error.reason}") from None
    reader = _Reader(name, folder, text, dict(scan.root.key_offsets()), "an object")
    root, known = reader.table(scan.meaning, ()), (file.everywhere, file.per_tool)
    for key in root:
        if key not in (*known, _SCHEMA_KEY):
            reader.complain((key,), f"there is no key {shown(key)}{did_you_mean(key, known)}")
    reader.read(root.get(file.everywhere), (file.everywhere,), file.settings)
    for tool, table in reader.table(root.get(file.per_tool), (file.per_tool,)).items():
        reader.read(table, (file.per_tool, tool), file.tool_settings, ("tool", tool))
    return reader.contents


class _Reader:
    """The work on one file. `keys` has the offset of each key in its text; `noun` is what it calls a table."""

    def __init__(
        self, name: str, folder: str, text: str, keys: Mapping[Keys, int], noun: str = "a table"
    ) -> None:
        self._name, self._folder, self._text, self._keys, self._noun = name, folder, text, keys, noun
        self._layers: dict[Table, Layer] = {}
        self._problems: list[str] = []

    @property
    def contents(self) -> Contents:
        return Contents(self._layers, tuple(self._problems))

    def table(self, value: object, at: Keys) -> Mapping[str, Any]:
        """Return a table as it is, and an empty one for anything else, after a complaint."""
        if isinstance(value, dict):
            return value
        if value is not None or not at:  # nothing is JSON's way to say nothing
            label = ".".join(at) + ": " if at else ""
            self.complain(at, f"{label}expected {self._noun}, not {shown(value)}")
        return NOTHING

    def read(
        self, value: object, at: Keys, names: Collection[str], table: Table = TOP, others: Keys = ()
    ) -> None:
        """Read a table of settings. `names` may be set in it; `others` are keys that may have been meant."""
        layer: dict[str, Given] = {}
        label = " ".join(filter(None, table))
        whose = f" for the {label}" if label else ""
        for key, each in self.table(value, at).items():
            path = (*at, key)
            if key not in names:
                if at or key != _SCHEMA_KEY:
                    near = did_you_mean(key, (*names, *others))
                    self.complain(path, f"there is no setting {shown(key)}{whose}{near}")
                continue
            report = partial(self._report, path, key)
            read = UNSET if each is None else SETTINGS["profile" if key == "base" else key].read(each, report)
            if read is not UNSET:
                offset = self._offset(path)
                line = "" if offset is None else f":{self._text.count(chr(10), 0, offset) + 1}"
                source = f"{label} ({self._name}{line})" if label else f"file {self._name}{line}"
                read = registry.located(read, self._folder) if key == "dialect" else read
                layer[key] = Given(read, source, self._place(path))
        without_rival(layer, self._problems)
        if isinstance(value, dict):
            self._layers[table] = layer

    def complain(self, path: Keys, message: str) -> None:
        self._problems.append(f"{self._place(path)}: {message}")

    def _report(self, path: Keys, key: str, message: str, *inside: str) -> None:
        self.complain((*path, *inside), key + message)

    def _place(self, path: Keys) -> str:
        offset = self._offset(path)
        return self._name if offset is None else f"{self._name}, {_place(self._text, offset)}"

    def _offset(self, path: Keys) -> int | None:
        """Return where the key stands, or the nearest of those that lead to it."""
        while path and path not in self._keys:
            path = path[:-1]
        return self._keys.get(path)


def without_rival(layer: dict[str, Given], problems: list[str]) -> None:
    """Take the budget in bytes away if there is one in tokens."""
    if "tokens" in layer and "bytes" in layer:
        problems.append(f"{layer.pop('bytes').place}: bytes is ignored, because tokens is set as well")


def _place(text: str, offset: int) -> str:
    from ..jsontext.scanner import place  # only here: most files have nothing wrong

    return place(text, offset)
