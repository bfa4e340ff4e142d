"""A table of what a document says: one row per sentence, and how it is checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .ways import WAYS, Talk


@dataclass(frozen=True)
class Row:
    """`said` is a sentence of the document in a few words of our own, the `number`th of its `section`.

    `but` has the ways to which it does not apply, each with the reason; "all" for a sentence about something else.
    """

    section: str
    number: int
    said: str
    check: Callable[[Talk], Any] | None = None
    but: Mapping[str, str] = field(default_factory=dict)

    @property
    def ways(self) -> Sequence[str]:
        return [way for way in WAYS if way not in self.but and "all" not in self.but]


class Table:
    """The rows of one document, numbered within their sections."""

    def __init__(self, dialect: str, document: str) -> None:
        self.dialect, self.document = dialect, document
        self.rows: list[Row] = []
        self._section = ""
        self._number = 0

    def section(self, name: str) -> None:
        self._section, self._number = name, 0

    def __call__(self, said: str, check: Callable[[Talk], Any] | None = None, **but: str) -> None:
        assert check is not None or "all" in but, said
        self._number += 1
        self.rows.append(Row(self._section, self._number, said, check, but))
