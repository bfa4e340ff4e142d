"""Which rows of a list are worth keeping besides its beginning.

Strategy: a few rows stand out: those whose status is rare or bad, those that the words of the call match best
(BM25 over the row's text), the extremes of the numbers that the call names, and the largest of other numbers. They
are mixed with the beginning of the list, so that whatever number of rows fits, most of them are the beginning and
some are those. What is kept is shown in its original order. Everything here is bounded: a list too large to be
decoded in passing keeps its beginning.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from heapq import nlargest
from itertools import accumulate
from typing import Any, Final

from ..jsontext.document import Buffer
from .records import Records

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
