"""What tools answer in the tables: the same cases for the library, two kinds of servers, and behind the proxy.

A case is found by its name; what stands behind a colon is its argument: `list:importers:300`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from mcp_envelope import (
    Failure,
    Miss,
    Reply,
    describe_call,
    fallback,
    index_age,
    stale,
    upgrade,
    warn,
)
from mcp_envelope.anchors import Anchor, NodeId, relative_path

# The names of the tools; each takes a case.
TOOLS = ("look", "analyze_code", "security_scan", "extract_code", "nav_references", "map_search")
INDEX = 'Run "ctxo index" to build the codebase index.'
SYMBOL = "symbolId: String must contain at least 1 character(s)"
SCAN: dict[str, Any] = {"risk_level": "high", "vulnerabilities": []}
CODE = {"functions": ["a"], "classes": ["B"], "complexity": 3, "imports": ["os"], "raw": "x = 1"}
PYRIGHT = Failure(
    "LSP_UNAVAILABLE",
    "pyright-langserver not found on PATH.",
    "Install it: npm install -g pyright.",
    language="py",
)
LINK = {"type": "resource_link", "uri": "docs://match/1", "name": "Full excerpt"}
META = {"status": "ok", "summary": "Found 1 match", "details": ["in docs/a.md"], "nextSteps": ["Open it."]}

Case = Callable[..., Any]
CASES: dict[str, Case] = {}


def case(made: Case) -> Case:
    CASES[made.__name__.rstrip("_")] = made
    return made


def answer(name: str, arguments: dict[str, Any]) -> Any:
    """What a tool returns for a case, or raises."""
    found, *given = name.split(":")
    made = CASES[found]
    return made(*given, **({"arguments": arguments} if found in ("read_file", "given") else {}))


def rows(count: int) -> list[dict[str, Any]]:
    return [{"file": f"src/{n}.ts", "line": n + 1} for n in range(count)]


# -- data ------------------------------------------------------------------------------------------------------


@case
def list_(name: str, count: str = "400") -> Any:
    return {name: rows(int(count))}


@case
def sized(size: str) -> Any:
    """A payload of so many bytes, as compact JSON."""
    value = {"results": ["x" * 37] * min(40, int(size) // 50) + [""]}
    value["results"][-1] = "x" * (int(size) - len(json.dumps(value, separators=(",", ":"))))
    return value


@case
def blob(size: str = "20000") -> Any:
    return {"blob": "x" * int(size)}


@case
def two(first: str, second: str) -> Any:
    return {first: rows(300), second: rows(200)}


@case
def keys() -> Any:
    return {"zebra": 1, "importers": rows(3), "apple": {"b": 1, "a": 2}}


@case
def large_items() -> Any:
    return {"results": [{"text": "x" * 9000}, {"text": "y" * 9000}]}


@case
def bare_list() -> Any:
    return rows(400)


@case
def as_text(count: str = "400") -> Any:
    return json.dumps({"results": rows(int(count))}, indent=2)


@case
def scan() -> Any:
    return SCAN


@case
def code() -> Any:
    return CODE


@case
def null() -> Any:
    return None


@case
def number() -> Any:
    return 42


@case
def flags() -> Any:
    return {"truncated": False, "results": rows(2000)}


@case
def snippets() -> Any:
    return {"references": [{"file": "a.py", "line": 1, "snippet": "s" * 3000}, {"file": "b.py", "line": 2}]}


@case
def references() -> Any:
    return {"references": [{"file": f"src/{n % 7}.py", "line": 500 - n} for n in range(500)]}


@case
def neighbors() -> Any:
    return {"neighbors": [{"id": f"py:{n}.py", "hubScore": n, "depth": n % 3} for n in range(500)]}


@case
def anchors() -> Any:
    anchor = Anchor("src/a.py", 3, 7, end_line=4, snippet="x = 1")
    return {
        "definition": anchor,
        "bare": Anchor(relative_path("src\\b.py", "C:\\repo"), 1, 1),
        "id": NodeId("py", "src/a.py", "App.run"),
    }


# -- outcomes --------------------------------------------------------------------------------------------------


@case
def miss() -> Any:
    return Miss(INDEX)


@case
def failure() -> Any:
    raise Failure("BAD_ARGS", SYMBOL)


@case
def crash() -> Any:
    raise RuntimeError("the secret is in /home/ada/x.py")


@case
def failed(code: str, message: str = "It failed.") -> Any:
    raise Failure(code, message)


@case
def refused() -> Any:
    """An error of the protocol, without a code of the contract."""
    from mcp import MCPError

    raise MCPError(code=-32603, message="It failed.")


@case
def pyright() -> Any:
    raise PYRIGHT


@case
def read_file(arguments: dict[str, Any]) -> Any:
    path = arguments.get("file") or "/missing.py"
    raise Failure("NOT_FOUND", f"File not found: {path}")


@case
def details() -> Any:
    raise Failure("TOO_LARGE", "The file is too large.", limit=10)


@case
def failed_with_data() -> Any:
    raise Failure("TIMEOUT", "The scan took too long.", data={"scanned": 3})


@case
def source() -> Any:
    raise ValueError("def f():\n    return os.environ['KEY']\n\nclass A:\n    x = 1\n")


@case
def node_id() -> Any:
    return NodeId.parse("not a node id")


@case
def timed_out() -> Any:
    raise TimeoutError("the server timed out")


# -- besides the data ------------------------------------------------------------------------------------------


@case
def warned(count: str = "1") -> Any:
    for n in range(int(count)):
        warn(f"warning {n}")
    return {"n": 1}


@case
def stale_files() -> Any:
    stale(3, marked="stale: true")
    return {"n": 1}


@case
def aged() -> Any:
    index_age("2 days")
    return {"n": 1}


@case
def fell_back() -> Any:
    fallback("The call hierarchy", "a fallback map")
    return {"n": 1}


@case
def workspace() -> Any:
    describe_call(workspace={"root": ".", "package": "core"})
    return {"importers": rows(2)}


@case
def hinted(count: str = "400") -> Any:
    return Reply({"importers": rows(int(count))}, hint="Use search_symbols with a narrower query")


@case
def pro() -> Any:
    describe_call(tier="pro", tool_version="3.3.0")
    return SCAN


@case
def pro_failure() -> Any:
    describe_call(tier="community", tool_version="3.3.0")
    raise Failure("NOT_FOUND", "File not found: /missing.py")


@case
def upgrading() -> Any:
    upgrade("cross-file taint", "pro", "It needs the hosted engine.")
    return SCAN


@case
def capable() -> Any:
    describe_call(capabilities=("envelope-v1", "streaming"))
    return SCAN


@case
def reply(status: str = "ok") -> Any:
    return Reply(
        {"matches": [{"path": "docs/a.md"}]},
        summary="Found 1 match",
        details=["in docs/a.md", "on line 3"],
        next_steps=["Open it."],
        links=[LINK],
        status=status,  # type: ignore[arg-type]
    )


@case
def reply_without_details() -> Any:
    return Reply({"n": 1}, summary="Found 1 match", details=["in docs/a.md"], show_details=False)


@case
def metered() -> Any:
    describe_call(token_usage={"total": 9}, rate_limit={"remaining": 3})
    return {"n": 1}


@case
def long_summary() -> Any:
    return Reply({"n": 1}, summary="word " * 40)


@case
def long_text() -> Any:
    return Reply({"n": 1}, summary="A long text", texts=["line of text\n" * 400])


@case
def composed(status: str = "ok", error: str = "") -> Any:
    from mcp_envelope.dialects.gel import compose_tool_payload

    return compose_tool_payload(
        {**META, "status": status},
        {"matches": 1},
        additional_text=["a preview"],
        resource_links=[LINK],
        is_error={"": None, "yes": True, "no": False}[error],
    )


@case
def composed_briefly() -> Any:
    from mcp_envelope.dialects.gel import compose_tool_payload

    return compose_tool_payload(META, {"matches": 1}, omit_meta_details=True)


@case
def composed_at_length() -> Any:
    from mcp_envelope.dialects.gel import compose_tool_payload

    return compose_tool_payload(META, {"matches": 1}, additional_text=["line of text\n" * 400])


@case
def built() -> Any:
    from mcp_envelope.dialects.gel import build_structured_response

    return build_structured_response(title="Found 1", data={"n": 1}, details=["a"], next_steps=["b"])


@case
def built_as_text() -> Any:
    import warnings

    from mcp_envelope.dialects.gel import build_tool_response

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return build_tool_response(title="Found 1", lines=["a"])


@case
def spoken(which: str, count: str = "2") -> Any:
    """What a tool answers that speaks the contract itself."""
    return {
        "ctxo miss": {"found": False, "hint": INDEX},
        "ctxo error": {"error": True, "message": SYMBOL},
        "ctxo": {
            "importers": rows(int(count)),
            "_meta": {
                "totalItems": 900,
                "returnedItems": int(count),
                "truncated": True,
                "totalBytes": 99_999,
                "hint": "Use search_symbols with a narrower query",
                "workspace": {"root": "."},
            },
        },
        "transcend": {
            "ok": True,
            "data": {"references": rows(int(count))},
            "tokenBudget": {"requested": 800, "used": 412, "max": 10000},
            "truncated": False,
            "warnings": ["old"],
        },
        "transcend error": {
            "ok": False,
            "error": {"code": "NODE_NOT_FOUND", "message": "No node.", "hint": "Search."},
        },
        "gel": {"meta": META, "data": {"results": rows(int(count))}},
        "scalpel": {"data": SCAN, "tier": "pro"},
        "scalpel error": {"error": {"error": "No.", "error_code": "forbidden"}},
    }[which]


@case
def given(arguments: dict[str, Any]) -> Any:
    return {name: value for name, value in arguments.items() if name != "case" and value}
