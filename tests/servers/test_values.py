"""The shorter way from a tool's value to FastMCP's result: the same result, and only where nobody can tell."""

from __future__ import annotations

import datetime
import decimal
import enum
import uuid
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import pytest
from fastmcp import FastMCP
from fastmcp.server.middleware import Middleware
from fastmcp.tools import FunctionTool
from hypothesis import given
from hypothesis import strategies as st
from mcp.server.mcpserver.tools import Tool as SDKTool
from pydantic import BaseModel, Field, field_serializer
from typing_extensions import TypedDict

from mcp_envelope.gateway import Call, Gateway
from mcp_envelope.servers.calls import Run
from mcp_envelope.servers.fastmcp import FunctionTransform
from mcp_envelope.servers.sdk import Metadata

from .harness import ask, bare, put

TOKEN = "glpat-" + "a1B2-c3D4e5_F6g7H8i9"


class Colour(enum.Enum):
    RED = "red"


class Row(BaseModel):
    file: str = Field(alias="fileName", default="a.py")
    when: datetime.date | None = None

    @field_serializer("when")
    def _year(self, when: datetime.date | None) -> int | None:
        return None if when is None else when.year


@dataclass
class Point:
    x: int
    y: float


class Found(TypedDict, total=False):
    rows: list[Any]


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.dates()
    | st.datetimes()
    | st.timedeltas()
    | st.decimals()
    | st.uuids()
    | st.sampled_from([Colour.RED, Row(), Row(when=datetime.date(2020, 2, 2)), Point(1, 2.5), object()])
    | st.sampled_from([uuid.UUID(int=3), decimal.Decimal("1.10"), {1, 2}, frozenset("a"), (1, "b"), b"\xff"])
)
VALUES = st.dictionaries(
    st.text() | st.integers() | st.sampled_from(["rows", "result"]),
    st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8),
)


async def anything() -> dict[Any, Any]:
    return {}


async def anything_named() -> dict[str, Any]:
    return {}


async def stated() -> Found:
    return {}


async def unstated():  # type: ignore[no-untyped-def]
    return {}


def outcome(convert: Any, value: Any) -> Any:
    try:
        made = convert(value)
    except Exception as error:
        return type(error), str(error)
    return made.model_dump_json(), made.model_fields_set, made.to_mcp_result()


@given(value=VALUES, function=st.sampled_from([anything, stated, unstated]))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_it_is_what_the_library_makes(value: dict[Any, Any], function: Any) -> None:
    tool = FunctionTool.from_function(function)
    gateway = Gateway(vault="none", ledger=False)
    wrapped = FunctionTransform(gateway).wrap(tool)
    with Run(gateway, Call(tool="x", policy=gateway.policy("x"))):
        mine = outcome(wrapped.convert_result, value)
    theirs = outcome(tool.convert_result, value)
    if function is stated and isinstance(theirs[0], type):
        # It cannot write what the type then leaves out.
        return
    assert repr(mine) == repr(theirs)


@given(value=VALUES, function=st.sampled_from([anything_named, stated]))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_it_is_what_the_sdk_makes(value: dict[Any, Any], function: Any) -> None:
    def made(convert: Any) -> Any:
        try:
            return convert(value).model_dump_json()
        except Exception as error:
            return type(error), str(error)

    tool = SDKTool.from_function(function)
    gateway = Gateway(vault="none", ledger=False)
    with Run(gateway, Call(tool="x", policy=gateway.policy("x"))):
        mine = made(Metadata.made(tool).convert_result)
    assert mine == made(tool.fn_metadata.convert_result)


def test_other_kinds_of_dictionaries_are_left_to_the_library() -> None:
    tool = FunctionTool.from_function(anything)
    gateway = Gateway(vault="none", ledger=False)
    wrapped = FunctionTransform(gateway).wrap(tool)
    run = Run(gateway, Call(tool="x", policy=gateway.policy("x")))
    run.tool = wrapped
    with run:
        assert wrapped.convert_result(OrderedDict(a=1)) == tool.convert_result(OrderedDict(a=1))
        assert run.plain is None
        made = wrapped.convert_result({"a": 1})
        assert run.plain is made


class Adding(Middleware):
    """Middleware that writes into results."""

    async def on_call_tool(self, context: Any, call_next: Any) -> Any:
        result = await call_next(context)
        result.structured_content["added"] = TOKEN
        return result


async def rows() -> dict[str, Any]:
    return {"rows": [1]}


@pytest.mark.parametrize("mounted", [False, True])
def test_what_others_write_into_a_result_is_seen(mounted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_ENVELOPE_REDACT", "tokens")
    server = bare("fastmcp", rows)
    assert isinstance(server, FastMCP)
    if mounted:
        outer: FastMCP[Any] = FastMCP("outer")
        outer.mount(server)
        put(outer)
        server.add_middleware(Adding())
        server = outer
    else:
        put(server)
        server.add_middleware(Adding())
    result = ask(server, "rows")
    assert TOKEN not in result.model_dump_json()
    assert "redacted" in result.structured_content["added"]
