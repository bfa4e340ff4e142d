"""What the adapters share: the settings of a host, and its calls from the arguments to the sealed result.

Strategy: an adapter knows one library, and this module knows none. Results of the official SDK are read and made
through their JSON, which is the same in both generations of the SDK; frameworks differ in which one they need.
An adapter seals the lane that the model is shown, and leaves the other one to the program.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar

import msgspec
from anyio import to_thread
from msgspec import UNSET, Raw, UnsetType

from .. import extras
from ..clients.known import Client
from ..dialects.notice import READ_TOOL
from ..fit.blocks import is_text
from ..gateway import Call, Gateway, Published
from ..jsontext.document import encode, text_block
from ..outcome import Failure
from ..payload import Result
from ..servers.declare import gateway_of

if TYPE_CHECKING:
    from ..config import Settings
    from ..envelope import Sealed
    from ..vault.ledger import Ledger
    from ..vault.vault import Vault

_Model = TypeVar("_Model")
# Anything larger is worked on in a thread: on the event loop it would hold up everybody else.
_LARGE: Final = 1 << 16
_NOTHING: Final = Published()


class Options(TypedDict, total=False):
    """What every adapter takes.

    `budget` is in tokens, `max_bytes` in bytes; a settings file takes precedence. `config` names that file
    (default: the nearest mcp-envelope.toml), and `vault` where whole results are kept (an address, or "none").
    """

    budget: int | None
    max_bytes: int | None
    config: str | os.PathLike[str] | None
    settings: Settings | None
    vault: Vault | str | None
    ledger: Ledger | bool


class _WireResult(msgspec.Struct, rename="camel"):
    content: list[Raw] = []
    structured_content: Raw | UnsetType = UNSET
    is_error: bool | None = False
    meta: Raw | UnsetType = msgspec.field(name="_meta", default=UNSET)


def wire_form(result: Any) -> Result:
    """Return a result of the official SDK as it goes over the wire."""
    wire = msgspec.json.decode(result.model_dump_json(by_alias=True, exclude_none=True), type=_WireResult)
    structured, meta = (
        None if isinstance(each, UnsetType) else bytes(each) for each in (wire.structured_content, wire.meta)
    )
    return Result([bytes(block) for block in wire.content], structured, bool(wire.is_error), meta=meta)


def text_result(text: str, is_error: bool = False) -> Result:
    return Result([text_block(text)], is_error=is_error)


class Host:
    """The gateway of one host, whose model is shown one lane of a result."""

    def __init__(self, client: Client, options: Options) -> None:
        known: dict[str, Any] = {"budget": None, "max_bytes": None, "config": None, "settings": None}
        self.client = client
        self.gateway: Gateway = gateway_of(**(known | dict(options)), server=client.name, token_budget=False)

    @functools.cached_property
    def read_tool(self) -> dict[str, Any]:
        """The list entry of `envelope_read`."""
        return self.gateway.read_tool()

    def call(
        self, tool: str, arguments: Mapping[str, Any] | None = None, published: Published = _NOTHING
    ) -> Call:
        policy = self.gateway.policy(tool, None, self.client)
        return Call(
            tool=tool,
            policy=policy,
            client=self.client,
            arguments=arguments,
            published=published,
            started=time.perf_counter(),
        )

    def restored(self, call: Call) -> dict[str, Any] | Sealed:
        """Return a call's arguments with the originals of masked values, or the failure if there are none."""
        try:
            return dict(self.gateway.restored(dict(call.arguments or {}), call))
        except Failure as failure:
            return self.gateway.seal(failure, call)

    async def finish(self, result: Result, call: Call) -> Sealed | None:
        """Return what the model is shown in place of a result; None if that is the result as it is."""
        finish = functools.partial(self.gateway.finish, result, call)
        return finish() if result.size <= _LARGE else await to_thread.run_sync(finish)

    async def finish_content(self, result: _Model, call: Call) -> _Model:
        """Return an SDK's result with its content sealed: the very object if it fits.

        The structure, which the model isn't shown, stays whole for programs; only secrets are masked in it.
        """
        whole = wire_form(result)
        sealed = await self.finish(Result(whole.content, None, whole.is_error, meta=whole.meta), call)
        kept = whole.structured
        if kept is not None and call.policy.redacts:
            kept = self.gateway.masked(call, bytes(kept))
        if sealed is None and kept is whole.structured:
            return result
        if sealed is None:
            members = {"content": [Raw(bytes(block)) for block in whole.content], "isError": whole.is_error}
        else:
            members = {"content": Raw(sealed.content), "isError": bool(sealed.is_error)}
        meta = {} if whole.meta is None else msgspec.json.decode(bytes(whole.meta))
        if meta := {**meta, **((sealed and sealed.meta) or {})}:
            members["_meta"] = meta
        if kept is not None:
            members["structuredContent"] = Raw(bytes(kept))
        return made(type(result), members)

    async def read(self, arguments: Mapping[str, Any]) -> Sealed:
        """Answer a call of `envelope_read`."""
        given = {name: value for name, value in arguments.items() if value is not None}
        return await to_thread.run_sync(self.gateway.read, given, self.call(READ_TOOL, given))


def structure_as_text(result: _Model) -> _Model:
    """Return an SDK's result with its structure as the text of its content, if it has one and is no failure."""
    whole = wire_form(result)
    if not whole.structured or whole.is_error:
        return result
    others = [Raw(bytes(block)) for block in whole.content if not is_text(block)]
    blocks = [Raw(text_block(bytes(whole.structured).decode())), *others]
    meta = {} if whole.meta is None else {"_meta": Raw(bytes(whole.meta))}
    return made(type(result), {"content": blocks, **meta})


def made(kind: type[_Model], result: Mapping[str, Any]) -> _Model:
    """Return a result of the official SDK from its members on the wire."""
    model: Any = kind
    return model.model_validate_json(encode(dict(result)))


def missing_library(library: str, error: ImportError) -> ImportError:
    """Return an error that says what to install, for `raise … from error`."""
    words = f"{library} is needed here ({extras.state(library, error)})"
    return ImportError(words, name=error.name, path=error.path)
