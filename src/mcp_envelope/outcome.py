"""How a tool answers: a reply, a miss or a failure, and whatever its code reports along the way.

Strategy: a tool answers in the same way for every dialect. `Reply` and `Miss` are returned, `Failure` is
raised; a plain return value is a reply with data only. Code deep inside a call adds to its `Remarks`, found
through a context variable that tasks and threads inherit. `read_outcome` turns all of it into one immutable
`Outcome`: everything that a dialect may show of a result, except its payload.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, get_args

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from .codes import Problem
from .errors import problem_of
from .fit.documents import Cut
from .fit.ranking import Ranking
from .scrubbing import SAID, given, scrub

# Details of a failure or a miss that are larger, in bytes, are its data.
LARGEST_DETAILS: Final = 4096

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")

_log = logging.getLogger("mcp_envelope")
Status = Literal["ok", "info", "warn", "error"]
# Where a client may put an id of its own for a call, in the call's `_meta`.
REQUEST_IDS: Final[tuple[str, ...]] = ("request_id", "requestId")
_LONGEST_ID: Final = 200


@dataclass(frozen=True, slots=True)
class Link:
    """A `resource_link` block."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None

    def to_wire(self) -> dict[str, Any]:
        block: dict[str, Any] = {"type": "resource_link", "uri": self.uri, "name": self.name}
        more = {
            "title": self.title,
            "description": self.description,
            "mimeType": self.mime_type,
            "size": self.size,
        }
        block.update({key: value for key, value in more.items() if value is not None})
        return block


@dataclass(frozen=True)
class Reply(Generic[T]):
    """A success with more than data. `-> Reply[Book]` declares that the data is a `Book`.

    `data` is the payload. `summary`, `details`, `next_steps`, `texts` and `links` are shown by dialects that
    have a place for them. `rank` maps the path of a list to its ranking.
    """

    data: T = None  # type: ignore[assignment]
    summary: str | None = None
    details: Sequence[str] = ()
    next_steps: Sequence[str] = ()
    texts: Sequence[str] = ()
    links: Sequence[Link | Mapping[str, Any]] = ()
    warnings: Sequence[str] = ()
    rank: Mapping[str, Ranking] = field(default_factory=dict)
    hint: str | None = None
    status: Status = "ok"
    show_details: bool = True
    is_error: bool | None = None

    def __post_init__(self) -> None:
        if self.status not in get_args(Status):
            raise ValueError(f"status is one of {', '.join(get_args(Status))}; got {self.status!r}")
        for name in ("details", "next_steps", "texts", "warnings"):
            texts = getattr(self, name)
            if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
                raise TypeError(f"{name} is a list of strings; got {texts!r}")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """Show the schema of the data to libraries that ask pydantic what a tool returns."""
        return handler.generate_schema(*(get_args(source) or (Any,)))


@dataclass(frozen=True, slots=True)
class Miss:
    """The requested thing doesn't exist. That is an answer, not an error."""

    hint: str
    message: str | None = None
    data: Mapping[str, Any] | None = None
    code: str = "NOT_FOUND"
    warnings: Sequence[str] = ()

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        return handler.generate_schema(Any)


# The official SDK derives a schema from the annotations of any class that a tool returns, and logs long
# warnings if it can't. These classes don't describe data, so they have no annotations for it to find.
Reply.__annotations__ = {}
Miss.__annotations__ = {}


class Failure(Exception):
    """Raise this to end a call with a code, a message and a hint. Extra keywords become details."""

    def __init__(
        self,
        code: str,
        message: str,
        hint: str = "",
        details: Mapping[str, Any] | None = None,
        *,
        data: Any = None,
        **extras: Any,
    ) -> None:
        super().__init__(message)
        merged = {**(details or {}), **extras}
        self.problem = Problem(code, message, hint, merged or None)
        self.data = data

    def __str__(self) -> str:
        return f"{self.problem.code}: {self.problem.message}"


class OwnFailure(Failure):
    """A failure whose text is our own, or the caller's, and is shown without scrubbing."""


@dataclass(frozen=True, slots=True)
class UpgradeHint:
    """A feature that needs a higher tier."""

    feature: str
    tier: str
    reason: str


# -- what a tool's code reports while it runs -----------------------------------------------------------------


@dataclass(slots=True)
class Remarks:
    """What is reported during one call. Set a field, or use the functions below."""

    warnings: list[str] = field(default_factory=list)
    upgrade_hints: list[UpgradeHint] = field(default_factory=list)
    tier: str | None = None
    tool_version: str | None = None
    capabilities: tuple[str, ...] | None = None
    rate_limit: Mapping[str, Any] | None = None
    token_usage: Mapping[str, Any] | None = None
    workspace: Mapping[str, Any] | None = None
    hint: str | None = None
    # Gives where results of this call are kept, if anywhere.
    keeper: Callable[[], Any] | None = None

    @property
    def is_empty(self) -> bool:
        return not (
            self.warnings
            or self.upgrade_hints
            or self.hint
            or self.tier
            or self.tool_version
            or self.capabilities is not None
            or self.rate_limit
            or self.token_usage
            or self.workspace
        )

    def add_to(self, outcome: Outcome) -> Outcome:
        return replace(
            outcome,
            # A loop that warns a thousand times should be heard once.
            warnings=tuple(dict.fromkeys((*outcome.warnings, *self.warnings))),
            upgrade_hints=(*outcome.upgrade_hints, *self.upgrade_hints),
            tier=self.tier or outcome.tier,
            tool_version=self.tool_version or outcome.tool_version,
            capabilities=self.capabilities if self.capabilities is not None else outcome.capabilities,
            rate_limit=self.rate_limit or outcome.rate_limit,
            token_usage=self.token_usage or outcome.token_usage,
            workspace=self.workspace or outcome.workspace,
            hint=self.hint or outcome.hint,
        )


_current: Final[ContextVar[Remarks | None]] = ContextVar("mcp_envelope_remarks", default=None)


def current_remarks() -> Remarks | None:
    """Return the remarks of the current call, if there is one."""
    return _current.get()


def enter_remarks(remarks: Remarks) -> Token[Remarks | None]:
    """Start collecting remarks, until `leave_remarks`: `collect_remarks` in two steps, for adapters."""
    return _current.set(remarks)


def leave_remarks(token: Token[Remarks | None]) -> None:
    _current.reset(token)


@contextmanager
def collect_remarks(remarks: Remarks | None = None) -> Iterator[Remarks]:
    """Collect what the code inside the `with` block reports."""
    remarks = remarks or Remarks()
    token = _current.set(remarks)
    try:
        yield remarks
    finally:
        _current.reset(token)


def _remarks(what: str) -> Remarks:
    remarks = _current.get()
    if remarks is None:
        _log.info("reported outside of a call, so it is ignored: %s", what)
        return Remarks()
    return remarks


# What to do about an answer that may not be right.
_REINDEX: Final = "Rebuild the index, or read what changed before relying on it."
_CONFIRM: Final = "Confirm what you are going to edit with a live lookup, or rebuild the index."
_CHECK: Final = "Check what matters against the source."


def warn(message: str) -> None:
    """Report something that isn't fatal; it is shown with the result."""
    _remarks(message).warnings.append(message)


def stale(count: int, what: str = "file", marked: str = "", advice: str = _REINDEX) -> None:
    """Report how many things changed since they were indexed, how results mark them, and what to do about it.

    `marked` is that mark, if there is one: `stale(3, marked="stale: true")`.
    """
    if count <= 0:
        return
    plural, them = ("", "it") if count == 1 else ("s", "them")
    mark = f"are marked {marked}" if marked else "may be out of date"
    changed = f"{count} {what}{plural} changed since the last index; entries from {them} {mark}."
    warn(f"{changed} {advice}".rstrip())


def index_age(age: str, advice: str = _CONFIRM) -> None:
    """Report how old the index is, and what to do about it."""
    warn(f"The index is {age} old, so newer code is missing from it. {advice}".rstrip())


def fallback(capability: str, through: str, advice: str = _CHECK) -> None:
    """Report that a capability was replaced by something approximate, and what to do about it."""
    warn(f"{capability} came from {through} instead: treat it as approximate. {advice}".rstrip())


def upgrade(feature: str, tier: str, reason: str) -> None:
    """Report that a requested feature needs a higher tier."""
    _remarks(f"{feature} needs {tier}").upgrade_hints.append(UpgradeHint(feature, tier, reason))


def describe_call(
    *,
    tier: str | None = None,
    tool_version: str | None = None,
    capabilities: tuple[str, ...] | None = None,
    rate_limit: Mapping[str, Any] | None = None,
    token_usage: Mapping[str, Any] | None = None,
    workspace: Mapping[str, Any] | None = None,
    hint: str | None = None,
) -> None:
    """Report facts about the call that some dialects show."""
    remarks = _remarks("facts about the call")
    remarks.tier = tier or remarks.tier
    remarks.tool_version = tool_version or remarks.tool_version
    remarks.capabilities = capabilities if capabilities is not None else remarks.capabilities
    remarks.rate_limit = rate_limit or remarks.rate_limit
    remarks.token_usage = token_usage or remarks.token_usage
    remarks.workspace = workspace or remarks.workspace
    remarks.hint = hint or remarks.hint


# -- all of it in one record ----------------------------------------------------------------------------------


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about a result but its payload. Absent facts are None or empty, and no dialect invents them."""

    # What became of the payload.
    cuts: tuple[Cut, ...] = ()
    # How many content blocks beside the data were left out or cut, which a warning tells of.
    lacking: int = 0
    handle: str | None = None
    # When the stored payload expires, in seconds since 1970.
    expires: float | None = None
    # Whether the client can follow links to stored results.
    linkable: bool = False
    # For a page of a stored payload: the arguments, in addition to path and offset, that read the next one.
    reading: str | None = None
    # What the tool answered.
    error: Problem | None = None
    miss: Problem | None = None
    is_error: bool | None = None
    status: Status | None = None
    summary: str | None = None
    details: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    links: tuple[Mapping[str, Any], ...] = ()
    show_details: bool = True
    hint: str | None = None
    # Hints by the path or name of what was cut, for tools without one of their own.
    hints: Mapping[str, str] = {}
    warnings: tuple[str, ...] = ()
    rank: Mapping[str, Ranking] = {}
    # How to ask for more of what was cut, by its path: the arguments of a call, as an example.
    examples: Mapping[str, str] = {}
    # What the lists and texts that were cut hold.
    profiles: tuple[Mapping[str, Any], ...] = ()
    # What the call was.
    tool: str | None = None
    tool_version: str | None = None
    # One that the client gave the call itself; a JSON-RPC id is not one.
    request_id: str | None = None
    duration_ms: float | None = None
    tier: str | None = None
    capabilities: tuple[str, ...] | None = None
    upgrade_hints: tuple[UpgradeHint, ...] = ()
    rate_limit: Mapping[str, Any] | None = None
    token_usage: Mapping[str, Any] | None = None
    workspace: Mapping[str, Any] | None = None
    # What the dialect adds because of the profile.
    extras: Mapping[str, Any] = {}
    # What a tool that speaks the dialect itself said there, where the fields above have no place for it.
    said: Mapping[str, Any] = {}

    @property
    def link_to(self) -> str | None:
        """The handle, if the client can follow a link to it."""
        return self.handle if self.linkable else None

    def warned(self, warning: str) -> Outcome:
        return msgspec.structs.replace(self, warnings=(*self.warnings, warning))


def _is_large(details: Mapping[str, Any] | None) -> bool:
    """Whether details are data: too large to be shown whole or not at all."""
    return details is not None and len(repr(details)) > LARGEST_DETAILS


def read_outcome(
    value: Any,
    outcome: Outcome,
    remarks: Remarks | None = None,
    arguments: Mapping[str, Any] | None = None,
    phrases: Mapping[str, str] | None = None,
) -> tuple[Outcome, Any]:
    """Return the outcome with the tool's answer added, and the answer's data, UNSET if there is none.

    A path among the call's arguments is the client's own word, and may be repeated to it. `phrases` are those of
    the settings, with their codes.
    """
    if remarks is not None:
        outcome = remarks.add_to(outcome)
    if isinstance(value, Reply):
        outcome = replace(
            outcome,
            status=value.status,
            summary=sendable(value.summary),
            details=_all_sendable(value.details),
            next_steps=_all_sendable(value.next_steps),
            texts=_all_sendable(value.texts),
            links=tuple(link.to_wire() if isinstance(link, Link) else link for link in value.links),
            show_details=value.show_details,
            hint=sendable(value.hint) or outcome.hint,
            warnings=(*_shown(value.warnings, arguments), *outcome.warnings),
            rank=value.rank,
            is_error=value.is_error,
        )
        return outcome, UNSET if value.data is None else value.data
    if isinstance(value, Miss):
        message, hint, *warnings = _shown((value.message or "", value.hint, *value.warnings), arguments)
        is_large = _is_large(value.data)
        details = None if is_large else value.data
        outcome = replace(
            outcome,
            miss=Problem(value.code, message or "Not found.", hint, details),
            status="info",
            summary=message or None,
            hint=hint,
            warnings=(*warnings, *outcome.warnings),
        )
        return outcome, value.data if is_large else UNSET
    if isinstance(value, BaseException):
        # `problem_of` decides what may be shown, and raises cancellation and the like again.
        if isinstance(value, OwnFailure):
            problem = value.problem
        else:
            problem = problem_of(value, known=given(arguments), phrases=phrases)
        data = value.data if isinstance(value, Failure) else None
        if data is None and _is_large(problem.details):
            data, problem = problem.details, dataclasses.replace(problem, details=None)
        outcome = replace(outcome, status="error", summary=problem.message, error=problem, is_error=True)
        return outcome, UNSET if data is None else data
    # A plain value. None is data, too: null.
    return outcome, value


def _shown(texts: Sequence[str], arguments: Mapping[str, Any] | None) -> list[str]:
    known = given(arguments) if texts else ()
    return [scrub(text, limit=SAID, known=known) for text in texts]


def client_request_id(meta: Mapping[str, Any] | None) -> str | None:
    """Return the id that a client gave its call, in the call's `_meta`.

    A progress token is none: client libraries choose one for each call, mostly the JSON-RPC id.
    """
    if not meta or meta.keys().isdisjoint(REQUEST_IDS):
        return None
    for name in REQUEST_IDS:
        value = meta.get(name)
        if isinstance(value, str | int) and not isinstance(value, bool) and value != "":
            return sendable(str(value)[:_LONGEST_ID])
    return None


def sendable(text: str | None) -> str | None:
    """Return the text with lone surrogates replaced, which can't be encoded."""
    return text.encode("utf-8", "replace").decode() if text is not None else None


def _all_sendable(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple([sendable(text) or "" for text in texts])


def shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
