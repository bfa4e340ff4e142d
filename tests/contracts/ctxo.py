"""The sentences of the contract that the dialect `ctxo` speaks."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from .cases import INDEX, SYMBOL, spoken
from .table import Table
from .ways import DEFAULT, Setup, Talk, variables

says = Table("ctxo", "Response Envelope")

RAISED = variables(CTXO_RESPONSE_LIMIT="16384")
WRONG = variables(CTXO_RESPONSE_LIMIT="16k")
TINY = variables(CTXO_RESPONSE_LIMIT="300")
NAMES = (
    "impactedSymbols",
    "importers",
    "deadSymbols",
    "unusedExports",
    "results",
    "rankings",
    "context",
    "hierarchies",
    "scaffolding",
    "deadFiles",
    "files",
)
SIX = ("totalItems", "returnedItems", "truncated", "totalBytes", "hint", "workspace")
OWN = spoken("ctxo")["_meta"]
ELSEWHERE = "another page, about the tools of that project"


def meta(t: Talk, case: str, setup: Setup = DEFAULT, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = t(case, setup=setup, **more).doc["_meta"]
    return found


def size(value: Any) -> int:
    return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())


def payload(t: Talk, case: str) -> dict[str, Any]:
    return {name: value for name, value in t(case).doc.items() if name != "_meta"}


def is_cut(name: str, t: Talk) -> bool:
    return 0 < len(t(f"list:{name}:1000").doc[name]) < 1000


def one_more(t: Talk, name: str, setup: Setup, limit: int) -> bool:
    """Whether the prefix is the largest: with the next item, the document would be over the limit."""
    shown = t(f"list:{name}:1000", setup=setup).doc
    count = len(shown[name])
    shown[name].append({"file": f"src/{count}.ts", "line": count + 1})
    shown["_meta"]["returnedItems"] += 1
    return size(shown) > limit


says.section("Response Envelope")
says(
    "every result has the envelope",
    lambda t: all("_meta" in t(case).doc for case in ("keys", "blob:10", "list:files:3")),
)
says(
    "a result that is no object has it, too",
    lambda t: "_meta" in t("bare_list").doc and "_meta" in t("number").doc,
)
says(
    "a result without data has it, too",
    lambda t: t("null").doc["result"] is None and "_meta" in t("null").doc,
)
says(
    "it adds `_meta`, and nothing else",
    lambda t: list(t("keys").doc) == ["zebra", "importers", "apple", "_meta"],
)
says("`_meta` has the counts", lambda t: {"totalItems", "returnedItems"} <= meta(t, "keys").keys())
says("`_meta` has the state of truncation", lambda t: meta(t, "keys")["truncated"] is False)
says("a cap in bytes is kept", lambda t: len(t("list:importers:1000").text.encode()) <= 8192)
says(
    "it is put on before a client sees the result",
    lambda t: t("list:importers:1000").raw["content"][0]["type"] == "text",
)

says.section("Transport shape")
says("a `content` array", lambda t: isinstance(t("keys").raw["content"], list))
says("one text part", lambda t: [block["type"] for block in t("keys").content] == ["text"])
says("one text part after a cut, too", lambda t: len(t("list:importers:1000").content) == 1)
says("it carries a JSON document", lambda t: isinstance(t("keys").doc, dict))
says("JSON that a server sends as text is that document", lambda t: "results" in t("as_text").doc)
says("there is no other lane", lambda t: t("keys").structured is None)
says("no output schema promises one", lambda t: "outputSchema" not in t.listed())

says.section("Success")
says(
    "the payload's keys come first, in their order",
    lambda t: list(t("keys").doc)[:3] == ["zebra", "importers", "apple"],
)
says("`_meta` comes last", lambda t: list(t("list:importers:1000").doc)[-1] == "_meta")
says("the example: `totalItems`", lambda t: meta(t, "list:importers:42")["totalItems"] == 42)
says("the example: `returnedItems`", lambda t: meta(t, "list:importers:42")["returnedItems"] == 42)
says("the example: `truncated`", lambda t: meta(t, "list:importers:42")["truncated"] is False)
says(
    "the example: `totalBytes`",
    lambda t: meta(t, "list:importers:42")["totalBytes"] == size(payload(t, "list:importers:42")),
)
says(
    "the example: these four, in this order",
    lambda t: (
        list(meta(t, "list:importers:42")) == ["totalItems", "returnedItems", "truncated", "totalBytes"]
    ),
)

says.section("Graceful miss")
says("what is not in the index is a miss", lambda t: t("miss").doc["found"] is False)
says("a miss is not an error", lambda t: not t("miss").is_error)
says(
    "the example, word for word",
    lambda t: t("miss").text == json.dumps({"found": False, "hint": INDEX}, separators=(",", ":")),
)
says(
    "a tool's own miss is left as it is",
    lambda t: t("spoken:ctxo miss").doc == {"found": False, "hint": INDEX},
)
says("a miss has no `_meta`", lambda t: "_meta" not in t("miss").doc)

says.section("Error")
says("invalid input has the shape of errors", lambda t: t("failure").doc["error"] is True)
says("an internal failure has it, too", lambda t: t("crash").doc["error"] is True)
says(
    "handlers never throw: an exception becomes a result",
    lambda t: list(t("crash").doc) == ["error", "message"],
)
says("the example, word for word", lambda t: t("failure").doc == {"error": True, "message": SYMBOL})
says(
    "a tool's own error is left as it is",
    lambda t: t("spoken:ctxo error").doc == {"error": True, "message": SYMBOL},
)
says("an error is not one of the protocol", lambda t: not t("failure").is_error and not t("crash").is_error)
says(
    "an argument of the wrong type is invalid input, and is named",
    lambda t: "count" in t("keys", count="many").doc["message"],
    library="a plain function call has no argument schema",
)

says.section("_meta fields")
says("`totalItems` is a number", lambda t: type(meta(t, "keys")["totalItems"]) is int)
says("`totalItems` is of the largest list", lambda t: meta(t, "two:files:results")["totalItems"] == 300)
says("`totalItems` is from before the cut", lambda t: meta(t, "list:importers:1000")["totalItems"] == 1000)
says("`totalItems` is 0 without a known list", lambda t: meta(t, "blob:10")["totalItems"] == 0)
says("`totalItems` of a list of another name is 0", lambda t: meta(t, "list:others:3")["totalItems"] == 0)
says(
    "`returnedItems` is what is shown",
    lambda t: (
        meta(t, "list:importers:1000")["returnedItems"] == len(t("list:importers:1000").doc["importers"])
    ),
)
says("`returnedItems` is a number", lambda t: type(meta(t, "keys")["returnedItems"]) is int)
says(
    "`truncated` is a boolean",
    lambda t: meta(t, "keys")["truncated"] is False and meta(t, "list:files:1000")["truncated"] is True,
)
says("`truncated` is true after a cut alone", lambda t: not meta(t, "sized:8192")["truncated"])
says("`totalBytes` is the size of the whole", lambda t: meta(t, "sized:5000")["totalBytes"] == 5000)
says("`totalBytes` is from before the cut", lambda t: meta(t, "list:importers:1000")["totalBytes"] > 30_000)
says("`totalBytes` is without `_meta`", lambda t: meta(t, "sized:100")["totalBytes"] == 100)
says("`hint` is optional", lambda t: "hint" not in meta(t, "keys"))
says("`hint` is there after a cut", lambda t: isinstance(meta(t, "list:importers:1000")["hint"], str))
says(
    "`hint` is the tool's own",
    lambda t: meta(t, "hinted")["hint"] == "Use search_symbols with a narrower query",
)
says("`hint` only says something after a cut", lambda t: "hint" not in meta(t, "hinted:3"))
says("`workspace` is optional", lambda t: "workspace" not in meta(t, "keys"))
says(
    "`workspace` has root and package",
    lambda t: meta(t, "workspace")["workspace"] == {"root": ".", "package": "core"},
)
says(
    "the order of all six",
    lambda t: (
        list(meta(t, "hinted")) == [*SIX[:5]]
        and list(meta(t, "spoken:ctxo")) == list(meta(t, "spoken:ctxo:400")) == [*SIX]
    ),
)
says(
    "a tool's own `_meta` is left as it is",
    lambda t: meta(t, "spoken:ctxo:3") == {**OWN, "returnedItems": 3},
)
says(
    "a tool's own counts and hint stay when more is cut",
    lambda t: (
        meta(t, "spoken:ctxo:400") == {**OWN, "returnedItems": len(t("spoken:ctxo:400").doc["importers"])}
    ),
)

says.section("Truncation")
says(
    "the schema of the response is kept",
    lambda t: {type(item) for item in t("list:files:1000").doc["files"]} == {dict},
)
says("other keys are kept", lambda t: t("two:files:results").doc.keys() == {"files", "results", "_meta"})
says(
    "the default limit is 8192",
    lambda t: meta(t, "sized:8192")["truncated"] is False and meta(t, "list:files:400")["truncated"],
)
says(
    "the variable raises it",
    lambda t: 8192 < len(t("list:importers:1000", setup=RAISED).text.encode()) <= 16384,
)
says("the variable lowers it", lambda t: len(t("list:importers:1000", setup=TINY).text.encode()) <= 300)
says(
    "any positive integer, and nothing else",
    lambda t: t("list:importers:1000", setup=WRONG).doc == t("list:importers:1000").doc,
)
says(
    "the largest known list is cut",
    lambda t: len(t("two:files:results").doc["files"]) < 200 == len(t("two:files:results").doc["results"]),
)
says("only that one, if that is enough", lambda t: len(t("two:results:files").doc["files"]) == 200)
says(
    "its beginning is kept",
    lambda t: (
        t("list:files:1000").doc["files"][:2] == [{"file": f"src/{n}.ts", "line": n + 1} for n in range(2)]
    ),
)
says("the largest prefix that serialises within the limit", lambda t: one_more(t, "importers", DEFAULT, 8192))
says("the largest prefix within another limit, too", lambda t: one_more(t, "importers", RAISED, 16384))
says("`_meta` counts towards the limit", lambda t: len(t("list:results:1000", setup=TINY).text) <= 300)
says(
    "a first item that is too large is left out",
    lambda t: t("large_items").doc["results"] == [] and meta(t, "large_items")["returnedItems"] == 0,
)
says("the hint is specific to the tool", lambda t: "search_symbols" in meta(t, "hinted")["hint"])
says(
    "hints are stable strings",
    lambda t: meta(t, "list:files:1000")["hint"] == meta(t, "list:files:400")["hint"],
)
says(
    "the example that raises the limit",
    lambda t: meta(t, "list:importers:400", setup=RAISED)["truncated"] is False,
)
says(
    "under the limit: verbatim",
    lambda t: (
        t("sized:8192").text.encode()[:8191]
        == json.dumps(payload(t, "sized:8192"), separators=(",", ":")).encode()[:8191]
    ),
)
says("under the limit: `truncated: false`", lambda t: meta(t, "sized:8000")["truncated"] is False)
says(
    "at the limit, to the byte",
    lambda t: not meta(t, "sized:8192")["truncated"] and meta(t, "sized:8192")["returnedItems"] == 41,
)
says(
    "one byte over it: cut",
    lambda t: meta(t, "sized:8193")["truncated"] and len(t("sized:8193").text.encode()) <= 8192,
)
says("without a known list: in full, whatever the size", lambda t: len(t("blob:20000").doc["blob"]) == 20000)

says.section("Truncatable fields")
for name in NAMES:
    says(f"`{name}` is cut", partial(is_cut, name))
says("no other field is cut", lambda t: len(t("list:others:1000").doc["others"]) == 1000)
says("large output is in one of them", all="it binds the authors of that project's tools")

says.section("Tip and warning")
says(
    "a client sees that it has to narrow its query",
    lambda t: meta(t, "list:files:1000")["truncated"] and meta(t, "list:files:1000")["hint"],
)
says("or may raise the variable", lambda t: "CTXO_RESPONSE_LIMIT" in meta(t, "list:files:1000")["hint"])
says(
    "the flag tells whether a list is complete",
    lambda t: meta(t, "flags")["truncated"] and t("flags").doc["truncated"],
)
says("handlers must not throw", lambda t: t("failed:TIMEOUT").doc["error"] is True)
says(
    "all error paths become `{error, message}`",
    lambda t: all(
        list(t(case).doc) == ["error", "message"]
        for case in ("failure", "crash", "node_id", "timed_out", "pyright")
    ),
)
says(
    "an exception would surface at the transport: it never does",
    lambda t: "result" not in t("crash").raw and not t("crash").is_error,
)
says("stdio framing is not broken: one line", lambda t: "\n" not in json.dumps(t("list:files:1000").raw))

says.section("See also")
says("the payloads, tool by tool", all=ELSEWHERE)

says.section("Beyond the document")
says(
    "a budget that a call sets is kept, even without a known list",
    lambda t: t("blob:20000", tokens=200).doc["error"] is True,
)
says("`envelope_read` answers in this shape", lambda t: list(t.read("x" * 22).doc) == ["error", "message"])
