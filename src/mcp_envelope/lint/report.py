"""Findings, told: as text, JSON, GitHub annotations or SARIF.

Strategy: each format is a function from files and their findings to text, and nothing else; the command decides
where the text goes. Columns count from 1 in all of them. Messages and paths come from other people's files: in
every format they are escaped in its own way.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import quote

from .. import __version__
from .lines import NotPython
from .rules import RULES, Finding

Format = Literal["text", "json", "github", "sarif"]
FORMATS: Final[tuple[Format, ...]] = ("text", "json", "github", "sarif")
_SARIF_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_BOLD, _RED, _PLAIN = "\x1b[1m", "\x1b[31m", "\x1b[0m"


class Linted(NamedTuple):
    """A file and what was found in it, or why it could not be read."""

    path: str
    findings: Sequence[Finding] = ()
    problem: NotPython | None = None


def told(form: Format, files: Sequence[Linted], colour: bool = False) -> str:
    if form == "json":
        return _as_json(files)
    if form == "github":
        return _for_github(files)
    if form == "sarif":
        return _as_sarif(files)
    return _as_text(files, colour)


def _as_text(files: Sequence[Linted], colour: bool) -> str:
    lines: list[str] = []
    for file in files:
        for finding in file.findings:
            place = f"{_printable(file.path)}:{finding.line}:{finding.column + 1}:"
            rule, message = finding.rule, _printable(finding.message)
            if colour:
                place, rule = f"{_BOLD}{place}{_PLAIN}", f"{_RED}{rule}{_PLAIN}"
            mark = "[*] " if finding.fixable else ""
            lines.append(f"{place} {rule} {mark}{message}\n")
    return "".join(lines)


def _as_json(files: Sequence[Linted]) -> str:
    findings = [
        {
            "path": file.path,
            "line": finding.line,
            "column": finding.column + 1,
            "end_line": finding.end_line,
            "end_column": finding.end_column + 1,
            "rule": finding.rule,
            "name": RULES[finding.rule].name,
            "message": finding.message,
            "fixable": finding.fixable,
        }
        for file in files
        for finding in file.findings
    ]
    problems = [
        {"path": path, "line": problem.line, "column": problem.column + 1, "message": problem.reason}
        for path, _, problem in files
        if problem is not None
    ]
    return json.dumps({"findings": findings, "problems": problems, "files": len(files)}, indent=2) + "\n"


def _for_github(files: Sequence[Linted]) -> str:
    lines: list[str] = []
    for path, findings, problem in files:
        for finding in findings:
            place = {
                "file": path,
                "line": finding.line,
                "col": finding.column + 1,
                "endLine": finding.end_line,
                "endColumn": finding.end_column + 1,
                "title": f"{finding.rule} {RULES[finding.rule].name}",
            }
            lines.append(_annotation("error", place, finding.message))
        if problem is not None:
            place = {"file": path, "line": problem.line, "col": problem.column + 1, "title": "not linted"}
            lines.append(_annotation("error", place, problem.reason))
    return "".join(lines)


def _annotation(level: str, place: dict[str, Any], message: str) -> str:
    def escaped(text: str) -> str:
        return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

    def as_property(value: object) -> str:
        return escaped(str(value)).replace(":", "%3A").replace(",", "%2C")

    properties = ",".join(f"{name}={as_property(value)}" for name, value in place.items())
    return f"::{level} {properties}::{escaped(message)}\n"


def _as_sarif(files: Sequence[Linted]) -> str:
    order = list(RULES)
    results = [
        {
            "ruleId": finding.rule,
            "ruleIndex": order.index(finding.rule),
            "level": "warning",
            "message": {"text": finding.message},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": _uri(file.path)},
                        "region": {
                            "startLine": finding.line,
                            "startColumn": finding.column + 1,
                            "endLine": finding.end_line,
                            "endColumn": finding.end_column + 1,
                        },
                    }
                }
            ],
        }
        for file in files
        for finding in file.findings
    ]
    run = {
        "tool": {
            "driver": {
                "name": "mcp-envelope",
                "semanticVersion": __version__,
                "rules": [_sarif_rule(name) for name in order],
            }
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [_invocation(files)],
        "results": results,
    }
    return json.dumps({"$schema": _SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _sarif_rule(name: str) -> dict[str, Any]:
    rule = RULES[name]
    return {
        "id": rule.id,
        "name": "".join(part.capitalize() for part in rule.name.split("-")),
        "shortDescription": {"text": rule.message},
        "fullDescription": {"text": rule.why},
        "help": {"text": f"{rule.why}\n\n{rule.mend}", "markdown": f"{rule.why}\n\n{rule.mend}"},
        "defaultConfiguration": {"level": "warning"},
    }


def _invocation(files: Sequence[Linted]) -> dict[str, Any]:
    notifications = [
        {
            "level": "error",
            "message": {"text": problem.reason},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": _uri(path)},
                        "region": {"startLine": problem.line, "startColumn": problem.column + 1},
                    }
                }
            ],
        }
        for path, _, problem in files
        if problem is not None
    ]
    return {"executionSuccessful": not notifications, "toolExecutionNotifications": notifications}


def _uri(path: str) -> str:
    """A path as SARIF wants it: relative to where the command ran, or a file address."""
    if os.path.isabs(path):
        return f"file://{quote(os.fsencode(path.replace(os.sep, '/')))}"
    return quote(os.fsencode(os.path.normpath(path).replace(os.sep, "/")))


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
