"""The wire shapes. A dialect defines how a fitted payload, and what is known about it, looks to a client.

Strategy: a dialect is a class with a few attributes and one method, `fit`, that takes an immutable plan and
returns two finished lanes. Other code asks the dialect and never compares its name. Each dialect is in its own
file, which is imported on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeVar

import msgspec

from ..budget import DEFAULT_TOKENS, MIN_BYTES, MIN_TOKENS, Budget

if TYPE_CHECKING:
    from ..jsontext.document import Buffer
    from ..lanes import Lanes, Plan
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


class BudgetRange(msgspec.Struct, frozen=True):
    """The budget that applies unless one is set, and its range. Neither tokens nor bytes: no limit."""

    tokens: int | None = DEFAULT_TOKENS
    bytes: int | None = None
    meter: str = "estimate"
    least_tokens: int = MIN_TOKENS
    least_bytes: int = MIN_BYTES
    most_tokens: int | None = None


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
    """A wire shape. Subclasses override what differs."""

    name: ClassVar[str]
    # Whether a result that fits goes out as it came, without a frame around it. Such a dialect also has a place
    # for content blocks of any kind.
    in_place: ClassVar[bool] = False
    # Whether it has a place for text beside the data.
    shows_texts: ClassVar[bool] = False
    # Whether results can name the handle of a stored payload.
    names_handles: ClassVar[bool] = True
    # The name of the argument for a call's own budget.
    budget_argument: ClassVar[str] = "tokenBudget"
    # Whether the contract itself has that argument, so that a tool's own one of that name means the same.
    defines_budget_argument: ClassVar[bool] = False
    limits: ClassVar[BudgetRange] = BudgetRange()
    # Where settings of its own come from, besides those of mcp-envelope. They hold however it was chosen.
    variables: ClassVar[tuple[Variable, ...]] = ()
    file: ClassVar[SettingsFile | None] = None

    @property
    def has_sources(self) -> bool:
        return bool(self.variables) or self.file is not None

    def budget(self, tokens: int | None, max_bytes: int | None, meter: str | None) -> Budget:
        """Return the requested budget of a call, in this dialect's unit and range."""
        return Budget.of(tokens=tokens, max_bytes=max_bytes, meter=meter)

    def output_schema(self, data: Mapping[str, Any] | bool | None) -> dict[str, Any] | None:
        """Return the schema of `structuredContent`, given the schema of the data."""
        return None

    def recognise(self, payload: Payload, outcome: Outcome) -> tuple[Outcome, Payload] | None:
        """Return what a tool said that speaks this contract itself, and its data; None for ordinary data."""
        return None

    def data_schema(self, schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the data's part of a schema that describes this contract's envelope; None for any other schema."""
        return None

    def fit(self, plan: Plan) -> Lanes:
        """Return the finished lanes, within the plan's budget."""
        raise NotImplementedError


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
        if name not in _CLASSES:
            raise ValueError(f"unknown dialect {name!r}; use one of {', '.join(NAMES)}")
        self[name] = getattr(import_module(f".{name}", __name__), _CLASSES[name])()
        return self[name]


# By name; each is created on first use.
DIALECTS: Final = _Dialects()


def dialect(name: str) -> Dialect:
    return DIALECTS[name]
