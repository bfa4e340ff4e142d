"""What a tool says: a reply, a miss, or a failure. A plain return value is a reply with nothing to add.

Strategy: these are the author's words, in one form for every dialect. `Reply` and `Miss` are returned, `Failure`
is raised. `read_outcome` takes any of them, or a plain value, apart into a payload and the facts about it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, get_args

import msgspec
from msgspec.structs import replace

from .context import CallContext
from .errors import problem_of
from .facts import Facts, Problem, Status
from .ranking import Ranking
from .scrubbing import scrub

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Link:
    """A `resource_link`: where more of it is."""

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
    """A success, and what goes with it. `-> Reply[Book]` says that the data is a `Book`.

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
            said = getattr(self, name)
            if isinstance(said, str) or not all(isinstance(words, str) for words in said):
                raise TypeError(f"{name} is a list of texts; got {said!r}")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """To a library that asks pydantic what a tool returns: the data."""
        return handler.generate_schema(*(get_args(source) or (Any,)))


@dataclass(frozen=True, slots=True)
class Miss:
    """What was asked for isn't there. That is an answer, not an error."""

    hint: str
    message: str | None = None
    data: Mapping[str, Any] | None = None
    code: str = "NOT_FOUND"
    warnings: Sequence[str] = ()

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        return handler.generate_schema(Any)


# An outcome is how a tool answers, not what its data is. The official SDK would make a schema of the annotations of
# whatever class a tool returns, and would tell at length that it can't: so there are none to be found.
Reply.__annotations__ = {}
Miss.__annotations__ = {}


class Failure(Exception):
    """Raise it to end a call with a code, a message and the next step. Extra keywords travel as details."""

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


class Outcome(msgspec.Struct, frozen=True):
    """What `seal` works with. `has_data` tells no data from data that is null."""

    data: Any
    has_data: bool
    facts: Facts
    rank: Mapping[str, Ranking]
    is_error: bool | None = None


def read_outcome(value: Any, facts: Facts, context: CallContext | None = None) -> Outcome:
    """Take a tool's outcome apart; what the context gathered during the call joins the facts."""
    if context is not None:
        facts = context.add_to(facts)
    if isinstance(value, Reply):
        facts = replace(
            facts,
            status=value.status,
            summary=sendable(value.summary),
            details=_all_sendable(value.details),
            next_steps=_all_sendable(value.next_steps),
            texts=_all_sendable(value.texts),
            links=tuple(link.to_wire() if isinstance(link, Link) else link for link in value.links),
            show_details=value.show_details,
            hint=sendable(value.hint) or facts.hint,
            warnings=(*map(scrub, value.warnings), *facts.warnings),
        )
        return Outcome(value.data, value.data is not None, facts, value.rank, value.is_error)
    if isinstance(value, Miss):
        facts = replace(
            facts,
            miss=Problem(value.code, scrub(value.message or "Not found."), scrub(value.hint), value.data),
            status="info",
            summary=scrub(value.message) if value.message else None,
            hint=scrub(value.hint),
            warnings=(*map(scrub, value.warnings), *facts.warnings),
        )
        return Outcome(None, False, facts, {})
    if isinstance(value, BaseException):
        # What may be shown of it is decided in one place; cancellation and the like are raised again there.
        problem = problem_of(value)
        data = value.data if isinstance(value, Failure) else None
        facts = replace(facts, status="error", summary=problem.message, error=problem)
        return Outcome(data, data is not None, facts, {}, True)
    # A plain value: None is data too, it says null.
    return Outcome(value, True, facts, {})


def sendable(text: str | None) -> str | None:
    """A text without half characters, which no wire takes."""
    return text.encode("utf-8", "replace").decode() if text is not None else None


def _all_sendable(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple([sendable(text) or "" for text in texts])
