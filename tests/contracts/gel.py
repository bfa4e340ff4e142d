"""The sentences of the contract that the dialect `gel` speaks."""

from __future__ import annotations

import ast
import json
import re
from typing import Any

from mcp_envelope.dialects.gel import EMOJI, tool_response_envelope_schema
from mcp_envelope.lint import lint_tree
from mcp_envelope.lint.rules import RULES

from .cases import LINK, META
from .table import Table
from .ways import Talk

says = Table("gel", "Structured Tool Response Contract")

ELSEWHERE = "it is about the source code of that project"
ONCE = "a helper in Python, the same for all: tests/dialects/test_golden.py"
STATUSES = ("ok", "error", "info", "warn")


def meta(t: Talk, case: str, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = t(case, **more).structured["meta"]
    return found


def data(t: Talk, case: str, **more: Any) -> Any:
    return t(case, **more).structured["data"]


def inline(t: Talk, case: str) -> int:
    return sum(map(len, t(case).texts))


def whole(t: Talk, case: str) -> str:
    """What the link of a shortened result leads to."""
    link = next(link for link in t(case).links if link["uri"].startswith("envelope://"))
    text: str = t.resource(link["uri"])["contents"][0]["text"]
    return text


says.section("Introduction")
says(
    "every reply has the envelope",
    lambda t: all(
        list(t(case).structured) == ["meta", "data"]
        for case in ("scan", "null", "number", "reply", "failure", "miss")
    ),
)
says("the text stays concise", lambda t: inline(t, "list:matches:400") < 2000)
says(
    "the payload stays machine-readable",
    lambda t: data(t, "scan") == {"risk_level": "high", "vulnerabilities": []},
)
says("`envelope_read` has it, too", lambda t: t.read("x" * 22).structured["meta"]["status"] == "error")

says.section("Envelope Types")
says("where the types are defined", all=ELSEWHERE)
says("`meta` makes the headline", lambda t: t("reply").text == f"✅ {meta(t, 'reply')['summary']}")
says(
    "`status` is one of four",
    lambda t: (
        [meta(t, f"reply:{status}")["status"] for status in ("ok", "info", "warn")] == ["ok", "info", "warn"]
    ),
)
says("`status` of a failure", lambda t: meta(t, "failure")["status"] == "error")
says("`status` of plain data", lambda t: meta(t, "scan")["status"] == "ok")
says("`status` of a miss", lambda t: meta(t, "miss")["status"] == "info")
says("`status` beside a warning", lambda t: meta(t, "warned")["status"] == "warn")
says("JSON and the same as text: no warning", lambda t: meta(t, "keys")["status"] == "ok")
says("`summary` is one line", lambda t: "\n" not in meta(t, "reply")["summary"])
says("`summary` is there without anyone saying one", lambda t: bool(meta(t, "scan")["summary"]))
says(
    "it is shown with an emoji",
    lambda t: all(t(f"reply:{status}").text.startswith(EMOJI[status]) for status in ("ok", "info", "warn")),
)
says("`details` are optional", lambda t: "details" not in meta(t, "scan"))
says("`details` are texts, in order", lambda t: meta(t, "reply")["details"] == ["in docs/a.md", "on line 3"])
says("`nextSteps` are optional", lambda t: "nextSteps" not in meta(t, "scan"))
says("`nextSteps` are for the agent", lambda t: meta(t, "reply")["nextSteps"] == ["Open it."])
says("`truncated` when the text was shortened", lambda t: meta(t, "long_text")["truncated"] is True)
says("`truncated` only then", lambda t: "truncated" not in meta(t, "reply"))
says("`tokenUsage` is a structure", lambda t: meta(t, "metered")["tokenUsage"] == {"total": 9})
says("`rateLimit` is a structure", lambda t: meta(t, "metered")["rateLimit"] == {"remaining": 3})
says("the order of `meta`", lambda t: list(meta(t, "reply")) == ["status", "summary", "details", "nextSteps"])
says("the envelope has data beside `meta`", lambda t: list(t("reply").structured) == ["meta", "data"])
says("`data` is null without any", lambda t: data(t, "null") is None)
says(
    "a helper declares the output schema",
    lambda t: tool_response_envelope_schema({"type": "object"})["required"] == ["meta", "data"],
    fastmcp=ONCE,
    mcpserver=ONCE,
    proxy=ONCE,
)
says("the schema is listed", lambda t: t.listed()["outputSchema"]["properties"].keys() >= {"meta", "data"})
says(
    "the schema requires `meta` and `data`",
    lambda t: t.listed()["outputSchema"]["required"] == ["meta", "data"],
)
says(
    "a tool that speaks it itself is not wrapped again",
    lambda t: (
        t("spoken:gel").structured
        == {
            "meta": META,
            "data": {"results": [{"file": "src/0.ts", "line": 1}, {"file": "src/1.ts", "line": 2}]},
        }
    ),
)

says.section("composeToolPayload")
says("where it is", all=ELSEWHERE)
says(
    "takes meta, data, texts and links",
    lambda t: t("composed").structured == {"meta": META, "data": {"matches": 1}},
)
says("1. the headline comes first", lambda t: t("composed").text == "✅ Found 1 match")
says(
    "1. its emoji is that of the status",
    lambda t: (
        [t(f"composed:{status}").text[0] for status in STATUSES] == [EMOJI[status][0] for status in STATUSES]
    ),
)
says("2. then the details", lambda t: t("composed").texts[1] == "in docs/a.md")
says("2. unless they are to be omitted", lambda t: t("composed_briefly").texts == ["✅ Found 1 match"])
says("2. `meta` has them even then", lambda t: meta(t, "composed_briefly")["details"] == ["in docs/a.md"])
says(
    "2. a reply can omit them, too",
    lambda t: "in docs/a.md" not in t("reply_without_details").texts,
    proxy="a server leaves them out of what it says",
)
says("3. then further texts", lambda t: t("composed").texts[2] == "a preview")
says("4. then the links, untouched", lambda t: t("composed").content[-1] == LINK)
says(
    "5. returns content, structure and `isError`",
    lambda t: t("composed").structured and not t("composed").is_error,
)
says(
    "5. in this order",
    lambda t: [block["type"] for block in t("composed").content] == ["text", "text", "text", "resource_link"],
)
says(
    "`isError` is that of the status",
    lambda t: t("composed:error").is_error and not t("composed:warn").is_error,
)
says(
    "`isError` can be set",
    lambda t: t("composed:ok:yes").is_error and not t("composed:error:no").is_error,
    proxy="on the wire, one that isn't set and one that is false are the same",
)
says(
    "a reply of a tool gives the same",
    lambda t: t("reply").content[-1] == LINK and t("reply").texts[1:3] == ["in docs/a.md", "on line 3"],
)

says.section("Migration Checklist")
says("1. a schema for the result", lambda t: "data" in t.listed()["outputSchema"]["properties"])
says("2. a typed payload", lambda t: data(t, "scan")["risk_level"] == "high")
says("3. a clear summary and next steps", lambda t: meta(t, "reply")["nextSteps"] == ["Open it."])
says("3. at most 80 characters", lambda t: len(meta(t, "long_summary")["summary"]) <= 80)
says("3. cut at a word", lambda t: re.fullmatch(r"(word )+word…", meta(t, "long_summary")["summary"]))
says("3. in the headline, too", lambda t: len(t("long_summary").text) <= 83)
says("4. a call of the helper", lambda t: t("composed").structured["data"] == {"matches": 1})
says("5. the schema is exported", lambda t: t.listed()["outputSchema"]["required"] == ["meta", "data"])
says("6. older calls are replaced", lambda t: t("built").structured["meta"]["summary"] == "Found 1")

says.section("Convenience Helpers")
says(
    "`build_structured_response`: text and structure",
    lambda t: t("built").texts == ["✅ Found 1", "a"] and data(t, "built") == {"n": 1},
)
says(
    "it takes a status and a title",
    lambda t: (
        meta(t, "built") == {"status": "ok", "summary": "Found 1", "details": ["a"], "nextSteps": ["b"]}
    ),
)
says("it attaches the typed payload", lambda t: data(t, "built") == {"n": 1})
says(
    "`build_tool_response`: the older payload",
    lambda t: data(t, "built_as_text") == {"title": "Found 1", "lines": ["a"]},
)
says("it remains available", lambda t: meta(t, "built_as_text")["status"] == "ok")

says.section("Error Patterns")
says(
    "what can be recovered from has status error",
    lambda t: meta(t, "failure")["status"] == "error" and t("failure").is_error,
)
says("with next steps", lambda t: meta(t, "pyright")["nextSteps"] == ["Install it: npm install -g pyright."])
says("every failure has next steps", lambda t: bool(meta(t, "crash")["nextSteps"]))
says("`errorCode` is in `data`", lambda t: data(t, "pyright")["errorCode"] == "LSP_UNAVAILABLE")
says("a code of the tool's own stays", lambda t: data(t, "failed:QUOTA_SPENT")["errorCode"] == "QUOTA_SPENT")
says("the headline shows it", lambda t: t("pyright").text == "❌ pyright-langserver not found on PATH.")
says("details of a failure are in `data`", lambda t: data(t, "pyright")["language"] == "py")
says(
    "an exception that nobody expected is one, too",
    lambda t: data(t, "crash")["errorCode"] in ("INTERNAL", "TOOL_FAILED"),
)
says(
    "an argument of the wrong type is one, too",
    lambda t: data(t, "keys", count="many")["errorCode"] == "BAD_ARGS",
    library="a plain function call has no argument schema",
)

says.section("Token Discipline")
says(
    "inline text stays under about 2000 characters",
    lambda t: all(inline(t, case) <= 2000 for case in ("long_text", "list:matches:400", "blob:20000")),
)
says("the helper's, too", lambda t: inline(t, "composed_at_length") <= 2000)
says(
    "past that, `truncated`",
    lambda t: meta(t, "composed_at_length")["truncated"] and meta(t, "long_text")["truncated"],
)
says("and a link", lambda t: any(link["uri"].startswith("envelope://") for link in t("long_text").links))
says("the link leads to the text", lambda t: "line of text\\n" * 400 in whole(t, "long_text"))
says(
    "the link of the helper leads to the text",
    lambda t: "line of text\\n" * 400 in whole(t, "composed_at_length"),
    proxy="the server behind it stored that, and reads it",
)
says(
    "data that was omitted has a link",
    lambda t: json.loads(whole(t, "list:matches:4000"))["matches"][3999]["line"] == 4000,
)
says(
    "a preview that was shortened has a link",
    lambda t: json.loads(whole(t, "list:matches:200"))["matches"][199]["line"] == 200,
)
says("`truncated` when data was omitted", lambda t: meta(t, "list:matches:4000")["truncated"] is True)
says(
    "a next step says how to read on",
    lambda t: "envelope_read(handle=" in meta(t, "list:matches:4000")["nextSteps"][0],
)
says("`data.truncated` is not left false", lambda t: data(t, "flags")["truncated"] is True)

says.section("Deprecation Notice")
says("`build_tool_response` has text alone for data", lambda t: data(t, "built_as_text")["lines"] == ["a"])
says("`compose_tool_payload` replaces it", lambda t: t("composed").structured["data"] == {"matches": 1})
says(
    "the lint rule `no-raw-mcp-text` warns of its import",
    lambda t: (
        RULES["ENV008"].name == "no-raw-mcp-text"
        and "ENV008"
        in str(lint_tree(ast.parse("from mcp_envelope.dialects.gel import build_tool_response\n")))
    ),
    fastmcp="it reads source code",
    mcpserver="it reads source code",
    proxy="it reads source code",
)
