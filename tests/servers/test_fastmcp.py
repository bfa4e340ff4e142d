"""What FastMCP can do besides plain tools goes on working: mounts, proxies, transforms, versions, injection."""

from __future__ import annotations

import functools
import json
import logging
import threading
from collections.abc import Mapping
from typing import Annotated, Any

import anyio
import fastmcp
import mcp_types
import pytest
from fastmcp import Context, FastMCP
from fastmcp.dependencies import Depends
from fastmcp.server import create_proxy
from fastmcp.server.middleware import Middleware
from fastmcp.server.middleware.caching import ResponseCachingMiddleware
from fastmcp.server.middleware.error_handling import ErrorHandlingMiddleware, RetryMiddleware
from fastmcp.server.middleware.response_limiting import ResponseLimitingMiddleware
from fastmcp.server.transforms import ToolTransform
from fastmcp.tools import Tool, ToolResult
from fastmcp.tools.tool_transform import ArgTransform, ToolTransformConfig, forward
from pydantic import BaseModel, RootModel

from mcp_envelope import Failure, Miss, Reply, enveloped, warn
from mcp_envelope.servers.fastmcp import EnvelopeMiddleware

from .harness import DIALECTS, ask, bare, connected, listed, notice, put, run, wire
from .test_outcomes import code


class Rows(BaseModel):
    rows: list[int]


def rows(count: int = 5000) -> list[int]:
    return list(range(count))


def reply(count: int = 3) -> Rows | Miss:
    warn("stale")
    if count == 0:
        return Miss("Nothing there.")
    return Reply(Rows(rows=list(range(count))))  # type: ignore[return-value]


def failure() -> Rows:
    raise Failure("RATE_LIMITED", "Too fast.")


def server_of(*tools: Any, **options: Any) -> FastMCP[Any]:
    server: FastMCP[Any] = FastMCP("test")
    for tool in tools:
        server.tool(tool)
    put(server, **options)
    return server


def check_tools(server: FastMCP[Any], prefix: str = "", era: str = "2026-07-28") -> None:
    """The three tools behind whatever they are behind, as the client that validates sees them."""

    async def main() -> None:
        async with connected(server, era) as session:
            tools = await session.tools()
            assert f"{prefix}rows" in tools
            cut = await session.call(f"{prefix}rows", {"tokenBudget": 200})
            kept = cut.structured_content["result"]
            assert 0 < len(kept) < 200
            assert await session.read_list(notice(cut)["handle"], "/result") == list(range(5000))
            said = await session.call(f"{prefix}reply")
            assert said.structured_content == {"rows": [0, 1, 2], "_envelope": {"warnings": ["stale"]}}
            missed = await session.call(f"{prefix}reply", {"count": 0})
            assert missed.structured_content["found"] is False
            failed = await session.call(f"{prefix}failure")
            assert code(failed) == "RATE_LIMITED"

    run(main)


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
def test_tools_of_its_own(vault: str, era: str) -> None:
    check_tools(server_of(rows, reply, failure, vault=vault), era=era)


# -- mounted and proxied --------------------------------------------------------------------------------------


@pytest.mark.parametrize("namespace", [None, "inner"])
@pytest.mark.parametrize("both", [False, True])
def test_mounted_servers(vault: str, namespace: str | None, both: bool) -> None:
    """Whether or not the mounted server has the line too."""
    child = server_of(rows, reply, failure, vault=vault, dialect="gel") if both else FastMCP[Any]("child")
    if not both:
        for tool in (rows, reply, failure):
            child.tool(tool)
    parent: FastMCP[Any] = FastMCP("parent")
    parent.mount(child, namespace=namespace)
    put(parent, vault=vault)
    check_tools(parent, prefix=f"{namespace}_" if namespace else "")
    # The mounted one alone speaks as it is set to.
    alone = ask(child, "rows", {"count": 2})
    assert ("meta" in alone.structured_content) == both


def test_a_server_mounted_in_a_mounted_one(vault: str) -> None:
    inner: FastMCP[Any] = FastMCP("inner")
    for tool in (rows, reply, failure):
        inner.tool(tool)
    middle: FastMCP[Any] = FastMCP("middle")
    middle.mount(inner, namespace="b")
    outer: FastMCP[Any] = FastMCP("outer")
    outer.mount(middle, namespace="a")
    put(outer, vault=vault)
    check_tools(outer, prefix="a_b_")


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
def test_proxied_servers(vault: str, era: str) -> None:
    behind: FastMCP[Any] = FastMCP("behind")
    behind.tool(rows)
    proxy: FastMCP[Any] = create_proxy(behind)
    put(proxy, vault=vault)

    async def main() -> None:
        async with connected(proxy, era) as session:
            assert (await session.call("rows", {"count": 2})).structured_content == {"result": [0, 1]}
            cut = await session.call("rows", {"tokenBudget": 200})
            assert await session.read_list(notice(cut)["handle"], notice(cut)["dropped"][0]["path"]) == [
                *range(5000)
            ]

    run(main)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_proxied_result_is_in_the_dialect(dialect: str) -> None:
    behind: FastMCP[Any] = FastMCP("behind")
    behind.tool(rows)
    proxy: FastMCP[Any] = create_proxy(behind)
    put(proxy, dialect=dialect)
    result = ask(proxy, "rows", {"count": 2})
    if dialect == "native":
        assert result.structured_content == {"result": [0, 1]}
    elif dialect == "ctxo":
        assert '"_meta"' in result.content[0].text
    else:
        assert result.structured_content["data"] == [0, 1]


# -- transforms, versions, registration ----------------------------------------------------------------------


def test_a_tool_with_other_arguments(vault: str) -> None:
    server = server_of(vault=vault)
    for function in (rows, reply, failure):
        tool = Tool.from_tool(Tool.from_function(function), transform_args={}, name=f"my_{function.__name__}")
        server.add_tool(tool)
    check_tools(server, prefix="my_")


@pytest.mark.parametrize("before", [True, False])
def test_a_transform_of_the_server(vault: str, before: bool) -> None:
    server: FastMCP[Any] = FastMCP("test")
    for function in (rows, reply, failure):
        server.tool(function)
    config = {name: ToolTransformConfig(name=f"my_{name}") for name in ("rows", "reply", "failure")}
    put(server, vault=vault)
    if not before:
        # The line does its part with the first call.
        ask(server, "rows", {"count": 1})
    server.add_transform(ToolTransform(config))
    check_tools(server, prefix="my_")


def test_a_transform_with_a_function_sees_all_of_the_data(vault: str) -> None:
    server = server_of(vault=vault)
    seen = []

    async def counted(count: int = 5000) -> Rows | Miss:
        result = await forward(count=count)
        assert result.structured_content is not None
        seen.append(len(result.structured_content["result"]))
        return Reply(Rows(rows=result.structured_content["result"]))  # type: ignore[return-value]

    server.add_tool(Tool.from_tool(Tool.from_function(rows), transform_fn=counted, name="counted"))
    result = ask(server, "counted")
    assert seen == [5000]
    assert notice(result)["dropped"][0]["total"] == 5000


def test_hidden_arguments() -> None:
    server = server_of()
    hidden = Tool.from_tool(
        Tool.from_function(rows), transform_args={"count": ArgTransform(hide=True, default=2)}, name="two"
    )
    server.add_tool(hidden)
    assert ask(server, "two", {"tokenBudget": 500}).structured_content == {"result": [0, 1]}


def test_versions() -> None:
    server = server_of()

    @server.tool(version="1.0", name="v")
    def old(tokenBudget: int) -> str:  # noqa: N803
        return f"old {tokenBudget}"

    @server.tool(version="2.0", name="v")
    def new() -> str:
        return "new"

    async def main() -> None:
        async with fastmcp.Client(server) as client:
            assert (await client.call_tool("v", {"tokenBudget": 200})).data == "new"
            assert (await client.call_tool("v", {"tokenBudget": 7}, version="1.0")).data == "old 7"

    run(main)


def test_tools_added_and_removed_later() -> None:
    server = server_of(rows)

    async def main() -> None:
        async with connected(server) as session:
            await session.call("rows", {"count": 1})
            server.add_tool(Tool.from_function(reply))
            assert (await session.call("reply")).structured_content["rows"] == [0, 1, 2]
            server.local_provider.remove_tool("rows")
            assert "Unknown tool" in wire(await session.call("rows"))
            assert "rows" not in await session.tools()

            def changed() -> dict[str, int]:
                return {"a": 1}

            server.local_provider.remove_tool("reply")
            server.add_tool(Tool.from_function(changed, name="reply"))
            await session.tools()
            assert (await session.call("reply")).structured_content == {"a": 1}

    run(main)


class Service:
    def __init__(self, count: int) -> None:
        self.count = count

    def method(self) -> Rows | Miss:
        return Reply(Rows(rows=[*range(self.count)]))  # type: ignore[return-value]

    async def waiting(self, number: int, ctx: Context) -> Rows | Miss:
        return Reply(Rows(rows=[self.count, number]))  # type: ignore[return-value]

    @classmethod
    def of_class(cls) -> Rows | Miss:
        return Reply(Rows(rows=[1]))  # type: ignore[return-value]

    @staticmethod
    async def static() -> Rows | Miss:
        return Reply(Rows(rows=[1]))  # type: ignore[return-value]

    async def __call__(self) -> Rows | Miss:
        return Reply(Rows(rows=[*range(self.count)]))  # type: ignore[return-value]


async def part(count: int, extra: int) -> Rows | Miss:
    return Reply(Rows(rows=[count, extra]))  # type: ignore[return-value]


def sync_part(count: int, extra: int) -> dict[str, int]:
    return {"count": count, "extra": extra}


# FastMCP reads the annotations of a partial only where they are no texts.
part.__annotations__ = {"count": int, "extra": int, "return": Rows | Miss}
sync_part.__annotations__ = {"count": int, "extra": int, "return": dict[str, int]}


def test_methods_and_partials() -> None:
    service = Service(2)
    server = server_of()
    server.tool(service.method)
    server.tool(service.waiting)
    server.tool(Service.of_class)
    server.tool(Service.static)
    server.add_tool(Tool.from_function(service, name="callable"))
    server.add_tool(Tool.from_function(functools.partial(part, extra=5), name="part"))
    server.add_tool(Tool.from_function(functools.partial(sync_part, 4), name="sync_part"))

    async def main() -> None:
        async with connected(server) as session:
            assert (await session.call("method")).structured_content == {"rows": [0, 1]}
            assert (await session.call("waiting", {"number": 3})).structured_content == {"rows": [2, 3]}
            assert (await session.call("of_class")).structured_content == {"rows": [1]}
            assert (await session.call("static")).structured_content == {"rows": [1]}
            assert (await session.call("callable")).structured_content == {"rows": [0, 1]}
            assert (await session.call("part", {"count": "4"})).structured_content == {"rows": [4, 5]}
            asked = {"extra": 3, "tokenBudget": 500}
            assert (await session.call("sync_part", asked)).structured_content == {"count": 4, "extra": 3}

    run(main)


# -- inside a tool --------------------------------------------------------------------------------------------


async def current_user() -> str:
    warn("said by a dependency")
    return "somebody"


def test_injection(vault: str) -> None:
    server = server_of(vault=vault)

    @server.tool
    async def who(
        ctx: Context, user: Annotated[str, Depends(current_user)], loud: bool = False
    ) -> Rows | Miss:
        assert ctx.fastmcp is server
        return Reply(Rows(rows=[len(user)]))  # type: ignore[return-value]

    @server.tool
    def sync_who(ctx: Context, user: str = Depends(current_user)) -> list[str]:
        return [user] * 9000

    assert "user" not in listed(server)["who"].input_schema["properties"]
    result = ask(server, "who", {"tokenBudget": 500})
    assert result.structured_content == {"rows": [8], "_envelope": {"warnings": ["said by a dependency"]}}
    cut = ask(server, "sync_who")
    assert notice(cut)["dropped"][0]["total"] == 9000


def test_in_the_thread_that_was_asked_for() -> None:
    server = server_of()
    threads = []

    def where() -> Rows | Miss:
        threads.append(threading.current_thread())
        return Reply(Rows(rows=[1]))  # type: ignore[return-value]

    server.tool(where, name="inline", run_in_thread=False)
    server.tool(where, name="aside")
    ask(server, "inline")
    ask(server, "aside")
    assert threads[0] is threading.main_thread()
    assert threads[1] is not threading.main_thread()


def test_a_timeout_is_coded() -> None:
    server = server_of()

    @server.tool(timeout=0.05)
    async def slow() -> str:
        await anyio.sleep(10)
        return "never"

    result = ask(server, "slow")
    assert code(result) == "TIMEOUT"


@pytest.mark.filterwarnings("ignore:.*deprecated as of 2026-07-28")
def test_logs_progress_sampling_and_elicitation() -> None:
    server = server_of()
    heard: list[Any] = []

    @server.tool
    async def busy(ctx: Context) -> dict[str, Any]:
        await ctx.info("working")
        await ctx.report_progress(1, 2, "half")
        words = mcp_types.TextContent(type="text", text="say something")
        asked = [mcp_types.SamplingMessage(role="user", content=words)]
        answer = await ctx.session.create_message(asked, max_tokens=10)
        choice = await ctx.elicit("which?", response_type=str)
        return {"answer": str(answer.content), "choice": str(choice)}

    async def on_log(message: Any) -> None:
        heard.append(message.data["msg"])

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    async def on_sample(messages: Any, params: Any, context: Any) -> str:
        return "something"

    async def on_elicit(message: str, response_type: Any, params: Any, context: Any) -> Any:
        return response_type(value="this")

    async def main() -> None:
        client = fastmcp.Client(
            server,
            mode="legacy",
            log_handler=on_log,
            progress_handler=on_progress,
            sampling_handler=on_sample,
            elicitation_handler=on_elicit,
        )
        async with client:
            result = await client.call_tool("busy")
        assert result.structured_content is not None
        assert "something" in result.structured_content["answer"]
        assert "this" in result.structured_content["choice"]

    run(main)
    assert "working" in heard
    assert (1, 2, "half") in heard


def test_input_that_is_asked_for_passes() -> None:
    """In the stateless era a tool answers with a question."""
    server = server_of(dialect="transcend")

    @server.tool
    async def guarded(ctx: Context) -> Any:
        if ctx.input_responses:
            return {"answer": str(ctx.input_responses["name"])}
        asked = mcp_types.ElicitRequest(
            params=mcp_types.ElicitRequestFormParams(
                message="Your name?",
                requested_schema={
                    "type": "object",
                    "properties": {"value": {"type": "string"}},
                    "required": ["value"],
                },
            )
        )
        return mcp_types.InputRequiredResult(input_requests={"name": asked}, request_state="one")

    async def on_elicit(message: str, response_type: Any, params: Any, context: Any) -> Any:
        return response_type(value="Ada")

    async def main() -> None:
        async with fastmcp.Client(server, mode="2026-07-28", elicitation_handler=on_elicit) as client:
            result = await client.call_tool("guarded")
        assert result.structured_content is not None
        assert "Ada" in result.structured_content["data"]["answer"]

    run(main)


def test_what_is_no_result_yet_passes() -> None:
    """A task: what an extension answers goes up as it is."""
    task = mcp_types.EmptyResult()

    class Tasks(Middleware):
        async def on_call_tool(self, context: Any, call_next: Any) -> Any:
            return task

    server = server_of(rows)
    server.add_middleware(Tasks())

    async def main() -> None:
        assert await server.call_tool("rows") is task  # type: ignore[comparison-overlap]

    run(main)


def test_a_tool_that_calls_another(vault: str) -> None:
    """It gets what a client would, or, past the middleware, the plain data."""
    server = server_of(rows, reply, vault=vault)

    @server.tool
    async def outer() -> dict[str, Any]:
        return (await server.call_tool("reply")).structured_content or {}

    @server.tool
    async def past() -> dict[str, Any]:
        return (await server.call_tool("reply", run_middleware=False)).structured_content or {}

    result = ask(server, "outer")
    assert result.structured_content == {"rows": [0, 1, 2], "_envelope": {"warnings": ["stale"]}}
    assert notice(result) == {}, "what the inner call said is its own"
    plain = ask(server, "past")
    assert plain.structured_content == {"rows": [0, 1, 2], "_envelope": {"warnings": ["stale"]}}
    assert notice(plain) == {"warnings": ["stale"]}


def test_asked_directly(vault: str) -> None:
    server = server_of(rows, vault=vault)

    async def main() -> None:
        result = await server.call_tool("rows")
        assert result.meta is not None
        handle = notice(result)["handle"]
        page = await server.call_tool("envelope_read", {"handle": handle, "path": "/result", "offset": 4990})
        assert page.content[-1].text == "[4990,4991,4992,4993,4994,4995,4996,4997,4998,4999]"  # type: ignore[union-attr]
        inner = await server.call_tool("envelope_read", {"handle": handle}, run_middleware=False)
        assert not inner.is_error

    run(main)


def test_the_client_of_fastmcp_unwraps_values(vault: str) -> None:
    server = server_of(rows, vault=vault)

    async def main() -> None:
        async with fastmcp.Client(server) as client:
            assert (await client.call_tool("rows", {"count": 3})).data == [0, 1, 2]
            cut = await client.call_tool("rows", {"tokenBudget": 200})
            assert cut.data == list(range(len(cut.data)))
            assert 0 < len(cut.data) < 200

    run(main)


class _Numbers(RootModel[dict[str, int]]):
    """A model that is a map."""


class _Point(BaseModel):
    x: int


@pytest.mark.parametrize("stated", [dict[str, int], Mapping[str, int], dict[str, Any], dict, _Numbers])
def test_the_client_of_fastmcp_sees_maps(
    stated: Any, vault: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("fastmcp"), "propagate", True)

    def numbers(count: int) -> Any:
        found = {f"n{n}": n for n in range(count)}
        return _Numbers(found) if stated is _Numbers else found

    numbers.__annotations__["return"] = stated

    def points(count: int) -> dict[str, _Point]:
        return {f"p{n}": _Point(x=n) for n in range(count)}

    def lists() -> dict[str, list[str]]:
        return {f"l{n}": ["a", "b"] for n in range(9000)}

    def warned() -> dict[str, str]:
        warn("careful")
        return {"a": "b"}

    server = server_of(numbers, points, lists, warned, vault=vault)

    async def main() -> None:
        async with fastmcp.Client(server) as client:
            assert (await client.call_tool("numbers", {"count": 2})).data == {"n0": 0, "n1": 1}
            assert (await client.call_tool("points", {"count": 2})).data["p1"].x == 1
            cut = await client.call_tool("numbers", {"count": 9000, "tokenBudget": 300})
            assert cut.structured_content["n0"] == 0
            said = cut.structured_content["_envelope"]
            assert cut.data == cut.structured_content
            many = (await client.call_tool("points", {"count": 9000})).data
            assert many["p7"].x == 7
            assert many["_envelope"]["truncated"] is True
            assert (await client.call_tool("lists", {})).data["l3"] == ["a", "b"]
            told = (await client.call_tool("warned", {})).data
            assert told == {"a": "b", "_envelope": {"warnings": ["careful"]}}
            rest = await client.call_tool("envelope_read", {"handle": said["handle"], "path": "/n8999"})
            assert rest.content[-1].text == "8999"

    run(main)
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []


# -- beside other middleware ----------------------------------------------------------------------------------


class Counting:
    def __init__(self) -> None:
        self.calls = 0

    def count(self, size: int = 9000) -> list[int]:
        self.calls += 1
        return list(range(size))


@pytest.mark.parametrize("dialect", ["native", "gel"])
@pytest.mark.parametrize("order", ["cache first", "envelope first"])
def test_beside_a_cache(order: str, dialect: str, vault: str) -> None:
    counting = Counting()
    server: FastMCP[Any] = FastMCP("test")
    server.tool(counting.count)
    several = [ResponseCachingMiddleware(), EnvelopeMiddleware(vault=vault, ledger=False, dialect=dialect)]
    for middleware in several if order == "cache first" else reversed(several):
        server.add_middleware(middleware)

    async def main() -> None:
        async with connected(server) as session:
            await session.tools()
            for size in (3, 9000):
                first = await session.call("count", {"size": size})
                second = await session.call("count", {"size": size})
                if order == "cache first":
                    assert json.loads(wire(first)) == json.loads(wire(second))
                assert "mcp-envelope/sealed" not in wire(first)
                shown = first.structured_content["result" if dialect == "native" else "data"]
                assert shown == list(range(len(shown)))
            if dialect == "native":
                assert await session.read_list(notice(second)["handle"], "/result") == list(range(9000))

    run(main)
    assert counting.calls == 2


def test_what_comes_from_a_cache_is_held_to_the_tools_settings(vault: str) -> None:
    @enveloped(budget=300)
    def few() -> list[int]:
        # Not so many that it could be told before they are counted.
        return list(range(500))

    server = server_of(few, vault=vault)
    server.add_middleware(ResponseCachingMiddleware())

    async def main() -> None:
        async with connected(server) as session:
            for _ in range(2):
                assert len((await session.call("few")).structured_content["result"]) < 300

    run(main)


def test_what_a_cache_has_is_cut_again_for_a_smaller_budget(vault: str) -> None:
    server = server_of(rows, vault=vault)
    server.add_middleware(ResponseCachingMiddleware())

    async def main() -> None:
        async with connected(server) as session:
            await session.tools()
            large = await session.call("rows")
            small = await session.call("rows", {"tokenBudget": 500})
            assert len(wire(small)) < 10_000 < len(wire(large))
            shown = small.structured_content["result"]
            assert shown == list(range(len(shown)))
            assert notice(small)["handle"]
            assert await session.read_list(notice(large)["handle"], "/result") == list(range(5000))

    run(main)


@pytest.mark.parametrize("order", ["limiter first", "envelope first"])
def test_beside_the_limiter(order: str, vault: str) -> None:
    server: FastMCP[Any] = FastMCP("test")
    server.tool(rows)
    several = [ResponseLimitingMiddleware(max_size=100_000), EnvelopeMiddleware(vault=vault, ledger=False)]
    for middleware in several if order == "limiter first" else reversed(several):
        server.add_middleware(middleware)
    result = ask(server, "rows")
    assert notice(result)["dropped"][0]["total"] == 5000
    assert ask(server, "rows", {"count": 1}).content[0].text == "[0]"


@pytest.mark.parametrize("transform", [True, False])
@pytest.mark.parametrize("order", ["handler first", "envelope first"])
def test_beside_error_handling(order: str, transform: bool) -> None:
    server: FastMCP[Any] = FastMCP("test")
    handler = ErrorHandlingMiddleware(transform_errors=transform)

    def broken() -> str:
        raise ValueError("No such branch.")

    server.tool(broken)
    server.tool(failure)
    server.tool(rows)
    several = [handler, EnvelopeMiddleware(vault="none", ledger=False)]
    for middleware in several if order == "handler first" else reversed(several):
        server.add_middleware(middleware)
    assert code(ask(server, "broken")) == "BAD_ARGS"
    assert code(ask(server, "failure")) == "RATE_LIMITED"
    assert code(ask(server, "rows", {"count": "x"})) == "BAD_ARGS"
    assert bool(handler.get_error_stats()) == (order == "envelope first")


def test_retries_see_the_exceptions() -> None:
    tries = []

    def flaky() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError("later")
        return "done"

    server: FastMCP[Any] = FastMCP("test")
    server.tool(flaky)
    put(server)
    server.add_middleware(RetryMiddleware(max_retries=3, base_delay=0.001))
    assert ask(server, "flaky").content[0].text == "done"


def test_middleware_that_makes_a_result_of_its_own() -> None:
    class Instead(Middleware):
        async def on_call_tool(self, context: Any, call_next: Any) -> Any:
            await call_next(context)
            return ToolResult(structured_content={"result": list(range(9000))})

    server: FastMCP[Any] = FastMCP("test")
    server.tool(rows)
    put(server)
    server.add_middleware(Instead())
    assert notice(ask(server, "rows", {"count": 1}))["dropped"][0]["total"] == 9000


# -- odd schemas ----------------------------------------------------------------------------------------------


def test_a_schema_that_takes_no_property_is_wrapped(vault: str) -> None:
    schema = {"type": "object", "not": {"required": ["_envelope"]}, "properties": {"rows": {"type": "array"}}}
    server = server_of(vault=vault)

    def closed(count: int = 3) -> dict[str, Any]:
        return {"rows": list(range(count))}

    server.tool(closed, output_schema=schema)

    async def main() -> None:
        async with connected(server) as session:
            small = await session.call("closed")
            assert small.structured_content == {"result": {"rows": [0, 1, 2]}}
            large = await session.call("closed", {"count": 9000})
            assert large.structured_content["_envelope"]["truncated"]

    run(main)


def test_what_the_line_does_not_know_is_left_alone() -> None:
    """Resources and prompts are none of its business."""
    server = server_of()

    @server.resource("data://a")
    def a() -> str:
        return "x" * 100_000

    @server.prompt
    def p() -> str:
        return "y" * 100_000

    async def main() -> None:
        async with fastmcp.Client(server) as client:
            assert len((await client.read_resource("data://a"))[0].text) == 100_000
            assert len((await client.get_prompt("p")).messages[0].content.text) == 100_000

    run(main)


def test_settings_at_the_tool(vault: str) -> None:
    @enveloped(budget=200, hint="Pass `count`.")
    def few(count: int = 5000) -> list[int]:
        return list(range(count))

    @enveloped(max_bytes=600)
    async def bytes_(count: int = 5000) -> list[int]:
        return list(range(count))

    server = server_of(few, bytes_, vault=vault)
    parent: FastMCP[Any] = FastMCP("parent")
    parent.mount(server, namespace="in")
    put(parent, vault=vault)
    for each, prefix in ((server, ""), (parent, "in_")):
        cut = ask(each, f"{prefix}few")
        assert len(cut.structured_content["result"]) < 200
        assert notice(cut)["hint"] == "Pass `count`."
        assert len(wire(ask(each, f"{prefix}bytes_"))) < 2500
    plain = bare("fastmcp", few)
    assert len(ask(plain, "few").structured_content["result"]) == 5000


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_client_of_fastmcp_sees_the_shape_of_the_dialect(dialect: str) -> None:
    inner: FastMCP[Any] = FastMCP("inner")
    inner.tool(rows)
    server = create_proxy(inner)
    put(server, dialect=dialect)

    async def main() -> None:
        async with fastmcp.Client(server) as client:
            result = await client.call_tool("rows", {"count": 3})
            if dialect == "native":
                assert result.data == [0, 1, 2]
            else:
                assert "fastmcp" not in (result.meta or {})
                assert (result.data is None) is (result.structured_content is None)

    run(main)


def test_a_result_keeps_its_own_meta_when_it_is_cut(vault: str) -> None:
    def made() -> ToolResult:
        return ToolResult(content="words " * 9000, meta={"mine": 1})

    result = ask(server_of(made, vault=vault), "made")
    assert notice(result)["truncated"]
    assert result.meta["mine"] == 1


def test_a_schema_that_a_transform_states_is_the_one_that_counts(vault: str) -> None:
    """Though the function behind it speaks of outcomes, and so has a schema of its own."""
    inner = Tool.from_tool(Tool.from_function(reply), name="inner")
    server: FastMCP[Any] = FastMCP("test")
    server.add_tool(Tool.from_tool(inner, name="outer", output_schema={"type": "object"}))
    put(server, vault=vault)
    schema = listed(server)["outer"].output_schema
    assert "rows" not in json.dumps(schema)
