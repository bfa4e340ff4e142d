"""The policy of a call, which is also the table of settings: every annotated field of `Policy` is one.

A setting is declared once: name, type, range, help, default. The files, the environment, the command `config`,
the JSON Schema and the documentation all derive from `SETTINGS`, which is made from the fields. A policy does not
change: `with_budget` makes another one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Annotated, Any, Final, NamedTuple, get_origin

import msgspec
from msgspec import Meta

from .. import dialects
from ..budget import METERS, Budget, Caps, meter_named
from ..dialects import registry
from ..fit.images import COSTS, TREATMENTS, ImageBudget
from ..fit.record_formats import FORMS
from ..spelling import did_you_mean
from ..vault.store import DEFAULT_CAP, DEFAULT_TTL
from .values import NOTHING, Setting, Units, shown

# The built-in profiles. A user's own is based on one of them.
PROFILES: Final = ("minimal", "standard", "debug")
BUILT_IN: Final = "built-in"
CALL: Final = "call"
# The argument by which a call asks for its own budget.
BUDGET_ARGUMENT: Final = dialects.Dialect.budget_argument
# Only one of the two can hold: setting one in a stronger layer takes the other away.
RIVALS: Final = {"tokens": "bytes", "bytes": "tokens"}
# What a file that nobody named or accepted may lower, and all that it may do.
BUDGETS: Final = ("tokens", "bytes", "max_tokens")
# What a call may ask for, unless more is configured.
_CEILING: Final = 10_000

_SIZES: Final = {"b": 1} | {
    f"{prefix}{unit}": base**power
    for unit, base in (("b", 1000), ("ib", 1024))
    for power, prefix in enumerate("kmgt", 1)
}
_SIZE: Final = Units("size", "1GiB", _SIZES, 1 << 20, 1 << 50)
_TIMES: Final = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_TIME: Final = Units("time", "24h", _TIMES, 1, 3650 * 86_400)
_TOKENS: Final = Meta(ge=100, le=10_000_000)
_Name = Annotated[str, Meta(min_length=1)]
_RankingKey = Annotated[str, Meta(extra_json_schema={"pattern": "^([-@+].|[^-@+])"})]


class _Workspace(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    root: str
    package: str | msgspec.UnsetType = msgspec.UNSET


def _one_of(*names: str) -> Meta:
    return Meta(extra_json_schema={"enum": list(names)})


def _such_as(*names: str, other: str = "") -> Meta:
    """One of the names, or something else that is known only later."""
    another = {"type": "string", "pattern": other} if other else {"type": "string"}
    return Meta(extra_json_schema={"anyOf": [{"enum": list(names)}, another]})


def _check_dialect(value: str) -> None:
    if value not in dialects.NAMES:
        registry.check(value)


def _check_path(name: str, entry: object) -> None:
    if "/" in name and not name.startswith("/"):
        raise ValueError("write a path from the root, such as /data/items, or a bare field name")


def _check_ranking(name: str, keys: tuple[str, ...]) -> None:
    _check_path(name, keys)
    if keys:
        from ..fit.ranking import rank  # only here: most files rank nothing

        rank(*keys)


def _check_code(name: str, code: str) -> None:
    if code and not (code.isascii() and code.replace("_", "").isalnum()):
        raise ValueError("write a code, such as NODE_NOT_FOUND")


def _check_pattern(name: str, pattern: str) -> None:
    if pattern:
        from ..redaction import Redactor  # only here: most files have no patterns

        Redactor("custom", {name: pattern})  # which knows what it can use


def _check_reply(name: str, fact: object) -> None:
    from ..reply_meta import NAMES, read_reply_meta  # only here: most files have none

    if name not in NAMES:
        raise ValueError(f"there is no key {shown(name)}{did_you_mean(name, NAMES)}")

    def refuse(message: str, *path: str) -> None:
        raise ValueError(message)

    if fact != "":
        read_reply_meta({name: fact}, refuse)


class Given(NamedTuple):
    """A value, and where it stands: in a word for `sources`, and in full for a complaint."""

    value: Any
    source: str
    place: str


class Shape(NamedTuple):
    """What decides about the schemas that clients see."""

    dialect: str
    include_only: tuple[str, ...] = ()
    exclude_fields: tuple[str, ...] = ()

    def leaves_out(self, field: str) -> bool:
        return field in self.exclude_fields or bool(self.include_only and field not in self.include_only)


class Policy(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """All settings that apply to one call, and where each came from."""

    dialect: Annotated[
        str,
        _such_as(*dialects.NAMES, other=r":|\.(toml|json)$"),
        _check_dialect,
        "The wire shape of a result. One of your own: its name, `module:Class`, or a template file.",
    ] = "native"
    tokens: Annotated[
        int | None, _TOKENS, "The most tokens that each lane may have. Unset: the dialect's default."
    ] = None
    bytes: Annotated[int | None, Meta(ge=1, le=1_000_000_000), "The same in bytes, instead of `tokens`."] = (
        None
    )
    max_tokens: Annotated[
        int | None,
        _TOKENS,
        "The most that a call's own `tokenBudget` may ask for. "
        "Unset: 10,000, or `tokens` (a quarter of `bytes`) if that is more. At most 10,000 in `transcend`.",
    ] = None
    meter: Annotated[
        str | None,
        _one_of(*METERS),
        "What counts tokens. Unset: `exact`, in `transcend` `chars4`. Bytes are always counted as bytes.",
    ] = None
    profile: Annotated[str, _such_as(*PROFILES), "How much metadata a result shows."] = "minimal"
    lists: Annotated[
        Mapping[str, tuple[_RankingKey, ...]],
        _check_ranking,
        "How a list is sorted before it is cut: `file` ascending, `-score` descending, `@group` grouped.",
    ] = NOTHING
    select: Annotated[
        str,
        _one_of("notable", "head"),
        "What is kept of a list or a text besides its beginning: rare, extreme and matching rows, the lines that "
        "matter, the end; or nothing (`head`). What `lists` sorts keeps its order.",
    ] = "notable"
    describe: Annotated[
        str,
        _one_of("on", "off"),
        "Whether a notice says what a list or a text that was cut holds: a profile of its columns, an outline.",
    ] = "on"
    table: Annotated[
        str,
        _one_of(*FORMS),
        "`native`: how records are spelled in a text that was cut and has no output schema, if more of them fit: "
        "`rows` of JSON under one header, `csv`, or `auto`, the better of the two if at least a fifth more fit.",
    ] = "json"
    hint: Annotated[str, "The next step to suggest when something was cut; best set per tool."] = ""
    hints: Annotated[
        Mapping[str, str], _check_path, "The same per list or field, for tools without a hint."
    ] = NOTHING
    include_only: Annotated[tuple[_Name, ...], "The top-level fields of `data` to keep. Empty: all."] = ()
    exclude_fields: Annotated[tuple[_Name, ...], "The top-level fields of `data` to leave out."] = ()
    errors: Annotated[
        Mapping[str, str],
        _check_code,
        "Codes for failures that a tool or a server reports itself, by words in its message.",
    ] = NOTHING
    images: Annotated[
        str,
        _one_of(*TREATMENTS),
        "What becomes of images: `fit` them into their budget, `pass` them on as they are, or `store` all of them.",
    ] = ImageBudget().treatment
    max_images: Annotated[
        int,
        Meta(ge=0, le=1000),
        "How many images a result may show; more are stored, like an image that is too large.",
    ] = ImageBudget().count
    image_tokens: Annotated[
        int, Meta(ge=0, le=10_000_000), "The most that a result's images may cost a model in all, in tokens."
    ] = ImageBudget().tokens
    image_cost: Annotated[
        str,
        _one_of(*COSTS),
        "Whose formula tells what an image costs. `bytes`: its base64 counts as text. "
        "Unset: that of the client's model, or the `largest` if it isn't known.",
    ] = ImageBudget().cost
    image_pixels: Annotated[
        int | None,
        Meta(ge=64, le=100_000),
        "The most pixels that an image's longer side may have. Unset: what the client or the model's vendor takes.",
    ] = None
    image_bytes: Annotated[
        int | None,
        Meta(ge=1000, le=1_000_000_000),
        "The most bytes that an image's base64 may have. Unset: what the client or the vendor takes.",
    ] = None
    reader: Annotated[
        str,
        _one_of("auto", "model", "program"),
        "Who reads results. A program gets them whole. `auto`: what the client says of each call.",
    ] = "auto"
    program_bytes: Annotated[
        int, _SIZE, "The most that a program gets; more is a failure with a handle. Unset: 32 MiB."
    ] = 32 << 20
    redact: Annotated[
        str,
        _one_of("off", "tokens", "keys", "custom"),
        "Which secrets to mask: `tokens` by their own shape, `keys` also by their names, `custom` by "
        "`redact_patterns` alone.",
    ] = "off"
    redact_patterns: Annotated[
        Mapping[str, str], _check_pattern, "More to mask, unless `redact` is `off` (RE2 syntax)."
    ] = NOTHING
    reply: Annotated[
        Mapping[str, Any],
        _check_reply,
        "What to say with a result for a server that can't: [summary, next_steps, warnings, links and "
        "more](contracts.md#saying-more-than-the-data).",
    ] = NOTHING
    vault: Annotated[
        str | None,
        "Where whole results are kept: a file, `sqlite:///PATH`, `valkey://HOST:PORT`, `rediss://HOST:PORT`, "
        "or `none`. Unset: a file in the user's state folder.",
    ] = None
    vault_ttl: Annotated[int, _TIME, "How long they are kept. Unset: 24 hours."] = round(DEFAULT_TTL)
    vault_size: Annotated[
        int, _SIZE, "How much space they may take; the oldest are deleted first. Unset: 1 GiB."
    ] = DEFAULT_CAP
    truncatable: Annotated[tuple[_Name, ...], "`ctxo`: more names of arrays that may be cut."] = ()
    workspace: Annotated[
        Mapping[str, str] | None, _Workspace, "`ctxo`: the workspace that `_meta` names."
    ] = None
    tier: Annotated[
        str | None, _one_of("community", "pro", "enterprise"), "`scalpel`: the tier to report."
    ] = None
    tool_version: Annotated[str | None, "`scalpel`: the version of the tool to report."] = None
    capabilities: Annotated[tuple[_Name, ...], "`scalpel`: the capabilities to report."] = ()

    # The built-in profile that `profile` is based on: what dialects look at.
    detail: str = "minimal"
    # Setting -> where its value came from.
    sources: Mapping[str, str] = NOTHING
    # What the client takes besides the budget, and whether a program reads the result.
    caps: Caps | None = None
    is_whole: bool = False
    # Why the client's model can't see any image, and whether it sees them only in results without a structure, or
    # not in embedded resources; how many bytes of other files the client saves.
    no_images: str = ""
    images_alone: bool = False
    images_embedded: bool = True
    saved_bytes: int = 0
    # About this call, for the result: what it asked for and did not get.
    warnings: tuple[str, ...] = ()
    # About the settings, for whoever set them: in the log and in `mcp-envelope config`, not in results.
    problems: tuple[str, ...] = ()
    # Budgets that a file which nobody vouches for offers, strongest first: they count if they are lower.
    offers: tuple[tuple[str, Given], ...] = ()

    @cached_property
    def shape(self) -> Shape:
        return Shape(self.dialect, self.include_only, self.exclude_fields)

    @cached_property
    def is_quiet(self) -> bool:
        """Whether nothing is to be added to a result that fits, or left out of it."""
        return (
            dialects.DIALECTS[self.dialect].in_place
            and self.detail == "minimal"
            and not (self.warnings or self.include_only or self.exclude_fields or self.reply)
        )

    @cached_property
    def allowance(self) -> Allowance:
        """The budget with the dialect's defaults filled in."""
        # A limit in bytes from a variable that the dialect's contract defines is the dialect's own.
        own = [f"environment {variable.name}" for variable in dialects.DIALECTS[self.dialect].variables]
        is_own = self.sources.get("bytes") in own
        return _allowance(
            self.dialect, self.tokens, self.bytes, self.max_tokens, self.meter, is_own, self.caps
        )

    def in_force(self, name: str) -> Any:
        """The value of a setting; for one that isn't set, what the dialect makes of that."""
        settled = self.allowance
        value = getattr(self, name)
        if value is not None:
            return value
        return {"max_tokens": settled.ceiling, "meter": settled.meter, settled.unit: settled.limit}.get(name)

    @property
    def redacts(self) -> bool:
        return self.redact != "off"

    @property
    def image_budget(self) -> ImageBudget:
        return ImageBudget(
            self.max_images,
            self.image_tokens,
            self.image_cost,
            self.image_pixels,
            self.image_bytes,
            self.images,
            self.no_images,
            self.images_alone,
            self.images_embedded,
            self.saved_bytes,
        )

    @property
    def budget(self) -> Budget | None:
        """The same for `seal`. None: no limit."""
        return self.allowance.budget

    def with_budget(self, requested: object) -> Policy:
        """Return this policy for a call that asks for a budget of its own. Never raises."""
        settled = self.allowance
        tokens, warning = settled.request(requested)
        warnings = (*self.warnings, warning) if warning else self.warnings
        if tokens is None:
            return msgspec.structs.replace(self, warnings=warnings)
        # The ceiling goes along, since it may depend on the tokens that were configured.
        return msgspec.structs.replace(
            self,
            tokens=tokens,
            bytes=None,
            is_whole=False,
            max_tokens=settled.ceiling,
            sources=MappingProxyType({**self.sources, "tokens": CALL, "bytes": BUILT_IN}),
            warnings=warnings,
        )


# Every annotated field is a setting.
SETTINGS: Final[Mapping[str, Setting]] = {
    field.name: Setting.of(field)
    for field in msgspec.structs.fields(Policy)
    if get_origin(field.type) is Annotated
}


class Allowance(msgspec.Struct, frozen=True, dict=True):
    """A budget, settled: `limit` in `unit`, counted by `meter`. A call may ask for up to `ceiling`."""

    limit: int | None
    unit: str
    meter: str
    least_tokens: int
    ceiling: int
    # Pairs of a setting and what is wrong with it.
    problems: tuple[tuple[str, str], ...] = ()
    # Whether nobody set it: see `Budget`.
    is_own: bool = False
    caps: Caps | None = None

    @cached_property
    def budget(self) -> Budget | None:
        if self.limit is None:
            return None
        return Budget(self.limit, meter_named(self.meter), is_own=self.is_own, caps=self.caps)

    def request(self, requested: object) -> tuple[int | None, str]:
        """Return the tokens for a call that asks for some (None: the default), and a warning or nothing."""
        number, asked = _number(requested), f"{BUDGET_ARGUMENT} {shown(requested)}"
        if number is None:
            default = "no limit" if self.limit is None else f"{self.limit} {self.unit}"
            return None, f"{asked} is not a number of tokens; the default applies: {default}"
        if number > self.ceiling:
            return self.ceiling, f"{asked} was lowered to {self.ceiling}, the largest allowed"
        if number < self.least_tokens:
            return self.least_tokens, f"{asked} was raised to {self.least_tokens}, the smallest"
        floor = math.floor(number)
        return floor, f"{asked} was rounded down to {floor}" if floor != number else ""


@lru_cache(1024)
def _allowance(
    dialect: str,
    tokens: int | None,
    max_bytes: int | None,
    max_tokens: int | None,
    meter: str | None,
    is_own: bool = False,
    caps: Caps | None = None,
) -> Allowance:
    """Return the budget for these settings, which move the dialect's default within its range.

    Every call asks for it several times, and there are few different ones.
    """
    limits = dialects.dialect(dialect).limits
    least, most = limits.least_tokens, limits.most_tokens or math.inf
    problems: list[tuple[str, str]] = []

    def clamped(name: str, wanted: int, least: int, most: float, bound: str = dialect) -> int:
        used = max(least, math.floor(min(wanted, most)))
        if used > wanted:
            problems.append((name, f"{name} = {wanted} is less than {dialect} can work with; {used} is used"))
        elif used < wanted:
            problems.append((name, f"{name} = {wanted} is more than {bound} allows; {used} is used"))
        return used

    if max_tokens is None:  # what is configured may be asked for, too; a token is about four bytes
        ceiling = math.floor(min(most, max(_CEILING, tokens or 0, (max_bytes or 0) // 4)))
    else:
        ceiling = clamped("max_tokens", max_tokens, least, most)
    if tokens is not None:
        tokens = clamped("tokens", tokens, least, ceiling, dialect if max_tokens is None else "max_tokens")
    elif max_bytes is not None:
        max_bytes = clamped("bytes", max_bytes, 1 if is_own else limits.least_bytes, math.inf)
    else:
        is_own = True
        max_bytes = limits.bytes
        tokens = None if limits.tokens is None else min(limits.tokens, ceiling)
    if max_bytes is not None:
        return Allowance(max_bytes, "bytes", "bytes", least, ceiling, tuple(problems), is_own, caps)
    if meter == "bytes":
        problems.append(
            ("meter", f"the meter bytes works only with a budget in bytes; {limits.meter} is used")
        )
        meter = None
    return Allowance(tokens, "tokens", meter or limits.meter, least, ceiling, tuple(problems), is_own, caps)


def _number(requested: object) -> int | float | None:
    """Return what was asked for as a number, infinity included; None if it is none."""
    if isinstance(requested, str):
        import re

        text = requested.strip()
        number = r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?"
        if len(text) > 400 or not re.fullmatch(number, text):
            return None
        # As a whole number where it is one: a float would round a long one.
        return int(text) if text.lstrip("+-").isdigit() else float(text)
    if isinstance(requested, bool) or not isinstance(requested, int | float) or requested != requested:
        return None
    return requested
