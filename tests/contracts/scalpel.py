"""The sentences of the contract that the dialect `scalpel` speaks."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from mcp_envelope.codes import GENERAL

from .cases import SCAN, TOOLS
from .table import Table
from .ways import Setup, Talk, variables

says = Table("scalpel", "MCP Response Envelope (V2.0 Contract - v3.3.0)")

DEBUG = variables(SCALPEL_MCP_INFO="DEBUG")
CONFIG = ".code-scalpel/response_config.json"
# The document's own example, comment included.
EXAMPLE = """{
  "global": {
    "profile": "minimal"  // or "standard", "debug"
  },
  "tool_overrides": {
    "analyze_code": {
      "include_only": ["functions", "classes", "complexity"]
    }
  }
}
"""
FILE = Setup(files=((CONFIG, EXAMPLE),))
OVERRIDES = """{
  "global": {"profile": "standard"},
  "tool_overrides": {"analyze_code": {"exclude_fields": ["raw"]}, "security_scan": {"profile": "debug"}}
}
"""
STANDARD = Setup(files=((CONFIG, OVERRIDES),))
BOTH = Setup((("SCALPEL_MCP_INFO", "DEBUG"),), ((CONFIG, EXAMPLE),))
FIELDS = (
    "tier",
    "tool_version",
    "tool_id",
    "request_id",
    "capabilities",
    "duration_ms",
    "error",
    "upgrade_hints",
    "data",
)
CODES = (
    "invalid_argument",
    "invalid_path",
    "forbidden",
    "not_found",
    "timeout",
    "too_large",
    "resource_exhausted",
    "not_implemented",
    "upgrade_required",
    "dependency_unavailable",
    "internal_error",
)
ID = "8b3e5f6c0a2f4ed4a3fb9e0b2f8f8d3a"
WORDS = "it is a remark about that project's own figures"
NO_ARGUMENTS = {"library": "a plain function call has no argument schema"}
UNTIMED = "nobody measures a plain function call"


def said(t: Talk, case: str, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = t(case, **more).structured
    return found


def debug(t: Talk, case: str = "pro", **more: Any) -> dict[str, Any]:
    return said(t, case, setup=DEBUG, tool=more.pop("tool", "security_scan"), **more)


def error(t: Talk, case: str, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = said(t, case, **more)["error"]
    return found


def as_it_is(code: str, t: Talk) -> bool:
    return bool(error(t, f"failed:{code}")["error_code"] == code)


def typed(t: Talk, name: str, *kinds: str) -> bool:
    schema = t.listed()["outputSchema"]["properties"][name]
    return bool(schema.get("type") == list(kinds))


says.section("Introduction")
says(
    "the envelope of all tools", lambda t: all(said(t, "scan", tool=tool) == {"data": SCAN} for tool in TOOLS)
)
says("both lanes hold it", lambda t: t("scan").doc == t("scan").structured)
says(
    "it can be configured by a file",
    lambda t: (
        said(t, "code", tool="analyze_code", setup=FILE)["data"].keys()
        == {"functions", "classes", "complexity"}
    ),
)
says("where the requirement comes from", all="it names other documents of that project")

says.section("Goals")
says(
    "one shape for every tool",
    lambda t: all(set(said(t, case)) <= set(FIELDS) for case in ("scan", "number", "failure", "upgrading")),
)
says("the shape is listed", lambda t: set(t.listed()["outputSchema"]["properties"]) == set(FIELDS))
says(
    "a client can relate it to its request",
    lambda t: said(t, "scan", meta={"request_id": ID})["request_id"] == ID,
)
says(
    "and learn the tier and the tool",
    lambda t: (debug(t)["tier"], debug(t)["tool_id"]) == ("pro", "security_scan"),
)
says("errors have standard codes", lambda t: error(t, "failure")["error_code"] == "invalid_argument")
says(
    "what is redundant is omitted",
    lambda t: t("scan").text == json.dumps({"data": SCAN}, separators=(",", ":")),
)

says.section("Default Behavior")
says("only the data", lambda t: said(t, "scan") == {"data": SCAN})
says("even if more is known", lambda t: said(t, "pro") == {"data": SCAN})
says(
    "JSON that a server sends as text is that data",
    lambda t: said(t, "as_text")["data"].keys() == {"results"},
)
says(
    "a tool that speaks it itself is not wrapped again",
    lambda t: said(t, "spoken:scalpel") == {"tier": "pro", "data": SCAN},
)
says("metadata is optional", lambda t: not t.listed()["outputSchema"].get("required"))
says("metadata can be configured", lambda t: "tool_id" in said(t, "scan", setup=STANDARD))
says("`tier`: a string or null", lambda t: typed(t, "tier", "string", "null"))
says(
    "`tier`: one of three",
    lambda t: debug(t)["tier"] == "pro" and debug(t, "pro_failure")["tier"] == "community",
)
says("`tier`: omitted by default", lambda t: "tier" not in said(t, "pro"))
says("`tool_version`: a string or null", lambda t: typed(t, "tool_version", "string", "null"))
says("`tool_version`: omitted by default", lambda t: "tool_version" not in said(t, "pro"))
says("`tool_version`: that of the tool", lambda t: debug(t)["tool_version"] == "3.3.0")
says("`tool_id`: a string or null", lambda t: typed(t, "tool_id", "string", "null"))
says("`tool_id`: the tool's name", lambda t: debug(t, tool="extract_code")["tool_id"] == "extract_code")
says("`tool_id`: omitted by default", lambda t: "tool_id" not in said(t, "scan"))
says("`request_id`: a string or null", lambda t: typed(t, "request_id", "string", "null"))
says("`request_id`: omitted by default", lambda t: "request_id" not in said(t, "scan"))
says(
    "`request_id`: echoed if the client gave one",
    lambda t: said(t, "scan", meta={"request_id": ID}) == {"request_id": ID, "data": SCAN},
)
says(
    "`request_id`: a progress token is none",
    lambda t: "request_id" not in said(t, "scan", meta={"progressToken": 5}),
)
says(
    "`request_id`: echoed with a failure, too",
    lambda t: said(t, "failure", meta={"request_id": ID})["request_id"] == ID,
)
says("`capabilities`: a list of strings or null", lambda t: typed(t, "capabilities", "array", "null"))
says("`capabilities`: omitted by default", lambda t: "capabilities" not in said(t, "capable"))
says(
    "`capabilities`: what this call supports",
    lambda t: debug(t, "capable")["capabilities"] == ["envelope-v1", "streaming"],
)
says("`duration_ms`: a number or null", lambda t: typed(t, "duration_ms", "number", "null"))
says("`duration_ms`: omitted by default", lambda t: "duration_ms" not in said(t, "scan"))
says("`duration_ms`: in debug mode", lambda t: isinstance(debug(t)["duration_ms"], int | float))
says("`duration_ms`: from end to end", lambda t: debug(t)["duration_ms"] > 0, library=UNTIMED)
says("`error`: an object or null", lambda t: typed(t, "error", "object", "null"))
says(
    "`error`: only when there is one",
    lambda t: "error" not in said(t, "scan") and "error" in said(t, "failure"),
)
says("`upgrade_hints`: a list of objects or null", lambda t: typed(t, "upgrade_hints", "array", "null"))
says(
    "`upgrade_hints`: only when there are any",
    lambda t: "upgrade_hints" not in said(t, "scan") and "upgrade_hints" in said(t, "upgrading"),
)
says(
    "`data`: anything or null",
    lambda t: (said(t, "number")["data"], said(t, "null")["data"]) == (42, None),
    proxy="a server that sends `42` as text has sent a text",
)
says(
    "`data`: always included in a success",
    lambda t: all("data" in said(t, case) for case in ("scan", "null", "number")),
)

says.section("Configuration")
says(
    "the file chooses the fields",
    lambda t: (
        list(said(t, "code", tool="analyze_code", setup=FILE)["data"])
        == ["functions", "classes", "complexity"]
    ),
)
says("the example works, comment included", lambda t: said(t, "scan", setup=FILE) == {"data": SCAN})
says("`global.profile`: minimal", lambda t: said(t, "pro", setup=FILE) == {"data": SCAN})
says(
    "`global.profile`: standard",
    lambda t: list(said(t, "pro", setup=STANDARD)) == ["tier", "tool_version", "tool_id", "data"],
)
says(
    "`global.profile`: debug, here for one tool",
    lambda t: list(said(t, "pro", tool="security_scan", setup=STANDARD)) == list(FIELDS),
)
says(
    "`tool_overrides` hold for their tool",
    lambda t: (
        said(t, "code", tool="extract_code", setup=FILE)["data"].keys()
        == {"functions", "classes", "complexity", "imports", "raw"}
    ),
)
says(
    "`include_only` keeps the named fields",
    lambda t: "raw" not in said(t, "code", tool="analyze_code", setup=FILE)["data"],
)
says(
    "`exclude_fields` leaves out the named ones",
    lambda t: (
        "raw" not in said(t, "code", tool="analyze_code", setup=STANDARD)["data"]
        and "imports" in said(t, "code", tool="analyze_code", setup=STANDARD)["data"]
    ),
)
says(
    "`include_only` never removes an error",
    lambda t: "error" in said(t, "failure", tool="analyze_code", setup=FILE),
)
says("debug mode: all metadata", lambda t: list(debug(t)) == list(FIELDS))
says("debug mode: stronger than the file", lambda t: list(said(t, "pro", setup=BOTH)) == list(FIELDS))
says(
    "debug mode: the file's fields still hold",
    lambda t: "raw" not in said(t, "code", tool="analyze_code", setup=BOTH)["data"],
)
says("the guide to configuration", all="it is another document of that project")

says.section("Error Model")
says("`error`: a message for people", lambda t: error(t, "failure")["error"].startswith("symbolId"))
says("`error_code`: for machines", lambda t: error(t, "failure")["error_code"] == "invalid_argument")
says("`error_details`: a structure", lambda t: error(t, "details")["error_details"] == {"limit": 10})
says("`error_details`: optional", lambda t: "error_details" not in error(t, "failure"))
says("`error_details`: null in debug mode", lambda t: debug(t, "failure")["error"]["error_details"] is None)
says("no source code", lambda t: "environ" not in json.dumps(said(t, "source")))
says("no traceback, no absolute path", lambda t: "/home/ada" not in json.dumps(said(t, "crash")))
says("a tool may keep details in `data`", lambda t: said(t, "failed_with_data")["data"] == {"scanned": 3})
says("`error` is there all the same", lambda t: error(t, "failed_with_data")["error_code"] == "timeout")
says(
    "a tool's own error is not wrapped again",
    lambda t: said(t, "spoken:scalpel error") == {"error": {"error": "No.", "error_code": "forbidden"}},
)
says("a failure is no protocol error", lambda t: not t("crash").is_error and not t("failure").is_error)
says("an exception is an error", lambda t: error(t, "timed_out")["error_code"] == "timeout")
says("a miss is `not_found`", lambda t: error(t, "miss")["error_code"] == "not_found")
says(
    "an argument of the wrong type is named",
    lambda t: "count" in error(t, "keys", count="many")["error"],
    **NO_ARGUMENTS,
)
says(
    "and has its code",
    lambda t: error(t, "keys", count="many")["error_code"] == "invalid_argument",
    **NO_ARGUMENTS,
)
for code in CODES:
    says(f"`{code}` goes out as it is", partial(as_it_is, code))
says(
    "no other code goes out",
    lambda t: set(CODES) == GENERAL and error(t, "failed:TEAPOT")["error_code"] in CODES,
)

says.section("Upgrade Hints")
says("a feature of a higher tier is named", lambda t: len(said(t, "upgrading")["upgrade_hints"]) == 1)
says("`feature`", lambda t: said(t, "upgrading")["upgrade_hints"][0]["feature"] == "cross-file taint")
says("`tier`", lambda t: said(t, "upgrading")["upgrade_hints"][0]["tier"] == "pro")
says(
    "`reason`", lambda t: said(t, "upgrading")["upgrade_hints"][0]["reason"] == "It needs the hosted engine."
)
says("in `minimal`, too", lambda t: list(said(t, "upgrading")) == ["upgrade_hints", "data"])

says.section("Example: success")
says(
    "minimal: exactly this",
    lambda t: (
        said(t, "scan", tool="security_scan") == {"data": {"risk_level": "high", "vulnerabilities": []}}
    ),
)
says("debug: `tier`", lambda t: debug(t)["tier"] == "pro")
says("debug: `tool_version`", lambda t: debug(t)["tool_version"] == "3.3.0")
says("debug: `tool_id`", lambda t: debug(t)["tool_id"] == "security_scan")
says("debug: `request_id`", lambda t: debug(t, meta={"request_id": ID})["request_id"] == ID)
says("debug: `request_id` is null without one", lambda t: debug(t)["request_id"] is None)
says("debug: `capabilities`", lambda t: debug(t)["capabilities"] == ["envelope-v1"])
says("debug: `duration_ms` is a number", lambda t: type(debug(t)["duration_ms"]) in (int, float))
says("debug: `error` is null", lambda t: debug(t)["error"] is None)
says("debug: `upgrade_hints` is empty", lambda t: debug(t)["upgrade_hints"] == [])
says("debug: `data`", lambda t: debug(t)["data"] == SCAN)
says("debug: the order of all nine", lambda t: list(debug(t)) == list(FIELDS))

says.section("Example: error")
MISSING = {"error": "File not found: /missing.py", "error_code": "not_found"}
says(
    "minimal: exactly this",
    lambda t: said(t, "read_file", tool="extract_code", file="/missing.py") == {"error": MISSING},
)
says(
    "minimal: no `data`",
    lambda t: "data" not in said(t, "read_file", tool="extract_code", file="/missing.py"),
)
says(
    "debug: the order of all nine",
    lambda t: list(debug(t, "pro_failure", tool="extract_code")) == list(FIELDS),
)
says(
    "debug: the error",
    lambda t: debug(t, "read_file", file="/missing.py")["error"] == {**MISSING, "error_details": None},
)
says(
    "debug: the metadata",
    lambda t: (
        (
            debug(t, "pro_failure", tool="extract_code")["tool_id"],
            debug(t, "pro_failure", tool="extract_code")["tool_version"],
        )
        == ("extract_code", "3.3.0")
    ),
)
says("debug: `capabilities`", lambda t: debug(t, "failure")["capabilities"] == ["envelope-v1"])
says("debug: `duration_ms` is a number", lambda t: type(debug(t, "failure")["duration_ms"]) in (int, float))
says("debug: `upgrade_hints` is empty", lambda t: debug(t, "failure")["upgrade_hints"] == [])
says("debug: `data` is null", lambda t: debug(t, "failure")["data"] is None)

says.section("Token Efficiency")
says(
    "minimal is shorter than debug",
    lambda t: (
        len(t("pro", tool="security_scan").text) + 150 < len(t("pro", tool="security_scan", setup=DEBUG).text)
    ),
)
says("how many tokens that saves", all="measured: see the table of profiles below")
says("how many pages that is", all=WORDS)
says("why it matters", all=WORDS)

says.section("Beyond the document")
says("a budget that a call sets is kept", lambda t: len(t("list:rows:400", tokens=300).text) < 1500)
says(
    "a cut is told of, in a second text", lambda t: "envelope_read" in t("list:rows:400", tokens=300).texts[1]
)
says("`envelope_read` answers in this shape", lambda t: list(t.read("x" * 22).structured) == ["error"])
