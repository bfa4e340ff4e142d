"""The wire shapes. A dialect defines how a fitted payload, and what is known about it, looks to a client.

Strategy: a dialect is a class with a few attributes and a method `document`, which writes one result as an object;
finding out how much of the data fits into it is done here. A dialect with other needs has a method `fit` instead,
which takes an immutable plan and returns two finished lanes. Other code asks the dialect and never compares its
name. Each dialect is in its own file, which is imported on first use; `registry` finds those of others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from ..budget import DEFAULT_TOKENS, MIN_BYTES, MIN_TOKENS, Budget, meter_named
from ..jsontext.document import encode, text_block, written
from ..scrubbing import SAID

if TYPE_CHECKING:
    from ..fit.documents import Cut
    from ..jsontext.document import Buffer
    from ..lanes import Lane, Lanes, Plan
    from ..outcome import Outcome
    from ..payload import Payload

_T = TypeVar("_T")

# Where each class is.
_CLASSES: dict[str, str] = {
    "native": "Native",
    "ctxo": "Ctxo",
    "transcend": "Transcend",
    "gel": "Gel",
    "scalpel": "Scalpel",
}
NAMES: tuple[str, ...] = tuple(_CLASSES)
_UNLIMITED: Final = 1 << 62
# How long a text may be at each length, in bytes of JSON.
_SHORT: Final = (100_000, 120, 40)


class BudgetRange(msgspec.Struct, frozen=True):
    """The budget that applies unless one is set, and its range. Neither tokens nor bytes: no limit."""

    tokens: int | None = DEFAULT_TOKENS
    bytes: int | None = None
    meter: str = "exact"
    least_tokens: int = MIN_TOKENS
    least_bytes: int = MIN_BYTES
    most_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.bytes is not None and self.tokens is not None:
            if self.tokens != DEFAULT_TOKENS:
                raise ValueError("a budget is in tokens or in bytes, not both")
            msgspec.structs.force_setattr(self, "tokens", None)


class Variable(NamedTuple):
    """An environment variable of a dialect's own.

    `read` returns the settings that a value stands for, and raises ValueError ("is not a number") for one that
    it can't use. They rank just below mcp-envelope's own variables, or with `overrides` above everything.
    """

    name: str
    read: Callable[[str], Mapping[str, Any]]
    overrides: bool = False


class SettingsFile(NamedTuple):
    """A JSON file of a dialect's own, the nearest one from the current folder upwards.

    The object under `everywhere` may have the settings named in `settings`, for all tools; under `per_tool`, each
    tool may have those in `tool_settings`.
    """

    path: str
    everywhere: str
    settings: tuple[str, ...]
    per_tool: str
    tool_settings: tuple[str, ...]


class Dialect:
    """A wire shape. Subclasses have a `name` and a method `document`, and override what else differs."""

    name: ClassVar[str]
    # Whether a result that fits goes out as it came, without a frame around it. Such a dialect also has a place
    # for content blocks of any kind.
    in_place: ClassVar[bool] = False
    # How many characters of a failure's message it shows at most; the rest is stored.
    most_inline: ClassVar[int] = SAID
    # Whether it has a place for text beside the data.
    shows_texts: ClassVar[bool] = False
    # Whether models get to see warnings; if not, they are in the result's `_meta`.
    shows_warnings: ClassVar[bool] = True
    # Whether a failure's message has no absolute path, not even one that a server behind the proxy put there.
    hides_paths: ClassVar[bool] = False
    # Where the structure goes that came with a failure: among its details, beside it, or nowhere.
    failure_data: ClassVar[Literal["details", "beside", "nowhere"]] = "details"
    # Whether results can name the handle of a stored payload.
    names_handles: ClassVar[bool] = True
    # The name of the argument for a call's own budget.
    budget_argument: ClassVar[str] = "tokenBudget"
    # Whether the contract itself has that argument, so that a tool's own one of that name means the same.
    defines_budget_argument: ClassVar[bool] = False
    limits: ClassVar[BudgetRange] = BudgetRange()
    # Whether the contract lets people leave out fields of the data at any time, so that a schema can't require one.
    selects_fields: ClassVar[bool] = False
    # Whether the contract wants the beginning of a list, and no other items.
    keeps_beginnings: ClassVar[bool] = False
    # Whether a failure sets `isError`.
    failures_are_errors: ClassVar[bool] = True
    # Whether the document is `structuredContent` too, and not only the text.
    is_structured: ClassVar[bool] = True
    # Where settings of its own come from, besides those of mcp-envelope. They hold however it was chosen.
    variables: ClassVar[tuple[Variable, ...]] = ()
    file: ClassVar[SettingsFile | None] = None

    @property
    def has_sources(self) -> bool:
        return bool(self.variables) or self.file is not None

    def budget(self, tokens: int | None, max_bytes: int | None, meter: str | None) -> Budget:
        """Return the requested budget of a call, in this dialect's unit and range."""
        limits, is_own = self.limits, tokens is None and max_bytes is None
        if is_own:
            tokens, max_bytes = limits.tokens, limits.bytes
            if tokens is None and max_bytes is None:
                return Budget(_UNLIMITED, meter_named("bytes"))
        if max_bytes is not None:
            return replace(Budget.of(tokens=tokens, max_bytes=max_bytes, meter=meter), is_own=is_own)
        assert tokens is not None
        used = tokens if limits.most_tokens is None else min(tokens, limits.most_tokens)
        made = Budget.of(tokens=used, meter=meter or limits.meter)
        lowered = (
            None if used == tokens else f"the budget of {tokens} tokens was lowered to {used}, the largest"
        )
        return replace(made, is_own=is_own, warning=made.warning or lowered)

    def output_schema(self, data: Mapping[str, Any] | bool | None) -> dict[str, Any] | None:
        """Return the schema of `structuredContent`, given the schema of the data. None: nothing is promised."""
        return None

    def recognise(self, payload: Payload, outcome: Outcome) -> tuple[Outcome, Payload] | None:
        """Return what a tool said that speaks this contract itself, and its data; None for ordinary data."""
        return None

    def data_schema(self, schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the data's part of a schema that describes this contract's envelope; None for any other schema."""
        return None

    def schema_around(
        self,
        data: Mapping[str, Any] | bool | None,
        key: str,
        others: Mapping[str, Any],
        required: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Return the schema of an object that has the data under a key. References still find their way."""
        from ..schema.widening import embed

        return embed(
            True if data is None else data, key, before={}, after=dict(others), required=list(required)
        )

    def document(self, outcome: Outcome, data: Raw | None, length: int) -> Mapping[str, Any]:
        """Return a result as an object: a success, a miss (`outcome.miss`) or a failure (`outcome.error`).

        `data` is the data as JSON, cut to fit, to be put where it belongs; None if there is none to show.
        `outcome.cuts` are the omissions, which the object must announce; `note` has the words for that. This is
        called again with a greater `length`, 1 and then 2, if the object doesn't fit: `short` shortens a text for
        it. With 2, it should hold little more than what can't be left out.
        """
        raise NotImplementedError

    def note(self, outcome: Outcome, length: int = 0) -> str:
        """Return what was left out, with counts, and how to read it, handle included; "" if nothing was."""
        from . import notice

        said = notice.sentence(outcome, min(length, 1), beside_handle=False) if outcome.cuts else ""
        if not said and outcome.error is not None and outcome.handle is not None:
            said = notice.read_it(outcome.handle)
        return said

    def short(self, text: str | None, length: int) -> str:
        """Return a text as long as it should be at this length, by its size in JSON: some scripts are escaped."""
        text, most = text or "", _SHORT[length]
        while (size := len(encode(text)) - 2) > most:
            text = text[: min(len(text) - 2, len(text) * (most - 3) // size)] + "…"
        return text

    def fit(self, plan: Plan) -> Lanes:
        """Return the finished lanes, within the plan's budget: by default, what `document` returns, in both."""
        from ..lanes import Lanes, first_that_fits, fit_data

        def text_of(document: bytes) -> bytes:
            return b"[%b]" % text_block(document.decode())

        def frame(data: bytes | None, cuts: tuple[Cut, ...], length: int) -> Lane:
            shown = self.document(plan.with_cuts(cuts), None if data is None else Raw(data), length)
            # The data keeps its spelling.
            parts = [
                b"%b:%b" % (encode(key), value if isinstance(value, Raw) else written(value))
                for key, value in shown.items()
            ]
            text = b"{%b}" % b",".join(parts)
            # The text lane is the larger one, because of its escapes.
            return plan.lane(text, cuts, data or b"", measured=text_of(text))

        lane: Lane | None = None
        if plan.outcome.error is None and plan.outcome.miss is None and not plan.lacks_data:
            lane = fit_data(plan, lambda fitted, length: frame(fitted.json, fitted.cuts, length))
            plan = plan if lane is not None else plan.failed(plan.too_large())
        if lane is None:
            lane = first_that_fits(lambda length: frame(None, (), length), plan.limit)
        is_error = self.failures_are_errors and (bool(plan.is_error) or plan.outcome.error is not None)
        content = plan.lane(text_of(lane.json), lane.cuts, lane.body)
        structured = plan.lane(lane.json, lane.cuts, lane.body) if self.is_structured else None
        return Lanes(content, structured, is_error, plan.outcome, None)


def fields_of(payload: Payload, known: Collection[str]) -> dict[str, Buffer] | None:
    """Return the members of a document that has no others than the known ones; None for anything else."""
    node = payload.node
    if node is None or node.kind != "object" or payload.partial:
        return None
    try:
        fields = {member.key: member.value for member in node.members()}
    except ValueError:
        return None
    return fields if fields and fields.keys() <= set(known) else None


def fields_as(kind: type[_T], fields: Mapping[str, Buffer], *apart: str) -> _T | None:
    """Return fields as a record of theirs, without those that stand apart; None if a type is wrong."""
    small = b",".join(
        b"%b:%b" % (msgspec.json.encode(key), value) for key, value in fields.items() if key not in apart
    )
    try:
        return msgspec.json.decode(b"{%b}" % small, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def member_schema(
    schema: Mapping[str, Any], *required: str, known: Collection[str]
) -> Mapping[str, Any] | None:
    """Return the schema of `data` in one whose properties are the known ones, the required ones included."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or not set(required) <= properties.keys() <= set(known):
        return None
    inner = properties.get("data")
    if not isinstance(inner, Mapping):
        return None
    shared = {name: schema[name] for name in ("$defs", "definitions", "$schema") if name in schema}
    return {**shared, **inner}


class _Dialects(dict[str, Dialect]):
    def __missing__(self, name: str) -> Dialect:
        if name in _CLASSES:
            found: Dialect = getattr(import_module(f".{name}", __name__), _CLASSES[name])()
        else:
            found = import_module(".registry", __name__).find(name)
        self[name] = found
        return found


# By name; each is created on first use.
DIALECTS: Final = _Dialects()


def dialect(name: str) -> Dialect:
    """Return the dialect of that name, or at that place. ValueError says what is wrong."""
    return DIALECTS[name]
