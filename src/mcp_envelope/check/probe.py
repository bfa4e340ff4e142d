"""Calls a server's tools as a client would, and keeps what came back.

Strategy: the official SDK's client does the protocol. Only tools that are marked read-only are called, unless the
person says otherwise. Arguments come from a file, or else are the least that the input schema allows; such a call
may well fail, which tells how the server reports mistakes. One more call of each tool has a wrong argument.
"""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import Implementation

from .. import __version__
from ..dialects.notice import META_KEY, READ_TOOL

Progress = Callable[[int, int, str], None]
# Bounds on made-up arguments.
_DEEPEST: Final = 6
_MANY: Final = 100
_LONG: Final = 10_000
_WRONG: Final[Mapping[str, Any]] = {
    "string": 17,
    "integer": "x",
    "number": "x",
    "boolean": "x",
    "array": 1,
    "object": 1,
}


class NoServer(Exception):
    """The server could not be started or reached. The message says why."""


class Called(NamedTuple):
    """One call and its result, as JSON; without a result, `problem` says what happened."""

    tool: Mapping[str, Any]
    arguments: Mapping[str, Any]
    result: Mapping[str, Any] | None
    problem: str = ""
    seconds: float = 0.0
    # Whether the arguments are wrong on purpose, or made from the schema alone.
    is_mistake: bool = False
    is_made_up: bool = False
    # Whether the client refused the result, because it breaks its schema.
    is_rejected: bool = False
    # For a result with a handle of the envelope: whether the rest could be read.
    is_readable: bool | None = None


class Probe(NamedTuple):
    tools: Sequence[Mapping[str, Any]]
    calls: Sequence[Called]
    # Tools that were not called, because they are not marked read-only.
    left: Sequence[str]


class ProbeOptions(NamedTuple):
    """Which tools to call, how, and as which client."""

    wanted: Collection[str] = ()
    with_writers: bool = False
    arguments: Mapping[str, Sequence[Mapping[str, Any]]] = MappingProxyType({})
    timeout: float = 30.0
    client: str = "mcp-envelope"


def probe(
    target: Sequence[str] | str, calls: ProbeOptions, progress: Progress = lambda done, total, tool: None
) -> Probe:
    """Call the tools of a server, which is a command or a URL. Raises NoServer."""
    return asyncio.run(_probe(target, calls, progress))


async def _probe(target: Sequence[str] | str, calls: ProbeOptions, progress: Progress) -> Probe:
    made: list[Called] = []
    about = Implementation(name=calls.client, version=__version__)
    # The SDK logs whatever a server prints besides messages with a traceback, and goes on.
    logging.getLogger("mcp").addHandler(logging.NullHandler())
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        try:
            place = target if isinstance(target, str) else stdio_client(_parameters(target), errlog=log)
            async with Client(place, read_timeout_seconds=calls.timeout, client_info=about) as client:
                tools = await _tools(client)
                chosen = [tool for tool in tools if _is_chosen(tool, calls)]
                planned = [
                    call for tool in chosen for call in _planned(tool, calls.arguments.get(tool["name"]))
                ]
                for done, call in enumerate(planned):
                    progress(done, len(planned), call.tool["name"])
                    made.append(await _called(client, call))
        except (Exception, BaseExceptionGroup) as error:
            log.seek(0)
            said = [line.strip() for line in log if line.strip()][-1:]
            raise NoServer("; it said: ".join([_reason(error), *said])) from None
    others = [tool["name"] for tool in tools if tool not in chosen and tool["name"] != READ_TOOL]
    return Probe(tools, made, [] if calls.wanted else others)


def _parameters(command: Sequence[str]) -> StdioServerParameters:
    return StdioServerParameters(command=command[0], args=list(command[1:]), env=dict(os.environ))


async def _tools(client: Client) -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = []
    cursor = None
    while True:
        page = await client.list_tools(cursor=cursor)
        tools += [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in page.tools]
        cursor = page.next_cursor
        if cursor is None:
            return tools


def _is_chosen(tool: Mapping[str, Any], calls: ProbeOptions) -> bool:
    if calls.wanted:
        return tool["name"] in calls.wanted
    is_reader = tool.get("annotations", {}).get("readOnlyHint") is True
    return tool["name"] != READ_TOOL and (is_reader or calls.with_writers)


def _planned(tool: Mapping[str, Any], given: Sequence[Mapping[str, Any]] | None) -> list[Called]:
    schema = tool.get("inputSchema", {})
    right = [Called(tool, each, None) for each in given or ()]
    right = right or [Called(tool, made_up(schema), None, is_made_up=True)]
    wrong = _mistaken(schema, right[0].arguments)
    return right if wrong is None else [*right, Called(tool, wrong, None, is_mistake=True)]


def made_up(schema: Any) -> Any:
    """Return roughly the smallest value that a schema allows; {} for an invalid schema."""
    try:
        return _least(schema, 0)
    except (TypeError, AttributeError, LookupError):
        return {}


def _least(schema: Any, depth: int) -> Any:
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return None
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    for key in ("examples", "enum"):
        if schema.get(key):
            return schema[key][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key):
            return _least(schema[key][0], depth + 1)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    if kind == "object":
        properties = schema.get("properties", {})
        return {name: _least(properties.get(name, {}), depth + 1) for name in schema.get("required", ())}
    if kind == "array":
        return [_least(schema.get("items", {}), depth + 1)] * min(schema.get("minItems", 0), _MANY)
    if kind in ("integer", "number"):
        return schema.get("minimum", 1)
    return {"boolean": False, "null": None}.get(kind, "a" * min(max(schema.get("minLength", 1), 1), _LONG))


def _mistaken(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the arguments with one of them of the wrong type; None if no required argument has a type."""
    with suppress(TypeError, AttributeError):
        for name in schema.get("required", ()):
            wrong = _WRONG.get(str(schema.get("properties", {}).get(name, {}).get("type")))
            if wrong is not None:
                return {**arguments, name: wrong}
    return None


async def _called(client: Client, call: Called) -> Called:
    begun = time.monotonic()
    try:
        answer = await client.call_tool(call.tool["name"], dict(call.arguments))
    except (MCPError, RuntimeError, TimeoutError) as error:
        problem, taken = str(error) or type(error).__name__, time.monotonic() - begun
        # The SDK raises RuntimeError for a structure that breaks its schema, as other strict clients do.
        return call._replace(problem=problem, seconds=taken, is_rejected=isinstance(error, RuntimeError))
    result = answer.model_dump(mode="json", by_alias=True, exclude_none=True)
    call = call._replace(result=result, seconds=time.monotonic() - begun)
    notice = result.get("_meta", {}).get(META_KEY, {})
    if not isinstance(notice, Mapping) or "handle" not in notice:
        return call
    cuts = notice.get("dropped") or [{}]
    page = await client.call_tool(READ_TOOL, {"handle": notice["handle"], "path": cuts[0].get("path", "")})
    return call._replace(is_readable=not page.is_error)


def _reason(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"cannot start {error.filename!r}: {error.strerror.lower()}"
    return str(error) or type(error).__name__
