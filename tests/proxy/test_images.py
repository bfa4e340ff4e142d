"""Screenshots and long pages of a real server, through the proxy: pictures stay pictures, in every dialect."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from lab.cases import way_back
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from PIL import Image

from mcp_envelope.dialects import NAMES

from ..warm import warm
from . import screens, sites
from .harness import Talk, call, count, environment, proxied, result, rows, texts, tool, typed

_PATIENCE = 60


def picture(block: Any) -> Image.Image:
    assert block.type == "image"
    image = Image.open(BytesIO(base64.b64decode(block.data)))
    image.load()
    return image


async def look(client: Client) -> None:
    for size in (100_000, 300_000):
        seen = await client.call_tool("shot", {"size": size})
        sent = screens.screenshot(size)
        assert size * 0.8 < len(sent) < size * 1.3
        assert [base64.b64decode(block.data) for block in seen.content if block.type == "image"] == [sent]
    whole = Image.open(BytesIO(screens.page(5400)))
    seen = await client.call_tool("long_page", {"height": 5400, "words": 5000})
    said = "".join(block.text for block in seen.content if block.type == "text").replace('\\"', '"')
    (tile,) = [picture(block) for block in seen.content if block.type == "image"]
    assert tile.tobytes() == whole.crop((0, 0, 1280, 1800)).tobytes()
    assert 100 < count([block.model_dump() for block in seen.content if block.type == "text"]) <= 2000
    found = re.search(r'handle="(\w+)", path="(/content/\d)", region="0,1800,1280,1800"', said)
    assert found, said
    handle, path = found[1], found[2]
    for y in range(1800, 5400, 1800):
        asked = {"handle": handle, "path": path, "region": f"0,{y},1280,1800"}
        seen = await client.call_tool("envelope_read", asked)
        (tile,) = [picture(block) for block in seen.content if block.type == "image"]
        assert tile.tobytes() == whole.crop((0, y, 1280, y + 1800)).tobytes()


@pytest.mark.parametrize("dialect", NAMES)
def test_over_stdio(dialect: str, tmp_path: Path) -> None:
    command, *arguments = proxied(*warm("tests.proxy.screens"), options=("--tokens", "2000"))
    env = environment(tmp_path, MCP_ENVELOPE_DIALECT=dialect, MCP_ENVELOPE_METER="exact")
    target = stdio_client(StdioServerParameters(command=command, args=arguments, env=env, cwd=tmp_path))

    async def main() -> None:
        async with asyncio.timeout(_PATIENCE), Client(target, mode="legacy") as client:
            await look(client)

    asyncio.run(main())


def test_over_http(tmp_path: Path) -> None:
    app = screens.make().streamable_http_app()

    async def main(url: str) -> None:
        async with asyncio.timeout(_PATIENCE), Client(f"{url}/mcp") as client:
            await look(client)

    with sites.serving(app, lifespan="on") as there, sites.proxied(f"{there}/mcp", tmp_path) as (url, _):
        asyncio.run(main(url))


# -- what is known of clients ---------------------------------------------------------------------------------


def image(data: bytes) -> dict[str, Any]:
    return {"type": "image", "data": base64.b64encode(data).decode(), "mimeType": "image/png"}


SHOT = image(screens.screenshot(20_000))


@pytest.mark.parametrize("dialect", NAMES)
@pytest.mark.parametrize("number", [3, 2000])
def test_a_client_that_drops_images_beside_a_structure_gets_it_as_text(
    dialect: str, number: int, tmp_path: Path
) -> None:
    talk = Talk(tmp_path, tokens=1000, DIALECT=dialect, METER="exact")
    talk.meet("codex-mcp-client")
    talk.listed(tool("t", {"type": "object", "properties": {"rows": {"type": "array"}}}))
    answer = typed(rows(number))
    got = talk.called("t", {**answer, "content": [*answer["content"], SHOT]})
    assert "structuredContent" not in got
    assert [block for block in got["content"] if block["type"] == "image"] == [SHOT]
    said = [block for block in got["content"] if block["type"] == "text"]
    assert count(said) <= 1000
    shown = json.dumps(said).count("row number")
    # ctxo has no name for this list, so that it may not be cut.
    assert shown == 3 if number == 3 else dialect == "ctxo" or 10 < shown < 2000
    # Without an image, the structure stays where it is.
    assert ("structuredContent" in talk.called("t", answer)) == (dialect != "ctxo")


@pytest.mark.parametrize("dialect", NAMES)
def test_a_long_text_beside_an_image_can_be_read_on(dialect: str, tmp_path: Path) -> None:
    talk = Talk(tmp_path, tokens=1000, DIALECT=dialect, METER="exact")
    talk.listed(tool("t"))
    got = talk.called("t", {"content": [*texts("a word " * 20_000), SHOT]})
    assert SHOT in got["content"]
    said = [block for block in got["content"] if block["type"] == "text"]
    assert count(said) <= 1000
    told = way_back("\n".join(block["text"] for block in said))
    assert told is not None, said
    assert "a word" in json.dumps(talk.read(**told)["content"])


def test_other_clients_and_programs_get_both(tmp_path: Path) -> None:
    answer = typed(rows(3))
    answer = {**answer, "content": [*answer["content"], SHOT]}
    for name in ("claude-code", "gemini-cli-mcp-client", "somebody"):
        talk = Talk(tmp_path)
        talk.meet(name)
        talk.listed(tool("t", {"type": "object", "properties": {"rows": {"type": "array"}}}))
        assert talk.called("t", answer) == answer


def test_a_client_that_shows_no_images_gets_the_reason(tmp_path: Path) -> None:
    talk = Talk(tmp_path)
    talk.meet("copilot-cli")
    talk.listed(tool("t"))
    got = talk.called("t", {"content": [*texts("a shot"), SHOT]})
    assert {block["type"] for block in got["content"]} == {"text"}
    note = got["content"][0]["text"]
    assert "image/png of 1280×800 pixels" in note.replace("I", "i", 1)
    assert "copilot-cli doesn't show its model images" in note
    handle = got["_meta"]["io.github.mcp-envelope/notice"]["handle"]
    assert handle in note
    refused = talk.read(handle, path="/content/1")
    assert refused["isError"]
    assert "copilot-cli doesn't show" in refused["content"][0]["text"]


@pytest.mark.parametrize("name", ["claude-code", "opencode"])
@pytest.mark.parametrize("pillow", [True, False])
def test_a_client_that_makes_files_smaller_itself_gets_them(
    name: str, pillow: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without Pillow, what is kept here would not be seen at all.
    monkeypatch.setattr("mcp_envelope.fit.images.has_pillow", lambda: pillow)
    talk = Talk(tmp_path)
    talk.meet(name)
    talk.listed(tool("t"))
    large = image(screens.screenshot(20_000) + bytes(5_000_000))
    assert talk.called("t", {"content": [large]}) == {"content": [large]}


AUDIO = {"type": "audio", "data": "aGk=" * 30_000, "mimeType": "audio/wav"}
ARCHIVE = {"type": "resource", "resource": {"uri": "x://1", "blob": "aGk=" * 30_000}}


@pytest.mark.parametrize("held", [AUDIO, ARCHIVE])
def test_a_client_that_saves_files_gets_them(held: dict[str, Any], tmp_path: Path) -> None:
    talk = Talk(tmp_path)
    talk.meet("claude-code")
    talk.listed(tool("t"))
    answer = {"content": [*texts("a file"), held]}
    assert talk.called("t", answer) == answer
    # Also beside a text that is too long, and when it is read back.
    got = talk.called("t", {"content": [*texts("word " * 40_000), held]})
    assert got["content"][-1] == held
    back = talk.read(got["_meta"]["io.github.mcp-envelope/notice"]["handle"], path="/content/1")
    assert back["content"] == [held]


@pytest.mark.parametrize("held", [AUDIO, ARCHIVE])
def test_a_structure_tells_of_a_file_that_was_left_out_beside_it(
    held: dict[str, Any], tmp_path: Path
) -> None:
    talk = Talk(tmp_path, tokens=2000)
    talk.meet("Visual Studio Code")
    talk.listed(tool("t", {"type": "object", "properties": {"rows": {"type": "array"}}}))
    for number in (3, 2000):
        answer = typed(rows(number))
        got = talk.called("t", {**answer, "content": [*answer["content"], held]})
        told = got["structuredContent"]["_envelope"]
        assert f"eft out {len(json.dumps(held, separators=(',', ':')))} bytes" in told["note"]
        assert told["handle"] in json.dumps(got["content"])
        assert count([got["structuredContent"]]) <= 2000
        # What can be read on is what the call in the note is for.
        assert ("rows" in told["note"].partition("envelope_read")[2]) == (number == 2000)


def test_codex_shows_embedded_images_as_text_and_gets_them_as_images(tmp_path: Path) -> None:
    talk = Talk(tmp_path)
    talk.meet("codex-mcp-client")
    talk.listed(tool("t"))
    resource = {"uri": "shot://1", "mimeType": "image/png", "blob": SHOT["data"]}
    answer = {"content": [*texts("a shot"), {"type": "resource", "resource": resource}]}
    got = talk.called("t", answer)
    assert got["content"][-1] == SHOT
    assert 'without its resource, "shot://1"' in got["content"][0]["text"]
    talk.send(call(9, "t", {}, _meta={"callId": "exec-1"}))
    [back], _ = talk.reply(result(9, **answer))
    assert json.loads(back)["result"] == answer


@pytest.mark.parametrize(("model", "size"), [("gpt-5.5", (2048, 1638)), ("scripted", (1600, 1280))])
def test_an_image_is_no_larger_than_codex_shows_the_model(
    tmp_path: Path, model: str, size: tuple[int, int]
) -> None:
    """What Codex makes smaller again isn't as the note says."""
    talk = Talk(tmp_path)
    talk.meet("codex-mcp-client")
    talk.listed(tool("t"))
    large = BytesIO()
    Image.new("RGB", (2500, 2000)).save(large, "PNG")
    talk.send(call(7, "t", _meta={"x-codex-turn-metadata": {"model": model}}))
    [back], _ = talk.reply(result(7, content=[image(large.getvalue())]))
    note, shown = json.loads(back)["result"]["content"]
    assert Image.open(BytesIO(base64.b64decode(shown["data"]))).size == size
    assert "is shown at {}×{};".format(*size) in note["text"]


def test_a_client_has_its_own_limits(tmp_path: Path) -> None:
    data = screens.page(1400)
    wide = BytesIO()
    Image.open(BytesIO(data)).resize((2030, 1400)).save(wide, "PNG")
    for name, size in (("claude-code", (2000, 1379)), ("codex-mcp-client", (2030, 1400))):
        talk = Talk(tmp_path)
        talk.meet(name)
        talk.listed(tool("t"))
        got = talk.called("t", {"content": [image(wide.getvalue())]})
        shown = Image.open(BytesIO(base64.b64decode(got["content"][-1]["data"])))
        assert shown.size == size
