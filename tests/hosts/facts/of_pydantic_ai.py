"""What agents of Pydantic AI get. Arguments: a folder, and the command of the lab's server."""

import asyncio
import sys
import warnings
from pathlib import Path
from typing import Any

from fastmcp.client.transports import StdioTransport
from pydantic import BaseModel
from pydantic_ai import Agent, BinaryContent, FunctionToolset, ModelRetry, ToolReturn
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import DocumentUrl, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.toolsets import CombinedToolset

from mcp_envelope.hosts.pydantic_ai import EnvelopeToolset


class Row(BaseModel):
    number: int
    word: str


class Rows(BaseModel):
    rows: list[Row]


OWN = FunctionToolset()
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489"
    "0000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
)


@OWN.tool_plain
def numbers(count: int) -> Rows:
    return Rows(rows=[Row(number=n, word=f"word {n}") for n in range(count)])


@OWN.tool_plain
def listed(count: int) -> list[int]:
    return list(range(count))


@OWN.tool_plain
def mixed(count: int) -> list[object]:
    page = DocumentUrl(url="https://example.org/a.pdf", media_type="application/pdf")
    return ["line\n" * count, BinaryContent(data=PIXEL, media_type="image/png"), page]


@OWN.tool_plain
def with_more(count: int) -> ToolReturn:
    return ToolReturn(return_value="word " * count, content="for the model", metadata={"kept": count})


@OWN.tool_plain(retries=3)
def failing(count: int, fatal: bool) -> str:
    raise (ToolFailed if fatal else ModelRetry)("because\n" * count)


async def played(toolset, calls):
    """The part that comes back for each call, and the tools as the model is offered them."""
    parts: list[Any] = []
    beside: list[Any] = []
    offered: dict[str, Any] = {}

    def model(messages, info):
        offered.update({tool.name: tool for tool in info.function_tools})
        beside.extend(part for part in messages[-1].parts if part.part_kind == "user-prompt")
        parts.extend(part for part in messages[-1].parts if part.part_kind != "user-prompt")
        if len(parts) == len(calls):
            return ModelResponse([TextPart("Done.")])
        name, arguments = calls[len(parts)]
        if callable(arguments):
            arguments = arguments(parts)
        return ModelResponse([ToolCallPart(name, arguments)])

    await Agent(FunctionModel(model), toolsets=[toolset]).run("Go.")
    return parts, beside, offered


def handle(part):
    content = part.content
    text = str(content["_envelope"] if isinstance(content, dict) else content)
    for mark in ("'handle': '", 'handle="'):
        if mark in text:
            return text.partition(mark)[2][:22]
    raise AssertionError(text[:500])


async def main(folder: str, command: str, *arguments: str) -> None:
    server = MCPToolset(StdioTransport(command, list(arguments)))
    calls = [
        ("numbers", {"count": 3}),
        ("numbers", {"count": 3000}),
        ("envelope_read", lambda parts: {"handle": handle(parts[-1]), "query": "length(rows)"}),
        ("listed", {"count": 3000}),
        ("mixed", {"count": 3}),
        ("mixed", {"count": 3000}),
        ("with_more", {"count": 3000}),
        ("failing", {"count": 3000, "fatal": True}),
        ("failing", {"count": 3000, "fatal": False}),
        ("typed_rows", {"size": 20_000}),
        ("envelope_read", lambda parts: {"handle": handle(parts[-1]), "sql": "SELECT count(*) FROM rows"}),
        ("envelope_read", {"handle": "none"}),
    ]
    both = CombinedToolset([OWN, server])
    vault = str(Path(folder) / "vault.db")
    sealed, beside, offered = await played(
        EnvelopeToolset(both, budget=300, vault=vault).include_return_schemas(), calls
    )
    few, many, asked, cut_list, small, large, more, fatal, again, rows, counted, unknown = sealed
    assert few.content == numbers(3)
    assert many.content["_envelope"]["truncated"] is True
    assert many.content["rows"][0] == {"number": 0, "word": "word 0"}
    assert len(many.model_response_str()) < 1600
    assert asked.content == "The whole value:\n\n3000", asked
    assert cut_list.content.startswith("Showing ")
    assert len(cut_list.content) < 1600
    assert small.content == mixed(3)
    text, image, page = large.content
    assert len(text) < 1600
    assert (image.data, image.media_type) == (PIXEL, "image/png")
    assert page == mixed(3)[2]
    assert more.content.startswith("Showing ")
    assert more.metadata == {"kept": 3000}
    assert "for the model" in beside[-1].content, beside
    assert fatal.outcome == "failed"
    assert again.outcome == "retried", again
    for failure in (fatal, again):
        assert 'envelope_read(handle="' in failure.content
        assert len(failure.content) < 1600
    assert rows.content["_envelope"]["truncated"] is True
    assert counted.content.endswith('[{"count(*)":357}]'), counted
    assert unknown.outcome == "failed"
    assert "HANDLE_UNKNOWN" in unknown.content

    # What the model may be told of results allows a notice; a schema that isn't an object's stays.
    described = {name: tool.description or "" for name, tool in offered.items()}
    assert '"_envelope"' in described["numbers"]
    assert '"_envelope"' in described["typed_rows"]
    assert '"type": "array"' in described["listed"]
    assert "_envelope" not in described["listed"]

    # An envelope that is inside already is left alone.
    inner = EnvelopeToolset(both, budget=300, vault=vault)
    again, _, offered = await played(EnvelopeToolset(inner, budget=150, vault=vault), calls[1:3])
    assert len(again[0].content["rows"]) > len(many.content["rows"]) * 3 / 4
    assert again[1].content == "The whole value:\n\n3000"
    print("all hold")


# Of tools without a return schema.
warnings.simplefilter("ignore", UserWarning)
asyncio.run(main(*sys.argv[1:]))
