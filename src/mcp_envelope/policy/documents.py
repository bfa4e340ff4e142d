"""Files, read: `mcp-envelope.toml` and the dialect scalpel's `response_config.json`.

Strategy: a file that cannot be parsed is Broken, and whoever asked keeps what they had. In one that can,
each thing that is wrong costs only itself: the rest applies, and the complaint names the file, the line,
the column and the name that was probably meant. The places are looked up only if there is something to
complain about or to point at, with the keys' offsets from `places`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from .comments import plain_json
from .kinds import UNSET
from .layers import Document, Given, Layer, Profile, without_rivals, without_unknown_profiles
from .names import nearest, shown
from .places import Path, json_keys, line_of, place, toml_keys
from .table import PROFILES, SETTINGS

PYPROJECT_TABLE: Final = ("tool", "mcp-envelope")
# What the dialect scalpel's file may say of all tools, and of one.
RESPONSE_GLOBAL: Final = ("profile",)
RESPONSE_TOOL: Final = ("profile", "include_only", "exclude_fields")
# Editors look for it; it is no setting.
_SCHEMA_KEY: Final = "$schema"
_AT: Final = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", re.DOTALL)


class Broken(Exception):
    """The file cannot be parsed. The message says where and why."""


def read_toml(text: str, name: str, table: Path = ()) -> Document:
    """The settings in a TOML text, at its root or in a table of it. `name` is how the file is called."""
    import tomllib

    text = text.replace("\r\n", "\n")  # as the parser does, so that its columns are ours
    try:
        root: Any = tomllib.loads(text)
    except RecursionError:
        raise Broken(f"{name}: not TOML: nested too deeply") from None
    except ValueError as error:
        raise Broken(f"{name}{_toml_place(text, error)}") from None
    reader = _Reader(name, text, toml_keys)
    for step in table:
        root = root.get(step) if isinstance(root, Mapping) else None
    if root is None:
        return Document(problems=(f"{name} has no table [{'.'.join(table)}]",))
    return reader.toml(root, table)


def read_response_config(text: str, name: str) -> Document:
    """The settings in the dialect scalpel's own file: JSON, comments and trailing commas allowed."""
    text = plain_json(text)
    try:
        root = json.loads(text)
    except RecursionError:
        raise Broken(f"{name}: not JSON: nested too deeply") from None
    except json.JSONDecodeError as error:
        at = f", line {error.lineno}, column {error.colno}"
        raise Broken(f"{name}{at}: not JSON: {error.msg[:1].lower()}{error.msg[1:]}") from None
    except ValueError as error:  # a number of too many digits
        raise Broken(f"{name}: not JSON: {error}") from None
    return _Reader(name, text, json_keys).response_config(root)


def is_settings_table(text: str) -> bool:
    """Whether a `pyproject.toml` has our table. A broken one has, if it looks like it: so it is told."""
    import tomllib

    if "mcp-envelope" not in text:
        return False
    try:
        found: Any = tomllib.loads(text)
    except (ValueError, RecursionError):
        return re.search(r"""^\s*\[\s*tool\s*\.\s*["']?mcp-envelope\b""", text, re.MULTILINE) is not None
    for step in PYPROJECT_TABLE:
        found = found.get(step) if isinstance(found, Mapping) else None
    return found is not None


class _Reader:
    """The work on one file."""

    def __init__(self, name: str, text: str, locate: Callable[[str], dict[Path, int]]) -> None:
        self.name = name
        self.text = text
        self.keys = locate(text)
        self.problems: list[str] = []

    # -- the two shapes -------------------------------------------------------------------------------------

    def toml(self, root: object, at: Path) -> Document:
        if not isinstance(root, Mapping):
            self.complain(at, f"{shown(root)} is not a table")
            root = {}
        top = {key: value for key, value in root.items() if key not in ("profiles", "tools", _SCHEMA_KEY)}
        file = f"file {self.name}"
        values = self.layer(
            top, at, SETTINGS, lambda path: f"{file}{self.line(path)}", also=("profiles", "tools")
        )
        profiles = {
            name: self.profile(name, table, (*at, "profiles", name))
            for name, table in self.tables(root, (*at, "profiles"))
        }
        tools = {
            name: self.layer(table, (*at, "tools", name), SETTINGS, self.of_tool(name))
            for name, table in self.tables(root, (*at, "tools"))
        }
        document = Document(profiles=self.standing(profiles, (*at, "profiles")))
        [values, *layers], unknown = without_unknown_profiles([values, *tools.values()], document)
        problems = (*self.problems, *unknown)
        return Document(values, document.profiles, dict(zip(tools, layers, strict=True)), problems)

    def response_config(self, root: object) -> Document:
        if not isinstance(root, Mapping):
            self.complain((), f"{shown(root)} is not an object")
            root = {}
        known = ("global", "tool_overrides")
        for key in root:
            if key not in (*known, _SCHEMA_KEY):
                self.complain((key,), f"there is no key {shown(key)}{nearest(key, known)}")
        general = root.get("global")
        if general is not None and not isinstance(general, Mapping):
            self.complain(("global",), f"global: {shown(general)} is not an object")
            general = None
        values = self.layer(
            general or {}, ("global",), RESPONSE_GLOBAL, lambda path: f"file {self.name}{self.line(path)}"
        )
        tools = {
            name: self.layer(table, ("tool_overrides", name), RESPONSE_TOOL, self.of_tool(name))
            for name, table in self.tables(root, ("tool_overrides",))
        }
        return Document(values=values, tools=tools, problems=tuple(self.problems))

    # -- their parts ----------------------------------------------------------------------------------------

    def layer(
        self,
        table: Mapping[str, Any],
        at: Path,
        names: Iterable[str],
        source: Callable[[Path], str],
        also: tuple[str, ...] = (),
    ) -> Layer:
        """The settings in a table, those that can be used."""
        names = tuple(names)
        layer: dict[str, Given] = {}
        for key, value in table.items():
            path = (*at, key)
            if key not in names:
                self.complain(path, f"there is no setting {shown(key)}{nearest(key, (*names, *also))}")
                continue
            if value is None:  # JSON's way to say nothing
                continue

            def report(message: str, *inside: str, path: Path = path) -> None:
                self.complain((*path, *inside), f"{'.'.join((path[-1], *inside))}: {message}")

            read = SETTINGS[key].kind.read(value, report)
            if read is not UNSET:
                layer[key] = Given(read, source(path), self.place(path))
        layer, both = without_rivals(layer)
        for kept, gone in both:
            self.complain((*at, gone), f"{kept} and {gone} are both set here; {kept} is used")
        return layer

    def tables(self, root: Mapping[str, Any], at: Path) -> list[tuple[str, Mapping[str, Any]]]:
        """The named tables under a key such as `tools`."""
        found = root.get(at[-1])
        if found is None:
            return []
        if not isinstance(found, Mapping):
            self.complain(at, f"{at[-1]}: {shown(found)} is not a table")
            return []
        tables: list[tuple[str, Mapping[str, Any]]] = []
        for name, table in found.items():
            if isinstance(table, Mapping):
                tables.append((name, table))
            elif table is not None:
                advice = f"; a setting of all {at[-1]} stands at the top" if name in SETTINGS else ""
                self.complain((*at, name), f"{at[-1]}.{name}: {shown(table)} is not a table{advice}")
        return tables

    def profile(self, name: str, table: Mapping[str, Any], at: Path) -> Profile:
        settings = {key: value for key, value in table.items() if key not in ("base", "profile")}
        if "profile" in table:
            self.complain((*at, "profile"), "a profile cannot choose a profile; say base")
        base = table.get("base")
        if base is not None and not isinstance(base, str):
            self.complain((*at, "base"), f"base: {shown(base)} is not the name of a profile")
            base = None
        if base is not None and name in PROFILES:
            self.complain((*at, "base"), f"{name} is built in and stands on no other profile")
            base = None
        names = [setting for setting in SETTINGS if setting != "profile"]
        layer = self.layer(
            settings, at, names, lambda path: f"profile {name} ({self.name}{self.line(path)})", also=("base",)
        )
        return Profile(base, layer)

    def standing(self, profiles: dict[str, Profile], at: Path) -> dict[str, Profile]:
        """The profiles, each on one that exists, and none on itself by a detour."""
        for name, profile in profiles.items():
            base, seen = profile.base, {name}
            while base in profiles and base not in PROFILES and base not in seen:
                seen.add(base)
                base = profiles[base].base
            if base in seen:
                self.complain((*at, name, "base"), f"base: {name} stands on itself; minimal is used")
            elif base is not None and base not in PROFILES and base == profile.base:
                known = (*PROFILES, *profiles)
                self.complain(
                    (*at, name, "base"), f"base: there is no profile {shown(base)}{nearest(base, known)}"
                )
            else:
                continue
            profiles[name] = Profile(None, profile.layer)
        return profiles

    # -- places ---------------------------------------------------------------------------------------------

    def complain(self, path: Path, message: str) -> None:
        self.problems.append(f"{self.place(path)}: {message}")

    def place(self, path: Path) -> str:
        offset = self.offset(path)
        return self.name if offset is None else f"{self.name}, {place(self.text, offset)}"

    def line(self, path: Path) -> str:
        offset = self.offset(path)
        return "" if offset is None else f":{line_of(self.text, offset)}"

    def offset(self, path: Path) -> int | None:
        """Where the key stands, or the nearest of those that lead to it."""
        while path:
            if path in self.keys:
                return self.keys[path]
            path = path[:-1]
        return None

    def of_tool(self, tool: str) -> Callable[[Path], str]:
        return lambda path: f"tool {tool} ({self.name}{self.line(path)})"


def _toml_place(text: str, error: ValueError) -> str:
    found = _AT.fullmatch(str(error))
    if found is None:
        return f": not TOML: {error}"
    line, column = found[2], found[3]
    where = f"line {line}, column {column}" if line else place(text, len(text))
    return f", {where}: not TOML: {found[1][:1].lower()}{found[1][1:]}"
