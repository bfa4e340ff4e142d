"""Findings as text, JSON, GitHub annotations or SARIF.

Every finding, and every file that could not be read, becomes a record of plain data, which JSON shows as it is and
the other formats write in their own way. Columns count from 1 in all of them. Messages and paths come from other
people's files, so every format escapes them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, get_args
from urllib.parse import quote

from .. import __version__
from .rules import RULES, Finding
from .source import NotPython

Format = Literal["text", "json", "github", "sarif"]
FORMATS: Final[tuple[Format, ...]] = get_args(Format)
_SARIF_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_BOLD, _RED, _PLAIN = "\x1b[1m", "\x1b[31m", "\x1b[0m"

Record = Mapping[str, Any]


class Linted(NamedTuple):
    """A file and what was found in it, or why it could not be read."""

    path: str
    findings: Sequence[Finding] = ()
    problem: NotPython | None = None


def render(form: Format, files: Sequence[Linted], colour: bool = False) -> str:
    records = [*_records(files)]
    found = [record for record in records if "rule" in record]
    if form == "text":
        return "".join(_line(record, colour) for record in found)
    if form == "github":
        return "".join(map(_annotation, records))
    problems = [record for record in records if "rule" not in record]
    if form == "json":
        return _json({"findings": found, "problems": problems, "files": len(files)})
    return _json({"$schema": _SARIF_SCHEMA, "version": "2.1.0", "runs": [_sarif_run(found, problems)]})


def _records(files: Sequence[Linted]) -> Iterator[Record]:
    for path, findings, problem in files:
        for finding in findings:
            yield {
                "path": path,
                "line": finding.line,
                "column": finding.column + 1,
                "end_line": finding.end_line,
                "end_column": finding.end_column + 1,
                "rule": finding.rule,
                "name": RULES[finding.rule].name,
                "message": finding.message,
                "fixable": finding.fixable,
            }
        if problem is not None:
            yield {
                "path": path,
                "line": problem.line,
                "column": problem.column + 1,
                "message": problem.message,
            }


def _json(value: Any) -> str:
    return json.dumps(value, indent=2) + "\n"


def _region(record: Record, *names: str) -> dict[str, int]:
    """Where it is, under the names that a format has for that."""
    keys = ("line", "column", "end_line", "end_column")
    return {name: record[key] for name, key in zip(names, keys, strict=True) if key in record}


def _line(record: Record, colour: bool) -> str:
    place, rule = f"{_printable(record['path'])}:{record['line']}:{record['column']}:", record["rule"]
    if colour:
        place, rule = f"{_BOLD}{place}{_PLAIN}", f"{_RED}{rule}{_PLAIN}"
    return f"{place} {rule} {'[*] ' if record['fixable'] else ''}{_printable(record['message'])}\n"


def _annotation(record: Record) -> str:
    def escaped(text: str) -> str:
        return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

    def as_property(value: object) -> str:
        return escaped(str(value)).replace(":", "%3A").replace(",", "%2C")

    title = f"{record['rule']} {record['name']}" if "rule" in record else "not linted"
    place = {"file": record["path"], **_region(record, "line", "col", "endLine", "endColumn"), "title": title}
    properties = ",".join(f"{name}={as_property(value)}" for name, value in place.items())
    return f"::error {properties}::{escaped(record['message'])}\n"


def _sarif_run(found: Sequence[Record], problems: Sequence[Record]) -> dict[str, Any]:
    order = list(RULES)
    rules = [
        {
            "id": rule.id,
            "name": "".join(part.capitalize() for part in rule.name.split("-")),
            "shortDescription": {"text": rule.message},
            "fullDescription": {"text": rule.why},
            "help": dict.fromkeys(("text", "markdown"), f"{rule.why}\n\n{rule.advice}"),
            "defaultConfiguration": {"level": "warning"},
        }
        for rule in RULES.values()
    ]
    results = [
        {"ruleId": each["rule"], "ruleIndex": order.index(each["rule"]), **_sarif_message(each, "warning")}
        for each in found
    ]
    notifications = [_sarif_message(each, "error") for each in problems]
    return {
        "tool": {"driver": {"name": "mcp-envelope", "semanticVersion": __version__, "rules": rules}},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": not problems, "toolExecutionNotifications": notifications}],
        "results": results,
    }


def _sarif_message(record: Record, level: str) -> dict[str, Any]:
    region = _region(record, "startLine", "startColumn", "endLine", "endColumn")
    location = {"artifactLocation": {"uri": _uri(record["path"])}, "region": region}
    message = {"text": record["message"]}
    return {"level": level, "message": message, "locations": [{"physicalLocation": location}]}


def _uri(path: str) -> str:
    """A path as SARIF wants it: relative to where the command ran, or a file address."""
    if os.path.isabs(path):
        return f"file://{quote(os.fsencode(path.replace(os.sep, '/')))}"
    return quote(os.fsencode(os.path.normpath(path).replace(os.sep, "/")))


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
