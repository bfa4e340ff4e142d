"""Findings as text, JSON, GitHub annotations or SARIF.

Each format is a function from files and their findings to text; the command decides where the text goes. Columns
count from 1 in all of them. Messages and paths come from other people's files, so every format escapes them in its
own way.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple, get_args
from urllib.parse import quote

from .. import __version__
from .rules import RULES, Finding
from .source import NotPython

Format = Literal["text", "json", "github", "sarif"]
FORMATS: Final[tuple[Format, ...]] = get_args(Format)
_SARIF_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_BOLD, _RED, _PLAIN = "\x1b[1m", "\x1b[31m", "\x1b[0m"


class Linted(NamedTuple):
    """A file and what was found in it, or why it could not be read."""

    path: str
    findings: Sequence[Finding] = ()
    problem: NotPython | None = None


def render(form: Format, files: Sequence[Linted], colour: bool = False) -> str:
    if form == "json":
        return _as_json(files)
    if form == "github":
        found = ((path, each) for path, findings, problem in files for each in (*findings, problem) if each)
        return "".join(_annotation(path, each) for path, each in found)
    if form == "sarif":
        return _as_sarif(files)
    return "".join(_line(path, finding, colour) for path, finding in _findings(files))


def _findings(files: Sequence[Linted]) -> Iterator[tuple[str, Finding]]:
    return ((file.path, finding) for file in files for finding in file.findings)


def _problems(files: Sequence[Linted]) -> Iterator[tuple[str, NotPython]]:
    return ((file.path, file.problem) for file in files if file.problem is not None)


def _region(names: Sequence[str], found: Finding | NotPython) -> dict[str, int]:
    """Line and column, and where the finding ends if it does, under the names that a format has for them."""
    numbers = [found.line, found.column + 1]
    if isinstance(found, Finding):
        numbers += [found.end_line, found.end_column + 1]
    return dict(zip(names, numbers, strict=False))


def _line(path: str, finding: Finding, colour: bool) -> str:
    place, rule = f"{_printable(path)}:{finding.line}:{finding.column + 1}:", finding.rule
    if colour:
        place, rule = f"{_BOLD}{place}{_PLAIN}", f"{_RED}{rule}{_PLAIN}"
    return f"{place} {rule} {'[*] ' if finding.fixable else ''}{_printable(finding.message)}\n"


def _as_json(files: Sequence[Linted]) -> str:
    names = ("line", "column", "end_line", "end_column")
    findings = [
        {
            "path": path,
            **_region(names, finding),
            "rule": finding.rule,
            "name": RULES[finding.rule].name,
            "message": finding.message,
            "fixable": finding.fixable,
        }
        for path, finding in _findings(files)
    ]
    problems = [
        {"path": path, **_region(names, problem), "message": problem.message}
        for path, problem in _problems(files)
    ]
    return json.dumps({"findings": findings, "problems": problems, "files": len(files)}, indent=2) + "\n"


def _annotation(path: str, found: Finding | NotPython) -> str:
    def escaped(text: str) -> str:
        return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

    def as_property(value: object) -> str:
        return escaped(str(value)).replace(":", "%3A").replace(",", "%2C")

    title = f"{found.rule} {RULES[found.rule].name}" if isinstance(found, Finding) else "not linted"
    place = {"file": path, **_region(("line", "col", "endLine", "endColumn"), found), "title": title}
    properties = ",".join(f"{name}={as_property(value)}" for name, value in place.items())
    return f"::error {properties}::{escaped(found.message)}\n"


def _as_sarif(files: Sequence[Linted]) -> str:
    order = list(RULES)
    results = [
        {
            "ruleId": finding.rule,
            "ruleIndex": order.index(finding.rule),
            **_sarif_message(path, finding, "warning"),
        }
        for path, finding in _findings(files)
    ]
    notifications = [_sarif_message(path, problem, "error") for path, problem in _problems(files)]
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
    run = {
        "tool": {"driver": {"name": "mcp-envelope", "semanticVersion": __version__, "rules": rules}},
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {"executionSuccessful": not notifications, "toolExecutionNotifications": notifications}
        ],
        "results": results,
    }
    return json.dumps({"$schema": _SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _sarif_message(path: str, found: Finding | NotPython, level: str) -> dict[str, Any]:
    region = _region(("startLine", "startColumn", "endLine", "endColumn"), found)
    location = {"artifactLocation": {"uri": _uri(path)}, "region": region}
    return {"level": level, "message": {"text": found.message}, "locations": [{"physicalLocation": location}]}


def _uri(path: str) -> str:
    """A path as SARIF wants it: relative to where the command ran, or a file address."""
    if os.path.isabs(path):
        return f"file://{quote(os.fsencode(path.replace(os.sep, '/')))}"
    return quote(os.fsencode(os.path.normpath(path).replace(os.sep, "/")))


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
