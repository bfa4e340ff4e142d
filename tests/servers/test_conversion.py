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
from pydantic import BaseModel, Field, field_serializer
from typing_extensions import TypedDict

from mcp_envelope.front import Call, Front
from mcp_envelope.servers.fastmcp_tools import Functions
from mcp_envelope.servers.running import Run

from .harness import ask, bare, put

TOKEN = "ghp_" + "a1" * 18


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
    wrapped = Functions().wrapped(tool)
    front = Front(vault="none", ledger=False)
    with Run(front, Call(tool="x", policy=front.policy("x"))):
        mine = outcome(wrapped.convert_result, value)
    theirs = outcome(tool.convert_result, value)
    if function is stated and isinstance(theirs[0], type):
        # It cannot write what the type then leaves out.
        return
    assert repr(mine) == repr(theirs)


def test_other_kinds_of_dictionaries_are_left_to_the_library() -> None:
    tool = FunctionTool.from_function(anything)
    wrapped = Functions().wrapped(tool)
    front = Front(vault="none", ledger=False)
    run = Run(front, Call(tool="x", policy=front.policy("x")))
    run.is_direct = True
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
def test_what_others_write_into_a_result_is_seen(mounted: bool) -> None:
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
