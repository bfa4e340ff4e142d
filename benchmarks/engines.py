"""The engines that are compared, each as a call without arguments on a payload that is prepared beforehand.

Rivals are imported by name and may be missing: then there is no call, and the tables say so.
"""

import importlib
import json
import logging
from collections.abc import Callable
from typing import Any

import msgspec
from benchmarks.samples import HANDLE, TOKENS, Sample

from mcp_envelope import Sealed, seal
from mcp_envelope.config import Policy

Call = Callable[[], Any]


def module(name: str) -> Any:
    """A module that may be missing; None if it is."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def encode(sample: Sample) -> Call:
    value = sample.value
    return lambda: msgspec.json.encode(value)


def sealing(sample: Sample, **more: Any) -> Callable[[], Sealed]:
    payload, options = sample.payload, {"tokens": TOKENS, "handle": HANDLE, **sample.options, **more}
    return lambda: seal(payload, **options)


def shrinkfit(sample: Sample, characters: int) -> Call | None:
    """Its fastest honest call: compact JSON in and out. Objects are encoded by msgspec, not by its own
    `json.dumps`; text and bytes are handed over as they are."""
    library = module("shrinkfit")
    if library is None:
        return None
    payload = sample.payload
    options: dict[str, Any] = {"indent": 0, "input_format": "json", "format": "json"}
    if isinstance(payload, str | bytes):
        return lambda: library.shrink(payload, characters, **options)
    return lambda: library.shrink(msgspec.json.encode(payload), characters, **options)


def shrinkfit_objects(sample: Sample, characters: int) -> Call | None:
    """As its manual shows it: Python objects in."""
    library = module("shrinkfit")
    return None if library is None else lambda: library.shrink(sample.value, characters, indent=0)


def fastmcp(sample: Sample, limit: int, build: bool) -> Call | None:
    """ResponseLimitingMiddleware's own code, on a ToolResult that is there already or is built each time."""
    limiting = module("fastmcp.server.middleware.response_limiting")
    if limiting is None:
        return None
    middleware = module("fastmcp.server.middleware.middleware")
    types = module("mcp_types")
    tool_result = module("fastmcp.tools.base").ToolResult
    # It logs each cut; printing the line is not the cost that we ask for.
    logging.getLogger(limiting.__name__).setLevel(logging.ERROR)
    request = types.CallToolRequestParams(name="list_orders", arguments={})
    context = middleware.MiddlewareContext(message=request, method="tools/call")
    limiter = limiting.ResponseLimitingMiddleware(max_size=limit)
    built = None if build else tool_result(structured_content=sample.value)

    async def tool(_: Any) -> Any:
        return built or tool_result(structured_content=sample.value)

    def call() -> Any:
        step = limiter.on_call_tool(context, tool)
        try:
            # Nothing in it waits, so one step is the whole of it, without the cost of an event loop.
            step.send(None)
        except StopIteration as done:
            return done.value
        raise AssertionError("the middleware waited for something")

    return call


def bisection(sample: Sample, characters: int, dumps: Callable[[Any], str | bytes]) -> Call:
    """The usual hand-written way: try a prefix of the list, serialise, look at the length, halve."""
    whole, items = sample.value, sample.value["orders"]

    def call() -> str | bytes:
        text = dumps(whole)
        low, high = 0, len(items)
        if len(text) <= characters:
            return text
        best: str | bytes = b""
        while low < high:
            middle = (low + high + 1) // 2
            note = {"note": f"Showing {middle} of {len(items)} orders."}
            text = dumps({**whole, "orders": items[:middle], "_envelope": note})
            if len(text) <= characters:
                best, low = text, middle
            else:
                high = middle - 1
        return best

    return call


def by_json(sample: Sample, characters: int) -> Call:
    return bisection(sample, characters, json.dumps)


def by_msgspec(sample: Sample, characters: int) -> Call:
    return bisection(sample, characters, msgspec.json.encode)


# Without a profile, and without a choice of rows.
PLAIN = "seal, beginnings only"
BEGINNINGS = Policy(select="head", describe="off")
# A call whose words are in some rows and in the name of a field.
ARGUMENTS = {"query": "parcels returned to Oslo", "order_by": "createdAt"}

# What the tables call them. Each takes the sample and the length, in bytes, of what `seal` makes of it.
ENGINES: dict[str, Callable[[Sample, int], Call | None]] = {
    "one msgspec encode": lambda sample, _: encode(sample),
    "seal": lambda sample, _: sealing(sample, arguments=ARGUMENTS),
    PLAIN: lambda sample, _: sealing(sample, policy=BEGINNINGS),
    "shrinkfit": shrinkfit,
    "shrinkfit, from objects": shrinkfit_objects,
    "FastMCP limiter": lambda sample, size: fastmcp(sample, size, build=False),
    "FastMCP, result built too": lambda sample, size: fastmcp(sample, size, build=True),
    "bisection, json.dumps": by_json,
    "bisection, msgspec": by_msgspec,
}
