"""Questions about the data, and their right answers.

Strategy: a template is a sort of question that makes sense for one sort of column, with an answer computed from all
rows, or from the whole text. Which columns and values are asked about is drawn with a fixed seed, another one for
the sets that are held out. A question that has no single right answer, because two values tie, is not asked.
"""

from __future__ import annotations

import ast
import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from .data import Columns, DataSet

# How often each template is tried on different columns.
_TRIES: Final = 2
SEEDS: Final = {False: 20261117, True: 7}
_DATE: Final = re.compile(r"\d{4}[-/]\d\d[-/]\d\d")
_FEW: Final = 12


@dataclass(frozen=True)
class Question:
    """`column`, `other` and `value` are what the words mention; `path` is where the list is."""

    data: str
    held_out: bool
    sort: str
    words: str
    gold: Any
    path: str = ""
    column: str = ""
    other: str = ""
    value: Any = None


# -- tables: each sort with how its answer is computed from columns ---------------------------------------------


def _given(values: list[Any]) -> list[Any]:
    return [value for value in values if value is not None]


def _mean(values: list[Any]) -> float:
    given = _given(values)
    return math.fsum(given) / len(given)


def _where(columns: Columns, question: Question) -> list[Any]:
    """The values of `column` in the rows whose `other` is the value."""
    pairs = zip(columns[question.column], columns[question.other], strict=True)
    return [
        value for value, other in pairs if other == question.value and type(other) is type(question.value)
    ]


def _at_most(columns: Columns, question: Question) -> Any:
    values = columns[question.column]
    best = max(_given(values))
    return columns[question.other][values.index(best)]


def _matches(values: list[Any], wanted: Any) -> int:
    return sum(value == wanted and type(value) is type(wanted) for value in values)


COMPUTED: Final[dict[str, Callable[[Columns, Question], Any]]] = {
    "rows": lambda columns, asked: len(next(iter(columns.values()))),
    "count": lambda columns, asked: _matches(columns[asked.column], asked.value),
    "share": lambda columns, asked: _matches(columns[asked.column], asked.value) / len(columns[asked.column]),
    "sum": lambda columns, asked: math.fsum(_given(columns[asked.column])),
    "mean": lambda columns, asked: _mean(columns[asked.column]),
    "median": lambda columns, asked: statistics.median(_given(columns[asked.column])),
    "min": lambda columns, asked: min(_given(columns[asked.column])),
    "max": lambda columns, asked: max(_given(columns[asked.column])),
    "first date": lambda columns, asked: min(_given(columns[asked.column])),
    "last date": lambda columns, asked: max(_given(columns[asked.column])),
    "mode": lambda columns, asked: Counter(_given(columns[asked.column])).most_common(1)[0][0],
    "distinct": lambda columns, asked: len(set(_given(columns[asked.column]))),
    "top 3": lambda columns, asked: [
        each for each, _ in Counter(_given(columns[asked.column])).most_common(3)
    ],
    "group count": lambda columns, asked: dict(Counter(_given(columns[asked.column]))),
    "group mean": lambda columns, asked: _mean(_where(columns, asked)),
    "extreme": _at_most,
    "lookup": lambda columns, asked: _where(columns, asked)[0],
    "contains": lambda columns, asked: sum(asked.value in value for value in _given(columns[asked.column])),
}
_WORDS: Final = {
    "rows": "How many records are there?",
    "count": "How many records have {column} = {value!r}?",
    "share": "What share of the records has {column} = {value!r}?",
    "sum": "What is the sum of {column}?",
    "mean": "What is the mean of {column}?",
    "median": "What is the median of {column}?",
    "min": "What is the smallest {column}?",
    "max": "What is the largest {column}?",
    "first date": "What is the earliest {column}?",
    "last date": "What is the latest {column}?",
    "mode": "Which {column} is the most frequent?",
    "distinct": "How many different values of {column} are there?",
    "top 3": "Which three values of {column} are the most frequent?",
    "group count": "How many records are there for each {column}?",
    "group mean": "What is the mean of {column} where {other} = {value!r}?",
    "extreme": "What is the {other} of the record with the largest {column}?",
    "lookup": "What is the {column} of the record whose {other} is {value!r}?",
    "contains": "How many records have the text {value!r} in {column}?",
}


class _Sorts:
    """The columns of a table by what can be asked of them."""

    def __init__(self, columns: Columns) -> None:
        rows = len(next(iter(columns.values())))
        counted = {name: Counter(_given(values)) for name, values in columns.items()}
        # Nobody asks about a field that almost no record has.
        self.columns = {name: columns[name] for name, each in counted.items() if 20 * each.total() >= rows}
        self.counted = {name: counted[name] for name in self.columns}
        kinds = {name: set(map(type, each)) for name, each in self.counted.items()}

        def half_given(name: str) -> bool:
            return 2 * self.counted[name].total() >= rows

        self.number = [
            name for name, kind in kinds.items() if kind and kind <= {int, float} and half_given(name)
        ]
        self.string = [name for name, kind in kinds.items() if kind == {str}]
        single = [name for name, kind in kinds.items() if kind in ({str}, {int}, {bool})]
        self.scalar = [name for name in single if len(self.counted[name]) > 1]
        self.date = [name for name in self.string if all(map(_DATE.match, self.counted[name]))]
        # Dates and measures are not what one counts by, even if some of them repeat.
        self.repeated = [
            name
            for name in self.scalar
            if name not in self.date
            and 2 * len(self.counted[name]) <= rows
            and (kinds[name] != {int} or len(self.counted[name]) <= _FEW)
        ]
        self.few = [name for name in self.repeated if len(self.counted[name]) <= _FEW]
        self.label = [name for name in self.string if 2 * len(self.counted[name]) > rows and half_given(name)]
        self.text = [name for name in self.string if _is_text(self.counted[name])]


def _is_text(counted: Counter[Any]) -> bool:
    return len(counted) > 20 and sum(" " in value for value in counted) * 2 > len(counted)


def _drawn(sort: str, sorts: _Sorts, random: Random) -> dict[str, Any] | None:
    """What to ask in a question of this sort; None if there is nothing, or no single answer."""

    def pick(names: list[str]) -> str:
        return random.choice(names)

    counted = sorts.counted
    if sort == "rows":
        return {}
    if sort in ("sum", "mean", "median", "min", "max"):
        return {"column": pick(sorts.number)} if sorts.number else None
    if sort in ("first date", "last date"):
        return {"column": pick(sorts.date)} if sorts.date else None
    if sort == "distinct":
        return {"column": pick(sorts.scalar)} if sorts.scalar else None
    if sort in ("count", "share", "mode", "top 3"):
        if not sorts.repeated:
            return None
        column = pick(sorts.repeated)
        if sort in ("count", "share"):
            return {"column": column, "value": random.choice(_given(sorts.columns[column]))}
        best = [count for _, count in counted[column].most_common(4)]
        needed = 1 if sort == "mode" else 3
        clear = len(best) > needed and len(set(best[: needed + 1])) == needed + 1
        return {"column": column} if clear else None
    if sort == "group count":
        return {"column": pick(sorts.few)} if sorts.few else None
    if sort == "group mean":
        if not sorts.number or not sorts.repeated:
            return None
        column, other = pick(sorts.number), pick(sorts.repeated)
        row = random.randrange(len(sorts.columns[other]))
        value, given = sorts.columns[other][row], sorts.columns[column][row]
        return (
            None
            if None in (value, given) or column == other
            else {"column": column, "other": other, "value": value}
        )
    if sort == "extreme":
        if not sorts.number or not sorts.label:
            return None
        column, other = pick(sorts.number), pick(sorts.label)
        values = sorts.columns[column]
        best = max(_given(values))
        at = values.index(best)
        clear = values.count(best) == 1 and sorts.columns[other][at] is not None
        return {"column": column, "other": other} if clear else None
    if sort == "lookup":
        if not sorts.label:
            return None
        other = pick(sorts.label)
        column = pick([name for name, each in counted.items() if each and name != other])
        row = random.randrange(len(sorts.columns[other]))
        value, wanted = sorts.columns[other][row], sorts.columns[column][row]
        if None in (value, wanted) or counted[other][value] > 1 or isinstance(wanted, dict | list):
            return None
        return {"column": column, "other": other, "value": value}
    if not sorts.text:
        return None
    column = pick(sorts.text)
    words = re.findall(r"[A-Za-z]{4,12}", random.choice(_given(sorts.columns[column])))
    return {"column": column, "value": random.choice(words)} if words else None


def _about_table(data: DataSet, random: Random) -> Iterator[Question]:
    sorts = _Sorts(data.columns)
    for sort, words in _WORDS.items():
        asked: set[tuple[Any, ...]] = set()
        for _ in range(1 if sort == "rows" else 10 * _TRIES):
            drawn = _drawn(sort, sorts, random)
            if drawn is None or (key := tuple(drawn.items())) in asked:
                continue
            asked.add(key)
            named = words.format(**drawn)
            question = Question(data.name, data.held_out, sort, named, None, data.path, **drawn)
            yield _with(question, COMPUTED[sort](data.columns, question))
            if len(asked) == _TRIES:
                break


def _with(question: Question, gold: Any) -> Question:
    return Question(**{**question.__dict__, "gold": gold})


# -- texts ------------------------------------------------------------------------------------------------------

ERROR: Final = re.compile(r"\berror\b", re.IGNORECASE)
CODE: Final = re.compile(r"error (TS\d+)")


def lines_of(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n")


def _about_lines(text: str, random: Random) -> Iterator[tuple[str, str, Any, Any]]:
    """What can be asked of any text: sort, words, value, answer."""
    lines = lines_of(text)
    yield "lines", "How many lines are there?", None, len(lines)
    for _ in range(2):
        number = random.choice([index for index, line in enumerate(lines, 1) if len(line) > 10])
        yield "line", f"What does line {number} say?", number, lines[number - 1]
    for _ in range(2):
        word = random.choice(re.findall(r"[A-Za-z]{5,12}", random.choice(lines)) or ["error"])
        count = sum(word in line for line in lines)
        yield "lines with", f"How many lines have the text {word!r} in them?", word, count
        first = next((index for index, line in enumerate(lines, 1) if word in line), None)
        if first is not None:
            yield "first with", f"Which line is the first with {word!r} in it?", word, first


def _about_log(data: DataSet, random: Random) -> Iterator[tuple[str, str, Any, Any]]:
    lines = lines_of(str(data.payload))
    errors = [line for line in lines if ERROR.search(line)]
    yield "errors", "How many lines report an error?", None, len(errors)
    yield "first error", "What is the first error?", None, errors[0]
    yield "last error", "What is the last error?", None, errors[-1]
    codes = Counter(match[1] for line in lines if (match := CODE.search(line)))
    yield "top error", "Which error code is the most frequent?", None, codes.most_common(1)[0][0]
    for code in random.sample(sorted(codes), 2):
        yield "code", f"How often is {code} reported?", code, codes[code]


def _about_diff(data: DataSet, random: Random) -> Iterator[tuple[str, str, Any, Any]]:
    files: dict[str, tuple[int, int]] = data.facts["files"]
    yield "files", "How many files have changed?", None, len(files)
    yield "which files", "Which files have changed?", None, sorted(files)
    yield "all added", "How many lines were added in all?", None, sum(added for added, _ in files.values())
    largest = max(files, key=lambda name: files[name][0])
    yield "most added", "In which file were the most lines added?", None, largest
    for name in random.sample(sorted(files), 2):
        yield "added", f"How many lines were added in {name}?", name, files[name][0]
    for name in random.sample(sorted(files), 2):
        yield "removed", f"How many lines were removed in {name}?", name, files[name][1]


def _about_commits(data: DataSet, random: Random) -> Iterator[tuple[str, str, Any, Any]]:
    commits = data.facts["commits"]
    yield "commits", "How many commits are there?", None, len(commits)
    for _ in range(2):
        commit = random.choice(commits)
        yield "subject", f"What is the subject of commit {commit['id']}?", commit["id"], commit["subject"]
    yield "first subject", "What is the subject of the oldest commit?", None, commits[-1]["subject"]


def headings(text: str) -> list[tuple[int, int, str]]:
    """Line, level and words of each heading, outside of code."""
    found: list[tuple[int, int, str]] = []
    fence = ""
    for number, line in enumerate(lines_of(text), 1):
        if match := re.match(r" {0,3}(```+|~~~+)", line):
            if not fence:
                fence = match[1]
            elif match[1].startswith(fence):
                fence = ""
        elif not fence and (heading := re.match(r"(#{1,6})\s+(.+?)\s*#*$", line)):
            found.append((number, len(heading[1]), heading[2]))
    return found


def _about_markdown(data: DataSet, random: Random) -> Iterator[tuple[str, str, Any, Any]]:
    found = headings(str(data.payload))
    yield "headings", "How many headings are there?", None, len(found)
    second = [words for _, level, words in found if level == 2]
    yield "sections", "Which headings of the second level are there?", None, second
    for line, _, words in random.sample(found, 2):
        yield "heading at", f"On which line is the heading {words!r}?", words, line


FUNCTION: Final = re.compile(r"^\s*(?:async )?(?:def|function)\s+(\w+)\s*\(")


def functions(text: str) -> list[tuple[int, str]]:
    """Line and name of each named function."""
    return [
        (number, match[1]) for number, line in enumerate(lines_of(text), 1) if (match := FUNCTION.match(line))
    ]


def _about_source(data: DataSet, random: Random) -> Iterator[tuple[str, str, Any, Any]]:
    found = functions(str(data.payload))
    if data.name == "definitions":
        # Python's own parser says the same.
        tree = ast.walk(ast.parse(data.payload))
        assert len(found) == sum(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in tree)
    yield "functions", "How many functions are defined?", None, len(found)
    yield "last function", "Which function is defined last?", None, found[-1][1]
    counted = Counter(name for _, name in found)
    for line, name in random.sample([each for each in found if counted[each[1]] == 1], 2):
        yield "function at", f"On which line is {name} defined?", name, line


_ABOUT: Final = {
    "log": _about_log,
    "diff": _about_diff,
    "commits": _about_commits,
    "markdown": _about_markdown,
    "source": _about_source,
}


def questions(data: DataSet) -> list[Question]:
    random = Random(f"{SEEDS[data.held_out]} {data.name}")
    if data.kind == "table":
        return list(_about_table(data, random))
    asked = [*_ABOUT[data.kind](data, random), *_about_lines(str(data.payload), random)]
    return [
        Question(data.name, data.held_out, sort, words, gold, value=value)
        for sort, words, value, gold in asked
    ]


def is_right(answer: Any, question: Question) -> bool:
    """Whether it is the right answer: averages and shares to four digits, everything else exactly."""
    return _same(answer, question.gold, 1e-4 if question.sort in _ROUNDED else 1e-11)


_ROUNDED: Final = ("mean", "group mean", "median", "share")


def _same(answer: Any, gold: Any, tolerance: float) -> bool:
    if isinstance(gold, bool) or isinstance(answer, bool):
        return answer in (gold, int(gold)) if isinstance(gold, bool) else False
    if isinstance(gold, int | float):
        return isinstance(answer, int | float) and math.isclose(answer, gold, rel_tol=tolerance)
    if isinstance(gold, list):
        return (
            isinstance(answer, list)
            and len(answer) == len(gold)
            and all(_same(*pair, tolerance) for pair in zip(answer, gold, strict=True))
        )
    if isinstance(gold, dict):
        return isinstance(answer, dict) and answer == gold
    return bool(answer == gold)
