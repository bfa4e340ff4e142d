"""Small pieces of MCP as they look on the wire, for the tools, prompts and resources of the fixture server.

Strategy: plain dictionaries, because that is what the conformance suite looks at; the SDK checks them against the
models of the version that is spoken before it sends them.
"""

from __future__ import annotations

import base64
import io
import struct
import wave
import zlib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import MISSING_REQUIRED_CLIENT_CAPABILITY

Json = dict[str, Any]
Context = ServerRequestContext[Any, Any]


class Call(NamedTuple):
    """One `tools/call` or `prompts/get`."""

    context: Context
    arguments: Mapping[str, Any]
    # What the client answered to the requests of an earlier round, and the state that it brought back.
    answers: Mapping[str, Any]
    state: str | None

    def form(self, key: str) -> Json | None:
        """The form that was filled in for a request; None if there is none."""
        answer = self.answers.get(key)
        content = answer.get("content") if isinstance(answer, dict) else None
        return content if isinstance(content, dict) else None


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def said(words: str, **more: Any) -> Json:
    """A result of a tool that is one text."""
    return {"content": [text(words)], **more}


def embedded(uri: str, mime: str, words: str) -> Json:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime, "text": words}}


def form(**properties: Json) -> Json:
    """A schema for a form in which everything must be filled in."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def ask(message: str, **properties: Json) -> Json:
    return {
        "method": "elicitation/create",
        "params": {"message": message, "requestedSchema": form(**properties)},
    }


def sample(words: str, tokens: int = 100) -> Json:
    messages = [{"role": "user", "content": text(words)}]
    return {"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": tokens}}


def roots() -> Json:
    return {"method": "roots/list", "params": {}}


def wanted(call: Call, requests: Json, state: str | None = None) -> Json | None:
    """A result that asks for what was not answered yet; None if everything was."""
    if all(key in call.answers for key in requests):
        return None
    result: Json = {"resultType": "input_required", "inputRequests": requests}
    return result if state is None else {**result, "requestState": state}


def declared(context: Context) -> Json:
    """The capabilities that the client says it has."""
    capabilities = context.session.client_capabilities
    return (
        {} if capabilities is None else capabilities.model_dump(by_alias=True, mode="json", exclude_none=True)
    )


def missing(message: str, **required: Any) -> MCPError:
    return MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, message, {"requiredCapabilities": required})


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _pixel() -> str:
    """A picture of one red pixel."""
    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    parts = (b"IHDR", header), (b"IDAT", zlib.compress(b"\0\xff\0\0")), (b"IEND", b"")
    png = b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*part) for part in parts)
    return base64.b64encode(png).decode()


def _silence() -> str:
    """A sound of eight samples."""
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as sound:
        sound.setparams((1, 1, 8000, 0, "NONE", "not compressed"))
        sound.writeframes(b"\x80" * 8)
    return base64.b64encode(buffer.getvalue()).decode()


PIXEL: Final = _pixel()
IMAGE: Final[Json] = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
AUDIO: Final[Json] = {"type": "audio", "data": _silence(), "mimeType": "audio/wav"}
