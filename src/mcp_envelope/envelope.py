"""One payload in, one result that fits out: plan, fit, keep, render.

Strategy: `make_plan` reads what a tool returned, once, and collects what is known about it. The dialect fits
the plan into finished lanes. A lane's size is that of its exact text, including notice, escaping and every
block, and a lane is sent only once its meter has accepted it. `keep` stores the whole payload if the lanes
don't show all of it. `Sealed` is the result, ready for the wire. Each step takes the immutable record that the
previous one made.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast, get_args

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from . import dialects
from .budget import Budget
from .codes import CATALOGUE, Problem
from .dialects import Dialect, notice
from .errors import diagnose
from .fit.documents import Cut
from .fit.images import ImageBudget, Shown, may_be_file, show
from .fit.ranking import Ranking
from .fit.ranking import rank as rank_by
from .fit.survey import Survey
from .jsontext.document import Member, assembled, compact, encode
from .lanes import PROFILES, Keeper, Lanes, Plan, Profile
from .outcome import LARGEST_DETAILS, Outcome, Remarks, current_remarks, read_outcome, sendable, shortened
from .payload import As, Payload, apart, as_document, read_payload
from .schema import Schema, Widened
from .scrubbing import SAID, given, scrub

if TYPE_CHECKING:
    from .config import Policy, Settings
    from .redaction import Masking
    from .reply_meta import ReplyMeta

_log = logging.getLogger("mcp_envelope")
_READINGS: Final = get_args(As)
# A URL, or a host and its port.
_ADDRESS: Final = re.compile(r"\w://|[\w\]]:[0-9]{1,5}\b")
# For the smallest budgets, dialects shorten a message to this many characters.
_SHORT: Final = 120
# About how many characters a failure needs in addition to its message: a code, a hint, figures.
_AROUND_MESSAGE: Final = 400
# A handle must fit into the smallest budget, and into the arguments of a call.
_HANDLE: Final = re.compile(r"[A-Za-z0-9._~-]{1,43}")


def seal(
    payload: Any,
    *,
    tokens: int | None = None,
    max_bytes: int | None = None,
    meter: str | None = None,
    budget: Budget | None = None,
    policy: Policy | None = None,
    dialect: str | None = None,
    schema: Schema | Widened | Mapping[str, Any] | bool | None = None,
    wrap: bool = False,
    rank: Mapping[str, Ranking] | None = None,
    profile: Profile | None = None,
    handle: str | None = None,
    vault: Keeper | None = None,
    links: bool = False,
    hint: str | None = None,
    warnings: Iterable[str] = (),
    tool: str | None = None,
    request_id: str | None = None,
    duration_ms: float | None = None,
    arguments: Mapping[str, Any] | None = None,
    is_error: bool | None = None,
    read_as: As = "auto",
) -> Sealed:
    """Fit what a tool returned (or raised: a `Failure`) into a budget, in the shape of a dialect.

    The budget applies to each lane. Set it with `tokens` (default 8000, unless the dialect has another),
    counted by `meter` ("exact", "estimate", "chars4"), or with `max_bytes`, or pass a `budget`.

    - `schema`: in the native dialect, the output schema advertised to clients, best as `widen` returns it (if you
      pass only its `schema` and it was wrapped, set `wrap`); in the other dialects, the schema of the data.
    - `rank` maps the path of a list to its ranking, made by `rank()`.
    - `vault` stores the whole payload if something is left out; notes then refer to `envelope_read(handle, …)`.
      If storing fails, the result says so and has no handle. `handle` names a payload that is stored elsewhere.
    - `links` says that the client can follow links to stored images and the like.
    - `hint` is the next step to suggest when something was cut; `warnings` are shown with the result.
    - `policy` has the settings for this call, from a file and the environment; arguments override it.
    - `profile` says how much metadata is shown; `tool`, `request_id` (one that the client gave) and
      `duration_ms` are part of it.
    - `arguments` are those of the call: messages may repeat a path that is among them, and hide others.
    - `is_error` marks the payload as the text of a failure, whose beginning and end are both kept.
    - `read_as` says what the payload is if its type doesn't: "json", "text" or "blocks".
    """
    _check(budget, rank, warnings, hint, read_as, handle)
    chosen = dialects.dialect(dialect or (policy.dialect if policy else "native"))
    if policy is None and chosen.has_sources:
        policy = _own_policy(chosen.name, tool)
    if policy is not None and (meter is not None or policy.dialect != chosen.name):
        # Arguments override the policy, whose other settings then apply to the chosen dialect.
        policy = replace(policy, dialect=chosen.name, meter=meter or policy.meter)
    if budget is None and policy is not None and tokens is None and max_bytes is None:
        budget = policy.budget
    if budget is None:
        counted = policy.meter if policy is not None and max_bytes is None else meter
        budget = chosen.budget(tokens, max_bytes, counted)
    if isinstance(schema, Widened):
        wrap, schema = schema.wrapped, schema.schema
    outcome = Outcome(
        handle=handle,
        linkable=links,
        hint=sendable(hint),
        warnings=tuple(sendable(warning) or "" for warning in warnings),
        tool=sendable(tool),
        request_id=sendable(request_id),
        duration_ms=duration_ms,
    )
    plan = make_plan(
        payload,
        budget,
        outcome,
        chosen,
        policy=policy,
        profile=profile,
        schema=schema if schema is None or isinstance(schema, Schema) else Schema.of(schema),
        wrap=wrap,
        rank=rank,
        is_error=is_error,
        read_as=read_as,
        remarks=current_remarks(),
        arguments=arguments,
    )
    return seal_plan(plan, chosen, vault)


@lru_cache(16)
def _own_settings(folder: str) -> Settings:
    from .config import Settings  # only the dialects with variables or files of their own need it

    return Settings(start=Path(folder), own_only=True)


def _own_policy(dialect: str, tool: str | None) -> Policy:
    """Return what a dialect's own variables and file say, from the current folder."""
    try:
        folder = os.getcwd()
    except OSError:  # it was removed
        folder = os.sep
    return _own_settings(folder).policy(tool, dialect=dialect)


# -- plan -----------------------------------------------------------------------------------------------------


def make_plan(
    value: Any,
    budget: Budget,
    outcome: Outcome,
    dialect: Dialect,
    *,
    policy: Policy | None = None,
    profile: Profile | None = None,
    schema: Schema | None = None,
    wrap: bool = False,
    rank: Mapping[str, Ranking] | None = None,
    is_error: bool | None = None,
    read_as: As = "auto",
    remarks: Remarks | None = None,
    arguments: Mapping[str, Any] | None = None,
    masking: Masking | None = None,
    is_masked: bool = False,
    statement: ReplyMeta | None = None,
    shares: bool = False,
) -> Plan:
    """Read what a tool returned or raised, and everything that is known about it.

    `masking` takes note of masked values; with `is_masked`, those in the payload are masked already. A `statement`
    is what a server says besides its result. `shares` says that the client shows both lanes, which then share the
    budget.
    """
    profile = profile or (cast(Profile, policy.detail) if policy else "minimal")
    if profile not in PROFILES:
        raise ValueError(f"profile is one of {', '.join(PROFILES)}; got {profile!r}")
    if policy is not None:
        outcome = _configured(outcome, policy)
    if statement is not None:
        outcome = statement.add_to(outcome)
    if budget.warning:
        outcome = outcome.warned(budget.warning)
    phrases = policy.errors if policy is not None else {}
    data = value
    # A result that came from a server is a payload, and says nothing besides.
    if remarks is not None or not isinstance(value, Payload):
        outcome, data = read_outcome(value, outcome, remarks, arguments, phrases)
    payload = Payload() if data is UNSET else read_payload(data, read_as)
    if not dialect.in_place:
        payload = payload.spelled()
    hides_paths = dialect.hides_paths
    if statement is not None and data is value and (statement.error or not statement.found):
        payload = as_document(payload)
        outcome, payload = _stated(payload, outcome, dialect, budget, statement)
        is_error = None
    elif not dialect.in_place and outcome.error is None and read_as != "text":
        payload = _opened(payload, schema)
        found = _recognised(payload, outcome, dialect, schema) if data is value else None
        if found is not None:
            # What has the shape of the contract already keeps its words.
            hides_paths = False
            outcome, payload = found
        elif dialect.shows_texts and payload.node is not None and not is_error:
            texts, payload = apart(payload)
            outcome = replace(outcome, texts=(*outcome.texts, *texts))
        elif is_error and data is value:
            problem = _diagnosed(payload, phrases)
            outcome, payload = _reported(payload, outcome, dialect, budget, problem)
            is_error = None
    if outcome.error is not None:
        # If this is still too long for the budget, dialects have a shorter form.
        message = outcome.error.message
        if hides_paths:
            message = scrub(message, limit=SAID, known=given(arguments))
        message = shortened(message, _most_characters(budget))
        if payload.is_empty and len(outcome.error.message) > most_shown(budget, dialect):
            payload = Payload(text=outcome.error.message.encode())
        outcome = replace(outcome, error=dataclasses.replace(outcome.error, message=message))
    if wrap and payload.text is not None:
        # The schema describes {"result": …}, so a text is a value like any other.
        payload = Payload(node=payload.as_node())
    rankings = {**outcome.rank, **(rank or {})}
    survey = Survey(
        arguments,
        dialect.budget_argument,
        selects=not (dialect.keeps_beginnings or payload.partial),
        describes=not payload.partial,
    )
    if policy is not None:
        rankings = {**{path: rank_by(*keys) for path, keys in policy.lists.items()}, **rankings}
        survey.selects &= policy.select == "notable"
        survey.describes &= policy.describe == "on"
        payload = _select(payload, policy.include_only, policy.exclude_fields, None if wrap else schema)
        if policy.redacts:
            from . import redaction  # its rules take a while to compile, and a plain `seal` needs none

            using = redaction.redactor(policy.redact, tuple(policy.redact_patterns.items()))
            masking = masking or redaction.Masking()
            if not is_masked:
                payload = redaction.redact_payload(payload, using, masking)
            if masking.found and schema is not None and not _conforms(payload, schema, wrap):
                outcome = replace(outcome, error=redaction.REDACTED)
            outcome = redaction.redact_outcome(outcome, using, masking)
            if masking.found:
                outcome = outcome.warned(masking.notice())
    return Plan(
        payload=payload,
        budget=budget,
        outcome=outcome,
        schema=schema,
        wrap=wrap,
        rankings=rankings,
        is_error=outcome.is_error if is_error is None else is_error,
        profile=profile,
        truncatable=frozenset(policy.truncatable) if policy is not None else frozenset(),
        table=policy.table if policy is not None else "json",
        images=policy.image_budget if policy is not None else ImageBudget(),
        survey=survey,
        redacted=masking.found if masking is not None else {},
        shares=shares,
    )


def _configured(outcome: Outcome, policy: Policy) -> Outcome:
    """Return the outcome with what the settings say for every result."""
    outcome = replace(
        outcome,
        hint=outcome.hint or policy.hint or None,
        hints=policy.hints,
        warnings=(*outcome.warnings, *policy.warnings),
        tool_version=policy.tool_version,
        tier=policy.tier,
        capabilities=policy.capabilities or None,
        workspace=policy.workspace,
    )
    if not policy.reply:
        return outcome
    from .reply_meta import read_reply_meta  # hardly anybody needs it

    return read_reply_meta(policy.reply).add_to(outcome)


def _opened(payload: Payload, schema: Schema | None) -> Payload:
    """Return the document that a text spells, unless the tool promised a text."""
    if payload.text is not None and schema is not None and schema.is_valid(bytes(payload.as_node().raw)):
        return payload
    return as_document(payload)


def _recognised(
    payload: Payload, outcome: Outcome, dialect: Dialect, schema: Schema | None
) -> tuple[Outcome, Payload] | None:
    """Return what a tool said that speaks the dialect itself, and its data."""
    found = dialect.recognise(payload, outcome)
    if found is None or schema is None or found[1].is_empty or payload.node is None:
        return found
    # A tool may have promised data that happens to look like the contract.
    is_data = schema.is_valid(bytes(payload.node.raw)) and not schema.is_valid(bytes(found[1].as_node().raw))
    return None if is_data else found


def _structure(payload: Payload) -> Any:
    """Return the structure of a failure, unless it is large."""
    if payload.node is None or payload.node.size > LARGEST_DETAILS:
        return None
    return msgspec.json.decode(bytes(payload.node.raw))


def _diagnosed(payload: Payload, phrases: Mapping[str, str]) -> Problem:
    return diagnose(_words(payload), _structure(payload), phrases=phrases)


def _stated(
    payload: Payload, outcome: Outcome, dialect: Dialect, budget: Budget, statement: ReplyMeta
) -> tuple[Outcome, Payload]:
    """Return the failure, or the miss, that a server states beside its result."""
    error, found = statement.error, _diagnosed(payload, {})
    if error is None:
        words = found.message if payload.node is None else ""
        structure = _structure(payload)
        details = structure if isinstance(structure, dict) else None
        hint = outcome.hint or ""
        miss = Problem("NOT_FOUND", outcome.summary or words or "Not found.", hint, details)
        data = Payload() if structure is not None or payload.node is None else Payload(node=payload.node)
        return replace(outcome, miss=miss, status="info", is_error=None), data
    code = error.code or found.code
    problem = CATALOGUE.problem(code, error.message or found.message, error.hint or found.hint, error.details)
    return _reported(payload, outcome, dialect, budget, problem)


def _reported(
    payload: Payload, outcome: Outcome, dialect: Dialect, budget: Budget, problem: Problem
) -> tuple[Outcome, Payload]:
    """Return the failure that a tool reports in a result of its own. What can't be shown whole is stored."""
    structure = _structure(payload)
    # A structure without a message is the message itself.
    said = len(_words(payload)) or (0 if payload.node is None else payload.node.size)
    rest = payload if said > most_shown(budget, dialect) else Payload()
    if payload.node is not None and problem.message != bytes(payload.node.raw).decode():
        if dialect.failure_data == "details" and isinstance(structure, dict):
            details = {name: value for name, value in structure.items() if value != problem.message}
            problem = dataclasses.replace(problem, details={**details, **(problem.details or {})})
        else:
            rest = Payload(node=payload.node) if dialect.failure_data == "beside" else payload
    return replace(outcome, status="error", summary=problem.message, error=problem, is_error=True), rest


def _words(payload: Payload) -> str:
    """Return the text of a failure's blocks, if it has any."""
    if payload.text is not None or payload.blocks is None:
        return payload.text.decode() if payload.text is not None else ""
    texts = [block.get("text") for block in map(msgspec.json.decode, payload.blocks)]
    words = "\n".join(text for text in texts if isinstance(text, str))
    return words or (bytes(payload.as_node().raw).decode() if payload.node is None else "")


def _most_characters(budget: Budget) -> int:
    return max(budget.limit // 4 if budget.unit == "bytes" else budget.limit * 3 // 2, _SHORT)


def most_shown(budget: Budget, dialect: Dialect) -> int:
    """Return about how many characters of a message are likely to be shown whole."""
    if dialect.in_place:
        return _most_characters(budget)
    return min(dialect.most_inline, max(_SHORT, _most_characters(budget) - _AROUND_MESSAGE))


def _select(
    payload: Payload, include_only: Collection[str], exclude: Collection[str], schema: Schema | None
) -> Payload:
    """Return the payload with the selected top-level fields, and those that the schema requires."""
    if payload.node is None or payload.node.kind != "object" or not (include_only or exclude):
        return payload
    members: list[Member] = payload.node.members()
    required: Collection[str] = ()
    if schema is not None:
        place = schema.root.narrow("object", {member.key: member.value for member in members})
        required = place.required([member.key for member in members])
    kept = [
        member
        for member in members
        if member.key in required
        or ((not include_only or member.key in include_only) and member.key not in exclude)
    ]
    if len(kept) == len(members):
        return payload
    return Payload(node=assembled(kept, is_own=payload.node.is_own), blocks=payload.blocks)


def _conforms(payload: Payload, schema: Schema, wrap: bool) -> bool:
    if payload.node is None:
        return True
    original = payload.original()
    return schema.is_valid(b'{"result":%b}' % original if wrap else original)


# -- fit, keep, render ----------------------------------------------------------------------------------------


def seal_plan(plan: Plan, dialect: Dialect, vault: Keeper | None = None) -> Sealed:
    """Fit a plan, and store the whole payload first if the lanes don't show all of it."""
    sealed = _kept(plan, dialect, vault)
    if sealed.over_budget:
        report = sealed.report
        _log.warning(
            "mcp-envelope: %s: the result has %d %s and %s's own limit is %d; it has nothing that %s may cut, "
            "so it is sent whole. A budget that is set explicitly is always kept.",
            plan.outcome.tool or "seal",
            report.used,
            report.unit,
            dialect.name,
            report.limit,
            dialect.name,
        )
    return sealed


def _kept(plan: Plan, dialect: Dialect, vault: Keeper | None) -> Sealed:
    whole = plan.whole
    nothing = whole.is_empty and not plan.outcome.texts
    blocks = plan.payload.blocks or ()
    images = show(blocks, plan.images) if any(map(may_be_file, blocks)) else Shown(tuple(blocks))
    if vault is None or nothing or plan.payload.page is not None:
        return Sealed(plan, _fit(plan, dialect, images), in_place=dialect.in_place)
    handle, expires = vault.promise()
    promised = replace(plan, outcome=replace(plan.outcome, handle=handle, expires=expires))
    lanes = _fit(promised, dialect, images)
    # Whatever names the handle must find the payload there, and whatever was left out must be somewhere.
    if lanes.cuts or lanes.content.cuts or lanes.outcome.error is not None or lanes.name(handle):
        # Free memory first, since storing needs some itself.
        plan.survey.forget()
        if plan.payload.node is not None:
            plan.payload.node.forget()
        problem = vault.keep(handle, whole.beside(lanes.texts), plan.outcome.tool)
        if problem is not None:
            plan = replace(plan, outcome=plan.outcome.warned(not_stored(problem)))
            lanes = _fit(plan, dialect, images)
    return Sealed(plan, lanes, in_place=dialect.in_place)


def _fit(plan: Plan, dialect: Dialect, images: Shown) -> Lanes:
    blocks = plan.payload.blocks
    if blocks is not None:
        payload = replace(plan.payload, blocks=images.blocks)
        plan = replace(plan, payload=payload, image_cuts=(*plan.image_cuts, *images.cuts))
    if plan.is_error or plan.outcome.error is not None:
        plan = replace(plan, budget=plan.budget.for_errors)
    moves = _moves_structure(plan) and bool(images.data)
    fit = dialect.fit
    if not ((dialect.in_place and not moves) or blocks is None):
        from .dialects.attachments import fit_with_attachments

        fit = partial(fit_with_attachments, dialect)
    lanes = fit(plan)
    if not dialect.in_place and lanes.cuts:
        lanes = replace(lanes, meta=notice.with_profiles(lanes.meta, plan.with_cuts(lanes.cuts)))
    if not images.data and not plan.image_cuts:
        return lanes
    content = lanes.content.with_images(images.data, plan.image_cuts)
    return replace(lanes, content=content, structured=None if moves else lanes.structured)


def _moves_structure(plan: Plan) -> bool:
    """Whether the structure goes into the text, because its client would drop the images beside it."""
    return plan.images.alone and plan.payload.node is not None and bool(plan.payload.blocks)


def not_stored(problem: str) -> str:
    """Return the warning. It hides folders and addresses, which are in the log."""
    reason = "the vault is unavailable" if _ADDRESS.search(problem) else scrub(problem)
    return f"The whole result was not stored: {reason}"


@dataclass(frozen=True, slots=True)
class Report:
    """How much of its budget a result uses. `total` is the payload before any cut, in the budget's unit."""

    limit: int
    unit: str
    meter: str
    used: int
    total: int
    content_used: int
    structured_used: int | None
    # Secrets that were masked, by the name of the pattern that found them.
    redacted: Mapping[str, int] = field(default_factory=dict)


class Sealed:
    """A result, ready for the wire."""

    def __init__(self, plan: Plan, lanes: Lanes, *, in_place: bool = True) -> None:
        self._lanes = lanes
        self._content = lanes.content
        self._structured = lanes.structured
        self._outcome = lanes.outcome
        self._budget = plan.budget
        self._payload = plan.payload
        self._redacted = plan.redacted
        self._is_moved = _moves_structure(plan) and lanes.structured is None
        # Whether the dialect leaves a payload that fits as it is, without a frame around it.
        self._in_place = in_place
        self.is_error = lanes.is_error
        self.meta = lanes.meta
        # Of a page: whether its first block is a note.
        self.noted = lanes.noted

    def __repr__(self) -> str:
        lanes = "content and structuredContent" if self._structured else "content"
        return f"<Sealed: {lanes}, {len(self.cuts)} cuts{', an error' if self.is_error else ''}>"

    @property
    def content(self) -> bytes:
        """The JSON of `content`, exactly as measured."""
        return self._content.json

    @property
    def structured(self) -> bytes | None:
        """The JSON of `structuredContent`, exactly as measured, if there is any."""
        return self._structured.json if self._structured else None

    @property
    def content_cuts(self) -> tuple[Cut, ...]:
        """What was left out of the text lane, which holds less than the other because of its escapes."""
        return self._content.cuts

    @property
    def structured_cuts(self) -> tuple[Cut, ...]:
        """What was left out of the structured lane."""
        return self._structured.cuts if self._structured else ()

    @property
    def problem(self) -> Problem | None:
        """The failure that the result reports, if any."""
        return self._outcome.error

    @property
    def untouched(self) -> bool:
        """Whether the payload goes out as it came, with nothing added."""
        quiet = self.meta is None and not self._redacted and not self.cuts and self._outcome.error is None
        return quiet and self._in_place and not self._is_moved

    @property
    def handle(self) -> str | None:
        """The handle of the stored payload, if the result names it."""
        handle = self._outcome.handle
        return handle if handle is not None and self._lanes.name(handle) else None

    @property
    def over_budget(self) -> bool:
        """Whether the result exceeds its dialect's own limit, by an exception that the contract makes."""
        limit = self._budget.limit
        return self._budget.is_own and not (
            self._content.fits(limit) and (self._structured is None or self._structured.fits(limit))
        )

    @property
    def payload_size(self) -> int:
        """The size of the payload in bytes, before any cut."""
        return self._payload.size

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._outcome.warnings

    @cached_property
    def report(self) -> Report:
        """The report, made on demand: a result that fits by its length alone is not counted otherwise."""
        content, structured = self._content, self._structured
        used = max(content.used, structured.used if structured else 0)
        return Report(
            limit=self._budget.limit,
            unit=self._budget.unit,
            meter=self._budget.meter.name,
            used=used,
            total=max(used, self._total()),
            content_used=content.used,
            structured_used=structured.used if structured else None,
            redacted=dict(self._redacted),
        )

    def _total(self) -> int:
        """Return the payload's size in the budget's unit, estimated from a sample if something was cut."""
        if not self._content.cuts and not self.structured_cuts:
            return 0
        payload = self._payload
        if payload.node is not None and payload.blocks is not None:
            # The larger lane counts, as in `used`.
            inside = Payload(blocks=payload.blocks)
            payload = max(
                inside, Payload(node=payload.node, partial=payload.partial), key=lambda lane: lane.size
            )
        if self._budget.unit == "bytes":
            return payload.size
        # If only the beginning of the payload is here, what is shown is the best sample.
        sample = payload.sample() if not payload.partial else (self._structured or self._content).json
        return round(payload.size * self._budget.meter.count(sample) / max(len(sample), 1))

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """What was left out of the structured lane, or of the text if that lane is whole or absent."""
        return self.structured_cuts or self.content_cuts

    @property
    def truncated(self) -> bool:
        return bool(self.cuts)

    def to_json(self) -> bytes:
        """Return the `CallToolResult` as one line of JSON."""
        parts = [b'"content":%b' % self.content]
        if self.structured is not None:
            # A message on stdio is one line, so line breaks are removed.
            body = self.structured
            if b"\n" in body or b"\r" in body:
                body = compact(body)
            parts.append(b'"structuredContent":%b' % body)
        if self.is_error:
            parts.append(b'"isError":true')
        if self.meta:
            parts.append(b'"_meta":%b' % encode(self.meta))
        return b"{%b}" % b",".join(parts)

    def to_result(self) -> dict[str, Any]:
        """Return the `CallToolResult` as Python objects. Unlike `to_json`, this loses the spelling of numbers.

        So if the payload came as JSON with numbers spelled differently from Python's, encoding it again changes
        its size.
        """
        result: dict[str, Any] = json.loads(self.to_json(), parse_float=_number, parse_int=_integer)
        return result


def _number(text: str) -> float | Decimal:
    number = float(text)
    if number not in (float("inf"), float("-inf")):
        return number
    try:
        return Decimal(text)
    except InvalidOperation:
        return number


def _integer(text: str) -> int | Decimal:
    # Python refuses to parse very long integers because of what it would cost.
    return int(text) if len(text) < 4000 else Decimal(text)


def _check(
    budget: object, rank: object, warnings: object, hint: object, read_as: object, handle: str | None
) -> None:
    """Reject mistakes that would otherwise show up far from here, with obscure messages."""
    if handle is not None and not _HANDLE.fullmatch(handle):
        raise ValueError(f"a handle has 1 to 43 letters, digits or . _ ~ -, got {handle[:60]!r}")
    if budget is not None and not isinstance(budget, Budget):
        raise TypeError(f"budget is a Budget, such as Budget.of(tokens=2000); got {budget!r}")
    if rank is not None and not isinstance(rank, Mapping):
        raise TypeError(f'rank maps paths to rankings, such as {{"/items": rank("-score")}}; got {rank!r}')
    for path, ranking in (rank or {}).items() if isinstance(rank, Mapping) else ():
        if not isinstance(ranking, Ranking):
            raise TypeError(
                f'a ranking is made by rank(), such as rank("-score"); got {ranking!r} for {path!r}'
            )
        if not isinstance(path, str) or ("/" in path and not path.startswith("/")):
            raise ValueError(f"a list is named by its path, such as /items, or its bare name; got {path!r}")
    if isinstance(warnings, str):
        raise TypeError(f"warnings is a list of strings; got the string {warnings!r}")
    for warning in warnings if isinstance(warnings, list | tuple) else ():
        if not isinstance(warning, str):
            raise TypeError(f"a warning is a string; got {warning!r}")
    if hint is not None and not isinstance(hint, str):
        raise TypeError(f"hint is a string; got {hint!r}")
    if read_as not in _READINGS:
        raise ValueError(f"read_as is one of {', '.join(_READINGS)}; got {read_as!r}")
