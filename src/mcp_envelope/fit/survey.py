"""What is found out about a payload while it is cut: profiles, and the rows and lines that are worth keeping.

Strategy: nothing is looked at before something is cut. The fitter asks for the rows of each list that it cuts, and
says which lists those are; each is decoded once, for its profile and for the choice of rows. A profile gets a share
of the budget, measured by the budget's own meter, and none where the budget is small. What is found is remembered,
because the search for the largest room cuts the same lists many times.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from ..jsontext.document import Node, encode, quoted

if TYPE_CHECKING:
    from ..budget import Budget
    from .documents import Cut
    from .records import Profile, Records
    from .selection import Words
    from .text import Ends

# The share of a budget that profiles may have, and the smallest budgets, in tokens and in bytes, that have any.
_SHARE: Final = 4
_SMALLEST: Final = 400
_SMALLEST_BYTES: Final = 1600
_BYTES_PER_TOKEN: Final = 2.75
_TRIES: Final = 6
# What is used of the share if that will do, and of the room if there is nothing more to say.
_ENOUGH: Final = 0.95
_ALL_SAID: Final = 0.9
# How many lists and texts are looked at.
_MOST: Final = 8
_MOST_SHOWN: Final = 4
# Names of columns are the payload's.
_LONGEST_EXAMPLE: Final = 300


class Survey:
    """`arguments` are those of the call; `selects` and `describes` say what is wanted."""

    def __init__(
        self,
        arguments: Mapping[str, Any] | None = None,
        budget_argument: str = "",
        *,
        selects: bool = True,
        describes: bool = True,
    ) -> None:
        self._arguments = arguments
        self._budget_argument = budget_argument
        self.selects = selects
        self.describes = describes
        # The documents and the texts that are cut, by their paths.
        self.roots: dict[str, Node] = {}
        self.blocks: set[str] = set()
        self._nodes: dict[str, Node] = {}
        self._texts: dict[str, bytes] = {}
        self._records: dict[str, Records | None] = {}
        self._orders: dict[str, list[int] | None] = {}
        self._lines: dict[str, Sequence[tuple[int, int]]] = {}
        self._profiles: dict[str, Profile | None] = {}
        self._examples: dict[tuple[str, str], str] = {}
        self._shown: dict[tuple[Any, ...], tuple[Mapping[str, Any], ...]] = {}

    def forget(self) -> None:
        """Release what was looked at. If the payload is fitted once more, it is looked at again."""
        for held in (self._records, self._profiles, self.roots, self._nodes, self._texts, self._lines):
            held.clear()

    @cached_property
    def words(self) -> Words:
        from .selection import Words

        given = self._arguments or {}
        return Words({name: value for name, value in given.items() if name != self._budget_argument})

    @property
    def ends(self) -> Ends:
        """Which ends of a text are kept."""
        return "tail" if self.selects else "head"

    # -- for those who cut ------------------------------------------------------------------------------------

    def cut_list(self, path: str, node: Node) -> None:
        """Take note of a list that was cut."""
        if len(self._nodes) < _MOST:
            self._nodes.setdefault(path, node)

    def cut_members(self, path: str, node: Node) -> None:
        """Take note of an object that was cut, if it may be a map of records."""
        if path not in self._nodes and all(memoryview(each.value)[0] == ord("{") for each in node.members()):
            self.cut_list(path, node)

    def order(self, path: str, node: Node) -> list[int] | None:
        """Return the indices of a list's items, those to keep first; None for the beginning."""
        if not self.selects:
            return None
        self.cut_list(path, node)
        if path not in self._orders:
            from .selection import select

            records = self._records_of(path)
            # A list of which only a sample is decoded keeps its beginning.
            self._orders[path] = (
                None if records is None or records.sampled else select(records, node.all_items(), self.words)
            )
        return self._orders[path]

    def lines(self, path: str, text: bytes) -> Sequence[tuple[int, int]]:
        """Return where the lines of a text begin and end that are worth keeping."""
        if path not in self._lines:
            if len(self._lines) >= _MOST:
                return ()
            from .outline import notable_lines

            self._texts[path] = text
            self._lines[path] = notable_lines(text, self.words, self._table_of(path)) if self.selects else ()
        return self._lines[path]

    def _table_of(self, path: str) -> Records | None:
        """The rows of a text that is CSV."""
        if path not in self._records:
            from .outline import table_of

            self._records[path] = table_of(self._texts[path])
        return self._records[path]

    def _records_of(self, path: str) -> Records | None:
        if path not in self._records:
            from .records import Records

            node = self._nodes.get(path)
            self._records[path] = None if node is None else Records.of(node) or Records.of_members(node)
        return self._records[path]

    # -- for the notice ---------------------------------------------------------------------------------------

    def profile(self, path: str) -> Profile | None:
        """Return the profile of a list or a map of records, or the outline of a text, that was cut."""
        if path not in self._profiles:
            made: Profile | None = None
            if path in self._texts:
                from .outline import outline

                made = outline(self._texts[path], self.words.all, self._table_of(path))
            elif records := self._records_of(path):
                from .records import profile

                made = profile(records, self.words.all)
            self._profiles[path] = made
        return self._profiles[path]

    def example(self, cut: Cut) -> str:
        """Return the arguments of a call that asks for more of what was cut, as an example; "" if there is none."""
        key = cut.path, cut.kind
        if key not in self._examples:
            self._examples[key] = self._example(cut)
        return self._examples[key]

    def _example(self, cut: Cut) -> str:
        from .records import identifier, table_names

        profile = self.profile(cut.path) if self.describes else None
        fields = profile.fields if profile else {}
        table = self._tables.get(cut.path) if cut.kind in ("items", "properties") else None
        if cut.kind == "blocks" and cut.path in self._nodes:
            # A list that was sent as a block for each item.
            table = table_names([""])[0]
        if cut.path in self._texts:
            if not fields or len(self.blocks) != 1:
                return f"grep={quoted(next(iter(self.words.values), 'error'))}"
            table = table_names([cut.path])[0]
        if table is None:
            return ""
        grouped = next((name for name, facts in fields.items() if len(facts.get("values", ())) > 1), None)
        number = next((name for name, facts in fields.items() if "min" in facts), None)
        if grouped is not None:
            asked = f"SELECT {identifier(grouped)}, count(*) FROM {identifier(table)} GROUP BY 1"
        else:
            what = "count(*)" if number is None else f"avg({identifier(number)})"
            asked = f"SELECT {what} FROM {identifier(table)}"
        return f"sql={quoted(asked)}" if len(asked) <= _LONGEST_EXAMPLE else ""

    @cached_property
    def _tables(self) -> Mapping[str, str]:
        """The names of the tables in the stored payload, by their paths."""
        from .records import tables_in

        for path in ("/structuredContent", ""):
            if path in self.roots:
                return tables_in(self.roots[path], path)
        if len(self.blocks) == 1 and len(self.roots) == 1:
            ((path, root),) = self.roots.items()
            return tables_in(root, path)
        return {}

    def profiles(self, cuts: Sequence[Cut], budget: Budget, limit: int) -> tuple[Mapping[str, Any], ...]:
        """Return the profiles of what was cut, within their share of the budget."""
        share = self.share(budget, limit)
        if not share:
            return ()
        paths = [cut.path for cut in cuts if cut.path in self._nodes or cut.path in self._texts]
        known = tuple(dict.fromkeys(path for path in paths if self.profile(path)))[:_MOST_SHOWN]
        if not known:
            return ()
        key = known, limit, budget.unit
        if key not in self._shown:
            self._shown[key] = self._within(known, budget, share)
        return self._shown[key]

    def share(self, budget: Budget, limit: int) -> int:
        """Return how much of a limit profiles may have."""
        smallest = _SMALLEST if budget.unit == "tokens" else _SMALLEST_BYTES
        return limit // _SHARE if self.describes and limit >= smallest else 0

    def _within(self, paths: Sequence[str], budget: Budget, share: int) -> tuple[Mapping[str, Any], ...]:
        room = round(share if budget.unit == "bytes" else share * _BYTES_PER_TOKEN)
        least, most = 0, sys.maxsize
        best: list[Mapping[str, Any]] = []
        for _ in range(_TRIES):
            made = list(self._sized(paths, room))
            text = encode(made)
            used = budget.load(text, budget.meter.count(text))
            if used <= share:
                best, least = made, room
                if used >= _ENOUGH * share or len(text) < _ALL_SAID * room:
                    break
            else:
                most = min(room, len(text))
            # As much as is likely to fit, but never again what was too much or too little.
            room = min(max(room * share // used, least + 1), most - 1)
        return tuple(best)

    def _sized(self, paths: Sequence[str], room: int) -> Iterator[Mapping[str, Any]]:
        for place, path in enumerate(paths):
            profile = self.profile(path)
            assert profile is not None
            if made := profile.within(room // (len(paths) - place) - len(path) - 12):
                entry = {"path": path, **made} if path else made
                room -= len(encode(entry)) + 1
                yield entry
