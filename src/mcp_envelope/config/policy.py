"""The policy of a call, which is also the table of settings: every annotated field of `Policy` is one.

A setting is declared once: name, type, kind of value, help, default. The files, the environment, the command
`config`, the JSON Schema and the documentation all derive from `SETTINGS`, which is made from the fields. A
policy does not change: `with_budget` makes another one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Annotated, Any, Final, NamedTuple, get_args, get_origin

import msgspec

from .. import dialects
from ..budget import METERS, Budget, Caps, meter_named
from ..dialects import registry
from ..fit.images import COSTS, TREATMENTS, ImageBudget
from ..fit.record_formats import FORMS
from ..vault.store import DEFAULT_CAP, DEFAULT_TTL
from .kinds import (
    CODES,
    NAMES,
    NOTHING,
    PATTERNS,
    RANKINGS,
    SIZE,
    STATEMENT,
    TEXT,
    TEXTS,
    TIME,
    WORKSPACE,
    Kind,
    Report,
    choice,
    shown,
    text_such_as,
    whole,
)

# The built-in profiles. A user's own is based on one of them.
PROFILES: Final = ("minimal", "standard", "debug")
BUILT_IN: Final = "built-in"
CALL: Final = "call"
PREFIX: Final = "MCP_ENVELOPE_"
# The argument by which a call asks for its own budget.
BUDGET_ARGUMENT: Final = dialects.Dialect.budget_argument
# Only one of the two can hold: setting one in a stronger layer takes the other away.
RIVALS: Final = {"tokens": "bytes", "bytes": "tokens"}
# What a file that nobody named or accepted may lower, and all that it may do.
BUDGETS: Final = ("tokens", "bytes", "max_tokens")
_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
# What a call may ask for, unless more is configured.
_CEILING: Final = 10_000

_TOKENS: Final = whole(100, 10_000_000)


def _check_dialect(value: str, report: Report) -> str:
    if value not in dialects.NAMES:
        registry.check(value)
    return value


_PLACE: Final = {"type": "string", "pattern": r":|\.(toml|json)$"}
_DIALECT: Final = text_such_as(*dialects.NAMES)._replace(
    type=Annotated[str, msgspec.Meta(extra_json_schema={"anyOf": [{"enum": list(dialects.NAMES)}, _PLACE]})],
    check=_check_dialect,
)


class Given(NamedTuple):
    """A value, and where it stands: in a word for `sources`, and in full for a complaint."""

    value: Any
    source: str
    place: str


# A setting and a value for it, which counts only if it lowers what applies otherwise.
Offer = tuple[str, Given]


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
        _DIALECT,
        "The wire shape of a result. One of your own: its name, `module:Class`, or a template file.",
    ] = "native"
    tokens: Annotated[
        int | None, _TOKENS, "The most tokens that each lane may have. Unset: the dialect's default."
    ] = None
    bytes: Annotated[int | None, whole(1, 1_000_000_000), "The same in bytes, instead of `tokens`."] = None
    max_tokens: Annotated[
        int | None,
        _TOKENS,
        "The most that a call's own `tokenBudget` may ask for. "
        "Unset: 10,000, or `tokens` (a quarter of `bytes`) if that is more. At most 10,000 in `transcend`.",
    ] = None
    meter: Annotated[
        str | None,
        choice(*METERS),
        "What counts tokens. Unset: `estimate`, in `transcend` `chars4`. Bytes are always counted as bytes.",
    ] = None
    profile: Annotated[str, text_such_as(*PROFILES), "How much metadata a result shows."] = "minimal"
    lists: Annotated[
        Mapping[str, tuple[str, ...]],
        RANKINGS,
        "How a list is sorted before it is cut: `file` ascending, `-score` descending, `@group` grouped.",
    ] = NOTHING
    select: Annotated[
        str,
        choice("notable", "head"),
        "What is kept of a list or a text besides its beginning: rare, extreme and matching rows, the lines that "
        "matter, the end; or nothing (`head`). What `lists` sorts keeps its order.",
    ] = "notable"
    describe: Annotated[
        str,
        choice("on", "off"),
        "Whether a notice says what a list or a text that was cut holds: a profile of its columns, an outline.",
    ] = "on"
    table: Annotated[
        str,
        choice(*FORMS),
        "`native`: how records are spelled in a text that was cut and has no output schema, if more of them fit: "
        "`rows` of JSON under one header, `csv`, or `auto`, the better of the two if at least a fifth more fit.",
    ] = "json"
    hint: Annotated[str, TEXT, "The next step to suggest when something was cut; best set per tool."] = ""
    hints: Annotated[Mapping[str, str], TEXTS, "The same per list or field, for tools without a hint."] = (
        NOTHING
    )
    include_only: Annotated[
        tuple[str, ...], NAMES, "The top-level fields of `data` to keep. Empty: all."
    ] = ()
    exclude_fields: Annotated[tuple[str, ...], NAMES, "The top-level fields of `data` to leave out."] = ()
    errors: Annotated[
        Mapping[str, str],
        CODES,
        "Codes for failures that a tool or a server reports itself, by words in its message.",
    ] = NOTHING
    images: Annotated[
        str,
        choice(*TREATMENTS),
        "What becomes of images: `fit` them into their budget, `pass` them on as they are, or `store` all of them.",
    ] = ImageBudget().treatment
    max_images: Annotated[
        int,
        whole(0, 1000),
        "How many images a result may show; more are stored, like an image that is too large.",
    ] = ImageBudget().count
    image_tokens: Annotated[
        int, whole(0, 10_000_000), "The most that a result's images may cost a model in all, in tokens."
    ] = ImageBudget().tokens
    image_cost: Annotated[
        str,
        choice(*COSTS),
        "Whose formula tells what an image costs. `bytes`: its base64 counts as text. "
        "Unset: that of the client's model, or the `largest` if it isn't known.",
    ] = ImageBudget().cost
    image_pixels: Annotated[
        int | None,
        whole(64, 100_000),
        "The most pixels that an image's longer side may have. Unset: what the client or the model's vendor takes.",
    ] = None
    image_bytes: Annotated[
        int | None,
        whole(1000, 1_000_000_000),
        "The most bytes that an image's base64 may have. Unset: what the client or the vendor takes.",
    ] = None
    reader: Annotated[
        str,
        choice("auto", "model", "program"),
        "Who reads results. A program gets them whole. `auto`: what the client says of each call.",
    ] = "auto"
    program_bytes: Annotated[
        int, SIZE, "The most that a program gets; more is a failure with a handle. Unset: 32 MiB."
    ] = 32 << 20
    redact: Annotated[
        str,
        choice("off", "tokens", "keys", "custom"),
        "Which secrets to mask: `tokens` by their own shape, `keys` also by their names, `custom` by "
        "`redact_patterns` alone.",
    ] = "off"
    redact_patterns: Annotated[
        Mapping[str, str], PATTERNS, "More to mask, unless `redact` is `off` (RE2 syntax)."
    ] = NOTHING
    reply: Annotated[
        Mapping[str, Any],
        STATEMENT,
        "What to say with a result for a server that can't: [summary, next_steps, warnings, links and "
        "more](contracts.md#what-a-server-can-say-besides).",
    ] = NOTHING
    vault: Annotated[
        str | None,
        TEXT,
        "Where whole results are kept: a file, `sqlite:///PATH`, `valkey://HOST:PORT`, `rediss://HOST:PORT`, "
        "or `none`. Unset: a file in the user's state folder.",
    ] = None
    vault_ttl: Annotated[int, TIME, "How long they are kept. Unset: 24 hours."] = round(DEFAULT_TTL)
    vault_size: Annotated[
        int, SIZE, "How much space they may take; the oldest are deleted first. Unset: 1 GiB."
    ] = DEFAULT_CAP
    truncatable: Annotated[tuple[str, ...], NAMES, "`ctxo`: more names of arrays that may be cut."] = ()
    workspace: Annotated[Mapping[str, str] | None, WORKSPACE, "`ctxo`: the workspace that `_meta` names."] = (
        None
    )
    tier: Annotated[
        str | None, choice("community", "pro", "enterprise"), "`scalpel`: the tier to report."
    ] = None
    tool_version: Annotated[str | None, TEXT, "`scalpel`: the version of the tool to report."] = None
    capabilities: Annotated[tuple[str, ...], NAMES, "`scalpel`: the capabilities to report."] = ()

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
    # Budgets that a file which nobody vouches for offers, strongest first: see `lowered`.
    offers: tuple[Offer, ...] = ()

    @cached_property
    def shape(self) -> Shape:
        return Shape(self.dialect, self.include_only, self.exclude_fields)

    @cached_property
    def allowance(self) -> Allowance:
        """The budget with the dialect's defaults filled in."""
        is_own = is_own_limit(self.dialect, self.sources)
        return allowance(
            self.dialect, self.tokens, self.bytes, self.max_tokens, self.meter, is_own, self.caps
        )

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

    def lowered(self) -> tuple[Policy, tuple[str, ...]]:
        """Return this policy with the offered budgets that are lower, and a complaint about each other one.

        An offer ranks below everything that somebody chose: it counts only where nothing is set.
        """
        policy, problems = self, []
        for name, given in self.offers:
            names = {name, RIVALS.get(name, name)}
            if any(policy.sources.get(each, BUILT_IN) != BUILT_IN for each in names):
                continue
            before = policy.allowance
            offered = msgspec.structs.replace(policy, **{**dict.fromkeys(names), name: given.value})
            settled = offered.allowance
            if name == "max_tokens":
                is_lower, limit = settled.ceiling <= before.ceiling, f"{before.ceiling} tokens"
            else:
                is_lower = not before.budget or bool(
                    settled.budget and settled.budget.is_within(before.budget)
                )
                limit = f"{before.limit} {before.unit}"
            if is_lower:
                sources = MappingProxyType({**policy.sources, name: given.source})
                policy = msgspec.structs.replace(offered, sources=sources)
            else:
                problems.append(
                    f"{given.place}: {name} = {given.value} is ignored: it may not exceed {limit}"
                )
        return policy, tuple(problems)

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


class Setting(NamedTuple):
    name: str
    kind: Kind
    doc: str
    default: Any

    @property
    def variable(self) -> str:
        return PREFIX + self.name.upper()


def _settings() -> Iterator[Setting]:
    for field in msgspec.structs.fields(Policy):
        if get_origin(field.type) is Annotated:
            _, kind, doc = get_args(field.type)
            yield Setting(field.name, kind, doc, field.default)


SETTINGS: Final[Mapping[str, Setting]] = {setting.name: setting for setting in _settings()}


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


def is_own_limit(dialect: str, sources: Mapping[str, str]) -> bool:
    """Whether the limit in bytes comes from a variable that the dialect's contract defines."""
    source, own = sources.get("bytes", BUILT_IN), dialects.DIALECTS[dialect].variables
    return any(source == f"environment {variable.name}" for variable in own)


@lru_cache(1024)
def allowance(
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
        problems.append(("meter", f"the meter bytes goes with a budget in bytes; {limits.meter} is used"))
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


# -- derived: JSON Schema for editors ----------------------------------------------------------------------


def settings_schema() -> dict[str, Any]:
    """Return the schema of `mcp-envelope.toml`, and of the table `tool.mcp-envelope`."""
    in_profile = [name for name in SETTINGS if name != "profile"]
    base = {
        "description": "The profile that this one is based on.",
        "anyOf": [{"enum": list(PROFILES)}, {"type": "string"}],
        "default": PROFILES[0],
    }
    profiles = {
        **_tables(
            "Settings of the built-in profiles and of your own.", _layer(in_profile, "A profile.", base=base)
        ),
        "properties": dict.fromkeys(PROFILES, _layer(in_profile, "Settings of a built-in profile.")),
    }
    tools = _tables(
        'Settings per tool. A name may be a pattern, such as "search_*".',
        _layer(SETTINGS, "The settings of a tool."),
    )
    root = _layer(SETTINGS, "Settings of mcp-envelope.", profiles=profiles, tools=tools)
    document = _document("mcp-envelope.toml", root, SETTINGS)
    # Those that are installed, too.
    document["$defs"]["dialect"]["anyOf"][0]["enum"] = list(registry.names())
    return document


def own_file_schema(file: dialects.SettingsFile) -> dict[str, Any]:
    """Return the schema of a dialect's own file."""
    general = _layer(file.settings, "Settings of all tools.")
    tools = _tables("Settings per tool.", _layer(file.tool_settings, "The settings of a tool."))
    root = _layer((), "Settings of results.", **{file.everywhere: general, file.per_tool: tools})
    names = dict.fromkeys((*file.settings, *file.tool_settings))
    return _document(file.path.rpartition("/")[2], root, names)


def _document(title: str, root: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    root["properties"] = {"$schema": {"type": "string"}, **root["properties"]}
    return {
        "$schema": _DRAFT,
        "title": title,
        **root,
        "$defs": {name: _definition(SETTINGS[name]) for name in names},
    }


def _tables(description: str, entry: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "description": description, "additionalProperties": entry}


def _layer(names: Iterable[str], description: str, **more: Any) -> dict[str, Any]:
    layer = {
        "type": "object",
        "description": description,
        "properties": {**{name: {"$ref": f"#/$defs/{name}"} for name in names}, **more},
        "additionalProperties": False,
    }
    return {**layer, "not": {"required": ["tokens", "bytes"]}} if "tokens" in names else layer


def _definition(setting: Setting) -> dict[str, Any]:
    [schema], parts = msgspec.json.schema_components([setting.kind.type], ref_template="{name}")
    definition = {"description": setting.doc.replace("`", ""), **parts.get(schema.get("$ref", ""), schema)}
    if setting.default is not None:
        definition["default"] = dict(setting.default) if setting.default == {} else setting.default
    return definition
