"""An MCP server with one tool, `envelope_read`, over stdio: for hosts whose results are sealed by a hook.

Strategy: the proxy's own interceptor, in front of a server without tools.
"""

from __future__ import annotations

from typing import IO, Final

from msgspec import UnsetType

from .. import __version__
from ..gateway import Gateway
from ..jsontext.document import encode
from ..proxy import frames
from ..proxy.frames import Frame
from ..proxy.interceptor import Interceptor

_LATEST: Final = "2025-11-25"
_VERSIONS: Final = frozenset({"2024-11-05", "2025-03-26", "2025-06-18", _LATEST})


def serve(gateway: Gateway, requests: IO[bytes], responses: IO[bytes]) -> None:
    """Answer requests, one a line, until there are no more."""
    interceptor = Interceptor(gateway)
    for line in requests:
        waiting = [interceptor.from_client(line.rstrip(b"\r\n"))]
        for outgoing in waiting:
            for frame in outgoing.to_client:
                responses.write(bytes(frame) + b"\n")
            answers = map(_answer, outgoing.to_server)
            waiting += [interceptor.from_server(answer) for answer in answers if answer is not None]
        responses.flush()


def _answer(data: bytes) -> bytes | None:
    """Return the response of a server without tools; None to what asks for none."""
    frame = frames.read(data)
    if frame is None or frame.key is None or isinstance(frame.method, UnsetType):
        return None
    if frame.method == "initialize":
        return frames.response(frame.identifier, encode(_welcome(frame)))
    if frame.method == "tools/list":
        return frames.response(frame.identifier, b'{"tools":[]}')
    if frame.method == "ping":
        return frames.response(frame.identifier, b"{}")
    return frames.failure(frame.identifier, frames.METHOD_NOT_FOUND, "Method not found")


def _welcome(frame: Frame) -> dict[str, object]:
    asked = frames.text_of(frame.param("protocolVersion"))
    return {
        "protocolVersion": asked if asked in _VERSIONS else _LATEST,
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "mcp-envelope", "version": __version__},
    }
