"""A call while it runs: what its tool returns is taken before the library turns it into a result.

Strategy: an adapter opens a `Run` for a call and wraps the function of a tool once. The wrapper finds the run in
a context variable, which goes along into worker threads, and takes it away from the tool's own code, so that
calls from inside a tool are calls of their own. Outcomes (`Reply`, `Miss`, `Failure`), items that are yielded, and
values that are certainly too large are sealed at once, from the value itself and in the tool's own thread. All
else is left to the library, so that what fits is what the library makes of it.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from anyio.lowlevel import checkpoint_if_cancelled
from msgspec.structs import replace

from ..context import CallContext, call_context, entered, left
from ..front import Call, Declared, Front, Published
from ..job import most_bytes
from ..outcome import Failure, Miss, Reply
from ..payload import Payload, PayloadError, read_payload
from ..sealed import Sealed
from ..sharing import halved, is_shared, shared
from ..vault.store import StoreError
from .once import holds_iterator
from .results import (
    bad_result,
    blocks_of,
    most_repeated,
    problem,
    repeated_size,
    shown_by_library,
    structured_of,
)
from .sizes import looks_small

if TYPE_CHECKING:
    from ..budget import Budget
    from .library import Library

_log = logging.getLogger("mcp_envelope")
# Results of more bytes are worked on in a thread of their own: they would hold up everybody on the event loop.
LARGE: Final = 1 << 16
_WRAPPED: Final = "__mcp_envelope_wrapped__"


class Run:
    """One call that is running. `context` gathers what the tool's code says besides."""

    def __init__(
        self, front: Front, call: Call, requested: object = None, warned: set[str] | None = None
    ) -> None:
        self.front = front
        self.call = call
        self.context = CallContext()
        # The budget that the call asked for, if it did.
        self._requested = requested
        # Tools whose hand-made results were warned of; None if nobody wants to know.
        self._warned = warned
        self._stored: list[str] = []
        self._budget: Budget | None = call.policy.budget
        # Whether the tool is known: its own settings, and what clients were told of it.
        self.is_known = False
        # Whether the tool did its part, and the library has the value.
        self.has_returned = False
        # Whether a result was put into an envelope.
        self.has_sealed = False
        # Whether the tool is the called server's own function.
        self.is_direct = False
        # What the library made of the tool's value: one text that says again what the structure says.
        self.plain: object = None
        # The value, if it was looked at and left to the library.
        self.payload: Payload | None = None

    def __enter__(self) -> None:
        """Around everything that a call does. Whoever is interrupted leaves nothing in the vault."""
        self._token = running.set(self)
        self._inner = entered(self.context)

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        left(self._inner)
        running.reset(self._token)
        if error is not None:
            self.discard()

    def discard(self) -> None:
        """Nobody will hear of what was stored."""
        if self._stored and (vault := self.front.vault) is not None:
            for handle in self._stored:
                with suppress(StoreError):
                    vault.delete(handle, self.call.owner)

    async def still_wanted(self) -> None:
        """A thread that was not interrupted may have stored what nobody waits for any more: then this raises."""
        if self._stored:
            await checkpoint_if_cancelled()

    def know(self, declared: Declared, published: Published, tool: str = "") -> None:
        """What is found out about the tool when it is reached: its own settings apply from here on."""
        call = self.call
        policy = call.policy
        if not call.tool and tool:
            # The result of a task, which says only now whose it is.
            call = replace(call, tool=tool)
        if declared != _UNDECLARED or call is not self.call:
            policy = self.front.policy(call.tool, self._requested, call.client, declared)
            self._budget = policy.budget
        self.call = replace(call, declared=declared, published=published, policy=policy)
        self.is_known = True

    # -- what leaves ----------------------------------------------------------------------------------------

    @property
    def speaks(self) -> bool:
        """Whether even a result that fits is changed: it has a shape of the dialect's, or words go with it."""
        return not (self.context.is_silent and self.call.is_quiet)

    @property
    def most(self) -> int:
        """A payload of more bytes is certainly over the budget."""
        return 1 << 60 if self._budget is None else most_bytes(self._budget)

    def fits(self, result: Any, is_plain: bool = False) -> tuple[list[bytes], bytes | None] | None:
        """None if a result of the library can go out as it is; else its two lanes, written.

        `is_plain` tells that it is `plain`, and that nobody had it in their hands meanwhile.
        """
        value, is_error = result.structured_content, bool(result.is_error)
        speaks = self.speaks
        is_usual = not speaks and self.call.span is None and not is_shared(self.call)
        if is_plain and is_usual:
            # The usual result by the shortest way.
            most = most_repeated(said := result.content[0].text)
            if self._budget is not None and most <= self._budget.limit and not self.call.published.wrap:
                if self.front.passes(self.call, said, most // 2):
                    return None
        structured = structured_of(value)
        if is_usual:
            # The usual result by the shortest way.
            size = repeated_size(result.content, result.structured_content, structured)
            if size is not None and self._budget is not None and size <= self._budget.limit:
                if self.front.fits(self.call, (), structured, len(structured or b""), is_error):
                    return None
        content = blocks_of(result.content)
        size = max(sum(map(len, content)) + len(content) + 1, len(structured or b""))
        call = shared(self.call, content, structured)
        if not speaks and self.front.fits(call, content, structured, size, is_error):
            return None
        return content, structured

    def seal(self, payload: Any, **more: Any) -> Sealed:
        call = halved(self.call) if is_shared(self.call) and _has_structure(payload) else self.call
        with call_context(self.context):
            sealed = self.front.seal(payload, call, **more)
        self.has_sealed = True
        if sealed.handle is not None:
            self._stored.append(sealed.handle)
        return sealed

    async def seal_aside(self, payload: Payload, **more: Any) -> Sealed:
        """The same from the event loop, which is not held up by it."""
        if payload.size <= LARGE:
            return self.seal(payload, **more)
        from anyio import to_thread

        return await to_thread.run_sync(functools.partial(self.seal, payload, **more))

    def failure(self, error: BaseException, arguments: Mapping[str, Any]) -> Sealed:
        """Whatever was raised, as far as a caller may know of it. What passes through is raised again."""
        if self.has_returned and isinstance(error, ValueError | TypeError | RecursionError):
            # The tool was done: the library could make nothing of what it returned.
            return self.seal(bad_result(error))
        return self.seal(problem(error, arguments))

    # -- what a tool returned -------------------------------------------------------------------------------

    def leaves(self, value: Any) -> bool:
        """Whether a value is plain data that is left to the library at once."""
        if type(value) is not dict or self.speaks or not looks_small(value):
            return False
        self.has_returned = True
        return True

    def finish(self, value: Any, library: Library, looks_small: bool = False) -> Any:
        """What the library should get instead of a returned value: the value itself, or a sealed result."""
        try:
            return self._finish(value, library, looks_small)
        except PayloadError as error:
            return self.failed(error, library)

    async def finish_aside(self, value: Any, library: Library) -> Any:
        """The same from the event loop, which is not held up by it."""
        data = value.data if isinstance(value, Reply) else value
        is_small = looks_small(data)
        if is_small or library.is_result(data):
            return self.finish(value, library, is_small)
        # Writing megabytes, cutting and storing them would hold up everybody else.
        from anyio import to_thread

        return await to_thread.run_sync(self.finish, value, library)

    def _finish(self, value: Any, library: Library, is_small: bool) -> Any:
        self.has_returned = True
        if isinstance(value, Reply | Miss):
            return library.of(self.seal(self._unfolded(value, library)), self.call)
        if library.is_result(value):
            self._warn_of(value, library)
            return value
        speaks = self.speaks
        if isinstance(value, str):
            self._warn_of(value, library)
            if speaks or len(value) > self.most:
                return library.of(self.seal(self._text(value, library)), self.call)
            return value
        if not speaks and (self._budget is None or is_small or looks_small(value)):
            return value
        # Writing uses up what can be read only once.
        is_once = not speaks and holds_iterator(value, self.most)
        try:
            written = library.to_json(value)
        except PayloadError:
            if speaks:
                raise
            # The library may have another way to show it.
            return value
        payload = self._document(written, library)
        if not speaks and len(written) <= self.most:
            self.payload = payload
            return library.again(value, written) if is_once else value
        return library.of(self.seal(payload), self.call)

    def failed(self, failure: Failure | PayloadError, library: Library) -> Any:
        """A failure that the tool's author foresaw, or an item that cannot be sent: no crash for the logs."""
        told = failure if isinstance(failure, Failure) else bad_result(failure)
        return library.of(self.seal(told), self.call)

    def _unfolded(self, value: Reply | Miss, library: Library) -> Any:
        """A reply whose data is written as the library writes it."""
        if not isinstance(value, Reply) or value.data is None:
            return value
        if library.is_result(value.data) and not isinstance(value.data, bytes):
            return _with_data(value, shown_by_library(value.data))
        text = isinstance(value.data, str)
        payload = (
            self._text(value.data, library) if text else self._document(library.to_json(value.data), library)
        )
        return _with_data(value, payload)

    def _document(self, written: bytes, library: Library) -> Payload:
        if library.wraps and self.call.is_native:
            written = b'{"result":%b}' % written
        payload = read_payload(written, "json")
        assert payload.node is not None
        if payload.node.kind != "object" and self.call.is_native and not library.structures:
            # The library would show it as text alone.
            return Payload(text=written)
        return payload

    def _text(self, value: str, library: Library) -> Payload:
        if library.wraps and self.call.is_native:
            return read_payload({"result": value})
        return read_payload(value, "text")

    def _warn_of(self, value: object, library: Library) -> None:
        tool = self.call.tool
        if self._warned is None or tool in self._warned or not library.is_hand_made(value):
            return
        self._warned.add(tool)
        _log.warning(
            "mcp-envelope: the tool %s makes its result by hand (%s); return the data, a Reply, or raise a "
            "Failure. `mcp-envelope lint` finds such places.",
            tool,
            type(value).__name__,
        )


_UNDECLARED: Final = Declared()
running: Final[ContextVar[Run | None]] = ContextVar("mcp_envelope_run", default=None)


def _has_structure(payload: Any) -> bool:
    data = payload.data if isinstance(payload, Reply) else payload
    return isinstance(data, Payload) and data.node is not None


def is_wrapped(function: object) -> bool:
    return getattr(function, _WRAPPED, False) is True


def wrapped(function: Callable[..., Any], library: Library) -> Callable[..., Any]:
    """The function of a tool, with its outcome taken. Outside of a run it gives the plain data."""
    bare = _bare(function)
    made: Callable[..., Any]
    if inspect.iscoroutinefunction(bare):

        async def awaited(*args: Any, **kwargs: Any) -> Any:
            run = running.get()
            if run is None:
                return await _settled(function(*args, **kwargs), library)
            token = running.set(None)
            try:
                value = await function(*args, **kwargs)
            except (Failure, PayloadError) as failure:
                return run.failed(failure, library)
            finally:
                running.reset(token)
            # What tools return most, by the shortest way.
            return value if run.leaves(value) else await _later(run, _itself(value), library)

        made = awaited
    elif inspect.isasyncgenfunction(bare):

        async def gathered(*args: Any, **kwargs: Any) -> Any:
            return await _settled(_itself(function(*args, **kwargs)), library)

        made = gathered
    else:

        def called(*args: Any, **kwargs: Any) -> Any:
            run = running.get()
            if run is None:
                return _plain(function(*args, **kwargs))
            token = running.set(None)
            try:
                value = function(*args, **kwargs)
                if library.is_yielded(value):
                    from .yielding import gather

                    return gather(run, value, library)
            except (Failure, PayloadError) as failure:
                return run.failed(failure, library)
            finally:
                running.reset(token)
            return _later(run, value, library) if inspect.isawaitable(value) else run.finish(value, library)

        made = called
    functools.update_wrapper(made, function)
    if not hasattr(function, "__annotations__"):
        # A partial has none of its own: the library goes by its signature.
        made.__annotations__ = {}
    setattr(made, _WRAPPED, True)
    return made


async def _settled(outcome: Awaitable[Any], library: Library) -> Any:
    run = running.get()
    if run is None:
        value = await outcome
        return [item async for item in value] if inspect.isasyncgen(value) else _plain(value)
    return await _later(run, outcome, library)


async def _later(run: Run, outcome: Awaitable[Any], library: Library) -> Any:
    token = running.set(None)
    try:
        value = await outcome
        if inspect.isasyncgen(value):
            from .yielding import gather_async

            return await gather_async(run, value, library)
        if library.is_yielded(value):
            from .yielding import gather

            return gather(run, value, library)
    except (Failure, PayloadError) as failure:
        return run.failed(failure, library)
    finally:
        running.reset(token)
    return await run.finish_aside(value, library)


async def _itself(value: Any) -> Any:
    return value


def _bare(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _plain(value: Any) -> Any:
    """For a caller that has no envelope: another tool's code, a test."""
    if isinstance(value, Reply):
        return value.data
    return {"found": False, "hint": value.hint} if isinstance(value, Miss) else value


def _with_data(reply: Reply, payload: Payload) -> Reply:
    import dataclasses

    return dataclasses.replace(reply, data=payload)
