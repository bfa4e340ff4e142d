"""The formats: what programs read from them."""

from __future__ import annotations

import json

import jsonschema_rs
import pytest

from mcp_envelope.lint import RULES, NotPython, SourceFile, lint
from mcp_envelope.lint.report import Linted, render

from .marked import in_tool

CODE = in_tool('if text:\n    return "Error: x"\nreturn json.dumps({\n    "a": rows,\n})')
FILES = [
    Linted("src/a b.py", lint(SourceFile(CODE.encode()))),
    Linted("clean.py"),
    Linted("bad.py", problem=NotPython("invalid syntax", 3, 4)),
]
# The essential part of SARIF 2.1.0, written down from its text.
_TEXT = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string", "minLength": 1}}}
_POSITIVE = {"type": "integer", "minimum": 1}
_LOCATION = {
    "type": "object",
    "required": ["physicalLocation"],
    "properties": {
        "physicalLocation": {
            "type": "object",
            "required": ["artifactLocation", "region"],
            "additionalProperties": False,
            "properties": {
                "artifactLocation": {
                    "type": "object",
                    "required": ["uri"],
                    "additionalProperties": False,
                    "properties": {"uri": {"type": "string", "format": "uri-reference"}},
                },
                "region": {
                    "type": "object",
                    "required": ["startLine", "startColumn"],
                    "additionalProperties": False,
                    "properties": dict.fromkeys(
                        ("startLine", "startColumn", "endLine", "endColumn"), _POSITIVE
                    ),
                },
            },
        }
    },
}
_RULE = {
    "type": "object",
    "required": ["id", "name", "shortDescription", "fullDescription", "help", "defaultConfiguration"],
    "additionalProperties": False,
    "properties": {
        "id": {"type": "string", "pattern": "^ENV[0-9]{3}$"},
        "name": {"type": "string", "pattern": "^[A-Z][A-Za-z]+$"},
        "shortDescription": _TEXT,
        "fullDescription": _TEXT,
        "help": _TEXT,
        "defaultConfiguration": {"type": "object", "properties": {"level": {"const": "warning"}}},
    },
}
SARIF = {
    "type": "object",
    "required": ["version", "runs", "$schema"],
    "additionalProperties": False,
    "properties": {
        "$schema": {"type": "string"},
        "version": {"const": "2.1.0"},
        "runs": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["tool", "results", "columnKind"],
                "additionalProperties": False,
                "properties": {
                    "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                    "tool": {
                        "type": "object",
                        "required": ["driver"],
                        "properties": {
                            "driver": {
                                "type": "object",
                                "required": ["name", "rules"],
                                "additionalProperties": False,
                                "properties": {
                                    "name": {"type": "string"},
                                    "semanticVersion": {"type": "string"},
                                    "rules": {"type": "array", "items": _RULE, "uniqueItems": True},
                                },
                            }
                        },
                    },
                    "invocations": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["executionSuccessful"],
                            "additionalProperties": False,
                            "properties": {
                                "executionSuccessful": {"type": "boolean"},
                                "toolExecutionNotifications": {
                                    "type": "array",
                                    "items": {
                                        "type": "object",
                                        "required": ["message"],
                                        "additionalProperties": False,
                                        "properties": {
                                            "message": _TEXT,
                                            "level": {"enum": ["none", "note", "warning", "error"]},
                                            "locations": {"type": "array", "items": _LOCATION},
                                        },
                                    },
                                },
                            },
                        },
                    },
                    "results": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["ruleId", "message", "locations"],
                            "additionalProperties": False,
                            "properties": {
                                "ruleId": {"enum": list(RULES)},
                                "ruleIndex": {"type": "integer", "minimum": 0},
                                "level": {"enum": ["none", "note", "warning", "error"]},
                                "message": _TEXT,
                                "locations": {"type": "array", "minItems": 1, "items": _LOCATION},
                            },
                        },
                    },
                },
            },
        },
    },
}


def test_text() -> None:
    assert render("text", FILES) == (
        "src/a b.py:12:16: ENV005 tool 'answer' returns an error as if it were a result; raise it, or a Failure\n"
        "src/a b.py:13:12: ENV003 [*] tool 'answer' returns data as text; return the data\n"
    )
    coloured = render("text", FILES, colour=True)
    assert coloured.startswith("\x1b[1msrc/a b.py:12:16:\x1b[0m \x1b[31mENV005\x1b[0m tool")


def test_json() -> None:
    said = json.loads(render("json", FILES))
    assert said["files"] == 3
    assert said["problems"] == [{"path": "bad.py", "line": 3, "column": 5, "message": "invalid syntax"}]
    assert [each["rule"] for each in said["findings"]] == ["ENV005", "ENV003"]
    assert said["findings"][1] == {
        "path": "src/a b.py",
        "line": 13,
        "column": 12,
        "end_line": 15,
        "end_column": 7,
        "rule": "ENV003",
        "name": "data-as-text",
        "message": "tool 'answer' returns data as text; return the data",
        "fixable": True,
    }


def test_github() -> None:
    error, data, bad = render("github", FILES).splitlines()
    assert error.startswith(
        "::error file=src/a b.py,line=12,col=16,endLine=12,endColumn=26,title=ENV005 error-as-"
    )
    assert error.endswith("::tool 'answer' returns an error as if it were a result; raise it, or a Failure")
    assert ",endLine=15,endColumn=7," in data
    assert bad == "::error file=bad.py,line=3,col=5,title=not linted::invalid syntax"


def test_github_escapes() -> None:
    (line,) = render(
        "github", [Linted("a,b:%\n.py", problem=NotPython("100%\nsure: yes, really"))]
    ).splitlines()
    assert line == "::error file=a%2Cb%3A%25%0A.py,line=1,col=1,title=not linted::100%25%0Asure: yes, really"


def test_sarif() -> None:
    said = json.loads(render("sarif", FILES))
    jsonschema_rs.validator_for(SARIF, validate_formats=True).validate(said)
    (run,) = said["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == list(RULES)
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
    place = run["results"][1]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "src/a%20b.py"
    assert place["region"] == {"startLine": 13, "startColumn": 12, "endLine": 15, "endColumn": 7}
    (invocation,) = run["invocations"]
    assert invocation["executionSuccessful"] is False
    assert invocation["toolExecutionNotifications"][0]["message"]["text"] == "invalid syntax"


def test_sarif_of_nothing() -> None:
    said = json.loads(render("sarif", []))
    jsonschema_rs.validator_for(SARIF).validate(said)
    assert said["runs"][0]["invocations"][0]["executionSuccessful"] is True


@pytest.mark.parametrize("form", ["text", "json", "github", "sarif"])
def test_odd_paths(form: str) -> None:
    findings = lint(SourceFile(CODE.encode()))
    for path in ("/abs/ä b.py", "x\x1b[2J.py", "not-\udcff-utf8.py", "./a/../b.py"):
        out = render(form, [Linted(path, findings)])  # type: ignore[arg-type]
        assert "\x1b" not in out or form == "github"
        if form == "sarif":
            jsonschema_rs.validator_for(SARIF, validate_formats=True).validate(json.loads(out))


def test_uris() -> None:
    def uri(path: str) -> str:
        said = json.loads(render("sarif", [Linted(path, lint(SourceFile(CODE.encode())))]))
        return str(
            said["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        )

    assert uri("/abs/ä b.py") == "file:///abs/%C3%A4%20b.py"
    assert uri("./a/../b.py") == "b.py"
