"""The reader: answers questions from what it is shown, as far as that can be known, and writes one further call.

Strategy: it is the same for every contestant and has never seen the data. It reads rows wherever it finds them,
counts where they are told, and the profile or outline if there is one. If all rows are shown, it computes the
answer. If the reply says that something is missing, by whatever mark, it answers only what the rest of the reply
covers; everything else is not known. The further call uses the handle, the table and the columns that the reply
names, and nothing else.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Final

from .data import Columns, columns
from .questions import CODE, COMPUTED, ERROR, FUNCTION, Question, functions, headings, lines_of

NOT_KNOWN: Final = object()
# Ours, shrinkfit's, FastMCP's, Claude Code's, and the usual one of head and tail.
_MISSING: Final = re.compile(
    r"\benvelope_read\b|… ?\[|\[\+\d+ chars\]|\bomitted\b|"
    r"\[Response truncated|characters truncated\]|Output too large"
)
_SEAM: Final = re.compile(r"^… \[lines (\d+) to (\d+) left out\]$", re.MULTILINE)
_OTHER_SEAM: Final = re.compile(r"^… \[|^\.\.\.($| \[)|^\[Response truncated")
_HANDLE: Final = re.compile(r'handle"?[:=] ?"?(\w{20,43})')
_SQL: Final = re.compile(r'\bsql=\\?"SELECT .*? FROM (?:\\?"([^"\\]+)\\?"|(\w+))', re.IGNORECASE)
_COUNT: Final = re.compile(r"(\d+) (rows|sampled|more)")
_HEADLINE: Final = re.compile(
    r"(All|/\S*): ((?:\d+ (?:rows|sampled|more)(?:, )?)+"
    r"|\d+ (files|headings|definitions|commits)\b.*|(lines with).*)"
)
_FIELD: Final = re.compile(r'("(?:[^"\\]|\\.)*"|[^:]+): (.+)')
_MEANS_BY: Final = re.compile(r'Means by ("(?:[^"\\]|\\.)*"|\S+)')
_PREVIEW: Final = "Preview (first 2KB):\n"


class Reply:
    """What can be read in the texts of one reply."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = texts
        self.whole = "\n".join(texts)
        self.is_missing = _MISSING.search(self.whole) is not None
        self.documents = [document for text in texts if isinstance(document := _json(text), dict | list)]
        self.notice: dict[str, Any] = next(
            (each["_envelope"] for each in self.documents if isinstance(each, dict) and "_envelope" in each),
            {},
        )
        found = _HANDLE.search(self.whole)
        self.handle = found[1] if found else None

    # -- rows -------------------------------------------------------------------------------------------------

    @cached_property
    def _lists(self) -> dict[str, list[Any]]:
        """The lists of records in its documents, by their paths; an object of objects is one, too."""
        found: dict[str, list[Any]] = {}

        def walk(value: Any, path: str) -> None:
            if isinstance(value, list) and any(isinstance(row, dict) for row in value):
                found[path] = [row for row in value if isinstance(row, dict) and "…" not in row]
            elif isinstance(value, dict):
                members = {key: each for key, each in value.items() if key != "_envelope"}
                if len(members) > 7 and all(isinstance(each, dict) for each in members.values()):
                    found[path] = [{"key": key, **each} for key, each in members.items()]
                else:
                    for key, each in members.items():
                        walk(each, f"{path}/{key}")

        for document in self.documents:
            walk(document, "")
        return found

    @cached_property
    def _scattered(self) -> list[dict[str, Any]]:
        """The whole records in a JSON document that was cut anywhere."""
        rows: list[dict[str, Any]] = []
        decoder = json.JSONDecoder()
        for text in self.texts:
            at = text.find("{")
            while at >= 0:
                try:
                    row, end = decoder.raw_decode(text, at)
                    rows.append(row)
                except ValueError:
                    end = at + 1
                at = text.find("{", end)
        return rows

    @cached_property
    def _csv(self) -> Columns:
        import csv

        from .data import _typed

        shown = [line for _, line in self.numbered]
        try:
            header, *rows = csv.reader(shown)
        except ValueError:
            return {}
        rows = [row for row in rows if len(row) == len(header)]
        return (
            {name: _typed([row[index] for row in rows]) for index, name in enumerate(header)} if rows else {}
        )

    def columns(self, path: str) -> Columns:
        rows = self._lists.get(path) or ([] if self.documents else self._scattered)
        return columns(rows) if rows else {} if self.documents else self._csv

    # -- what is told -----------------------------------------------------------------------------------------

    @cached_property
    def _profiles(self) -> list[dict[str, Any]]:
        """Those in the notice of an object, or in a notice that is a text of its own."""
        if given := self.notice.get("profile"):
            return list(given)
        found: list[dict[str, Any]] = []
        kind = ""
        told: dict[str, str] = {}
        for line in self.texts[0].split("\n") if len(self.texts) > 1 else ():
            if headline := _HEADLINE.fullmatch(line):
                kind = headline[3] or ("linesWith" if headline[4] else "")
                figures = {name: int(count) for count, name in _COUNT.findall(headline[2] or "")}
                path = "" if headline[1] == "All" else headline[1]
                found.append(
                    {
                        "path": path,
                        **figures,
                        "fields": {},
                        **({kind: [], "told": headline[2]} if kind else {}),
                    }
                )
                told = found[-1]["fields"]
            elif found and (by := _MEANS_BY.fullmatch(line)):
                told = found[-1].setdefault("meansBy", {})[_bare(by[1])] = {}
            elif found and kind:
                found[-1][kind].append(line)
            elif found and (field := _FIELD.fullmatch(line)):
                told[_bare(field[1])] = field[2]
        return found

    def profile(self, path: str) -> dict[str, Any]:
        return next((each for each in self._profiles if each.get("path", "") == path), {})

    def total(self, path: str) -> int | None:
        """How many items the list has."""
        if "rows" in (profile := self.profile(path)):
            return int(profile["rows"])
        for cut in self.notice.get("dropped", ()):
            if cut["path"] == path and cut.get("unit", "items") in ("items", "properties"):
                return int(cut["total"])
        if not path and (told := re.search(r"^Showing \d+ of (\d+) items", self.whole, re.MULTILINE)):
            return int(told[1])
        rows, omitted = self._with_omitted(path)
        return len(rows) + omitted if omitted else None

    def _with_omitted(self, path: str) -> tuple[list[Any], int]:
        """The items shown, and how many an item in their place says that it stands for."""
        for document in self.documents:
            value: Any = document
            for step in path.split("/")[1:]:
                value = value.get(step) if isinstance(value, dict) else None
            if isinstance(value, list):
                marks = [re.search(r"(\d+) items omitted", each) for each in value if isinstance(each, str)]
                return [each for each in value if isinstance(each, dict)], sum(
                    int(mark[1]) for mark in marks if mark
                )
        return [], 0

    # -- lines ------------------------------------------------------------------------------------------------

    @cached_property
    def numbered(self) -> list[tuple[int | None, str]]:
        """The lines shown, with their numbers as far as they can be known."""
        text = self.texts[-1]
        if _PREVIEW in text:
            text = text.split(_PREVIEW, 1)[1]
        shown: list[tuple[int | None, str]] = []
        number: int | None = 1
        for line in lines_of(text):
            if seam := _SEAM.match(line):
                number = int(seam[2]) + 1
            elif _OTHER_SEAM.match(line):
                # The line before was cut somewhere, and so was the one after.
                while shown and not shown[-1][1]:
                    shown.pop()
                shown = shown[:-1]
                number = None
            else:
                shown.append((number, line))
                number = None if number is None else number + 1
        return shown

    @property
    def beginning(self) -> list[str]:
        """The lines from the first to the first gap."""
        return [line for index, (number, line) in enumerate(self.numbered, 1) if number == index]

    @property
    def total_lines(self) -> int | None:
        last = lines_of(self.texts[-1])[-1]
        if seam := _SEAM.match(last):
            return int(seam[2])
        number = self.numbered[-1][0] if self.numbered else None
        return number if _SEAM.search(self.texts[-1]) or not self.is_missing else None

    def outline(self, kind: str) -> Outline:
        for each in self._profiles:
            if isinstance(each.get(kind), list):
                return Outline(each[kind], each.get("told", ""))
        return Outline([], "")


class Outline:
    """The entries of an outline, how many are left out between them, and what is told of all."""

    def __init__(self, entries: list[str], told: str) -> None:
        gaps = [match for each in entries if (match := re.fullmatch(r"… (\d+) more", each))]
        self.entries = [each for each in entries if not re.fullmatch(r"… \d+ more", each)]
        self.more = sum(int(gap[1]) for gap in gaps)
        # What is told of the first lines is not about all.
        told = "" if "in the first" in told else told
        self.counts = {name: int(count) for count, name in re.findall(r"(\d+) ([a-z]+)", told)}
        self.changed = [int(count) for count in re.findall(r"[+-](\d+)", told)]


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


# -- one field of a profile -----------------------------------------------------------------------------------

_PART: Final = re.compile(r'((?:"(?:[^"\\]|\\.)*"|[^,"]|"|,(?! ))+)(?:, |$)')
_FIGURE: Final = re.compile(
    r'(min|max|mean|median|sum) (-?[\d.]+(?:e[-+]?\d+)?)(?: \(row (\d+)(?: ("(?:[^"\\]|\\.)*"|[^"].*?))?\))?(?: |$)'
)
_COUNTED: Final = re.compile(r'("(?:[^"\\]|\\.)*"|.+):(\d+)')
_MEAN: Final = re.compile(r'("(?:[^"\\]|\\.)*"|.+):(-?[\d.]+(?:e[-+]?\d+)?)')


class Field:
    """What a line such as `min 1 max 9 mean 4.5, 12 distinct, most a:7, b:5` says."""

    def __init__(self, line: str) -> None:
        self.figures: dict[str, float] = {}
        self.distinct: int | None = None
        self.values: dict[str, int] = {}
        self.top: dict[str, int] = {}
        self.first = self.last = None
        counted = self.values
        for match in _PART.finditer(line):
            part = match[1]
            if not match.start() and (figures := list(_FIGURE.finditer(part))):
                self.figures = {figure[1]: _number(figure[2]) for figure in figures}
            elif part.endswith(" distinct") and part[:-9].isdigit():
                self.distinct = int(part[:-9])
            elif (dates := re.fullmatch(r"(\d{4}-\S+) to (\d{4}-\S+)", part)) and not match.start():
                self.first, self.last = dates[1], dates[2]
            elif part.startswith("e.g. "):
                break
            else:
                if part.startswith("most ") and self.distinct is not None:
                    counted, part = self.top, part[5:]
                if pair := _COUNTED.fullmatch(part):
                    counted[_bare(pair[1])] = int(pair[2])


def means(line: str) -> dict[str, float]:
    """What a line such as `open:4.5, closed:12` says."""
    pairs = [_MEAN.fullmatch(match[1]) for match in _PART.finditer(line)]
    return {_bare(pair[1]): float(pair[2]) for pair in pairs if pair}


def _bare(text: str) -> str:
    return str(json.loads(text)) if text.startswith('"') else text


def _number(text: str) -> float:
    return int(text) if re.fullmatch(r"-?\d+", text) else float(text)


def _spelled(value: Any) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


# -- tables ---------------------------------------------------------------------------------------------------


def first_answer(asked: Question, reply: Reply) -> Any:
    """The answer, as far as the first reply holds it."""
    if asked.sort in COMPUTED:
        return _of_table(asked, reply)
    return _of_text(asked, reply)


def _of_table(asked: Question, reply: Reply) -> Any:
    shown = reply.columns(asked.path)
    needed = [name for name in (asked.column, asked.other) if name]
    if not reply.is_missing and shown and all(name in shown for name in needed):
        return COMPUTED[asked.sort](shown, asked)
    if asked.sort == "rows":
        total = reply.total(asked.path)
        return NOT_KNOWN if total is None else total
    profile = reply.profile(asked.path)
    line = profile.get("fields", {}).get(asked.column) if "sampled" not in profile else None
    field = Field(line) if line is not None else None
    if asked.sort == "lookup":
        rows = [
            value
            for value, other in zip(shown.get(asked.column, ()), shown.get(asked.other, ()), strict=False)
            if other == asked.value and value is not None
        ]
        return rows[0] if rows and "…" not in str(rows[0]) else NOT_KNOWN
    if asked.sort == "group mean":
        line = profile.get("meansBy", {}).get(asked.other, {}).get(asked.column, "")
        return means(line).get(_spelled(asked.value), NOT_KNOWN)
    if field is None:
        return NOT_KNOWN
    if asked.sort == "extreme" and "max" in field.figures:
        for value, other in zip(shown.get(asked.column, ()), shown.get(asked.other, ()), strict=False):
            if value == field.figures["max"] and other is not None and "…" not in str(other):
                return other
        return NOT_KNOWN
    told = _TOLD.get(asked.sort)
    return NOT_KNOWN if told is None else told(field, asked, reply)


def _counted(field: Field, asked: Question, reply: Reply) -> Any:
    wanted = _spelled(asked.value)
    if wanted in field.values or wanted in field.top:
        return {**field.top, **field.values}[wanted]
    return NOT_KNOWN


def _share(field: Field, asked: Question, reply: Reply) -> Any:
    count, total = _counted(field, asked, reply), reply.total(asked.path)
    return NOT_KNOWN if count is NOT_KNOWN or not total else count / total


def _most_frequent(most: int) -> Callable[[Field, Question, Reply], Any]:
    def told(field: Field, asked: Question, reply: Reply) -> Any:
        counts = list((field.values or field.top).items())
        best = counts[: most + 1]
        is_clear = len({count for _, count in best}) == len(best)
        if len(counts) < most or not is_clear or any("…" in value for value, _ in best[:most]):
            return NOT_KNOWN
        values = [_as_shown(value, asked, reply) for value, _ in best[:most]]
        return values if most > 1 else values[0]

    return told


def _as_shown(text: str, asked: Question, reply: Reply) -> Any:
    """The value as the rows have it, so that 7 is told from "7"."""
    for value in reply.columns(asked.path).get(asked.column, ()):
        if value is not None:
            if isinstance(value, bool):
                return text == "true"
            return (
                _number(text) if isinstance(value, int | float) and re.fullmatch(r"-?[\d.]+", text) else text
            )
    return text


def _group_count(field: Field, asked: Question, reply: Reply) -> Any:
    if not field.values or any("…" in value for value in field.values):
        return NOT_KNOWN
    return {_as_shown(value, asked, reply): count for value, count in field.values.items()}


def _figure(name: str) -> Callable[[Field, Question, Reply], Any]:
    return lambda field, asked, reply: field.figures.get(name, NOT_KNOWN)


_TOLD: Final[dict[str, Callable[[Field, Question, Reply], Any]]] = {
    **{name: _figure(name) for name in ("sum", "mean", "median", "min", "max")},
    "first date": lambda field, asked, reply: field.first or NOT_KNOWN,
    "last date": lambda field, asked, reply: field.last or NOT_KNOWN,
    "count": _counted,
    "share": _share,
    "mode": _most_frequent(1),
    "top 3": _most_frequent(3),
    "distinct": lambda field, asked, reply: field.distinct or len(field.values) or NOT_KNOWN,
    "group count": _group_count,
}


# -- texts ----------------------------------------------------------------------------------------------------


def _of_text(asked: Question, reply: Reply) -> Any:
    if not reply.is_missing:
        return _of_lines(asked, reply.texts[-1])
    if asked.sort == "lines":
        return reply.total_lines or NOT_KNOWN
    if asked.sort == "line":
        return next((line for number, line in reply.numbered if number == asked.value), NOT_KNOWN)
    if asked.sort == "first with":
        return next(
            (index for index, line in enumerate(reply.beginning, 1) if asked.value in line), NOT_KNOWN
        )
    if asked.sort == "first error":
        return next((line for line in reply.beginning if ERROR.search(line)), NOT_KNOWN)
    if asked.sort == "last error":
        return _last(reply, lambda line: line if ERROR.search(line) else None)
    if asked.sort == "subject":
        return next(_subjects(reply.beginning, asked.value), NOT_KNOWN)
    if asked.sort == "first subject":
        return _last(
            reply, lambda line: line.strip() if re.match(r" {4}\S", line) else None, starts="commit "
        )
    return _of_outline(asked, reply)


def _last(reply: Reply, find: Callable[[str], Any], starts: str = "") -> Any:
    """What is found in the last lines, if the text is shown to its end."""
    lines = lines_of(reply.texts[-1])
    seams = [index for index, line in enumerate(lines) if _SEAM.match(line) or _OTHER_SEAM.match(line)]
    if not seams or seams[-1] == len(lines) - 1:
        return NOT_KNOWN
    end = lines[seams[-1] + 2 :]
    if starts:
        places = [index for index, line in enumerate(end) if line.startswith(starts)]
        end = end[places[-1] :][:8] if places else []
        return next((found for line in end if (found := find(line))), NOT_KNOWN)
    return next((found for line in reversed(end) if (found := find(line))), NOT_KNOWN)


def _subjects(lines: list[str], commit: str) -> Iterator[str]:
    for index, line in enumerate(lines):
        if line == f"commit {commit}":
            yield from (each.strip() for each in lines[index + 1 : index + 8] if each.startswith("    "))


def _of_outline(asked: Question, reply: Reply) -> Any:
    if asked.sort in ("files", "which files", "all added", "most added", "added", "removed"):
        return _of_files(asked, reply.outline("files"))
    if asked.sort in ("headings", "sections", "heading at"):
        outline = reply.outline("headings")
        found = [match for each in outline.entries if (match := re.fullmatch(r"(\d+): (#+) (.+)", each))]
        if asked.sort == "headings":
            return outline.counts.get("headings", NOT_KNOWN)
        if asked.sort == "heading at":
            return next((int(match[1]) for match in found if match[3] == asked.value), NOT_KNOWN)
        return NOT_KNOWN if outline.more or not found else [match[3] for match in found if len(match[2]) == 2]
    if asked.sort in ("commits", "subject", "first subject"):
        outline = reply.outline("commits")
        if asked.sort == "commits":
            return outline.counts.get("commits", NOT_KNOWN)
        found = [match for each in outline.entries if (match := re.fullmatch(r"([0-9a-f]{7}) (.+)", each))]
        return next((each[2] for each in found if str(asked.value).startswith(each[1])), NOT_KNOWN)
    if asked.sort in ("errors", "top error", "code"):
        outline = reply.outline("linesWith")
        found = [match for each in outline.entries if (match := re.fullmatch(r"(\w+): (\d+)", each))]
        counts = {match[1]: int(match[2]) for match in found}
        codes = {name: count for name, count in counts.items() if CODE.match(f"error {name}")}
        if asked.sort == "top error":
            return max(codes, key=lambda code: codes[code]) if codes else NOT_KNOWN
        return counts.get("error" if asked.sort == "errors" else asked.value, NOT_KNOWN)
    outline = reply.outline("definitions")
    found = [match for each in outline.entries if (match := re.fullmatch(r"(\d+): (.+)", each))]
    if asked.sort == "functions":
        of_these = [outline.counts[name] for name in ("def", "function") if name in outline.counts]
        return sum(of_these) if of_these else NOT_KNOWN
    named = [(int(each[1]), match[1] if (match := FUNCTION.match(each[2])) else each[2]) for each in found]
    if asked.sort == "function at":
        return next((line for line, name in named if name == asked.value), NOT_KNOWN)
    # The last entry is the last one; it is a function if it is nothing else by its own word.
    is_function = named and re.fullmatch(r"\w+", named[-1][1])
    return named[-1][1] if asked.sort == "last function" and is_function else NOT_KNOWN


def _of_files(asked: Question, outline: Outline) -> Any:
    found = [match for each in outline.entries if (match := re.fullmatch(r"(.+?) \+(\d+) -(\d+)", each))]
    counts = {_bare(match[1]): (int(match[2]), int(match[3])) for match in found}
    if not counts:
        return NOT_KNOWN
    if asked.sort in ("added", "removed"):
        return counts[asked.value][asked.sort == "removed"] if asked.value in counts else NOT_KNOWN
    if asked.sort == "files":
        return outline.counts.get("files", NOT_KNOWN)
    if asked.sort == "which files":
        return NOT_KNOWN if outline.more else sorted(counts)
    if asked.sort == "all added":
        return outline.changed[0] if outline.changed else NOT_KNOWN
    # Files that are not shown have no more changes than the last one shown.
    best = max(counts, key=lambda name: counts[name][0])
    is_known = not outline.more or counts[best][0] > sum(list(counts.values())[-2])
    return best if is_known else NOT_KNOWN


def _of_lines(asked: Question, text: str) -> Any:
    """The answer, given the whole text; what only git can count is not tried."""
    lines = lines_of(text)
    errors = [line for line in lines if ERROR.search(line)]
    having = [
        index for index, line in enumerate(lines, 1) if asked.value is not None and str(asked.value) in line
    ]
    found = functions(text)
    second = headings(text)
    answers: dict[str, Callable[[], Any]] = {
        "lines": lambda: len(lines),
        "line": lambda: lines[asked.value - 1],
        "lines with": lambda: len(having),
        "first with": lambda: having[0],
        "errors": lambda: len(errors),
        "first error": lambda: errors[0],
        "last error": lambda: errors[-1],
        "top error": lambda: Counter(CODE.findall(text)).most_common(1)[0][0],
        "code": lambda: CODE.findall(text).count(asked.value),
        "headings": lambda: len(second),
        "sections": lambda: [words for _, level, words in second if level == 2],
        "heading at": lambda: next(line for line, _, words in second if words == asked.value),
        "functions": lambda: len(found),
        "last function": lambda: found[-1][1],
        "function at": lambda: next(line for line, name in found if name == asked.value),
    }
    return answers[asked.sort]() if asked.sort in answers else NOT_KNOWN


# -- one further call -----------------------------------------------------------------------------------------


def further_call(asked: Question, reply: Reply) -> dict[str, Any] | None:
    """The arguments of `envelope_read` that give the answer; None if the reply doesn't say enough for them."""
    if reply.handle is None:
        return None
    if asked.sort == "line":
        return {"handle": reply.handle, "lines": f"{asked.value}-{asked.value}"}
    if asked.sort not in COMPUTED:
        return {"handle": reply.handle, "sql": _sql_of_lines(asked)}
    known = {*reply.columns(asked.path), *reply.profile(asked.path).get("fields", {})}
    if not {name for name in (asked.column, asked.other) if name} <= known:
        return None
    offered = _SQL.search(reply.whole)
    table = (offered[1] or offered[2]) if offered else asked.path.rpartition("/")[2] or "data"
    return {"handle": reply.handle, "sql": _sql(asked, _name(table))}


def _name(name: str) -> str:
    return name if re.fullmatch(r"[a-z]\w*", name) else '"{}"'.format(name.replace('"', '""'))


def _literal(value: Any) -> str:
    return (
        str(int(value))
        if isinstance(value, bool)
        else repr(value)
        if not isinstance(value, str)
        else _text(value)
    )


def _text(value: str) -> str:
    return "'{}'".format(value.replace("'", "''"))


def _sql(asked: Question, table: str) -> str:
    column, other, value = f'"{asked.column}"', f'"{asked.other}"', _literal(asked.value)
    simple = {
        "rows": "count(*)",
        "count": f"sum({column} = {value})",
        "share": f"1.0 * sum({column} = {value}) / count(*)",
        "mean": f"avg({column})",
        "first date": f"min({column})",
        "last date": f"max({column})",
        "distinct": f"count(DISTINCT {column})",
        "contains": f"sum(instr({column}, {value}) > 0)",
        **{name: f"{name}({column})" for name in ("sum", "median", "min", "max", "mode")},
    }
    if asked.sort in simple:
        return f"SELECT {simple[asked.sort]} AS answer FROM {table}"
    given = f"FROM {table} WHERE {column} IS NOT NULL"
    return {
        "group mean": f"SELECT avg({column}) AS answer FROM {table} WHERE {other} = {value}",
        "lookup": f"SELECT {column} FROM {table} WHERE {other} = {value}",
        "extreme": f"SELECT {other} {given} ORDER BY {column} DESC LIMIT 1",
        "top 3": f"SELECT {column} {given} GROUP BY 1 ORDER BY count(*) DESC LIMIT 3",
        "group count": f"SELECT {column}, count(*) AS n {given} GROUP BY 1",
    }[asked.sort]


_OUTSIDE: Final = (
    "(SELECT n, text FROM (SELECT n, text, sum(text LIKE '```%') OVER (ORDER BY n) AS fences FROM lines) "
    "WHERE fences % 2 = 0 AND text REGEXP '^#{1,6} ')"
)
_DEFINED: Final = r"REGEXP '^\s*(async )?(def|function)\s+NAME\s*\('"
# The lines of a diff, each with the number of its file.
_BY_FILE: Final = (
    "WITH f AS (SELECT n, text, sum(text LIKE 'diff --git %') OVER (ORDER BY n) AS file FROM lines), "
    "t AS (SELECT file, substr(text, instr(text, ' b/') + 3) AS name FROM f WHERE text LIKE 'diff --git %'), "
    "c AS (SELECT name, sum(text LIKE '+%' AND text != '+++ b/' || name AND text != '+++ /dev/null') AS added, "
    "sum(text LIKE '-%' AND text != '--- a/' || name AND text != '--- /dev/null') AS removed "
    "FROM f JOIN t USING (file) GROUP BY file) "
)


def _sql_of_lines(asked: Question) -> str:
    value = _text(str(asked.value))
    any_function = _DEFINED.replace("NAME", r"\w+")
    this_function = _DEFINED.replace("NAME", str(asked.value))
    word = r"REGEXP '(?i)\berror\b'"
    return {
        "lines": "SELECT count(*) AS answer FROM lines",
        "lines with": f"SELECT count(*) AS answer FROM lines WHERE instr(text, {value}) > 0",
        "first with": f"SELECT min(n) AS answer FROM lines WHERE instr(text, {value}) > 0",
        "errors": f"SELECT count(*) AS answer FROM lines WHERE text {word}",
        "first error": f"SELECT text FROM lines WHERE text {word} ORDER BY n LIMIT 1",
        "last error": f"SELECT text FROM lines WHERE text {word} ORDER BY n DESC LIMIT 1",
        "top error": "SELECT mode(substr(text, instr(text, 'error TS') + 6, 6)) AS answer FROM lines "
        "WHERE text REGEXP 'error TS[0-9]{4}:'",
        "code": f"SELECT count(*) AS answer FROM lines WHERE instr(text, 'error ' || {value}) > 0",
        "files": "SELECT count(*) AS answer FROM lines WHERE text LIKE 'diff --git %'",
        "which files": f"{_BY_FILE}SELECT name FROM c ORDER BY 1",
        "all added": f"{_BY_FILE}SELECT sum(added) AS answer FROM c",
        "most added": f"{_BY_FILE}SELECT name FROM c ORDER BY added DESC LIMIT 1",
        "added": f"{_BY_FILE}SELECT added FROM c WHERE name = {value}",
        "removed": f"{_BY_FILE}SELECT removed FROM c WHERE name = {value}",
        "commits": "SELECT count(*) AS answer FROM lines WHERE text REGEXP '^commit [0-9a-f]{40}'",
        "subject": "SELECT trim(text) AS answer FROM lines WHERE text LIKE '    _%' AND n > "
        f"(SELECT n FROM lines WHERE text = 'commit ' || {value}) ORDER BY n LIMIT 1",
        "first subject": "SELECT trim(text) AS answer FROM lines WHERE text LIKE '    _%' AND n > "
        "(SELECT max(n) FROM lines WHERE text REGEXP '^commit [0-9a-f]{40}') ORDER BY n LIMIT 1",
        "headings": f"SELECT count(*) AS answer FROM {_OUTSIDE}",
        "sections": f"SELECT substr(text, 4) AS words FROM {_OUTSIDE} WHERE text LIKE '## %' ORDER BY n",
        "heading at": f"SELECT n FROM {_OUTSIDE} WHERE ltrim(text, '# ') = {value}",
        "functions": f"SELECT count(*) AS answer FROM lines WHERE text {any_function}",
        "last function": f"SELECT text FROM lines WHERE text {any_function} ORDER BY n DESC LIMIT 1",
        "function at": f"SELECT n FROM lines WHERE text {this_function} LIMIT 1",
    }[asked.sort]


def second_answer(asked: Question, texts: list[str]) -> Any:
    """The answer that the further call gave."""
    if asked.sort == "line":
        # A line that is shown to its end is whole.
        is_whole = texts[-1].endswith("\n") or not _MISSING.search(texts[0])
        return texts[-1].removesuffix("\n") if is_whole else NOT_KNOWN
    rows = _json(texts[-1])
    if not isinstance(rows, list) or not rows or not isinstance(rows[0], dict):
        return NOT_KNOWN
    if any(_MISSING.search(text) for text in texts[:-1]):
        return NOT_KNOWN
    if asked.sort == "group count":
        return dict(tuple(row.values()) for row in rows)
    values = [next(iter(row.values())) for row in rows]
    if asked.sort in ("top 3", "which files", "sections"):
        return values
    if asked.sort == "last function":
        match = FUNCTION.match(values[0])
        return match[1] if match else NOT_KNOWN
    return NOT_KNOWN if values[0] is None else values[0]
