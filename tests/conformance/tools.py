"""The tools that the scenarios of the conformance suite call, in both eras of the protocol.

Strategy: one function for each tool, registered with the schema that is listed. Names and behaviour are what the
scenarios describe; the words are ours wherever a scenario does not ask for certain ones.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

import anyio
from mcp.server.subscriptions import InMemorySubscriptionBus, PromptsListChanged, ToolsListChanged
from mcp_types import SamplingMessage, TextContent

from . import tasks
from .tasks import TASKS
from .wire import (
    AUDIO,
    IMAGE,
    Call,
    Json,
    ask,
    declared,
    embedded,
    form,
    missing,
    roots,
    said,
    sample,
    text,
    wanted,
)

Run = Callable[[Call], Awaitable[Json]]
_STRING: Final[Json] = {"type": "string"}
_PAUSE: Final = 0.05


class Tool(NamedTuple):
    run: Run
    listed: Json


TOOLS: Final[dict[str, Tool]] = {}
BUS: Final = InMemorySubscriptionBus()


def tool(name: str, description: str, schema: Json | None = None) -> Callable[[Run], Run]:
    def add(run: Run) -> Run:
        listed = {"name": name, "description": description, "inputSchema": schema or {"type": "object"}}
        TOOLS[name] = Tool(run, listed)
        return run

    return add


# -- content ------------------------------------------------------------------------------------------------


# The suite calls whichever tool is listed first without arguments.
@tool("test_simple_text", "One text.")
async def simple_text(call: Call) -> Json:
    return said("This is a simple text response for testing.")


@tool("test_image_content", "One image.")
async def image(call: Call) -> Json:
    return {"content": [IMAGE]}


@tool("test_audio_content", "One sound.")
async def audio(call: Call) -> Json:
    return {"content": [AUDIO]}


@tool("test_embedded_resource", "One resource, embedded.")
async def embedded_resource(call: Call) -> Json:
    words = "This is an embedded resource content."
    return {"content": [embedded("test://embedded-resource", "text/plain", words)]}


@tool("test_multiple_content_types", "A text, an image and a resource.")
async def mixed(call: Call) -> Json:
    data = json.dumps({"test": "data", "value": 123})
    resource = embedded("test://mixed-content-resource", "application/json", data)
    return {"content": [text("Multiple content types test:"), IMAGE, resource]}


@tool("test_error_handling", "Fails, always.")
async def failing(call: Call) -> Json:
    return said("This tool intentionally returns an error for testing", isError=True)


_ADDRESS: Final[Json] = {"$anchor": "addressDef", **form(street=_STRING, city=_STRING), "required": ["city"]}


@tool(
    "json_schema_2020_12_tool",
    "Its input schema uses what JSON Schema 2020-12 has.",
    {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": _ADDRESS},
        "properties": {
            "name": _STRING,
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": _STRING,
            "email": _STRING,
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
)
async def json_schema(call: Call) -> Json:
    return said(f"Contact: {call.arguments.get('name', 'nobody')}")


@tool(
    "test_custom_header",
    "Has an argument that is repeated in a header.",
    {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}},
)
async def custom_header(call: Call) -> Json:
    return said(f"Region: {call.arguments.get('region', 'none')}")


# -- while a call runs --------------------------------------------------------------------------------------


async def _log(call: Call) -> None:
    for words in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await call.context.session.send_log_message("info", words, related_request_id=call.context.request_id)
        await anyio.sleep(_PAUSE)


@tool("test_tool_with_logging", "Logs three times.")
async def logging(call: Call) -> Json:
    await _log(call)
    return said("Logged three times.")


@tool("test_logging_tool", "Logs three times, for those who asked for it.")
async def logging_if_wanted(call: Call) -> Json:
    await _log(call)
    return said("Logged whatever was wanted.")


@tool("test_tool_with_progress", "Reports its progress three times.")
async def progress(call: Call) -> Json:
    for percent in (0, 50, 100):
        await call.context.session.report_progress(percent, 100)
        await anyio.sleep(_PAUSE)
    return said("Done.")


@tool("test_reconnection", "Closes its stream, and answers when the client has come back.")
async def reconnection(call: Call) -> Json:
    if call.context.close_sse_stream is not None:
        await call.context.close_sse_stream()
    await anyio.sleep(4 * _PAUSE)
    return said("Welcome back.")


@tool("test_trigger_tool_change", "Tells who listens that the list of tools changed.")
async def tool_change(call: Call) -> Json:
    await BUS.publish(ToolsListChanged())
    return said("Told.")


@tool("test_trigger_prompt_change", "Tells who listens that the list of prompts changed.")
async def prompt_change(call: Call) -> Json:
    await BUS.publish(PromptsListChanged())
    return said("Told.")


# -- requests to the client, until 2025-11-25 ---------------------------------------------------------------


@tool("test_sampling", "Lets the client's model answer.", form(prompt=_STRING))
async def sampling(call: Call) -> Json:
    words = TextContent(type="text", text=str(call.arguments.get("prompt", "")))
    answer = await call.context.session.create_message(
        [SamplingMessage(role="user", content=words)],
        max_tokens=100,
        related_request_id=call.context.request_id,
    )
    return said(f"LLM response: {getattr(answer.content, 'text', '')}")


async def _elicit(call: Call, message: str, schema: Json) -> Json:
    answer = await call.context.session.elicit_form(
        message, schema, related_request_id=call.context.request_id
    )
    return said(f"User response: {answer.action}, {json.dumps(answer.content)}")


@tool("test_elicitation", "Asks the user who they are.", form(message=_STRING))
async def elicitation(call: Call) -> Json:
    described = {name: {"type": "string", "description": f"Your {name}"} for name in ("username", "email")}
    return await _elicit(call, str(call.arguments.get("message", "")), form(**described))


@tool("test_elicitation_sep1034_defaults", "Asks with a default of every primitive type.")
async def elicitation_defaults(call: Call) -> Json:
    properties: Json = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    return await _elicit(call, "Is this right?", {"type": "object", "properties": properties})


def _titled(noun: str) -> list[Json]:
    return [
        {"const": f"value{number}", "title": f"{order} {noun}"}
        for number, order in enumerate(("First", "Second", "Third"), 1)
    ]


@tool("test_elicitation_sep1330_enums", "Asks with every kind of choice.")
async def elicitation_enums(call: Call) -> Json:
    options = ["option1", "option2", "option3"]
    properties: Json = {
        "untitledSingle": {"type": "string", "enum": options},
        "titledSingle": {"type": "string", "oneOf": _titled("Option")},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
        "titledMulti": {"type": "array", "items": {"anyOf": _titled("Choice")}},
    }
    return await _elicit(call, "Choose.", {"type": "object", "properties": properties})


# -- requests to the client, since 2026-07-28 ---------------------------------------------------------------


@tool("test_missing_capability", "Cannot do without sampling.")
async def missing_capability(call: Call) -> Json:
    if "sampling" not in declared(call.context):
        raise missing("This tool needs sampling.", sampling={})
    return said("Sampling is there.")


@tool("test_streaming_elicitation", "Asks in its result, not on its stream.")
async def streaming_elicitation(call: Call) -> Json:
    await call.context.session.report_progress(0, 1)
    return wanted(call, {"name": ask("What is your name?", name=_STRING)}) or said("Thank you.")


@tool("test_input_required_result_elicitation", "Asks for a name.")
async def input_elicitation(call: Call) -> Json:
    filled = call.form("user_name")
    if filled is None:
        return {
            "resultType": "input_required",
            "inputRequests": {"user_name": ask("What is your name?", name=_STRING)},
        }
    return said(f"Hello, {filled.get('name')}!")


@tool("test_input_required_result_sampling", "Asks the client's model.")
async def input_sampling(call: Call) -> Json:
    question = {"capital_question": sample("What is the capital of France?")}
    return wanted(call, question) or said(json.dumps(call.answers["capital_question"]["content"]))


@tool("test_input_required_result_list_roots", "Asks for the client's roots.")
async def input_roots(call: Call) -> Json:
    return wanted(call, {"client_roots": roots()}) or said(json.dumps(call.answers["client_roots"]["roots"]))


async def _confirmed(call: Call) -> Json:
    """The state is sealed on its way out and checked on its way in, by the SDK."""
    asked = wanted(call, {"confirm": ask("Please confirm", ok={"type": "boolean"})}, "asked")
    if asked is not None:
        return asked
    return said("state-ok" if call.state == "asked" else "The state is gone.", isError=call.state != "asked")


@tool("test_input_required_result_request_state", "Remembers with the client's help that it asked.")
async def input_state(call: Call) -> Json:
    return await _confirmed(call)


@tool("test_input_required_result_tampered_state", "The same; changed state is refused.")
async def input_tampered(call: Call) -> Json:
    return await _confirmed(call)


@tool("test_input_required_result_multiple_inputs", "Asks three things at once.")
async def input_multiple(call: Call) -> Json:
    requests: Json = {
        "user_name": ask("What is your name?", name=_STRING),
        "greeting": sample("Generate a greeting", 50),
        "client_roots": roots(),
    }
    return wanted(call, requests, "asked") or said("Thank you for all of that.")


@tool("test_input_required_result_multi_round", "Asks twice, one thing after the other.")
async def input_rounds(call: Call) -> Json:
    if call.state is None or (call.state == "one" and call.form("step1") is None):
        return wanted(call, {"step1": ask("Step 1: What is your name?", name=_STRING)}, "one") or said(
            "Too early."
        )
    if call.state == "one":
        color = {"step2": ask("Step 2: What is your favorite color?", color=_STRING)}
        return {"resultType": "input_required", "inputRequests": color, "requestState": "two"}
    return said(f"So it is {(call.form('step2') or {}).get('color')}.")


@tool("test_input_required_result_capabilities", "Asks only what the client can answer.")
async def input_capabilities(call: Call) -> Json:
    possible: dict[str, Json] = {
        "elicitation": ask("What is your name?", name=_STRING),
        "sampling": sample("Generate a greeting"),
        "roots": roots(),
    }
    requests: Json = {name: request for name, request in possible.items() if name in declared(call.context)}
    return (wanted(call, requests) if requests else None) or said("Nothing left to ask.")


# -- tasks, an extension of 2026-07-28 ----------------------------------------------------------------------


@tool("greet", "Greets.", form(name=_STRING))
async def greet(call: Call) -> Json:
    return said(f"Hello, {call.arguments.get('name')}!")


_SECONDS: Final[Json] = {"type": "number", "minimum": 0}


@tool("slow_compute", "Takes a while.", {**form(seconds=_SECONDS, label=_STRING), "required": ["seconds"]})
async def slow(call: Call) -> Json:
    seconds, result = (
        float(call.arguments.get("seconds", 0)),
        said(f"Computed {call.arguments.get('label', '')}."),
    )
    if tasks.negotiated(call.context):
        return TASKS.start({"result": result}, seconds)
    await anyio.sleep(seconds)
    return result


@tool("failing_job", "A task that fails as tools do.")
async def failing_job(call: Call) -> Json:
    tasks.require(call.context)
    return TASKS.start({"result": said("It did not work.", isError=True)}, 2 * _PAUSE)


@tool("protocol_error_job", "A task that fails as servers do.")
async def broken_job(call: Call) -> Json:
    tasks.require(call.context)
    return TASKS.start({"error": {"code": -32603, "message": "The server failed."}}, 2 * _PAUSE)


@tool("confirm_delete", "A task that asks one thing.", form(filename=_STRING))
async def confirm_delete(call: Call) -> Json:
    tasks.require(call.context)
    question = ask(f"Delete {call.arguments.get('filename')}?", confirm={"type": "boolean"})
    return TASKS.start({"result": said("Deleted.")}, asking={"confirm": question})


@tool("multi_input", "A task that asks two things at once.")
async def multi_input(call: Call) -> Json:
    tasks.require(call.context)
    asking = {key: ask(f"What is your {key} name?", name=_STRING) for key in ("first", "last")}
    return TASKS.start({"result": said("Thank you.")}, asking=asking)


@tool("test_tool_with_task", "Asks first, and becomes a task then.")
async def asking_task(call: Call) -> Json:
    tasks.require(call.context)
    filled: Json | None = call.form("user_name")
    if filled is None:
        return wanted(call, {"user_name": ask("What is your name?", name=_STRING)}, "asked") or said("Odd.")
    return TASKS.start({"result": said(f"Done for {filled.get('name')}.")}, _PAUSE)


def schema_of(name: str) -> dict[str, Any] | None:
    return TOOLS[name].listed["inputSchema"] if name in TOOLS else None
