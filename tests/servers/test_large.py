"""What does not fit: cut, stored, announced, within the budget, and valid under the schema that was listed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import mcp_types
import pytest
from pydantic import BaseModel

from mcp_envelope.budget import Budget
from mcp_envelope.budget import meter_named as meter
from tests.pairwise import pairwise
from tests.shown import shown

from .harness import (
    DIALECTS,
    ERAS,
    LIBRARIES,
    ask,
    bare,
    budgeted,
    connected,
    enveloped_server,
    listed,
    notice,
    run,
    wire,
)

COUNT = 4000


class Row(BaseModel):
    file: str
    line: int


class Rows(BaseModel):
    rows: list[Row]
    total: int


def _rows() -> list[Row]:
    return [Row(file=f"src/{number % 7}.py", line=number) for number in range(COUNT)]


def model() -> Rows:
    return Rows(rows=_rows(), total=COUNT)


async def async_model() -> Rows:
    return Rows(rows=_rows(), total=COUNT)


def models() -> list[Row]:
    return _rows()


def texts() -> str:
    return "line of text\n" * COUNT


def plain() -> dict[str, Any]:
    return {"rows": [row.model_dump() for row in _rows()], "total": COUNT}


def unstated():  # type: ignore[no-untyped-def]
    return [row.model_dump() for row in _rows()]


def union() -> list[Row] | str | int:
    return _rows()


def optional() -> Rows | None:
    return Rows(rows=_rows(), total=COUNT)


def yielded():  # type: ignore[no-untyped-def]
    for row in _rows():
        yield row.model_dump()


async def async_yielded():  # type: ignore[no-untyped-def]
    for row in _rows():
        yield row.model_dump()


FUNCTIONS: list[Callable[..., Any]] = [
    model,
    async_model,
    models,
    texts,
    plain,
    unstated,
    union,
    optional,
    yielded,
    async_yielded,
]


def budget_of(dialect: str, tokens: int | None) -> Budget | None:
    if tokens is not None:
        return Budget(tokens, meter("chars4" if dialect == "transcend" else "exact"))
    if dialect == "ctxo":
        return Budget(8192, meter("bytes"))
    if dialect == "transcend":
        return Budget(2000, meter("chars4"))
    return None if dialect == "scalpel" else Budget.of()


def encoded(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def check_fits(result: Any, dialect: str, tokens: int | None) -> None:
    budget = budget_of(dialect, tokens)
    if budget is None:
        return
    blocks = [block.model_dump(by_alias=True, exclude_none=True, mode="json") for block in result.content]
    assert budget.meter.count(shown(blocks)) <= budget.limit
    if result.structured_content is not None:
        assert budget.meter.count(encoded(result.structured_content)) <= budget.limit


@pairwise(dialect=DIALECTS, library=LIBRARIES, era=ERAS, tokens=[None, 300])
def test_every_kind_of_value(dialect: str, library: str, era: str, tokens: int | None, vault: str) -> None:
    """The client validates each result against the schema that it was told."""
    server = enveloped_server(library, *FUNCTIONS, dialect=dialect, vault=vault)
    asked = budgeted(dialect, tokens)

    async def main() -> None:
        async with connected(server, era) as session:
            tools = await session.tools()
            for function in FUNCTIONS:
                result = await session.call(function.__name__, asked)
                where = f"{function.__name__}: {wire(result)[:400]}"
                if dialect == "ctxo":
                    assert result.structured_content is None, where
                    if function is texts:
                        continue  # the document returns what has no list whole
                    if function in (model, async_model, plain, optional):
                        continue  # and cuts lists of known names only
                check_fits(result, dialect, tokens)
                assert not result.is_error, where
                if tools[function.__name__].output_schema is not None:
                    assert result.structured_content is not None, where

    run(main)


@pairwise(
    function=[function for function in FUNCTIONS if function is not texts],
    dialect=["native", "transcend"],
    library=LIBRARIES,
)
def test_the_whole_can_be_read_back(
    dialect: str, function: Callable[..., Any], library: str, vault: str
) -> None:
    server = enveloped_server(library, function, vault=vault, dialect=dialect)
    wanted = [row.model_dump() for row in _rows()]

    async def main() -> None:
        async with connected(server) as session:
            result = await session.call(function.__name__)
            if dialect == "native":
                said = notice(result)
                handle, path = said["handle"], said["dropped"][0]["path"]
            else:
                note = result.structured_content["dropped"]["note"]
                handle = note.partition('handle="')[2].partition('"')[0]
                path = note.partition('path="')[2].partition('"')[0]
            assert await session.read_list(handle, path) == wanted

    run(main)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_long_text_can_be_read_back(library: str, vault: str) -> None:
    async def main() -> None:
        async with connected(enveloped_server(library, texts, vault=vault)) as session:
            said = notice(await session.call("texts"))
            found = ""
            while True:
                page = await session.call(
                    "envelope_read",
                    {"handle": said["handle"], "path": said["dropped"][0]["path"], "offset": len(found)},
                )
                found += page.content[-1].text
                if not notice(page):
                    break
            assert found == texts()

    run(main)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_secret_is_masked_in_the_result_and_in_the_vault(
    library: str, vault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_ENVELOPE_REDACT", "tokens")
    secret = "glpat-" + "a1B2-c3D4e5_F6g7H8i9"

    def small() -> dict[str, str]:
        return {"token": secret}

    def large() -> dict[str, Any]:
        return {"token": secret, "rows": ["x" * 50] * COUNT}

    def items():  # type: ignore[no-untyped-def]
        for _ in range(COUNT):
            yield {"token": secret}

    server = enveloped_server(library, small, large, items, vault=vault)

    async def main() -> None:
        async with connected(server) as session:
            assert secret not in wire(await session.call("small"))
            for tool in ("large", "items"):
                result = await session.call(tool)
                assert secret not in wire(result)
                read = await session.call("envelope_read", {"handle": notice(result)["handle"]})
                assert secret not in wire(read)

    run(main)


@pytest.mark.parametrize("library", LIBRARIES)
def test_an_image_too_large_is_announced_and_kept(library: str, vault: str) -> None:
    picture = mcp_types.ImageContent(type="image", data="aGk=" * 40_000, mime_type="image/png")

    def shot():  # type: ignore[no-untyped-def]
        return [mcp_types.TextContent(type="text", text="a shot"), picture]

    async def main() -> None:
        async with connected(enveloped_server(library, shot, vault=vault)) as session:
            result = await session.call("shot")
            assert result.content[1].text == "a shot"
            assert all(block.type == "text" for block in result.content)
            asked = {"handle": notice(result)["handle"], "path": "/content/1/data", "exact": True}
            read = await session.call("envelope_read", asked)
            assert any("aGk=aGk=" in block.text for block in read.content)

    run(main)


@pairwise(dialect=DIALECTS, library=LIBRARIES, era=ERAS)
def test_blocks_stay_blocks_in_every_dialect(dialect: str, library: str, era: str, vault: str) -> None:
    picture = mcp_types.ImageContent(type="image", data="aGk=", mime_type="image/png")
    large = mcp_types.ImageContent(type="image", data="aGk=" * 40_000, mime_type="image/png")
    link = mcp_types.ResourceLink(type="resource_link", uri="file:///x", name="x")
    words = mcp_types.TextContent(type="text", text="a shot")

    def shot():  # type: ignore[no-untyped-def]
        return [words, picture, link]

    def large_shot():  # type: ignore[no-untyped-def]
        return [words, large, link]

    async def main() -> None:
        async with connected(
            enveloped_server(library, shot, large_shot, dialect=dialect, vault=vault), era
        ) as session:
            small = await session.call("shot")
            assert [block for block in small.content if block.type != "text"] == [picture, link]
            assert "a shot" in small.content[0].text or dialect == "gel"
            cut = await session.call("large_shot", budgeted(dialect, 1000))
            kinds = {block.type for block in cut.content}
            assert kinds == {"text", "resource_link"}, "the link stays, the image is told of"
            assert any("image/png left out" in getattr(block, "text", "") for block in cut.content)
            asked = {"handle": notice(cut)["handle"], "path": "/content/1/data", "exact": True}
            read = await session.call("envelope_read", asked)
            assert any("aGk=aGk=" in block.text for block in read.content)

    run(main)


# -- lists ----------------------------------------------------------------------------------------------------


@pairwise(dialect=DIALECTS, library=LIBRARIES, era=ERAS)
def test_what_is_listed(dialect: str, library: str, era: str) -> None:
    tools = listed(enveloped_server(library, *FUNCTIONS, dialect=dialect), era)
    assert set(tools) == {"envelope_read", *(function.__name__ for function in FUNCTIONS)}
    for name, tool in tools.items():
        (budget,) = budgeted(dialect, 1)
        assert budget in tool.input_schema["properties"], name
        assert budget not in tool.input_schema.get("required", [])
        if dialect == "ctxo":
            assert tool.output_schema is None
    assert tools["envelope_read"].annotations is not None
    assert tools["envelope_read"].annotations.read_only_hint


@pytest.mark.parametrize("library", LIBRARIES)
def test_nothing_else_is_changed_in_the_list(library: str) -> None:
    before, after = listed(bare(library, *FUNCTIONS)), listed(enveloped_server(library, *FUNCTIONS))
    for name, tool in before.items():
        shown = after[name].model_dump(by_alias=True)
        told = tool.model_dump(by_alias=True)
        shown["inputSchema"]["properties"].pop("tokenBudget")
        if told["outputSchema"] is not None:
            if "properties" in told["outputSchema"]:
                shown["outputSchema"]["properties"].pop("_envelope")
            elif told["outputSchema"].get("additionalProperties", True) is not True:
                assert list(shown["outputSchema"].pop("patternProperties")) == ["^_envelope$"]
        assert shown == told


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_tool_keeps_an_argument_of_that_name(library: str) -> None:
    def own(tokenBudget: str) -> str:  # noqa: N803
        return f"got {tokenBudget}"

    def none(a: int = 1) -> str:
        return f"got {a}"

    server = enveloped_server(library, own, none)
    tools = listed(server)
    assert tools["own"].input_schema["properties"]["tokenBudget"]["type"] == "string"
    assert "got mine" in ask(server, "own", {"tokenBudget": "mine"}).content[0].text
    assert ask(server, "none", {"tokenBudget": 500, "a": 2}).content[0].text == "got 2"


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    ("asked", "word"),
    [(5, "raised to 128"), (10**9, "lowered to 10000"), ("many", "not a number"), (None, "not a number")],
)
def test_a_budget_out_of_range_is_told(library: str, asked: Any, word: str) -> None:
    def small() -> dict[str, int]:
        return {"a": 1}

    result = ask(enveloped_server(library, small), "small", {"tokenBudget": asked})
    if asked is None:
        assert result.structured_content == {"a": 1}
        return
    assert not result.is_error
    assert word in result.structured_content["_envelope"]["warnings"][0]


@pytest.mark.parametrize("library", LIBRARIES)
def test_without_the_argument(library: str) -> None:
    tools = listed(enveloped_server(library, model, token_budget=False))
    assert "tokenBudget" not in json.dumps([tool.input_schema for tool in tools.values()])


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_budget_in_the_spelling_of_the_dialect(library: str) -> None:
    def rows(count: int) -> dict[str, list[int]]:
        return {"rows": list(range(count))}

    def own(token_budget: str) -> str:
        return f"got {token_budget}"

    server = enveloped_server(library, rows, own, dialect="scalpel")
    properties = listed(server)["rows"].input_schema["properties"]
    assert "token_budget" in properties
    assert "tokenBudget" not in properties
    cut = ask(server, "rows", {"count": 5000, "token_budget": 300})
    assert 0 < len(cut.structured_content["data"]["rows"]) < 300
    assert listed(server)["own"].input_schema["properties"]["token_budget"]["type"] == "string"
    assert "got mine" in ask(server, "own", {"token_budget": "mine"}).content[0].text
