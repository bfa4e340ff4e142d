"""Facts about each result on the span of the library's own, when somebody traces; nothing otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from fastmcp import FastMCP
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from mcp_envelope import Failure, tracing
from tests.pairwise import pairwise

from .harness import ERAS, LIBRARIES, ask, connected, enveloped_server, notice, put, run

_EXPORTER = InMemorySpanExporter()


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    """There is one provider for a process, and it can be set only once."""
    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):
        provider = TracerProvider()
        trace.set_tracer_provider(provider)
        provider.add_span_processor(SimpleSpanProcessor(_EXPORTER))
    _EXPORTER.clear()
    yield _EXPORTER
    _EXPORTER.clear()


def rows(count: int = 9000) -> dict[str, Any]:
    with trace.get_tracer("the tool's own").start_as_current_span("inside"):
        return {"rows": list(range(count))}


async def async_rows(count: int = 9000) -> dict[str, Any]:
    with trace.get_tracer("the tool's own").start_as_current_span("inside"):
        return {"rows": list(range(count))}


def fails() -> str:
    raise Failure("RATE_LIMITED", "Too fast.")


def server_span(spans: InMemorySpanExporter) -> ReadableSpan:
    (found,) = [
        span
        for span in spans.get_finished_spans()
        if span.kind is SpanKind.SERVER and span.name.startswith("tools/call")
    ]
    return found


def facts(span: ReadableSpan) -> dict[str, Any]:
    return {
        name.removeprefix("mcp_envelope."): value
        for name, value in (span.attributes or {}).items()
        if name.startswith("mcp_envelope.")
    }


@pairwise(tool=["rows", "async_rows"], library=LIBRARIES, era=ERAS)
def test_on_the_span_of_the_server(
    tool: str, library: str, era: str, spans: InMemorySpanExporter, vault: str
) -> None:
    server = enveloped_server(library, rows, async_rows, fails, vault=vault)
    ask(server, tool, era=era)
    told = facts(server_span(spans))
    assert 7000 < told.pop("budget.used") <= 8000
    assert told == {
        "budget.limit": 8000,
        "budget.unit": "tokens",
        "truncated": True,
        "cuts": 1,
        "handle_present": True,
    }
    others = [span for span in spans.get_finished_spans() if span.name == "inside"]
    assert others
    assert not any(facts(span) for span in others)

    spans.clear()
    ask(server, tool, {"count": 3, "tokenBudget": 500}, era=era)
    told = facts(server_span(spans))
    assert 5 < told.pop("budget.used") < 40
    assert told == {
        "budget.limit": 500,
        "budget.unit": "tokens",
        "truncated": False,
        "cuts": 0,
        "handle_present": False,
    }

    spans.clear()
    ask(server, "fails", era=era)
    assert facts(server_span(spans))["error_code"] == "RATE_LIMITED"

    spans.clear()
    result = ask(server, tool, era=era)
    spans.clear()
    ask(server, "envelope_read", {"handle": notice(result)["handle"]}, era=era)
    assert facts(server_span(spans))["truncated"]


def test_on_the_span_of_the_outer_server(spans: InMemorySpanExporter) -> None:
    child: FastMCP[Any] = FastMCP("child")
    child.tool(rows)
    parent: FastMCP[Any] = FastMCP("parent")
    parent.mount(child, namespace="in")
    put(parent)
    ask(parent, "in_rows")
    told = {span.name: facts(span) for span in spans.get_finished_spans() if facts(span)}
    assert list(told) == ["tools/call in_rows"]


def test_many_calls_have_their_own_spans(spans: InMemorySpanExporter) -> None:
    async def main() -> None:
        server = enveloped_server("mcpserver", rows)
        async with connected(server) as session, anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(session.call, "rows", {"count": 3, "tokenBudget": 200 + number})

    run(main)
    limits = [
        facts(span).get("budget.limit") for span in spans.get_finished_spans() if span.kind is SpanKind.SERVER
    ]
    assert sorted(limit for limit in limits if limit) == list(range(200, 220))


def test_nothing_where_nobody_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither is anything counted for it."""
    monkeypatch.setattr(trace, "get_current_span", lambda *_: trace.INVALID_SPAN)
    assert tracing.current_span() is None
    monkeypatch.delitem(__import__("sys").modules, "opentelemetry.trace")
    assert tracing.current_span() is None
