"""What fits is what the library sends without the line, byte for byte."""

from __future__ import annotations

import datetime
import enum
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any

import mcp_types
import pytest
from fastmcp.tools import ToolResult
from fastmcp.utilities.types import Audio, File, Image
from mcp.server.mcpserver import Audio as SDKAudio
from mcp.server.mcpserver import Image as SDKImage
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from mcp_envelope.vault.ledger import Ledger
from tests.pairwise import pairwise

from .harness import ERAS, LIBRARIES, ask, bare, connected, enveloped_server, run, wire


class Row(BaseModel):
    file: str
    line: int = Field(alias="lineNumber", default=1)
    when: datetime.date | None = None


@dataclass
class Point:
    x: int
    y: float


class Found(TypedDict):
    rows: list[str]


class Colour(enum.Enum):
    RED = "red"


def an_object() -> dict[str, Any]:
    return {"rows": [{"file": "a.py", "line": 3}], "total": 1, "ratio": 1.0, "é": "ü\u2028"}


def no_annotation():  # type: ignore[no-untyped-def]
    return {"a": [1, 2]}


def a_list() -> list[int]:
    return [1, 2, 3]


def a_list_without_schema():  # type: ignore[no-untyped-def]
    return [1, {"a": 2}, "three"]


def a_text() -> str:
    return 'hello "you"\n'


def json_text() -> str:
    return '{"a": 1}'


def an_integer() -> int:
    return 7


def nothing() -> None:
    return None


def a_union(which: int = 0) -> int | str | list[str]:
    return ["a", "b"]


def a_model() -> Row:
    return Row(file="a.py", lineNumber=3, when=datetime.date(2026, 1, 2))


def models() -> list[Row]:
    return [Row(file="a.py", lineNumber=3)]


def a_dataclass() -> Point:
    return Point(1, 2.5)


def a_typed_dict() -> Found:
    return {"rows": ["a"]}


def an_enum() -> Colour:
    return Colour.RED


def a_date() -> datetime.datetime:
    return datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)


def items():  # type: ignore[no-untyped-def]
    yield from range(5)


def stated_items() -> Iterable[int]:
    yield from range(5)


async def async_items():  # type: ignore[no-untyped-def]
    for number in range(5):
        yield {"n": number}


async def later() -> dict[str, int]:
    return {"a": 1}


def blocks():  # type: ignore[no-untyped-def]
    return [
        mcp_types.TextContent(type="text", text="look"),
        mcp_types.ImageContent(type="image", data="aGk=", mime_type="image/png"),
        mcp_types.AudioContent(type="audio", data="aGk=", mime_type="audio/wav"),
        mcp_types.ResourceLink(type="resource_link", uri="file:///a", name="a"),
        mcp_types.EmbeddedResource(
            type="resource",
            resource=mcp_types.TextResourceContents(uri="file:///b", text="b", mime_type="text/plain"),
        ),
    ]


def annotated_block() -> mcp_types.TextContent:
    return mcp_types.TextContent(
        type="text", text="x", annotations=mcp_types.Annotations(audience=["user"], priority=0.5)
    )


def by_hand() -> mcp_types.CallToolResult:
    return mcp_types.CallToolResult(
        content=[mcp_types.TextContent(type="text", text="words")],
        structured_content={"data": [1]},
        _meta={"mine": 1},
    )


def error_by_hand() -> mcp_types.CallToolResult:
    return mcp_types.CallToolResult(content=[mcp_types.TextContent(type="text", text="no")], is_error=True)


def some_bytes() -> bytes:
    return b"plain"


def odd_object():  # type: ignore[no-untyped-def]
    return {"path": Colour.RED, "what": complex(1, 2)}


EVERYWHERE: list[Callable[..., Any]] = [
    an_object,
    no_annotation,
    a_list,
    a_list_without_schema,
    a_text,
    json_text,
    an_integer,
    nothing,
    a_union,
    a_model,
    models,
    a_dataclass,
    a_typed_dict,
    an_enum,
    a_date,
    items,
    later,
    blocks,
    annotated_block,
    by_hand,
    error_by_hand,
    some_bytes,
    odd_object,
]


@pairwise(function=EVERYWHERE, library=LIBRARIES, era=ERAS)
def test_what_fits_is_the_very_same(function: Callable[..., Any], library: str, era: str) -> None:
    plain = ask(bare(library, function), function.__name__, era=era)
    assert wire(ask(enveloped_server(library, function), function.__name__, era=era)) == wire(plain)


def fastmcp_image() -> Image:
    return Image(data=b"hi", format="png")


def fastmcp_mixed():  # type: ignore[no-untyped-def]
    return ["words", Audio(data=b"hi", format="wav"), File(data=b"hi", format="txt"), {"a": 1}]


def fastmcp_result() -> ToolResult:
    return ToolResult(content="words", structured_content={"a": 1}, meta={"b": 2})


@pytest.mark.parametrize("function", [fastmcp_image, fastmcp_mixed, fastmcp_result, async_items])
def test_results_of_fastmcp(function: Callable[..., Any]) -> None:
    plain = ask(bare("fastmcp", function), function.__name__)
    assert wire(ask(enveloped_server("fastmcp", function), function.__name__)) == wire(plain)


def sdk_image() -> SDKImage:
    return SDKImage(data=b"hi", format="png")


def sdk_mixed():  # type: ignore[no-untyped-def]
    return ["words", SDKAudio(data=b"hi", format="wav"), {"a": 1}]


@pytest.mark.parametrize("function", [sdk_image, sdk_mixed])
def test_results_of_the_sdk(function: Callable[..., Any]) -> None:
    plain = ask(bare("mcpserver", function), function.__name__)
    assert wire(ask(enveloped_server("mcpserver", function), function.__name__)) == wire(plain)


def yielded_nothing():  # type: ignore[no-untyped-def]
    yield from ()


def yielded_gaps():  # type: ignore[no-untyped-def]
    yield from (1, None, {"a": (n for n in range(3))}, "x")


def mapped():  # type: ignore[no-untyped-def]
    return map(str, range(3))


async def zipped():  # type: ignore[no-untyped-def]
    return zip(range(3), range(3), strict=True)


def sliced():  # type: ignore[no-untyped-def]
    return islice(count(), 100)


def held():  # type: ignore[no-untyped-def]
    return {"rows": filter(None, range(3)), "more": [{"deep": iter("ab")}]}


@pytest.mark.parametrize("function", [yielded_nothing, yielded_gaps, mapped, zipped, sliced, held])
def test_iterators_of_the_sdk(function: Callable[..., Any]) -> None:
    plain = ask(bare("mcpserver", function), function.__name__)
    assert wire(ask(enveloped_server("mcpserver", function), function.__name__)) == wire(plain)


def odd_numbers() -> dict[str, Any]:
    return {
        "huge": 10**400,
        "a": [-0.0, 1e300, 5e-324, 1e16],
        "nan": float("nan"),
        "deep": {"x": {"y": iter("ab")}},
    }


def odd_keys() -> dict[str, Any]:
    return {"a": {2: 2, None: 3, True: 1, "2": 5}, "b": {"c": (b"x", {1}, Colour.RED, Point(1, 2.0))}}


def a_wrong_key() -> dict[str, Any]:
    return {1: 2}  # type: ignore[dict-item]


def an_unknown_type() -> dict[str, Any]:
    return {"a": object()}


def half_a_pair() -> dict[str, Any]:
    return {"a": "\ud800"}


@pytest.mark.parametrize("function", [odd_numbers, odd_keys])
def test_odd_values_of_the_sdk(function: Callable[..., Any]) -> None:
    plain = ask(bare("mcpserver", function), function.__name__)
    made = ask(enveloped_server("mcpserver", function), function.__name__)
    assert repr(wire(made)) == repr(wire(plain))


@pytest.mark.parametrize("function", [a_wrong_key, an_unknown_type, half_a_pair])
def test_what_the_sdk_cannot_send(function: Callable[..., Any]) -> None:
    assert ask(bare("mcpserver", function), function.__name__).is_error
    assert ask(enveloped_server("mcpserver", function), function.__name__).is_error


class Lazy(BaseModel):
    rows: Iterable[int]


def lazy() -> Lazy:
    return Lazy(rows=(n for n in range(3)))


def lazy_object() -> dict[str, Any]:
    return {"rows": map(int, range(3))}


def lazy_list() -> list[int]:
    return map(int, range(3))  # type: ignore[return-value]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("function", [lazy, lazy_object, lazy_list])
def test_an_iterator_is_in_both_lanes(function: Callable[..., Any], library: str) -> None:
    """The libraries alone read it for one lane, and have nothing left for the other."""
    if library == "fastmcp" and function is lazy:
        pytest.skip("FastMCP has no other form of a model, and shows none of its items")
    result = ask(enveloped_server(library, function), function.__name__)
    assert [0, 1, 2] in result.structured_content.values()
    assert json.loads(result.content[0].text) in (result.structured_content, [0, 1, 2])


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_long_iterator_is_cut(library: str, tmp_path: Path) -> None:
    def numbers() -> list[int]:
        return map(int, range(30_000))  # type: ignore[return-value]

    async def main() -> None:
        server = enveloped_server(library, numbers, vault=str(tmp_path / "vault.db"), ledger=ledger)
        async with connected(server) as session:
            result = await session.call("numbers", {"tokenBudget": 300})
            handle = result.structured_content["_envelope"]["handle"]
            assert len(await session.read_list(handle, "/result")) == 30_000

    ledger = Ledger(tmp_path / "ledger.db")
    run(main)
    ledger.flush()
    noted = next(each for each in ledger.calls() if each.tool == "numbers")
    # Only its beginning is here, but about its size is known.
    assert noted.bytes_before > 150_000
    assert noted.bytes_before / 8 < noted.before < noted.bytes_before
    ledger.close()


def test_items_whose_type_is_stated() -> None:
    result = ask(enveloped_server("mcpserver", stated_items), "stated_items")
    assert result.structured_content == {"result": [0, 1, 2, 3, 4]}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("function", [items, async_items])
def test_items_that_are_yielded(library: str, function: Callable[..., Any]) -> None:
    result = ask(enveloped_server(library, function), function.__name__)
    assert not result.is_error
    assert "3" in "".join(block.text for block in result.content)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_result_between_bytes_and_tokens_is_the_very_same(library: str) -> None:
    """More bytes than the budget has tokens, and yet within it."""

    def words() -> dict[str, str]:
        return {"text": "plain words of a plain text " * 700}

    plain = ask(bare(library, words), "words")
    assert len(wire(plain)) > 16_000
    assert wire(ask(enveloped_server(library, words), "words")) == wire(plain)
