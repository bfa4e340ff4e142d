"""The sentences of the contract that the dialect `transcend` speaks."""

from __future__ import annotations

import json
import math
from functools import partial
from typing import Any

from mcp_envelope.dialects.transcend import CODES

from .cases import TOOLS
from .table import Table
from .ways import Answer, Talk, variables

says = Table("transcend", "Response Envelope")

SPOKEN_CODES = (
    "MAP_NOT_BUILT",
    "NODE_NOT_FOUND",
    "BAD_NODE_ID",
    "FILE_DELETED",
    "SYMBOL_NOT_FOUND",
    "LSP_UNAVAILABLE",
    "LSP_FAILED",
    "LSP_TIMEOUT",
    "BAD_ARGS",
    "INTERNAL",
)
WORDS = variables(MCP_ENVELOPE_ERRORS='{"it failed": "MAP_NOT_BUILT"}')
ALIVE = "codemap has the same: tests/codemap/test_language_server.py"
NO_ARGUMENTS = {"library": "a plain function call has no argument schema"}
FIVE = ("list:references:400", "two:results:files", "snippets", "blob:20000", "flags")


def units(text: str) -> int:
    return math.ceil(len(text.encode("utf-16-le")) / 2 / 4)


def said(t: Talk, case: str, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = t(case, **more).structured
    return found


def error(t: Talk, case: str, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = said(t, case, **more)["error"]
    return found


def as_it_is(code: str, t: Talk) -> bool:
    return error(t, f"failed:{code}")["code"] == code and "reason" not in error(t, f"failed:{code}")


def honest(answer: Answer) -> bool:
    """Whether `used` is what is emitted, and within what was requested."""
    budget = answer.structured["tokenBudget"]
    used, requested = int(budget["used"]), int(budget["requested"])
    return units(answer.text) == used <= requested


def is_compact(answer: Answer) -> bool:
    return answer.text == json.dumps(answer.doc, separators=(",", ":"))


def page_of(t: Talk, case: str, **asked: Any) -> Answer:
    handle = said(t, case)["dropped"]["note"].partition('handle="')[2].partition('"')[0]
    return t.read(handle, **asked)


def one_more(t: Talk, tokens: int) -> bool:
    """Whether the next reference would no longer fit."""
    shown = json.loads(json.dumps(said(t, "list:references:400", tokens=tokens)))
    kept = len(shown["data"]["references"])
    # Ranked by file: the next one is at most as long as the longest.
    shown["data"]["references"].append(max(shown["data"]["references"], key=lambda row: len(str(row))))
    return units(json.dumps(shown, separators=(",", ":"))) + 2 > tokens or kept == 400


says.section("Response Envelope")
says(
    "all tools return through one envelope",
    lambda t: all(list(said(t, "scan", tool=tool)) == list(said(t, "scan")) for tool in TOOLS),
)
says("a result that is no object does, too", lambda t: len(said(t, "bare_list", tokens=9000)["data"]) == 400)
says("`envelope_read`, our own tool, does, too", lambda t: t.read("x" * 22).structured["ok"] is False)
says(
    "a number and null do, too",
    lambda t: said(t, "number")["data"] == 42 and said(t, "null")["data"] is None,
    proxy="a server that sends `42` as text has sent a text",
)
says(
    "its schema is listed for it, too",
    lambda t: t.listed("envelope_read")["outputSchema"] == t.listed("map_search")["outputSchema"],
    library="it is not a server",
)
says("both lanes hold it", lambda t: t("scan").doc == t("scan").structured)
says("the text is compact", lambda t: is_compact(t("scan")) and is_compact(t("as_text")))
says("a page is compact, too", lambda t: is_compact(page_of(t, "as_text:2000", path="/results", offset=1990)))
says(
    "the schema that is listed is that of the envelope",
    lambda t: t.listed()["outputSchema"]["required"] == ["ok", "tokenBudget", "truncated", "warnings"],
)
says(
    "a tool that speaks it itself is not wrapped again",
    lambda t: said(t, "spoken:transcend")["data"].keys() == {"references"},
)

says.section("The example")
says("`ok` is true", lambda t: said(t, "scan")["ok"] is True)
says(
    "`data` is the tool's payload",
    lambda t: said(t, "scan")["data"] == {"risk_level": "high", "vulnerabilities": []},
)
says(
    "JSON that a server sends as text is that payload",
    lambda t: said(t, "as_text", tokens=9000)["data"].keys() == {"results"},
)
says("`data` holds anchors", lambda t: said(t, "anchors")["data"]["definition"]["line"] == 3)
says(
    "`tokenBudget` has three members, in this order",
    lambda t: list(said(t, "scan")["tokenBudget"]) == ["requested", "used", "max"],
)
says(
    "`requested` is what was asked for",
    lambda t: said(t, "scan", tokens=800)["tokenBudget"]["requested"] == 800,
)
says("`used` is what is emitted", lambda t: honest(t("scan")))
says("`max` is 10000", lambda t: said(t, "scan")["tokenBudget"]["max"] == 10000)
says("`truncated` is a boolean", lambda t: said(t, "scan")["truncated"] is False)
says(
    "`dropped` is there when something was dropped",
    lambda t: "dropped" in said(t, "list:references:400", tokens=800),
)
says("`dropped` is absent otherwise", lambda t: "dropped" not in said(t, "scan"))
says(
    "`dropped.kind` is the bare noun",
    lambda t: said(t, "list:references:400", tokens=800)["dropped"]["kind"] == "references",
)
says(
    "`dropped.count` is how many",
    lambda t: (
        said(t, "list:references:400", tokens=800)["dropped"]["count"]
        == 400 - len(said(t, "list:references:400", tokens=800)["data"]["references"])
    ),
)
says(
    "`dropped.note` has the count and the budget",
    lambda t: (
        "Dropped {count} references to fit tokenBudget=800.".format(
            **said(t, "list:references:400", tokens=800)["dropped"]
        )
        in said(t, "list:references:400", tokens=800)["dropped"]["note"]
    ),
)
says("`warnings` is a list of texts", lambda t: said(t, "warned")["warnings"] == ["warning 0"])
says("`warnings` is there without any", lambda t: said(t, "scan")["warnings"] == [])
says(
    "the order of a success",
    lambda t: list(said(t, "scan")) == ["ok", "data", "tokenBudget", "truncated", "warnings"],
)
says(
    "the order after a cut",
    lambda t: (
        list(said(t, "list:references:400"))
        == ["ok", "data", "tokenBudget", "truncated", "dropped", "warnings"]
    ),
)

says.section("tokenBudget")
says(
    "every tool accepts it",
    lambda t: all("tokenBudget" in t.listed(tool)["inputSchema"]["properties"] for tool in TOOLS),
    library="seal takes `tokens`",
)
says("every call may have it", lambda t: said(t, "scan", tokens=500)["tokenBudget"]["requested"] == 500)
says("the default is 2000", lambda t: said(t, "scan")["tokenBudget"]["requested"] == 2000)
says(
    "too small a value is clamped to 100",
    lambda t: said(t, "scan", tokens=3)["tokenBudget"]["requested"] == 100,
)
says(
    "too large a value is clamped to 10000",
    lambda t: said(t, "scan", tokens=99_999)["tokenBudget"]["requested"] == 10000,
)
says(
    "100 and 10000 are in range",
    lambda t: said(t, "number", tokens=100)["warnings"] == [] == said(t, "number", tokens=10_000)["warnings"],
)
says("a value that was clamped is warned of", lambda t: len(said(t, "number", tokens=3)["warnings"]) == 1)
says("clamping is no failure", lambda t: not t("scan", tokens=3).is_error)
says(
    "a negative value is clamped, too",
    lambda t: said(t, "number", tokens=-5)["tokenBudget"]["requested"] == 100,
)
says(
    "the tool doesn't see it",
    lambda t: "tokenBudget" not in said(t, "given", tokens=500, file="a")["data"],
    library="seal takes `tokens`",
)
says("the estimate is characters / 4", lambda t: honest(t("list:results:400")))
says(
    "over the serialized envelope",
    lambda t: said(t, "number")["tokenBudget"]["used"] == units(t("number").text),
)
says("it is meant for budgeting, to about 20 %", all="it says how good an estimate by characters is")
says("`used` never exceeds `requested`: default budget", lambda t: all(honest(t(case)) for case in FIVE))
says(
    "`used` never exceeds `requested`: the smallest budget",
    lambda t: all(honest(t(case, tokens=100)) for case in FIVE),
)
says(
    "`used` never exceeds `requested`: any budget",
    lambda t: all(honest(t("list:references:400", tokens=n)) for n in (137, 253, 640, 3001)),
)
says(
    "failures keep it, too",
    lambda t: all(honest(t(case, tokens=100)) for case in ("pyright", "crash", "miss")),
)
says("many warnings keep it, too", lambda t: honest(t("warned:60", tokens=100)))

says.section("What is cut")
says(
    "references are grouped by file",
    lambda t: (
        [row["file"] for row in said(t, "references")["data"]["references"]]
        == sorted(row["file"] for row in said(t, "references")["data"]["references"])
    ),
)
says(
    "and ordered by line in a file",
    lambda t: (
        [row["line"] for row in said(t, "references")["data"]["references"] if row["file"] == "src/0.py"]
        == sorted(
            row["line"] for row in said(t, "references")["data"]["references"] if row["file"] == "src/0.py"
        )
    ),
)
says(
    "neighbors are ranked by hub score",
    lambda t: [row["hubScore"] for row in said(t, "neighbors")["data"]["neighbors"]][:3] == [499, 498, 497],
)
says("the largest prefix that fits", lambda t: all(one_more(t, tokens) for tokens in (300, 800, 2000)))
says("the note has its headroom", lambda t: honest(t("list:references:400", tokens=100)))
says(
    "several lists: none is emptied before the other",
    lambda t: all(said(t, "two:results:files", tokens=400)["data"].values()),
)
says(
    "the last resort: snippets are elided",
    lambda t: said(t, "snippets", tokens=200)["data"]["references"][1] == {"file": "b.py", "line": 2},
)
says(
    "what isn't declared is cut as well",
    lambda t: honest(t("list:anything:400")) and said(t, "list:anything:400")["truncated"],
)
says("a large text is cut as well", lambda t: 0 < len(said(t, "blob:20000")["data"]["blob"]) < 20000)

says.section("The note")
says(
    "whatever is omitted sets `truncated`",
    lambda t: all(said(t, case)["truncated"] for case in ("list:references:400", "blob:20000", "flags")),
)
says(
    "and `dropped`",
    lambda t: all("dropped" in said(t, case) for case in ("list:references:400", "blob:20000", "flags")),
)
says("nothing omitted: neither", lambda t: said(t, "scan")["truncated"] is False)
says(
    "the note says what was cut", lambda t: "references" in said(t, "list:references:400")["dropped"]["note"]
)
says(
    "and how to get it back",
    lambda t: "envelope_read(handle=" in said(t, "list:references:400")["dropped"]["note"],
)
says(
    "usually a narrower request: the tool's hint",
    lambda t: "search_symbols" in said(t, "hinted")["dropped"]["note"],
)
says("the note is the next step", lambda t: said(t, "hinted")["dropped"]["note"].endswith("narrower query"))
says(
    "what the note names can be read",
    lambda t: (
        t.read(
            said(t, "list:references:400")["dropped"]["note"].split('"')[1], path="/references", offset=399
        ).structured["data"][0]["line"]
        == 400
    ),
)
says("data that says it is whole is corrected", lambda t: said(t, "flags")["data"]["truncated"] is True)

says.section("Warnings")
says(
    "what isn't fatal rides along",
    lambda t: said(t, "warned:3")["warnings"] == ["warning 0", "warning 1", "warning 2"],
)
says(
    "how many files are stale",
    lambda t: said(t, "stale_files")["warnings"][0].startswith("3 files changed since the last index"),
)
says("and how they are marked", lambda t: "marked stale: true" in said(t, "stale_files")["warnings"][0])
says("the age of the index", lambda t: "2 days old" in said(t, "aged")["warnings"][0])
says("with a nudge", lambda t: "Confirm" in said(t, "aged")["warnings"][0])
says(
    "a capability fell back",
    lambda t: "call hierarchy came from a fallback map" in said(t, "fell_back")["warnings"][0],
)
says("treat it as approximate", lambda t: "approximate" in said(t, "fell_back")["warnings"][0])
says("a warning is no failure", lambda t: said(t, "aged")["ok"] is True)
says("JSON and the same as text: no warning", lambda t: said(t, "keys")["warnings"] == [])
says("a tool's own warnings stay", lambda t: said(t, "spoken:transcend")["warnings"] == ["old"])

says.section("Failures")
says(
    "failures are no protocol errors",
    lambda t: all(said(t, case)["ok"] is False for case in ("pyright", "crash", "timed_out", "node_id")),
)
says("`ok` is false", lambda t: said(t, "pyright")["ok"] is False)
says("a stable code", lambda t: error(t, "pyright")["code"] == "LSP_UNAVAILABLE")
says(
    "a message for people",
    lambda t: error(t, "pyright")["message"] == "pyright-langserver not found on PATH.",
)
says(
    "a hint that can be acted on",
    lambda t: error(t, "pyright")["hint"] == "Install it: npm install -g pyright.",
)
says(
    "the example: its order, with the language",
    lambda t: list(error(t, "pyright")) == ["code", "message", "language", "hint"],
)
says("the example: the language", lambda t: error(t, "pyright")["language"] == "py")
says(
    "the example: its budget",
    lambda t: honest(t("pyright")) and said(t, "pyright")["tokenBudget"]["requested"] == 2000,
)
says(
    "the example: `truncated` and `warnings`",
    lambda t: (said(t, "pyright")["truncated"], said(t, "pyright")["warnings"]) == (False, []),
)
says(
    "the example: the order",
    lambda t: list(said(t, "pyright")) == ["ok", "error", "tokenBudget", "truncated", "warnings"],
)
says(
    "a tool's own failure is not wrapped again",
    lambda t: (
        error(t, "spoken:transcend error")
        == {"code": "NODE_NOT_FOUND", "message": "No node.", "hint": "Search."}
    ),
)
says("`isError` goes with it", lambda t: t("pyright").is_error)
says(
    "a miss is a coded failure",
    lambda t: error(t, "miss")["code"] == "NODE_NOT_FOUND" and error(t, "miss")["hint"].startswith("Run"),
)
says(
    "words of the settings decide about a code",
    lambda t: error(t, "refused", setup=WORDS)["code"] == "MAP_NOT_BUILT",
    library="plain `seal` reads no settings of ours; it takes a `policy`",
)

says.section("Codes")
for code in SPOKEN_CODES:
    says(f"`{code}` goes out as it is", partial(as_it_is, code))
says("there are ten", lambda t: set(SPOKEN_CODES) == CODES and error(t, "failed:TEAPOT")["code"] in CODES)
says(
    "any other code becomes one of them, with its own name beside it",
    lambda t: error(t, "failed:TEAPOT")["reason"] == "TEAPOT",
)
says(
    "each has a way to recover",
    lambda t: all(error(t, f"failed:{code}")["message"] == "It failed." for code in SPOKEN_CODES),
)
says(
    "`BAD_NODE_ID`: an id that doesn't parse",
    lambda t: error(t, "node_id")["code"] == "BAD_NODE_ID",
)
says("`BAD_NODE_ID`: the grammar is said", lambda t: "<lang>:<relpath>" in json.dumps(error(t, "node_id")))
says("`LSP_TIMEOUT`: no answer in time", lambda t: error(t, "timed_out")["code"] == "LSP_TIMEOUT")
says(
    "`BAD_ARGS`: an argument of the wrong type",
    lambda t: error(t, "keys", count="many")["code"] == "BAD_ARGS",
    **NO_ARGUMENTS,
)
says(
    "`BAD_ARGS`: the message names it",
    lambda t: "count" in error(t, "keys", count="many")["message"],
    **NO_ARGUMENTS,
)
says("`INTERNAL`: what nobody expected", lambda t: error(t, "crash")["code"] == "INTERNAL")
says("the deadlines of slow operations", all=f"they are that project's language servers'; {ALIVE}")
says("where the end of the error output is", all=f"it is that project's `map_status`; {ALIVE}")

says.section("Anchors")
says(
    "lines and columns count from 1",
    lambda t: (
        (said(t, "anchors")["data"]["bare"]["line"], said(t, "anchors")["data"]["bare"]["col"]) == (1, 1)
    ),
)
says(
    "one shape everywhere",
    lambda t: list(said(t, "anchors")["data"]["definition"]) == ["file", "line", "col", "endLine", "snippet"],
)
says(
    "`endLine` and `snippet` are optional",
    lambda t: list(said(t, "anchors")["data"]["bare"]) == ["file", "line", "col"],
)
says("forward slashes", lambda t: said(t, "anchors")["data"]["bare"]["file"] == "src/b.py")
says(
    "`file` is relative to the repository",
    lambda t: not said(t, "anchors")["data"]["definition"]["file"].startswith("/"),
)
says("columns count UTF-16 units", all="it is about how anchors are made: tests/test_anchors.py")
says("node ids follow the grammar", lambda t: said(t, "anchors")["data"]["id"] == "py:src/a.py#App.run")
