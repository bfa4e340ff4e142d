"""What is found out about a payload while it is cut: profiles, and the rows and lines that are worth keeping.

Strategy: nothing is looked at before something is cut. The fitter asks for the rows of each list that it cuts, and
says which lists those are; each is decoded once, for its profile and for the choice of rows. A profile gets a share
of the budget, measured by the budget's own meter, and none where the budget is small. What is found is remembered,
because the search for the largest room cuts the same lists many times.

A few rows stand out: those whose status is rare or bad, those that the words of the call match best
(BM25 over the row's text), the extremes of the numbers that the call names, and the largest of other numbers. They
are mixed with the beginning of the list, so that whatever number of rows fits, most of them are the beginning and
some are those. What is kept is shown in its original order. Everything here is bounded: a list too large to be
decoded in passing keeps its beginning.
"""

from __future__ import annotations

import math
import re
import sys
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from heapq import nlargest
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from ..jsontext.document import Buffer, Node, encode, quoted

if TYPE_CHECKING:
    from ..budget import Budget
    from .documents import Cut
    from .records import Profile, Records
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

# -- rows that stand out
_MOST_OF_A_KIND: Final = 8
# The beginning goes first with so many rows; so many more follow each row that stands out.
_HEAD: Final = 2
_BETWEEN: Final = 2
# So many rows are kept for the largest number in them.
_MOST_LARGEST: Final = 4
# A value is rare if it is in at most this share of the rows.
_RARE: Final = 0.05
_MOST_VALUES: Final = 16
_MOST_WORDS: Final = 16
# A word that is in a larger share of the rows doesn't tell them apart.
_TELLING: Final = 16
_LONGEST_VALUE: Final = 40
_STATUS: Final = re.compile(
    r"(?i)(^|[._])(status|state|level|severity|result|outcome|conclusion|ok|success|error)s?$"
)
_BAD: Final = re.compile(
    r"(?i)fail|error|critical|fatal|timed? ?out|exception|denied|reject|abort|crash|panic|unhealthy|^(false|down)$"
)
_WORD: Final = re.compile(r"[^\W_]{3,}")
# How quickly further occurrences of a word stop counting, and how much long rows are held against them.
_SATURATION: Final = 1.2
_LENGTH_WEIGHT: Final = 0.75


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


# -- rows that are worth keeping ------------------------------------------------------------------------------


class Words:
    """The words of a call's arguments: those of the values, and all of them with the names."""

    def __init__(self, arguments: Mapping[str, Any] | None) -> None:
        self.values: tuple[str, ...] = ()
        self.all: frozenset[str] = frozenset()
        if arguments:
            values = list(dict.fromkeys(_words(arguments.values())))
            self.values = tuple(values[:_MOST_WORDS])
            self.all = frozenset([*values, *_words(list(arguments)), *map(str.lower, arguments)])


def _words(value: Any, depth: int = 0) -> list[str]:
    if isinstance(value, str):
        text = value[:1000].lower()
        return [*_WORD.findall(text), *([text] if 0 < len(text) <= 40 else [])]
    if type(value) is int and value > 999:
        return [str(value)]
    if isinstance(value, Mapping):
        value = value.values()
    if isinstance(value, Collection) and depth < 3 and not isinstance(value, bytes):
        return [word for each in list(value)[:20] for word in _words(each, depth + 1)]
    return []


def select(records: Records, items: Sequence[Buffer], words: Words) -> list[int] | None:
    """Return all indices, those to keep first; None if the beginning is as good as anything."""
    notable, largest = standing_out(records, items, words)
    if not notable and not largest:
        return None
    order = list(range(_HEAD))
    at = _HEAD
    for indices, between in ((notable, _BETWEEN), (largest, 1)):
        for index in indices:
            order += [index, *range(at, at + between)]
            at += between
    order += range(at, records.total)
    return list(dict.fromkeys([index for index in order if index < records.total]))


def standing_out(records: Records, items: Sequence[Buffer], words: Words) -> tuple[list[int], list[int]]:
    """Return the rows that stand out by what they say or by what was asked, and those with the largest numbers."""
    notable = [*_bad(records), *_matching(items, words.values), *_extremes(records, words.all)]
    return list(dict.fromkeys(notable)), _largest(records)


def _bad(records: Records) -> list[int]:
    """Rows whose status-like field has a rare value; those that are bad by the word for it first."""
    found: list[tuple[bool, int]] = []
    rare = max(1, int(records.total * _RARE))
    for name in records.columns:
        values, counted = records.groups(name), records.counts(name)
        is_status = _STATUS.search(name) is not None
        if len(counted) < 2 or len(counted) > (records.total // 2 if is_status else _MOST_VALUES):
            continue
        for value, count in counted.items():
            if count > rare or not isinstance(value, str | bool | int) or len(str(value)) > _LONGEST_VALUE:
                continue
            is_bad = isinstance(value, str | bool) and _BAD.search(str(value)) is not None
            if is_bad or (is_status and len(counted) <= _MOST_VALUES):
                found += [(not is_bad, index) for index in _places(values, value, _MOST_OF_A_KIND)]
    return [index for _, index in sorted(found, key=lambda each: each[0])][:_MOST_OF_A_KIND]


def _places(values: Sequence[Any], value: Any, most: int) -> list[int]:
    places: list[int] = []
    with suppress(ValueError):
        while len(places) < most:
            places.append(values.index(value, places[-1] + 1 if places else 0))
    return places


def _extremes(records: Records, words: Collection[str]) -> list[int]:
    found: list[int] = []
    for name, values in records.columns.items() if words else ():
        if not any(part.lower() in words for part in (name, *name.split("."), *name.split("_"))):
            continue
        is_number = records.kinds(name) & {int, float}
        numbers = [value for value in values if type(value) in (int, float)] if is_number else []
        if len(numbers) * 2 > len(values):
            found += [values.index(max(numbers)), values.index(min(numbers))]
    return found[:_MOST_OF_A_KIND]


def _largest(records: Records) -> list[int]:
    """The rows with the largest of each number: one that has a single largest, and doesn't just count the rows."""
    found: dict[int, None] = {}
    last = records.total - 1
    for name, values in records.columns.items() if len(records.columns) > 1 else ():
        if not records.kinds(name) or not records.kinds(name) <= {int, float}:
            continue
        numbers = [value for value in values if value is not None] if records.nulls(name) else values
        most = max(numbers)
        index = values.index(most)
        if len(numbers) * 2 > len(values) and index not in (0, last) and numbers.count(most) == 1:
            found[index] = None
    return list(found)[:_MOST_LARGEST]


def _matching(items: Sequence[Buffer], words: Sequence[str]) -> list[int]:
    """The rows that match the words best; a word that is in most rows says nothing."""
    if not words:
        return []
    text = b"\n".join(items).lower()
    ends = list(accumulate([len(item) + 1 for item in items]))
    average = len(text) / len(items)
    scores: defaultdict[int, float] = defaultdict(float)
    absent: list[str] = []
    for word in words:
        if any(each in word for each in absent):
            continue  # a phrase with such a word is nowhere, either
        counts = _occurrences(text, ends, word.encode("utf-8", "replace"))
        if counts is None:
            continue
        if not counts:
            absent.append(word)
        weight = math.log(1 + (len(items) - len(counts) + 0.5) / (len(counts) + 0.5))
        for index, count in counts.items():
            length = 1 - _LENGTH_WEIGHT + _LENGTH_WEIGHT * len(items[index]) / average
            scores[index] += weight * count * (_SATURATION + 1) / (count + _SATURATION * length)
    return nlargest(_MOST_OF_A_KIND, scores, key=scores.__getitem__)


def _occurrences(text: bytes, ends: Sequence[int], word: bytes) -> Counter[int] | None:
    """How often a word is in each row that has it; None if it is so frequent that it says little."""
    most = max(len(ends) // _TELLING, _MOST_OF_A_KIND)
    found: Counter[int] = Counter()
    at = text.find(word)
    for _ in range(2 * most + 1):
        if at < 0:
            return found
        found[bisect_right(ends, at)] += 1
        if len(found) > most:
            return None
        at = text.find(word, at + len(word))
    return None
