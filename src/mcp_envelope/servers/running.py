"""A tool's function while it runs: what it returns is taken before the library turns it into a result.

Strategy: an adapter opens a `Run` for a call and wraps the function of a tool once. The wrapper finds the run in
a context variable, which goes along into worker threads. Outcomes (`Reply`, `Miss`), items that are yielded, and
values that are certainly too large are sealed at once, from the value itself and in the tool's own thread. All
else is left to the library, so that what fits is what the library makes of it.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, Final, Protocol

from msgspec.structs import replace

from ..context import CallContext, call_context
from ..front import Call, Declared, Front, Published
from ..job import most_bytes
from ..outcome import Failure, Miss, Reply
from ..payload import Payload, PayloadError, read_payload
from ..sealed import Sealed

_log = logging.getLogger("mcp_envelope")
_TINY: Final = 1024


class Library(Protocol):
    """What an adapter knows of one tool, in terms of its library."""

    def is_result(self, value: object) -> bool:
        """Whether this is a result already, or something else that is not data: blocks, input to ask for."""
        ...

    def to_json(self, value: Any) -> bytes:
        """The value as the library would write it into `structuredContent`, without a member around it."""
        ...

    def item_to_json(self, item: Any) -> bytes:
        """The same for one of the items that a tool yields."""
        ...

    # Whether the library puts this tool's values into a member `result`.
    wraps: bool
    # Whether the library makes a structured lane of this tool's values that are no objects.
    structures: bool

    # What the tool declared, and what clients were told of its results.
    declared: Declared

    @property
    def published(self) -> Published: ...

    def of(self, sealed: Sealed, call: Call) -> Any:
        """A sealed result, as something that the library passes on as it is."""
        ...


class Run:
    """One call that is running. `context` gathers what the tool's code says besides."""

    def __init__(self, front: Front, call: Call) -> None:
        self.front = front
        self.call = call
        self.context = CallContext()
        # The budget that the call asked for, if it did.
        self.requested: object = None

    @property
    def has_words(self) -> bool:
        """Whether something was said that has to travel with the result."""
        return self.context != _SILENT

    def seal(self, payload: Any, **more: Any) -> Sealed:
        with call_context(self.context):
            return self.front.seal(payload, self.call, **more)

    def know(self, declared: Declared, published: Published) -> None:
        """What is found out about the tool when it is reached: its own settings apply from here on."""
        call = self.call
        policy = call.policy
        if declared is not call.declared and declared != Declared():
            policy = self.front.policy(call.tool, self.requested, call.client, declared)
        self.call = replace(call, declared=declared, published=published, policy=policy)

    def fits(self, content: Sequence[bytes], structured: bytes | None) -> bool:
        """Whether a result can certainly go out as it is, without a closer look."""
        policy = self.call.policy
        size = max(sum(map(len, content)) + len(content) + 1, len(structured or b""))
        budget = policy.budget
        if policy.dialect != "native" or self.has_words or policy.include_only or policy.exclude_fields:
            return False
        if self.call.published.wrap and structured is not None:
            return False
        if budget is not None and size > budget.limit:
            return False
        if policy.redact and self._has_secrets(content, structured):
            return False
        self.front.untouched(self.call, size)
        return True

    def _has_secrets(self, content: Sequence[bytes], structured: bytes | None) -> bool:
        from .. import treatment

        using = treatment.redactor(tuple(self.call.policy.redact_patterns.items()))
        # A text that is escaped holds the same words; only the closer look tells for sure.
        return any(using.may_find(part) for part in (*content, *([] if structured is None else [structured])))

    def finish(self, value: Any, library: Library) -> Any:
        """What the library should get instead of a returned value: the value itself, or a sealed result."""
        self.know(library.declared, library.published)
        if isinstance(value, Reply | Miss):
            return library.of(self.seal(self._unfolded(value, library)), self.call)
        if library.is_result(value):
            return value
        # A dialect, or words that travel along, need the value itself. Otherwise only what cannot fit is taken.
        must = self.has_words or not self.call.is_native
        payload: Payload | None = None
        if isinstance(value, str):
            if must or len(value) > self.most:
                payload = self._text(value, library)
        elif must or not _is_tiny(value):
            written = library.to_json(value)
            if must or len(written) > self.most:
                payload = self._document(written, library)
        return value if payload is None else library.of(self.seal(payload), self.call)

    def failed(self, failure: Failure, library: Library) -> Any:
        """A failure that the tool's author foresaw; the library need not log it as a crash."""
        self.know(library.declared, library.published)
        return library.of(self.seal(failure), self.call)

    @property
    def most(self) -> int:
        """A payload of more bytes is certainly over the budget."""
        budget = self.call.policy.budget
        return 1 << 60 if budget is None else most_bytes(budget)

    def _unfolded(self, value: Any, library: Library) -> Any:
        """A reply whose data is written as the library writes it."""
        if isinstance(value, Reply) and value.data is not None and not isinstance(value.data, str):
            if library.is_result(value.data):
                return value
            try:
                payload = self._document(library.to_json(value.data), library)
            except PayloadError:
                return value
            return _with_data(value, payload)
        if isinstance(value, Reply) and isinstance(value.data, str):
            return _with_data(value, self._text(value.data, library))
        return value

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


_SILENT: Final = CallContext()
running: Final[ContextVar[Run | None]] = ContextVar("mcp_envelope_run", default=None)


def wrapped(function: Callable[..., Any], library: Library) -> Callable[..., Any]:
    """The function of a tool, with its outcome taken. Outside of a run it is as it was."""
    if inspect.iscoroutinefunction(_bare(function)):

        @functools.wraps(function)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            run = running.get()
            if run is None:
                return await function(*args, **kwargs)
            try:
                with call_context(run.context):
                    value = await function(*args, **kwargs)
                    return await _settled(run, value, library)
            except Failure as failure:
                return run.failed(failure, library)

        return awaited

    if inspect.isasyncgenfunction(_bare(function)):

        @functools.wraps(function)
        async def gathered(*args: Any, **kwargs: Any) -> Any:
            run = running.get()
            items = function(*args, **kwargs)
            if run is None:
                return [item async for item in items]
            try:
                with call_context(run.context):
                    return await _settled(run, items, library)
            except Failure as failure:
                return run.failed(failure, library)

        return gathered

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        run = running.get()
        if run is None:
            value = function(*args, **kwargs)
            return list(value) if inspect.isgenerator(value) else value
        try:
            with call_context(run.context):
                value = function(*args, **kwargs)
                if inspect.isgenerator(value):
                    from .yielding import gather

                    return gather(run, value, library)
            return value if inspect.isawaitable(value) else run.finish(value, library)
        except Failure as failure:
            return run.failed(failure, library)

    return called


async def _settled(run: Run, value: Any, library: Library) -> Any:
    if inspect.isasyncgen(value):
        from .yielding import gather_async

        return await gather_async(run, value, library)
    if inspect.isgenerator(value):
        from .yielding import gather

        return gather(run, value, library)
    if _is_tiny(value):
        return run.finish(value, library)
    # Writing megabytes, cutting and storing them would hold up everybody else on the event loop.
    from anyio import to_thread

    return await to_thread.run_sync(run.finish, value, library)


def _bare(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _is_tiny(value: object) -> bool:
    """Whether a value is certainly small; a look at its top only."""
    if value is None or isinstance(value, bool | int | float):
        return True
    if isinstance(value, str):
        return len(value) <= _TINY
    if type(value) is dict:
        return len(value) <= 16 and all(_is_scalar(member) for member in value.values())
    if type(value) is list:
        return len(value) <= 16 and all(_is_scalar(item) for item in value)
    return False


def _is_scalar(value: object) -> bool:
    return (
        value is None
        or isinstance(value, bool | int | float)
        or (isinstance(value, str) and len(value) < 256)
    )


def _with_data(reply: Reply, payload: Payload) -> Reply:
    import dataclasses

    return dataclasses.replace(reply, data=payload)
