"""Settings files: found, read when they change, and kept as they last made sense.

A look reads the file, which is small, and parses it only if it says something else. A file that cannot be
read or parsed leaves the last good version in force; one that is gone leaves none. In a file that can be
parsed, each thing that is wrong costs only itself: the rest applies, and the complaint names the file, the
line, the column and the name that was probably meant. The parsers give values without positions; those come
from a scan of the same text.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from ..dialects import SettingsFile
from ..spelling import did_you_mean
from .kinds import NOTHING, shown
from .layers import FileLayers, Layer, known_profile, read_layer
from .policy import PROFILES, SETTINGS, Given
from .trust import Accepted, is_users_own

FILE_NAME: Final = "mcp-envelope.toml"
PYPROJECT: Final = "pyproject.toml"
PYPROJECT_TABLE: Final = ("tool", "mcp-envelope")
_LARGEST: Final = 1_000_000
# Seconds, by the coarsest clock of a common file system.
_JUST_NOW: Final = 2.0
# Editors look for it; it is not a setting.
_SCHEMA_KEY: Final = "$schema"
# Our settings lie no deeper.
_DEEPEST: Final = 6

Keys = tuple[str, ...]


# -- watching -----------------------------------------------------------------------------------------------


class FoundFile(NamedTuple):
    path: str
    name: str  # as people are told
    is_there: bool = True


class WatchedFile:
    """One file, wherever `find` finds it."""

    def __init__(
        self,
        find: Callable[[], FoundFile | None],
        read: Callable[[str, str], FileLayers],
        without: str,
        accepted: Accepted | None = None,
    ) -> None:
        self.layers = FileLayers()
        # Whether somebody vouches for the file: it was named, is the user's own or is on the list.
        self.is_accepted = accepted is None
        self._accepted = accepted
        self.name: str | None = None
        self.problem: str | None = None
        self._find = find
        self._read = read
        self._without = without  # what is the case when there is no file
        self._seen: FoundFile | None = None
        self._data: bytes | None = None  # of the last good version
        self._raw: bytes | None = None  # of the last one, good or not
        self._news: list[str] = []

    def look(self) -> bool:
        """Look at the file; return whether anything is different now."""
        found = self._find()
        before = self.layers, self.problem, self.name, self.is_accepted, self._data
        if found is None or not found.is_there:
            self._gone(found)
        else:
            self._load(found)
        self._seen = found
        if self._accepted is not None and found is not None and self._data is not None:
            self.is_accepted = is_users_own(found.path) or self._accepted.holds(found.path, self._data)
        return before != (self.layers, self.problem, self.name, self.is_accepted, self._data)

    @property
    def path(self) -> str:
        return self._seen.path if self._seen else ""

    def take_news(self) -> list[str]:
        """Return what happened since the last time."""
        news, self._news = self._news, []
        return news

    def _gone(self, found: FoundFile | None) -> None:
        if self._seen is not None and self._seen.is_there:
            self._news.append(f"{self._seen.name} is gone; {self._without}")
            self.problem = None
        elif found is not None:
            self.problem = f"cannot read {found.name}: {_absence(found.path)}; {self._without}"
        self.layers, self._data, self._raw, self.name = FileLayers(), None, None, None

    def _load(self, found: FoundFile) -> None:
        if self._seen is not None and self._seen.path != found.path:
            # The last good state of another file says nothing about this one.
            self.layers, self._data, self._raw = FileLayers(), None, None
            if self._seen.is_there and not os.path.exists(self._seen.path):
                self._news.append(f"{self._seen.name} is gone; {found.name} applies")
        stays = "none of its settings apply" if self._data is None else "its last good version stays in force"
        self.name = found.name
        before, self._raw = self._raw, None
        try:
            data = read_bytes(found.path)
            if not data.strip() and before and abs(time.time() - os.path.getmtime(found.path)) < _JUST_NOW:
                self._raw = before  # perhaps somebody is just writing it: emptied, not yet filled
                return
            self._raw = data
            if data != before:
                self.layers = self._read(_decoded(data, found.name), found.name)
                self._data, self.problem = data, None
        except Broken as error:
            self.problem = f"{error}; {stays}"
        except FileNotFoundError:
            pass  # deleted since the look: the next one will see
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            self.problem = f"cannot read {found.name}: {reason[:1].lower()}{reason[1:]}; {stays}"


def settings_file(path: str | os.PathLike[str] | None, start: Path) -> WatchedFile:
    """Return the file that was named, or else the nearest one from `start` upwards."""
    named = None if path is None else (os.path.abspath(path), os.fspath(path))

    def find() -> FoundFile | None:
        if named is not None:
            return FoundFile(*named, _is_file(named[0]))
        for folder in _upwards(start):
            if found := _here(folder, FILE_NAME, start):
                return found
            if found := _here(folder, PYPROJECT, start):
                with suppress(OSError, ValueError):
                    if _has_our_table(read_bytes(found.path)):
                        return found
        return None

    return WatchedFile(find, read_toml, "the built-in settings apply", Accepted() if named is None else None)


def own_file(file: SettingsFile, start: Path) -> WatchedFile:
    """Return a dialect's own file, the nearest one from `start` upwards."""
    path = os.path.join(*file.path.split("/"))

    def find() -> FoundFile | None:
        places = (_here(folder, path, start) for folder in _upwards(start))
        return next(filter(None, places), None)

    return WatchedFile(find, partial(read_own_file, file), "its settings no longer apply")


def _upwards(start: Path) -> Iterator[str]:
    folder, last = os.fspath(start), ""
    while folder != last:
        yield folder
        folder, last = os.path.dirname(folder), folder


def _here(folder: str, file: str, start: Path) -> FoundFile | None:
    path = os.path.join(folder, file)
    if not _is_file(path):
        return None
    try:
        return FoundFile(path, Path(os.path.relpath(path, start)).as_posix())
    except ValueError:  # another drive
        return FoundFile(path, os.path.basename(path))


def _is_file(path: str) -> bool:
    # /dev/null is how a person says "no file".
    return os.path.isfile(path) or path == os.devnull


def _absence(path: str) -> str:
    if os.path.isdir(path):
        return "it is a folder"
    return "it is not an ordinary file" if os.path.exists(path) else "no such file"


@lru_cache(64)
def _has_our_table(data: bytes) -> bool:
    """Whether a `pyproject.toml` has our table, or looks like it and is broken, so that somebody hears of it."""
    import tomllib

    text = data.decode("utf-8", "replace")
    if "mcp-envelope" not in text:
        return False
    try:
        return _below(tomllib.loads(text), PYPROJECT_TABLE) is not None
    except (ValueError, RecursionError):
        return re.search(r"""^\s*\[\s*tool\s*\.\s*["']?mcp-envelope\b""", text, re.MULTILINE) is not None


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


def read_toml(text: str, name: str) -> FileLayers:
    """Return the settings in a TOML file of that name: all of it, or our table in a `pyproject.toml`."""
    from ..jsontext import toml_scanner  # only here: most runs have no file

    at = PYPROJECT_TABLE if os.path.basename(name) == PYPROJECT else ()
    text = text.replace("\r\n", "\n")  # as the parser does, so that its columns are ours
    try:
        root = _below(toml_scanner.parse(text), at)
    except toml_scanner.NotTOML as error:
        raise Broken(f"{name}{', ' if error.place else ''}{error.place}: {error.reason}") from None
    if root is None:
        return FileLayers(problems=(f"{name} has no table [{'.'.join(at)}]",))
    reader = _Reader(name, text, toml_scanner.key_offsets(text))
    root = reader.table(root, at)
    top = {key: value for key, value in root.items() if key not in ("profiles", "tools", _SCHEMA_KEY)}
    values = reader.layer(top, at, SETTINGS, "", "profiles", "tools")
    profiles = reader.profiles(root, (*at, "profiles"))
    tools = reader.tools(root, (*at, "tools"), SETTINGS)
    return FileLayers(values, profiles, tools, tuple(reader.problems)).with_known_profiles(profiles)


def read_own_file(file: SettingsFile, text: str, name: str) -> FileLayers:
    """Return the settings in a dialect's own file: JSON, comments and trailing commas allowed."""
    from ..jsontext import scanner

    try:
        scan = scanner.scan(text, lambda path: len(path) < _DEEPEST)
    except scanner.NotJSON as error:
        raise Broken(f"{name}{', ' if error.place else ''}{error.place}: {error.reason}") from None
    reader = _Reader(name, text, dict(scan.root.key_offsets()))
    root, known = reader.table(scan.meaning, (), noun="an object"), (file.everywhere, file.per_tool)
    for key in root:
        if key not in (*known, _SCHEMA_KEY):
            reader.complain((key,), f"there is no key {shown(key)}{did_you_mean(key, known)}")
    general = reader.table(root.get(file.everywhere), (file.everywhere,), f"{file.everywhere}: ", "an object")
    values = reader.layer(general, (file.everywhere,), file.settings, "")
    tools = reader.tools(root, (file.per_tool,), file.tool_settings)
    return FileLayers(values, tools=tools, problems=tuple(reader.problems))


def _below(root: Any, path: Keys) -> Any:
    for step in path:
        root = root.get(step) if isinstance(root, Mapping) else None
    return root


class _Reader:
    """The work on one file."""

    def __init__(self, name: str, text: str, keys: Mapping[Keys, int]) -> None:
        self.name, self.text, self.keys = name, text, keys
        self.problems: list[str] = []

    def table(
        self, value: object, at: Keys, label: str = "", noun: str = "a table", advice: str = ""
    ) -> Mapping[str, Any]:
        """Return a table as it is, and an empty one after a complaint for anything else."""
        if isinstance(value, Mapping):
            return value
        if value is not None or not label:  # nothing is JSON's way to say nothing
            self.complain(at, f"{label}{shown(value)} is not {noun}{advice}")
        return NOTHING

    def tables(self, root: Mapping[str, Any], at: Keys) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the named tables under a key such as `tools`."""
        kind = at[-1]
        for name, value in self.table(root.get(kind), at, f"{kind}: ").items():
            advice = f"; a setting for all {kind} belongs at the top" if name in SETTINGS else ""
            table = self.table(value, (*at, name), f"{kind}.{name}: ", advice=advice)
            if isinstance(value, Mapping):
                yield name, table

    def layer(
        self, table: Mapping[str, Any], at: Keys, names: Iterable[str], label: str, *also: str
    ) -> Layer:
        """Return the settings in a table that can be used. `label` says whose they are, if not everybody's.

        `also` are other keys that may have been meant.
        """
        known = {}
        for key, value in table.items():
            if key not in names:
                self.complain(
                    (*at, key), f"there is no setting {shown(key)}{did_you_mean(key, (*names, *also))}"
                )
            elif value is not None:  # JSON's way to say nothing
                known[key] = value

        def given(name: str, value: object) -> Given:
            offset = self.offset((*at, name))
            line = "" if offset is None else f":{self.text.count(chr(10), 0, offset) + 1}"
            source = f"{label} ({self.name}{line})" if label else f"file {self.name}{line}"
            return Given(value, source, self.place((*at, name)))

        def complain(name: str, message: str, *inside: str) -> None:
            self.complain((*at, name, *inside), f"{'.'.join((name, *inside))}: {message}")

        return read_layer(known, given, complain)

    def tools(self, root: Mapping[str, Any], at: Keys, names: Iterable[str]) -> dict[str, Layer]:
        tables = self.tables(root, at)
        return {name: self.layer(table, (*at, name), names, f"tool {name}") for name, table in tables}

    def profiles(self, root: Mapping[str, Any], at: Keys) -> dict[str, Layer]:
        found: dict[str, Layer] = {}
        for name, table in self.tables(root, at):
            wrong = {"profile": "a profile cannot choose a profile; use base"}
            if name in PROFILES:
                wrong["base"] = f"{name} is built in and has no base"
            for key in wrong.keys() & table.keys():
                self.complain((*at, name, key), wrong[key])
            settings = {key: value for key, value in table.items() if key not in wrong}
            found[name] = self.layer(settings, (*at, name), [*SETTINGS, "base"], f"profile {name}")
        # A base that does not exist is removed, and one of each circle.
        for name in found:
            found[name] = known_profile(found[name], found, self.problems, "base")
            chain = [name]
            while (base := found.get(chain[-1], {}).get("base")) and base.value not in chain:
                chain.append(base.value)
            if base and base.value == name:
                place = found[name]["base"].place
                self.problems.append(f"{place}: base: {name} is based on itself; minimal is used")
                found[name] = {key: each for key, each in found[name].items() if key != "base"}
        return found

    def complain(self, path: Keys, message: str) -> None:
        self.problems.append(f"{self.place(path)}: {message}")

    def place(self, path: Keys) -> str:
        offset = self.offset(path)
        return self.name if offset is None else f"{self.name}, {_place(self.text, offset)}"

    def offset(self, path: Keys) -> int | None:
        """Return where the key stands, or the nearest of those that lead to it."""
        while path and path not in self.keys:
            path = path[:-1]
        return self.keys.get(path)


def _place(text: str, offset: int) -> str:
    from ..jsontext.scanner import place  # only here: most files have nothing wrong

    return place(text, offset)
