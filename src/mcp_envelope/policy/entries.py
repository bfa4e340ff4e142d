"""The kinds of values that are tables: entries by path or name, and records with fixed keys.

Strategy: each entry is judged on its own, and complained about under its own key. Tables of entries add up
over the layers, so that a tool's own pattern does not switch off the patterns of all; a record is one value
and does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ..ranking import rank
from .kinds import UNSET, Report, Text, Unset, from_json, is_sendable
from .names import nearest, shown


class _Entries:
    """A table of named entries. A stronger layer adds entries; one that is empty takes an entry away."""

    merges = True
    paths = True
    words: str

    def read(self, value: object, report: Report) -> Mapping[str, Any] | Unset:
        if not isinstance(value, Mapping):
            report(f"{shown(value)} is not a table")
            return UNSET
        entries = {name: self._entry(name, entry, report) for name, entry in value.items()}
        return MappingProxyType({name: entry for name, entry in entries.items() if entry is not UNSET})

    def _entry(self, name: str, value: object, report: Report) -> Any:
        if not is_sendable(name, report):
            return UNSET
        if self.paths and "/" in name and not name.startswith("/"):
            report("write a path from the root, such as /data/items, or a bare field name", name)
            return UNSET
        return self.entry(name, value, lambda message: report(message, name))

    def entry(self, name: str, value: object, report: Report) -> Any:
        raise NotImplementedError

    def parse(self, text: str) -> object:
        return from_json(text)

    def schema(self) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": self.entry_schema()}

    def entry_schema(self) -> dict[str, Any]:
        return {"type": "string"}


class Texts(_Entries):
    """Path or field name to text."""

    words = "table: path or field → text"

    def entry(self, name: str, value: object, report: Report) -> str | Unset:
        return Text().read(value, report)


class Rankings(_Entries):
    """Path or field name to the keys of a ranking."""

    words = "table: path or field → ranking keys"

    def entry(self, name: str, value: object, report: Report) -> tuple[str, ...] | Unset:
        if isinstance(value, str):
            value = [key.strip() for key in value.split(",")] if value.strip() else []
        if not isinstance(value, list | tuple) or not all(isinstance(key, str) for key in value):
            report(f'{shown(value)} is not a ranking; write ["file", "-score"]')
            return UNSET
        try:
            if value:
                rank(*value)
        except ValueError as error:
            report(str(error))
            return UNSET
        return tuple(value) if all(is_sendable(key, report) for key in value) else UNSET

    def entry_schema(self) -> dict[str, Any]:
        key = {"type": "string", "pattern": "^([-@+].|[^-@+])"}
        return {"anyOf": [{"type": "string"}, {"type": "array", "items": key}]}


class Patterns(_Entries):
    """Name to regular expression."""

    words = "table: name → regular expression"
    paths = False

    def entry(self, name: str, value: object, report: Report) -> str | Unset:
        pattern = Text().read(value, report)
        if isinstance(pattern, str) and pattern:
            from ..redaction import BadPattern, Redactor  # only here: most files have no patterns

            try:
                Redactor({name: pattern}, keys=None)  # which knows what it can use
            except BadPattern as error:
                report(str(error))
                return UNSET
        return pattern

    def entry_schema(self) -> dict[str, Any]:
        # No "format": "regex": that is the JavaScript flavour, and these are Python's.
        return {"type": "string"}


@dataclass(frozen=True)
class Record:
    """A table with fixed keys, all texts. It is replaced as a whole."""

    required: tuple[str, ...]
    optional: tuple[str, ...]
    merges = False

    @property
    def words(self) -> str:
        return "table: " + ", ".join([*self.required, *(f"{key}?" for key in self.optional)])

    def read(self, value: object, report: Report) -> Mapping[str, str] | Unset:
        if not isinstance(value, Mapping):
            report(f"{shown(value)} is not a table")
            return UNSET
        record: dict[str, str] = {}
        for key, entry in value.items():
            if key not in (known := (*self.required, *self.optional)):
                report(f"there is no key {shown(key)}{nearest(key, known)}", key)
            elif isinstance(text := Text().read(entry, lambda message, key=key: report(message, key)), str):
                record[key] = text
        if missing := [key for key in self.required if key not in record]:
            report(f"{missing[0]} is missing")
            return UNSET
        return MappingProxyType(record)

    def parse(self, text: str) -> object:
        return from_json(text) if text.lstrip().startswith("{") else {self.required[0]: text}

    def schema(self) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {key: {"type": "string"} for key in (*self.required, *self.optional)},
            "required": list(self.required),
            "additionalProperties": False,
        }
