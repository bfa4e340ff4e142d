"""A call while it runs: what its tool returns is taken before the library turns it into a result.

Strategy: an adapter opens a `Run` for each call and wraps the function of each tool once. The wrapper finds the
run in a context variable, which follows the call into worker threads, and hides it from the tool's own code, so
that calls made inside a tool are calls of their own. Outcomes (`Reply`, `Miss`, `Failure`), items that are
yielded, and values that are certainly too large are sealed at once, from the value itself and in the tool's own
thread. Everything else is left to the library, and `Gateway.finish` decides about the result that the library
made of it.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, ClassVar, Final, Literal

from anyio import to_thread
from anyio.lowlevel import checkpoint_if_cancelled
from msgspec.structs import replace

from ..clients.known import UNKNOWN, Client, era_of
from ..clients.known import client as known_client
from ..codes import CATALOGUE, Problem
from ..envelope import Sealed
from ..errors import is_protocol_error, problem_of
from ..gateway import Call, Declared, Gateway, Published, shares_budget
from ..outcome import Failure, Miss, Remarks, Reply, client_request_id, enter_remarks, leave_remarks
from ..payload import Payload, PayloadError, read_payload
from ..scrubbing import given, scrub_line
from ..tracing import current_span
from ..vault.store import StoreError
from .declare import NOTHING_DECLARED
from .generators import gather, gather_async
from .values import (
    BLOCKS,
    has_blocks,
    holds_iterator,
    is_json_text,
    looks_small,
    payload_of,
    text_lane_bound,
    wire_form,
)

_log = logging.getLogger("mcp_envelope")
# Anything larger is worked on in a thread: on the event loop it would hold up everybody else.
_LARGE: Final = 1 << 16
_WRAPPED: Final = "__mcp_envelope_wrapped__"
_CANNOT_WRITE: Final = "the result cannot be written as JSON: "
_NOTHING_PUBLISHED: Final = Published()


@functools.lru_cache(256)
def _client(name: str, version: str, protocol: str | None) -> Client:
    return known_client(name, version, era_of(protocol))


def owner_of(request: Any) -> str | None:
    """Over HTTP, what was stored for one credential is not found with another."""
    headers = getattr(getattr(request, "request", None), "headers", None)
    return None if headers is None else headers.get("authorization")


def call_of(
    request: Any,
    tool: str,
    gateway: Gateway,
    declared: Declared = NOTHING_DECLARED,
    promised: tuple[Mapping[str, Any] | None, bool, bool] | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> Call:
    """Describe a call by the SDK's request context; there is none if a server is called from Python.

    `promised` is what `Gateway.publish` needs to know of the tool's results.
    """
    try:
        info = request.session.client_params.client_info
        client = _client(info.name, info.version or "", request.protocol_version)
        client = client.asking(getattr(request, "meta", None))
    except AttributeError:
        client = UNKNOWN
    policy = gateway.policy(tool, None, client, None if declared is NOTHING_DECLARED else declared)
    owner = owner_of(request)
    return Call(
        tool=tool,
        policy=policy,
        client=client,
        owner=owner,
        request_id=client_request_id(getattr(request, "meta", None)),
        arguments=arguments,
        declared=declared,
        published=_NOTHING_PUBLISHED if promised is None else gateway.publisher.of(policy.shape, *promised),
        started=time.perf_counter(),
        span=current_span(),
        remarks=Remarks(keeper=functools.partial(gateway.keeping, owner)),
    )


class Converter(ABC):
    """How one tool's values become results in an adapter's library."""

    # Whole results of the library, and whatever else it shows as it is. Bytes are not data either.
    results: ClassVar[tuple[type, ...]]
    # The library's helpers for images, sounds and files.
    helpers: ClassVar[tuple[type, ...]]
    # Whether the library puts this tool's values into a member `result`.
    wraps: bool = False
    # Whether the library makes a structured lane of this tool's values that are not objects.
    structures: bool = False
    # Tools whose hand-made results were warned of; None if nobody wants to know.
    warned: set[str] | None = None

    def is_result(self, value: object) -> bool:
        """Whether this is a result already, or something else that is not data, such as content blocks."""
        return isinstance(value, (*self.results, bytes)) or has_blocks(value, (*BLOCKS, *self.helpers))

    def is_hand_made(self, value: object) -> bool:
        """Whether the tool's author made a whole result."""
        return is_json_text(value) or has_blocks(value, BLOCKS)

    @abstractmethod
    def to_json(self, value: Any) -> bytes:
        """Return a value as the library would write it into `structuredContent`, without a member around it."""

    @abstractmethod
    def item_to_json(self, item: Any) -> bytes:
        """Return an item that the tool yielded as the library would write it."""

    @abstractmethod
    def is_yielded(self, value: object) -> bool:
        """Whether a value is to be read item by item."""

    @abstractmethod
    def from_items(self, values: list[Any]) -> Any:
        """Return a value of which the library makes what it would have made of the iterator."""

    @abstractmethod
    def reread(self, value: Any, written: bytes) -> Any:
        """Return what the library gets in place of a value whose iterators writing has used up."""

    @abstractmethod
    def to_result(self, sealed: Sealed, call: Call) -> Any:
        """Return a sealed result as something that the library passes on as it is."""


class Run:
    """One call that is running."""

    __slots__ = (
        "_inner",
        "_stored",
        "_token",
        "call",
        "gateway",
        "payload",
        "plain",
        "plain_size",
        "requested",
        "stage",
        "tool",
    )

    def __init__(self, gateway: Gateway, call: Call, requested: object = None) -> None:
        self.gateway = gateway
        self.call = call
        # The budget that the call asked for, if it did.
        self.requested = requested
        # The tool that was found for the call.
        self.tool: object = None
        self.stage: Literal["running", "returned", "sealed"] = "running"
        # The library's result, if it is one text block that repeats the structure, both made from a dictionary.
        self.plain: Any = None
        # The bytes of its text, if they were counted on the way.
        self.plain_size = 0
        # The value as the library would write it, if it was written to be measured and then left to the library.
        self.payload: Payload | None = None
        self._stored: list[str] = []

    def __enter__(self) -> None:
        """Enter everything that a call does. A call that is interrupted leaves nothing in the vault."""
        self._token = running.set(self)
        self._inner = enter_remarks(self.call.remarks or Remarks())

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        leave_remarks(self._inner)
        running.reset(self._token)
        if error is not None:
            self.discard()

    def discard(self) -> None:
        """Delete what was stored: nobody will hear of it."""
        if self._stored and (vault := self.gateway.vault) is not None:
            for handle in self._stored:
                with suppress(StoreError):
                    vault.delete(handle, self.call.owner)

    async def check_cancelled(self) -> None:
        """Raise if nobody waits any more for what a thread, which can't be interrupted, has stored."""
        if self._stored:
            await checkpoint_if_cancelled()

    def found(self, tool: object, name: str, declared: Declared, published: Published) -> None:
        """Take in what is known of a tool once it was looked up: its own settings apply from here on."""
        if self.tool is None:
            # The first server that is asked is the one that was called; a mounted one is asked later.
            self.tool = tool
        call = self.call
        policy = call.policy
        if declared is not NOTHING_DECLARED or not call.tool:
            # The result of a task says only now which tool's it is.
            policy = self.gateway.policy(call.tool or name, self.requested, call.client, declared)
        self.call = replace(
            call, tool=call.tool or name, declared=declared, published=published, policy=policy
        )

    # -- the library's result ---------------------------------------------------------------------------------

    def passes(self, result: Any) -> bool:
        """Whether a result is `plain` and goes out as it is: the usual result, by the shortest way."""
        if self.plain is None or result is not self.plain:
            return False
        call = self.call
        budget = call.policy.budget
        if budget is None or call.span is not None or call.published.wrap or shares_budget(call):
            return False
        text = self.plain.content[0].text
        bound = text_lane_bound(text, self.plain_size)
        return budget.is_certain_size(bound) and self.gateway.passes_text(text, bound // 2, call)

    async def finish(self, result: Any, instead: Payload | None = None) -> Sealed | None:
        """Return what goes out in place of a library's result; None if the result goes out as it is.

        `instead` is sealed in place of a result that does not fit.
        """
        call, gateway = self.call, self.gateway
        answer = wire_form(result)
        if instead is not None and gateway.passes(answer, call):
            return None
        finish = functools.partial(gateway.finish, instead or answer, call)
        sealed = finish() if answer.size <= _LARGE else await to_thread.run_sync(finish)
        return None if sealed is None else self._note(sealed)

    # -- what a tool returned or raised -----------------------------------------------------------------------

    def seal(self, payload: Any, **more: Any) -> Sealed:
        return self._note(self.gateway.seal(payload, self.call, **more))

    def _note(self, sealed: Sealed) -> Sealed:
        self.stage = "sealed"
        if sealed.handle is not None:
            self._stored.append(sealed.handle)
        return sealed

    def passes_on(self, number: int, message: str, is_known: bool = True) -> bool:
        """Whether a protocol error goes out as one: in our own shape, and if it is about the request."""
        return self.call.is_native or is_protocol_error(number, message, is_known)

    def fail(self, error: BaseException, arguments: Mapping[str, Any], is_logged: bool = False) -> Sealed:
        """Seal whatever was raised, as far as a caller may know of it. What passes through is raised again.

        `is_logged` says that the library has logged it with its traceback.
        """
        if isinstance(error, Failure):
            return self.seal(error)
        if self.stage != "running" and isinstance(error, ValueError | TypeError | RecursionError):
            # The tool was done: the library could make nothing of what it returned.
            return self.seal(_bad_result(error))
        phrases = self.call.policy.errors
        problem = problem_of(error, known=given(arguments), is_logged=is_logged, phrases=phrases)
        return self.seal(_failure(problem, error))

    def fail_expected(self, failure: Failure | PayloadError, converter: Converter) -> Any:
        """Seal a failure that the tool's author foresaw, or an item that can't be sent: neither is a crash."""
        shown = failure if isinstance(failure, Failure) else _bad_result(failure)
        return converter.to_result(self.seal(shown), self.call)

    def leaves(self, value: Any) -> bool:
        """Whether a value is plain data that is left to the library at once."""
        if type(value) is not dict or not self.call.is_quiet or not looks_small(value):
            return False
        if self.stage == "running":
            self.stage = "returned"
        return True

    def take(self, value: Any, converter: Converter, is_small: bool = False) -> Any:
        """Return what the library gets in place of a returned value: the value itself, or a sealed result."""
        try:
            return self._take(value, converter, is_small)
        except PayloadError as error:
            return self.fail_expected(error, converter)

    async def take_aside(self, value: Any, converter: Converter) -> Any:
        """Do the same from the event loop, without holding it up."""
        data = value.data if isinstance(value, Reply) else value
        is_small = looks_small(data)
        if is_small or converter.is_result(data):
            return self.take(value, converter, is_small)
        return await to_thread.run_sync(self.take, value, converter)

    def _take(self, value: Any, converter: Converter, is_small: bool) -> Any:
        if self.stage == "running":
            self.stage = "returned"
        if isinstance(value, Reply | Miss):
            return converter.to_result(self.seal(self._with_payload(value, converter)), self.call)
        if converter.is_result(value):
            self._warn_of(value, converter)
            return value
        is_quiet, budget = self.call.is_quiet, self.call.policy.budget
        if isinstance(value, str):
            self._warn_of(value, converter)
            if is_quiet and (budget is None or len(value) <= budget.most_bytes):
                return value
            return converter.to_result(self.seal(self._text(value, converter)), self.call)
        if is_quiet and (budget is None or is_small or looks_small(value)):
            return value
        has_iterator = is_quiet and holds_iterator(value, self.most_bytes)
        try:
            written = converter.to_json(value)
        except PayloadError:
            if not is_quiet:
                raise
            # The library may have another way to show it.
            return value
        payload = self._document(written, converter)
        if is_quiet and len(written) <= self.most_bytes:
            self.payload = payload
            return converter.reread(value, written) if has_iterator else value
        return converter.to_result(self.seal(payload), self.call)

    @property
    def most_bytes(self) -> int:
        """A payload of more bytes is certainly over the budget."""
        budget = self.call.policy.budget
        return 1 << 60 if budget is None else budget.most_bytes

    def _with_payload(self, value: Reply | Miss, converter: Converter) -> Reply | Miss:
        """Return a reply whose data is written as the library writes it."""
        if not isinstance(value, Reply) or value.data is None:
            return value
        data = value.data
        if isinstance(data, str):
            payload = self._text(data, converter)
        elif converter.is_result(data) and not isinstance(data, bytes):
            payload = payload_of(data)
        else:
            payload = self._document(converter.to_json(data), converter)
        return dataclasses.replace(value, data=payload)

    def _document(self, written: bytes, converter: Converter) -> Payload:
        if converter.wraps and self.call.is_native:
            written = b'{"result":%b}' % written
        payload = read_payload(written, "json")
        assert payload.node is not None
        if payload.node.kind != "object" and self.call.is_native and not converter.structures:
            # The library would show it as text alone.
            return Payload(text=written)
        return payload

    def _text(self, value: str, converter: Converter) -> Payload:
        if converter.wraps and self.call.is_native:
            return read_payload({"result": value})
        return read_payload(value, "text")

    def _warn_of(self, value: object, converter: Converter) -> None:
        tool, warned = self.call.tool, converter.warned
        if warned is None or tool in warned or not converter.is_hand_made(value):
            return
        warned.add(tool)
        _log.warning(
            "mcp-envelope: the tool %s makes its result by hand (%s); return the data, a Reply, or raise a "
            "Failure. `mcp-envelope lint` finds such places.",
            tool,
            type(value).__name__,
        )


running: Final[ContextVar[Run | None]] = ContextVar("mcp_envelope_run", default=None)


# -- functions of tools ---------------------------------------------------------------------------------------


def is_wrapped(function: object) -> bool:
    return getattr(function, _WRAPPED, False) is True


def wrapped(function: Callable[..., Any], converter: Converter) -> Callable[..., Any]:
    """Wrap the function of a tool, so that its outcome is taken. Outside of a run it returns the plain data."""
    bare = function
    while isinstance(bare, functools.partial):
        bare = bare.func
    made: Callable[..., Any]
    if inspect.iscoroutinefunction(bare):

        async def awaited(*args: Any, **kwargs: Any) -> Any:
            run = running.get()
            token = running.set(None)
            try:
                value = await function(*args, **kwargs)
            except (Failure, PayloadError) as failure:
                if run is None:
                    raise
                return run.fail_expected(failure, converter)
            finally:
                running.reset(token)
            return value if run is not None and run.leaves(value) else await _returned(run, value, converter)

        made = awaited
    elif inspect.isasyncgenfunction(bare):

        async def gathered(*args: Any, **kwargs: Any) -> Any:
            return await _returned(running.get(), function(*args, **kwargs), converter)

        made = gathered
    else:

        def called(*args: Any, **kwargs: Any) -> Any:
            run = running.get()
            if run is None:
                return _plain(function(*args, **kwargs))
            token = running.set(None)
            try:
                value = function(*args, **kwargs)
                if converter.is_yielded(value):
                    return gather(run, value, converter)
            except (Failure, PayloadError) as failure:
                return run.fail_expected(failure, converter)
            finally:
                running.reset(token)
            return (
                wrapped(_result_of(value), converter)()
                if inspect.isawaitable(value)
                else run.take(value, converter)
            )

        made = called
    functools.update_wrapper(made, function)
    if inspect.ismethod(function):
        # Whoever looks for what is wrapped may go past the bound method, and ask for `self`.
        made.__signature__ = inspect.signature(function)  # type: ignore[union-attr]
    if not hasattr(function, "__annotations__"):
        # A partial has none of its own: the library goes by its signature.
        made.__annotations__ = {}
    setattr(made, _WRAPPED, True)
    return made


def _result_of(outcome: Awaitable[Any]) -> Callable[[], Awaitable[Any]]:
    async def awaited() -> Any:
        return await outcome

    return awaited


async def _returned(run: Run | None, value: Any, converter: Converter) -> Any:
    """Take what an asynchronous function returned."""
    if run is None:
        return [item async for item in value] if inspect.isasyncgen(value) else _plain(value)
    token = running.set(None)
    try:
        if inspect.isasyncgen(value):
            return await gather_async(run, value, converter)
        if converter.is_yielded(value):
            return gather(run, value, converter)
    except (Failure, PayloadError) as failure:
        return run.fail_expected(failure, converter)
    finally:
        running.reset(token)
    return await run.take_aside(value, converter)


def _plain(value: Any) -> Any:
    """Return the data for a caller without an envelope, such as another tool's code or a test."""
    if isinstance(value, Reply):
        return value.data
    return {"found": False, "hint": value.hint} if isinstance(value, Miss) else value


# -- failures -------------------------------------------------------------------------------------------------


def raised_in_body(error: BaseException, arguments: Mapping[str, Any]) -> BaseException:
    """Return the error to report for one that a tool's own code raised.

    A model that the code could not make is the caller's mistake only if all it complains of are arguments.
    """
    if type(error).__name__ != "ValidationError" or not hasattr(error, "errors"):
        return error
    places = [place["loc"][0] for place in error.errors() if place["loc"]]
    if places and all(place in arguments for place in places):
        return error
    unexpected = RuntimeError("a model could not be made inside of the tool")
    unexpected.__traceback__ = error.__traceback__
    unexpected.__context__ = error
    return unexpected


def _bad_result(error: BaseException) -> Failure:
    """Return the failure for a value that can't be sent. The reason is given without any of its values."""
    _log.error("mcp-envelope: a tool returned what cannot be sent", exc_info=error)
    if hasattr(error, "errors"):
        # A pydantic model that the result does not conform to: the fields, and what is wrong with each.
        message = f"The result is not what the tool promises: {problem_of(error).message}"
    else:
        message = f"The result cannot be written as JSON: {str(error).removeprefix(_CANNOT_WRITE)}"
    return _failure(CATALOGUE.problem("BAD_RESULT", scrub_line(message, limit=400)), error)


def _failure(problem: Problem, error: BaseException) -> Failure:
    failure = Failure(problem.code, problem.message, problem.hint, problem.details)
    failure.__cause__ = error
    return failure
