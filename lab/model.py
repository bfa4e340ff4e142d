"""A scripted model on loopback that speaks the APIs of four vendors.

Strategy: a client sends the whole conversation with every request, so a request says everything that is needed: the
tools on offer, and what the model is shown as the result of its last call. Each API has a reader, from a request to
a `Turn`, and a writer, from the next move to a reply. What to call next is up to the script, a generator that is
sent what was seen. Requests without our tools (titles, summaries, probes) get a word in reply.
"""

from __future__ import annotations

import base64
import json
import re
import struct
import threading
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

MARKS = "/#[0-9]{5}|lab:..report|SHOWN-[A-Z]+/g"
PROGRAM_GOT = "Marks that the program got: "
Json = dict[str, Any]


@dataclass(frozen=True)
class Picture:
    """An image as the model got it."""

    mime: str
    bytes: int
    width: int
    height: int


@dataclass(frozen=True)
class Seen:
    """What the model was shown as the result of a call."""

    texts: tuple[str, ...]
    pictures: tuple[Picture, ...] = ()
    marked_as_error: bool = False

    @property
    def text(self) -> str:
        return "\n".join(self.texts)


@dataclass(frozen=True)
class Call:
    """A call that the script asks for, by the server's own name of the tool."""

    tool: str
    arguments: Json = field(default_factory=dict)


Script = Generator[Call, Seen, None]


@dataclass(frozen=True)
class Tool:
    """A tool as the client offers it to the model."""

    name: str
    entry: Json
    namespace: str | None = None
    kind: str = "function"


@dataclass(frozen=True)
class Move:
    """A call in the client's own terms."""

    id: str
    tool: Tool
    arguments: Json
    code: str = ""


@dataclass(frozen=True)
class Turn:
    """What a request says."""

    tools: tuple[Tool, ...]
    results: dict[str, Seen]


class Player:
    """Plays a script against the turns of one session. Requests come from several threads."""

    def __init__(self, script: Script, server: str, tools: Iterable[str]) -> None:
        self.calls: list[tuple[Call, Seen]] = []
        self.tools: tuple[Tool, ...] = ()
        self.over = threading.Event()
        self.problem = ""
        self._script, self._server = script, server
        self._ours = re.compile(rf"(?:.*[^A-Za-z0-9])?({'|'.join(tools)})")
        self._lock = threading.Lock()
        self._call: Call | None = next(script)
        self._asked: dict[str, Call] = {}
        self._moves: dict[str, Move | None] = {}

    def concerns(self, turn: Turn) -> bool:
        """Whether a request is part of the conversation that the script is about."""
        return bool(turn.results) or any(
            self._ours.fullmatch(tool.name) or tool.name == "exec" or _finds_tools(tool)
            for tool in turn.tools
        )

    def next_move(self, turn: Turn) -> Move | None:
        """The next call; None ends the conversation. A repeated request gets the same move again."""
        with self._lock:
            ours = tuple(tool for tool in turn.tools if self._ours.fullmatch(tool.name))
            self.tools = max(self.tools, ours, key=len)
            last = next((name for name in reversed(self._asked) if name in turn.results), "")
            if last not in self._moves:
                if last and last != "search":
                    self._take(self._asked[last], turn.results[last])
                self._moves[last] = self._ask(turn)
            return self._moves[last]

    def _take(self, call: Call, seen: Seen) -> None:
        self.calls.append((call, seen))
        try:
            self._call = self._script.send(seen)
        except StopIteration:
            self._call = None
            self.over.set()
        except Exception as problem:
            self._call, self.problem = None, f"the script stopped: {problem!r}"
            self.over.set()

    def _ask(self, turn: Turn) -> Move | None:
        call = self._call
        if call is None:
            return None
        name = f"call_{len(self._asked) + 1:04d}"
        matches = ((each, self._ours.fullmatch(each.name)) for each in turn.tools)
        tool = next((each for each, match in matches if match and match[1] == call.tool), None)
        move = None
        if tool is not None:
            move = Move(name, tool, call.arguments)
        elif runner := next(
            (each for each in turn.tools if each.kind == "custom" and each.name == "exec"), None
        ):
            # Code mode: the model writes JavaScript, which gets the result; what it prints is what the model sees.
            move = Move(name, runner, {}, _program(self._server, call))
        elif "search" not in self._asked and (finder := next(filter(_finds_tools, turn.tools), None)):
            name = "search"
            parameter = "max_results" if finder.name == "ToolSearch" else "limit"
            move = Move(name, finder, {"query": self._server, parameter: 50})
        if move is None:
            self.problem = f"{call.tool} is not among the tools that the model is offered"
            self.over.set()
            return None
        self._asked[name] = call
        return move


def _finds_tools(tool: Tool) -> bool:
    """Clients hide tools behind a search where there are many."""
    return tool.name in ("ToolSearch", "tool_search")


def _program(server: str, call: Call) -> str:
    arguments = json.dumps(call.arguments)
    return (
        f"const result = await tools.mcp__{server}__{call.tool}({arguments});\n"
        "for (const block of result.content ?? []) if (block.type === 'image') image(block);\n"
        "const shown = result.structuredContent ?? result.content.filter(block => block.type !== 'image');\n"
        f"const marks = new Set(JSON.stringify(result).match({MARKS}));\n"
        f"text('{PROGRAM_GOT}' + marks.size + '\\n' + JSON.stringify(shown));\n"
    )


def pictures_in(value: object) -> Iterator[Picture]:
    """All images within a part of a request, whatever the API."""
    if isinstance(value, str):
        if value.startswith("data:image/"):
            head, _, data = value.partition(",")
            yield _picture(head[5:].split(";")[0], data)
    elif isinstance(value, list):
        for each in value:
            yield from pictures_in(each)
    elif isinstance(value, dict):
        mime = value.get("media_type") or value.get("mimeType") or value.get("mime_type") or ""
        if str(mime).startswith("image/") and isinstance(value.get("data"), str):
            yield _picture(mime, value["data"])
        else:
            for each in value.values():
                yield from pictures_in(each)


def _picture(mime: str, data: str) -> Picture:
    raw = base64.b64decode(data + "===")
    width = height = 0
    if raw.startswith(b"\x89PNG"):
        width, height = struct.unpack(">II", raw[16:24])
    elif raw.startswith(b"\xff\xd8"):
        at = 2
        while at + 9 < len(raw) and raw[at] == 0xFF:
            if 0xC0 <= raw[at + 1] <= 0xC3:
                height, width = struct.unpack(">HH", raw[at + 5 : at + 9])
                break
            at += 2 + int(struct.unpack(">H", raw[at + 2 : at + 4])[0])
    elif raw[8:15] == b"WEBPVP8":
        width = height = -1
    return Picture(mime, len(raw), width, height)


def _texts(content: object) -> Iterator[str]:
    """The text of a result: a string, or the parts of a list; a part that is neither text nor image as JSON."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for part in content:
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                yield part["text"]
            elif not any(pictures_in(part)):
                yield json.dumps(part)


class Anthropic:
    """POST /v1/messages"""

    @staticmethod
    def read(request: Json) -> Turn:
        tools = tuple(Tool(str(tool["name"]), tool) for tool in request.get("tools", ()) if "name" in tool)
        results: dict[str, Seen] = {}
        for message in request["messages"]:
            for part in message["content"] if isinstance(message["content"], list) else ():
                if part.get("type") == "tool_result":
                    content = part.get("content", "")
                    error = bool(part.get("is_error"))
                    shown = tuple(pictures_in(content)) or tuple(pictures_in(_beside(message["content"])))
                    results[part["tool_use_id"]] = Seen(tuple(_texts(content)), shown, error)
        return Turn(tools, results)

    @staticmethod
    def write(request: Json, move: Move | None) -> Json | Iterable[tuple[str, Json]]:
        block: Json = {"type": "text", "text": "Done."}
        if move:
            block = {"type": "tool_use", "id": move.id, "name": move.tool.name, "input": move.arguments}
        reason = "tool_use" if move else "end_turn"
        usage = {"input_tokens": 100, "output_tokens": 10}
        message: Json = {
            "id": "msg_lab", "type": "message", "role": "assistant", "model": request.get("model", "lab"),
            "content": [block], "stop_reason": reason, "stop_sequence": None, "usage": usage,
        }  # fmt: skip
        if not request.get("stream"):
            return message
        delta: Json = {"type": "text_delta", "text": "Done."}
        empty: Json = {**block, "text": ""}
        if move:
            delta = {"type": "input_json_delta", "partial_json": json.dumps(move.arguments)}
            empty = {**block, "input": {}}
        stop = {"stop_reason": reason, "stop_sequence": None}
        begin = {**message, "content": [], "stop_reason": None}
        events: list[Json] = [
            {"type": "message_start", "message": begin},
            {"type": "content_block_start", "index": 0, "content_block": empty},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": stop, "usage": usage},
            {"type": "message_stop"},
        ]
        return [(event["type"], event) for event in events]


def _beside(parts: list[Json]) -> list[Json]:
    return [part for part in parts if part.get("type") != "tool_result"]


class Responses:
    """POST /v1/responses"""

    @staticmethod
    def read(request: Json) -> Turn:
        tools: list[Tool] = []
        entries = list(request.get("tools", ()))
        items = request["input"] if isinstance(request["input"], list) else []
        for item in items:  # tools can be loaded by a part of the conversation, too
            if item.get("type") in ("additional_tools", "tool_search_output"):
                entries.extend(item.get("tools", ()))
        for tool in entries:
            if tool.get("type") == "namespace":
                tools.extend(
                    Tool(e["name"], e, tool["name"], e.get("type", "function")) for e in tool["tools"]
                )
            elif tool.get("type") in ("function", "custom", "tool_search"):
                tools.append(Tool(tool.get("name", tool["type"]), tool, kind=tool["type"]))
        results: dict[str, Seen] = {}
        for at, item in enumerate(items):
            if str(item.get("type", "")).endswith("_output") and "call_id" in item:
                output = item.get("output", "")
                shown = tuple(pictures_in(output))
                following = items[at + 1] if at + 1 < len(items) else {}
                if not shown and following.get("role") == "user":
                    shown = tuple(pictures_in(following))
                results[item["call_id"]] = Seen(tuple(_texts(output)), shown)
        return Turn(tuple(tools), results)

    @staticmethod
    def write(request: Json, move: Move | None) -> Json | Iterable[tuple[str, Json]]:
        item: Json = {
            "type": "message", "id": "msg_lab", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": "Done.", "annotations": []}],
        }  # fmt: skip
        if move:
            item = {
                "id": f"item_{move.id}",
                "call_id": move.id,
                "name": move.tool.name,
                "status": "completed",
            }
            if move.tool.kind == "tool_search":
                item |= {"type": "tool_search_call", "execution": "client", "arguments": move.arguments}
            elif move.code:
                item |= {"type": "custom_tool_call", "input": move.code}
            else:
                item |= {"type": "function_call", "arguments": json.dumps(move.arguments)}
            if move.tool.namespace:
                item["namespace"] = move.tool.namespace
        usage = {
            "input_tokens": 100, "output_tokens": 10, "total_tokens": 110,
            "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0},
        }  # fmt: skip
        response: Json = {
            "id": "resp_lab", "object": "response", "created_at": 1, "status": "completed",
            "model": request.get("model", "lab"), "output": [item], "usage": usage, "error": None,
            "parallel_tool_calls": False, "tool_choice": "auto", "tools": [],
            "incomplete_details": None, "instructions": None, "metadata": {},
        }  # fmt: skip
        if not request.get("stream"):
            return response
        begin = {**response, "status": "in_progress", "output": [], "usage": None}
        events: list[Json] = [
            {"type": "response.created", "response": begin},
            {"type": "response.output_item.added", "output_index": 0, "item": item},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": response},
        ]
        return [(each["type"], {**each, "sequence_number": number}) for number, each in enumerate(events)]


class Chat:
    """POST /v1/chat/completions"""

    @staticmethod
    def read(request: Json) -> Turn:
        tools = tuple(
            Tool(tool["function"]["name"], tool["function"])
            for tool in request.get("tools") or ()
            if tool.get("type") == "function"
        )
        results: dict[str, Seen] = {}
        messages = request["messages"]
        for at, message in enumerate(messages):
            if message.get("role") == "tool":
                # An image cannot stand in a tool message, so clients put it into one from the user after it.
                shown = tuple(pictures_in(message.get("content")))
                for later in messages[at + 1 :]:
                    if later.get("role") != "user":
                        break
                    shown += tuple(pictures_in(later.get("content")))
                results[message["tool_call_id"]] = Seen(tuple(_texts(message.get("content") or "")), shown)
        return Turn(tools, results)

    @staticmethod
    def write(request: Json, move: Move | None) -> Json | Iterable[tuple[str, Json]]:
        message: Json = {"role": "assistant", "content": None if move else "Done."}
        if move:
            function = {"name": move.tool.name, "arguments": json.dumps(move.arguments)}
            message["tool_calls"] = [{"index": 0, "id": move.id, "type": "function", "function": function}]
        reason = "tool_calls" if move else "stop"
        base = {"id": "chatcmpl-lab", "created": 1, "model": request.get("model", "lab")}
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        if not request.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": reason}
            return {**base, "object": "chat.completion", "choices": [choice], "usage": usage}
        base["object"] = "chat.completion.chunk"
        first = {"index": 0, "delta": message, "finish_reason": None}
        last: Json = {"index": 0, "delta": {}, "finish_reason": reason}
        return [
            ("", {**base, "choices": [first]}),
            ("", {**base, "choices": [last], "usage": usage}),
            ("", {}),
        ]


class Gemini:
    """POST /v1beta/models/NAME:generateContent and :streamGenerateContent"""

    @staticmethod
    def read(request: Json) -> Turn:
        declared = [
            each for tool in request.get("tools", ()) for each in tool.get("functionDeclarations", ())
        ]
        results: dict[str, Seen] = {}
        number = 0
        for content in request["contents"]:
            parts = content.get("parts", ())
            for part in parts:
                if answer := part.get("functionResponse"):
                    number += 1
                    name = answer.get("id") or f"call_{number:04d}"
                    response = dict(answer.get("response") or {})
                    texts = [v if isinstance(v, str) else json.dumps(v) for v in response.values()]
                    shown = tuple(pictures_in(parts))
                    texts += [each["text"] for each in parts if isinstance(each.get("text"), str)]
                    results[name] = Seen(tuple(texts), shown, "error" in response)
        return Turn(tuple(Tool(each["name"], each) for each in declared), results)

    @staticmethod
    def write(request: Json, move: Move | None) -> Json | Iterable[tuple[str, Json]]:
        part: Json = {"text": "Done."}
        if move:
            part = {"functionCall": {"id": move.id, "name": move.tool.name, "args": move.arguments}}
        reply: Json = {
            "candidates": [
                {"index": 0, "content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}
            ],
            "usageMetadata": {"promptTokenCount": 100, "candidatesTokenCount": 10, "totalTokenCount": 110},
        }
        return [("", reply)] if request.get("stream") else reply


class Model:
    """The HTTP server: one for all sessions, each under an address of its own."""

    def __init__(self) -> None:
        self.players: dict[str, Player] = {}
        self.log: list[str] = []
        model = self

        class Handler(_Handler):
            owner = model

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def address(self, session: str) -> str:
        return f"http://127.0.0.1:{self._http.server_port}/{session}"

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: Model

    def do_GET(self) -> None:
        self._json({"object": "list", "data": [{"id": "lab", "object": "model"}], "models": []})

    def do_POST(self) -> None:
        body = self._body()
        session, _, path = urlsplit(self.path).path.lstrip("/").partition("/")
        player = self.owner.players.get(session)
        self.owner.log.append(f"{session} {path} {len(body)}")
        try:
            request: Json = json.loads(body)
        except ValueError:
            return self._json({"error": {"message": "not JSON"}}, 400)
        if path.endswith(("count_tokens", ":countTokens")):
            tokens = len(json.dumps(request.get("messages") or request.get("contents") or "")) // 4
            return self._json({"input_tokens": tokens, "totalTokens": tokens})
        api: Any = None
        for suffix, each in _APIS:
            if path.endswith(suffix):
                api = each
        if api is None or player is None:
            return self._json({})
        if path.endswith(":streamGenerateContent"):
            request["stream"] = True
        turn = api.read(request)
        reply = api.write(request, player.next_move(turn) if player.concerns(turn) else None)
        if isinstance(reply, dict):
            return self._json(reply)
        self._events(reply)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _json(self, value: Json, status: int = 200) -> None:
        self._send("application/json", json.dumps(value).encode(), status)

    def _events(self, events: Iterable[tuple[str, Json]]) -> None:
        lines = []
        for name, data in events:
            head = f"event: {name}\n" if name else ""
            lines.append(f"{head}data: {json.dumps(data) if data else '[DONE]'}\n\n")
        self._send("text/event-stream", "".join(lines).encode())

    def _send(self, kind: str, body: bytes, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


_APIS: tuple[tuple[str, Any], ...] = (
    ("/messages", Anthropic),
    ("/responses", Responses),
    ("/chat/completions", Chat),
    ("enerateContent", Gemini),
)
