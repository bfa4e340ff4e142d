"""The servers in `examples/`, run as anybody runs them, and talked to by the clients that people use.

Strategy: each server is started as a process, over stdio once for each client and over HTTP once for all of them.
Every client holds the same conversation: it lists the tools, makes a call whose result fits and one that floods,
reads on until the end, fails, and misses. The clients check results against the output schemas by themselves; what
was cut is compared with what the server's own functions give when they are called directly.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mcp_envelope.budget import meter_named as meter
from tests.ports import free_port
from tests.shown import shown
from tests.warm import warm

from .node.install import ready
from .talkers import CLIENTS, Place, Refused, Talker

SERVERS = Path(__file__).resolve().parents[2] / "examples" / "servers"
READ_ON = re.compile(r'envelope_read\(handle(?:="(\w+)")?(?:, path="([^"]*)")?(?:, offset=(\d+))?\)')
Call = tuple[str, dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Flood:
    """A call whose result is too large, what it would be, where its list is, and what it may take."""

    call: Call
    whole: Callable[[ModuleType], list[Any]]
    path: str
    limit: int
    unit: str = "exact"
    # Some dialects measure their document, unescaped, and not the lanes on the wire.
    document_is_measured: bool = False


@dataclass(frozen=True, kw_only=True)
class Example:
    name: str
    tools: set[str]
    # A call whose result fits, its data, and what the dialect puts around or beside it.
    fits: Call
    data: Callable[[ModuleType], Any]
    keys: frozenset[str] = frozenset()
    floods: tuple[Flood, ...]
    # Which lanes say how to read on. Where a published document has no place for it, they don't.
    lanes: tuple[str, ...] = ("content", "structuredContent")
    # What has to be said when a call fails, and when it misses.
    failure: Call
    failure_says: tuple[str, ...]
    failure_is_error: bool = True
    miss: Call | None = None
    miss_says: tuple[str, ...] = ()
    miss_is_error: bool = False
    # What only this server has.
    more: Callable[[Talker], Awaitable[None]] | None = None


def plain(value: Any) -> Any:
    """A model, or a list of models, as JSON."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value


async def _look_at_covers(talker: Talker) -> None:
    (cover,) = (await talker.call("book_cover", {"number": 3}))["content"]
    assert (cover["type"], cover["mimeType"]) == ("image", "image/svg+xml")
    large = await talker.call("book_cover", {"number": 3, "rings": 3000})
    assert "image" not in {block["type"] for block in large["content"]}
    assert _way_on(large, ("content",))[1:] == ("/content/0", 0)
    assert "This one is heavy." in _said(await talker.call("lend_book", {"number": 3}))


EXAMPLES = (
    Example(
        name="library_fastmcp",
        tools={"search_books", "get_book", "lend_book", "export_catalogue", "book_cover"},
        fits=("get_book", {"number": 3}),
        data=lambda module: plain(module.BOOKS[3]),
        floods=(
            Flood(
                call=("search_books", {"words": "maps"}),
                whole=lambda module: plain(module.search_books("maps").books),
                path="/books",
                limit=1500,
            ),
            Flood(
                call=("export_catalogue", {}),
                whole=lambda module: plain(list(module.export_catalogue())),
                path="",
                limit=8000,
            ),
        ),
        failure=("lend_book", {"number": 14}),
        failure_says=("ON_LOAN", "Book 14 is on loan.", "Lend another volume."),
        miss=("get_book", {"number": 5000}),
        miss_says=("Numbers go from 1 to 2000; search_books finds them.",),
        more=_look_at_covers,
    ),
    Example(
        name="orders_mcpserver",
        tools={"list_orders", "get_order", "cancel_order"},
        fits=("get_order", {"number": 1234}),
        data=lambda module: plain(module.ORDERS[1234]),
        keys=frozenset({"meta", "data"}),
        floods=(
            Flood(
                call=("list_orders", {"status": "open"}),
                whole=lambda module: plain(module.list_orders("open").data.orders),
                path="/orders",
                limit=2000,
            ),
        ),
        failure=("cancel_order", {"number": 1001}),
        failure_says=(
            "ALREADY_SHIPPED",
            "Order 1001 has already been shipped.",
            "Send it back when it arrives.",
        ),
        miss=("get_order", {"number": 1}),
        miss_says=("NOT_FOUND", "There is no order 1.", "Numbers go from 1000 to 1999."),
    ),
    Example(
        name="logs_lowlevel",
        tools={"search_log", "count_levels"},
        fits=("count_levels", {"service": "mailer"}),
        data=lambda module: _lowlevel(module, "count_levels", service="mailer"),
        keys=frozenset({"_meta"}),
        floods=(
            Flood(
                call=("search_log", {"service": "mailer"}),
                whole=lambda module: module.LOGS["mailer"],
                path="/results",
                limit=8192,
                unit="bytes",
                document_is_measured=True,
            ),
        ),
        lanes=(),
        failure=("search_log", {"service": "printer"}),
        failure_says=("Services are gateway, mailer, search.",),
        failure_is_error=False,
    ),
    Example(
        name="references_fastmcp",
        tools={"find_references", "rename_preview"},
        fits=("find_references", {"symbol": "expire"}),
        data=lambda module: plain(module.find_references("expire")),
        keys=frozenset({"ok", "data", "tokenBudget", "truncated", "warnings"}),
        floods=(
            Flood(
                call=("find_references", {"symbol": "flush"}),
                whole=lambda module: plain(module.find_references("flush").references),
                path="/references",
                limit=2000,
                unit="chars4",
                document_is_measured=True,
            ),
            Flood(
                call=("find_references", {"symbol": "flush", "tokenBudget": 300}),
                whole=lambda module: plain(module.find_references("flush").references),
                path="/references",
                limit=300,
                unit="chars4",
                document_is_measured=True,
            ),
        ),
        failure=("find_references", {"symbol": "flush", "language": "rs"}),
        failure_says=("LSP_UNAVAILABLE", "No language server for rs.", "Use py."),
        miss=("find_references", {"symbol": "melt"}),
        miss_says=("NOT_FOUND", "There is no function melt.", "Functions are flush, rotate, expire."),
        miss_is_error=True,
    ),
    Example(
        name="audit_mcpserver",
        tools={"audit", "fix"},
        fits=("audit", {"package": "router"}),
        data=lambda module: plain(module.audit("router")),
        keys=frozenset({"data"}),
        floods=(
            Flood(
                call=("audit", {"package": "parser"}),
                whole=lambda module: plain(module.audit("parser").findings),
                path="/findings",
                limit=1000,
                document_is_measured=True,
            ),
        ),
        lanes=("content",),
        failure=("fix", {"package": "router", "rule": "eval"}),
        failure_says=("not_implemented", "eval cannot be fixed automatically."),
        failure_is_error=False,
        miss=("audit", {"package": "printer"}),
        miss_says=("not_found", "There is no package printer."),
    ),
)
BY_NAME = {example.name: example for example in EXAMPLES}


@pytest.fixture(scope="module", autouse=True)
def _packages() -> None:
    """Before the home folder is hidden, in which npm may have its settings."""
    ready()


def test_every_example_is_talked_to() -> None:
    assert {path.stem for path in SERVERS.glob("*.py")} == set(BY_NAME)


# Every client with every server is what the test over HTTP tries; here each has its turn.
@pytest.mark.parametrize(("name", "client"), list(zip(BY_NAME, CLIENTS, strict=True)))
def test_over_stdio(name: str, client: str, tmp_path: Path) -> None:
    command = (sys.executable, str(SERVERS / f"{name}.py"))
    place = Place(command=command, env=_environment(tmp_path), cwd=str(tmp_path))

    async def talk() -> None:
        async with CLIENTS[client](place) as talker:
            await _converse(talker, BY_NAME[name])

    asyncio.run(talk())


@pytest.mark.parametrize("name", BY_NAME)
def test_over_http(name: str, tmp_path: Path) -> None:
    async def talk(client: str, place: Place) -> None:
        try:
            async with CLIENTS[client](place) as talker:
                await _converse(talker, BY_NAME[name])
        except BaseException as error:
            error.add_note(f"the client was {client}")
            raise

    async def all_of_them() -> None:
        async with _served(name, tmp_path) as place, asyncio.TaskGroup() as tasks:
            for client in CLIENTS:
                tasks.create_task(talk(client, place))

    asyncio.run(all_of_them())


@pytest.mark.parametrize("client", [name for name in CLIENTS if name.startswith("typescript")])
def test_what_ends_a_connection_arrives_in_an_envelope(client: str, tmp_path: Path) -> None:
    """The TypeScript SDK gives up at a message of more than 10 MiB over stdio."""

    async def text(*options: str) -> dict[str, Any]:
        command = warm(str(Path(__file__).parent / "large_server.py"), *options)
        place = Place(command=command, env=_environment(tmp_path), cwd=str(tmp_path))
        async with CLIENTS[client](place) as talker:
            await talker.tools()
            # It goes over the wire twice, as text and as structure.
            return await talker.call("text", {"size": 6_000_000})

    with pytest.raises(Refused, match="Connection closed"):
        asyncio.run(text("--bare"))
    result = asyncio.run(text())
    assert result["structuredContent"]["_envelope"]["dropped"][0]["total"] == 6_000_000


# -- the conversation ---------------------------------------------------------------------------------------


async def _converse(talker: Talker, example: Example) -> None:
    module = _module(example.name)
    tools = {tool["name"]: tool for tool in await talker.tools()}
    assert set(tools) == example.tools | {"envelope_read"}
    for tool in tools.values():
        named = "token_budget" if example.name == "audit_mcpserver" else "tokenBudget"
        assert named in tool["inputSchema"]["properties"]

    result = await talker.call(*example.fits)
    assert not result.get("isError")
    assert _data(result, example.name) == example.data(module)
    assert example.keys <= _data(result, example.name, whole=True).keys()

    for flood in example.floods:
        await _read_to_the_end(talker, example, flood, module)

    failed = await talker.call(*example.failure)
    assert bool(failed.get("isError")) is example.failure_is_error
    for words in example.failure_says:
        assert words in _said(failed)

    if example.miss is not None:
        missed = await talker.call(*example.miss)
        assert bool(missed.get("isError")) is example.miss_is_error
        for words in example.miss_says:
            assert words in _said(missed)

    if example.more is not None:
        await example.more(talker)


async def _read_to_the_end(talker: Talker, example: Example, flood: Flood, module: ModuleType) -> None:
    whole = flood.whole(module)
    result = await talker.call(*flood.call)
    assert not result.get("isError")
    _assert_within(result, flood)
    shown = _at(_data(result, example.name), flood.path)
    assert 0 < len(shown) < len(whole)
    assert all(item in whole for item in shown)

    if not example.lanes:
        said = _data(result, example.name, whole=True)["_meta"]
        assert (said["totalItems"], said["returnedItems"], said["truncated"]) == (
            len(whole),
            len(shown),
            True,
        )
        assert shown == whole[: len(shown)]
        return

    handle, path, offset = _way_on(result, example.lanes)
    assert path == flood.path
    # Where a list was ranked, what is shown is not its beginning, and it is read from there.
    read = list(shown[:offset])
    for _ in range(50):
        page = await talker.call("envelope_read", {"handle": handle, "path": path, "offset": len(read)})
        assert not page.get("isError")
        read += _data(page, example.name)
        if len(read) == len(whole):
            break
        lane = "structuredContent" if example.name == "orders_mcpserver" else "content"
        assert _way_on(page, (lane,)) == (handle, path, len(read))
    assert read == whole


def _assert_within(result: dict[str, Any], flood: Flood) -> None:
    counted = meter(flood.unit)
    structure = json.dumps(
        result.get("structuredContent", {}), separators=(",", ":"), ensure_ascii=False
    ).encode()
    texts = [shown(result["content"]), *([] if flood.document_is_measured else [structure])]
    for text in texts:
        assert counted.count(text) <= flood.limit


def _way_on(result: dict[str, Any], lanes: tuple[str, ...]) -> tuple[str, str, int]:
    """How one reads on: handle, path and offset, from the sentence that each lane has to have."""
    ways = set()
    for lane in lanes:
        if lane in result:
            found = [match for words in _strings(result[lane]) if (match := READ_ON.search(words))]
            assert found, f"nothing says how to read on: {json.dumps(result[lane])[-500:]}"
            handle, path, offset = found[-1].groups()
            ways.add((handle or _beside(result[lane]), path or "", int(offset or 0)))
    # Each lane shows as much as fits into it, so only the offsets may differ.
    assert len({(handle, path) for handle, path, _ in ways}) == 1
    return max(ways)


def _beside(lane: Any) -> str:
    """The handle that stands beside the sentence."""
    (handle,) = {value["handle"] for value in _values(lane) if isinstance(value, dict) and "handle" in value}
    assert isinstance(handle, str)
    return handle


def _data(result: dict[str, Any], name: str, whole: bool = False) -> Any:
    """The tool's own data, in the shape of the server's dialect."""
    said = result.get("structuredContent")
    if said is None:
        said = json.loads(result["content"][-1]["text"])
    if whole or isinstance(said, list):
        return said
    if name in ("library_fastmcp", "logs_lowlevel"):
        return {key: value for key, value in said.items() if key not in ("_envelope", "_meta")}
    return said["data"]


def _at(data: Any, path: str) -> list[Any]:
    for step in path.split("/")[1:]:
        data = data[step]
    assert isinstance(data, list)
    return data


def _said(result: dict[str, Any]) -> set[str]:
    """Every string in what the model may see of a result."""
    return {*_strings(result["content"]), *_strings(result.get("structuredContent"))}


def _strings(value: Any) -> list[str]:
    return [part for part in _values(value) if isinstance(part, str)]


def _values(value: Any) -> Iterator[Any]:
    """All values in a value; texts that hold JSON are looked into."""
    if isinstance(value, str) and value[:1] in "{[":
        with suppress(ValueError):
            value = json.loads(value)
    yield value
    if isinstance(value, dict):
        for part in value.values():
            yield from _values(part)
    elif isinstance(value, list):
        for part in value:
            yield from _values(part)


# -- the servers --------------------------------------------------------------------------------------------


@cache
def _module(name: str) -> ModuleType:
    """The server's code, to ask its functions directly."""
    spec = importlib.util.spec_from_file_location(name, SERVERS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _lowlevel(module: ModuleType, tool: str, **arguments: Any) -> Any:
    params = module.types.CallToolRequestParams(name=tool, arguments=arguments)
    coroutine = module.call_tool(None, params)
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value.structured_content
    raise AssertionError("the tool waits for something")


def _environment(folder: Path) -> dict[str, str]:
    """What a server needs, and nothing of the user's own: what it stores goes into the folder."""
    return {
        "PATH": os.environ.get("PATH", ""),
        "HOME": str(folder),
        "XDG_STATE_HOME": str(folder / "state"),
        "MCP_ENVELOPE_CONFIG": os.devnull,
        "FASTMCP_CHECK_FOR_UPDATES": "off",
        "FASTMCP_SHOW_SERVER_BANNER": "false",
        "PYTHONUNBUFFERED": "1",
    }


@asynccontextmanager
async def _served(name: str, folder: Path) -> AsyncIterator[Place]:
    port = free_port()
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*warm(str(SERVERS / f"{name}.py")), "--http", str(port)],
            cwd=folder,
            env=_environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        await _until_open(port, process, log)
        yield Place(url=f"http://127.0.0.1:{port}/mcp")
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def _until_open(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, f"the server ended:\n{log.read_text()[-2000:]}"
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            await writer.wait_closed()
            return
    raise AssertionError(f"the server did not open its port:\n{log.read_text()[-2000:]}")
