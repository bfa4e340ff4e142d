"""The one door everything goes through: a payload in, a result that fits out.

Strategy: read the payload once, gather what is known about the result, and let the dialect put both on the
wire. A lane's size is that of its exact text, notice, escaping and every block included; a lane leaves only
after its meter accepted it.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, cast, get_args

from msgspec.structs import replace

from . import dialects
from .blocks import is_text
from .budget import Budget
from .context import current
from .dialects.notice import READ_TOOL
from .facts import Facts, Problem, shortened
from .job import PROFILES, Dialect, Job, Lanes, Profile
from .outcome import Failure, read_outcome, sendable
from .payload import As, Payload, read_payload
from .ranking import Ranking
from .ranking import rank as rank_by
from .schema import Schema, Widened
from .scrubbing import SAID, scrub
from .sealed import Sealed

if TYPE_CHECKING:
    from .policy import Policy

_READINGS: Final = get_args(As)
# A URL, or a host and its port.
_ADDRESS: Final = re.compile(r"\w://|[\w\]]:[0-9]{1,5}\b")
# Dialects have a message of so many characters for the smallest budgets.
_SHORT: Final = 120
# And so many stand beside a message: a code, a hint, figures.
_BESIDE: Final = 400
# What a handle may look like: the smallest budget must have room for it, and a call must be able to name it.
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
    is_error: bool | None = None,
    read_as: As = "auto",
) -> Sealed:
    """Fit what a tool returned (or raised: a `Failure`) into a budget, in the shape of a dialect.

    The budget, for each lane: `tokens` (8000 unless the dialect says otherwise), counted by `meter`
    ("estimate", "chars4", "exact"), or `max_bytes`, or a ready `budget`.

    `schema`: in the native dialect the output schema that clients were told, best as `widen` gives it (if only
    its `schema` is passed on and it was wrapped, say `wrap`); in the other dialects the schema of the data.
    `rank` maps the path of a list to its ranking, made by `rank()`.
    `vault` keeps the whole payload if something has to be left out; notes then say `envelope_read(handle, …)`.
    If it cannot, the result says so and is sent without a handle. `handle` names a payload that was stored
    elsewhere. `links` tells that the client can follow links to stored images and the like.
    `hint` is the next step to suggest when something was cut; `warnings` travel with the result.
    `policy` has the settings for this call, from a file and the environment; what is given here goes first.
    `profile` says how much metadata is shown; `tool`, `request_id`, `duration_ms` are some of it.
    `is_error` marks the payload as a failure's text: its beginning and its end stay.
    `read_as` settles what the payload is, where its type does not tell: "json", "text" or "blocks".
    """
    if isinstance(schema, Widened):
        wrap, schema = schema.wrapped, schema.schema
    _check(budget, rank, warnings, hint, read_as)
    spoken = dialects.dialect(dialect or (policy.dialect if policy else "native"))
    if policy is not None:
        # What is given goes first, and the rest of the policy is that of the dialect spoken.
        policy = dataclasses.replace(policy, dialect=spoken.name, meter=meter or policy.meter)
    if budget is None:
        if policy is not None and tokens is None and max_bytes is None:
            budget = policy.budget
        if budget is None:
            counted = policy.meter if policy is not None and max_bytes is None else meter
            budget = spoken.budget(tokens, max_bytes, counted)
    if profile is None:
        profile = cast(Profile, policy.detail) if policy else "minimal"
    if handle is not None and not _HANDLE.fullmatch(handle):
        raise ValueError(f"a handle has 1 to 43 letters, digits or . _ ~ -, got {handle[:60]!r}")
    if profile not in PROFILES:
        raise ValueError(f"profile is one of {', '.join(PROFILES)}; got {profile!r}")
    if schema is not None and not isinstance(schema, Schema):
        schema = Schema.of(schema)
    facts = Facts(
        handle=handle,
        linkable=links,
        hint=sendable(hint) or (policy.hint if policy else None) or None,
        hints=policy.hints if policy else {},
        warnings=(
            *[sendable(warning) or "" for warning in warnings],
            *(policy.warnings if policy else ()),
            *([budget.warning] if budget.warning else []),
        ),
        tool=sendable(tool),
        tool_version=policy.tool_version if policy else None,
        tier=policy.tier if policy else None,
        capabilities=(policy.capabilities or None) if policy else None,
        workspace=policy.workspace if policy else None,
        request_id=sendable(request_id),
        client_request_id=request_id is not None,
        duration_ms=duration_ms,
    )
    outcome = read_outcome(payload, facts, current())
    facts = outcome.facts
    if isinstance(payload, OwnFailure):
        facts = replace(facts, summary=payload.problem.message, error=payload.problem)
    if facts.error is not None:
        facts = replace(facts, error=_said(facts.error, budget))
    read = read_payload(outcome.data, read_as) if outcome.has_data else Payload()
    if wrap and read.text is not None:
        # The schema speaks of {"result": …}, so a text is a value like any other.
        read = Payload(node=read.as_node())
    rankings = {**outcome.rank, **(rank or {})}
    secrets: Counter[str] = Counter()
    truncatable: frozenset[str] = frozenset()
    if policy is not None:
        from . import treatment  # its patterns take a while to compile, and a plain `seal` needs none

        truncatable = frozenset(policy.truncatable)
        rankings = {**_rankings(policy.lists), **rankings}
        read = treatment.chosen(read, policy.include_only, policy.exclude_fields, None if wrap else schema)
        if policy.redact:
            using = treatment.redactor(tuple(policy.redact_patterns.items()))
            read = treatment.masked(read, using, secrets)
            if secrets and schema is not None and treatment.breaks(read, schema, wrap):
                facts = replace(facts, error=treatment.REDACTED)
            facts = treatment.masked_facts(facts, using, secrets)
    if is_error is None:
        is_error = outcome.is_error
    job = Job(read, budget, facts, schema, wrap, rankings, is_error, profile, truncatable)
    if vault is not None:
        lanes = _sealed_and_kept(spoken, job, vault)
    else:
        if words := _left_beside(spoken, job):
            job.facts = replace(facts, warnings=(*facts.warnings, words))
        lanes = spoken.seal(job)
    return Sealed(
        lanes.content,
        lanes.structured,
        is_error=lanes.is_error,
        facts=lanes.facts,
        meta=lanes.meta,
        budget=budget,
        payload=read,
        redacted=secrets,
        in_place=spoken.name == "native",
    )


class OwnFailure(Failure):
    """A failure in our own words and the caller's, which are shown as they are."""


def not_stored(problem: str) -> str:
    """The warning. Who reads a result need not know folders and addresses; the log has them."""
    reason = "its store cannot be used now" if _ADDRESS.search(problem) else scrub(problem)
    return f"The whole result was not stored: {reason}"


def _said(problem: Problem, budget: Budget) -> Problem:
    """A long message, as far as the budget is likely to allow. If it does not, dialects have a shorter one."""
    return dataclasses.replace(problem, message=shortened(problem.message, _most_characters(budget)))


def _most_characters(budget: Budget) -> int:
    return max(budget.limit // 4 if budget.unit == "bytes" else budget.limit * 3 // 2, _SHORT)


def most_said(budget: Budget | None) -> int:
    """A message of no more characters is likely to be shown whole: characters are reckoned, not counted."""
    return SAID if budget is None else min(SAID, max(_SHORT, _most_characters(budget) - _BESIDE))


class Keeper(Protocol):
    """Where whole payloads rest: a vault, for one caller."""

    def promise(self) -> tuple[str, float]:
        """A handle for a payload that may have to be kept, and when it would expire."""
        ...

    def keep(self, handle: str, payload: Payload, tool: str | None) -> str | None:
        """Store the payload under the handle, whole. What is wrong, in words for people, if that failed."""
        ...


def _left_beside(spoken: Dialect, job: Job) -> str:
    """Dialects other than ours have no place for texts beside a structure that says something else."""
    payload = job.payload
    if spoken.name == "native" or payload.node is None or payload.blocks is None:
        return ""
    texts = [block for block in payload.blocks if is_text(block)]
    if not texts:
        return ""
    said = f"The text that came beside the structure ({sum(map(len, texts))} bytes) is not shown."
    if job.facts.handle is None:
        return f"{said} It was not kept."
    return f'{said} Read it: {READ_TOOL}(handle="{job.facts.handle}", path="/content").'


def _sealed_and_kept(spoken: Dialect, job: Job, vault: Keeper) -> Lanes:
    """The lanes, and the payload stored before they leave, if they are not all of it."""
    if job.payload.is_empty or job.payload.page is not None:
        return spoken.seal(job)
    bare = job.facts
    handle, expires = vault.promise()
    job.facts = replace(bare, handle=handle, expires=expires)
    before = job.payload, job.wrap, job.is_error
    beside = _left_beside(spoken, job)
    if beside:
        job.facts = replace(job.facts, warnings=(*bare.warnings, beside))
    lanes = spoken.seal(job)
    cut = beside or lanes.content.cuts or (lanes.structured is not None and lanes.structured.cuts)
    if not cut and lanes.facts.error is None:
        return lanes
    if before[0].node is not None:
        # Storing takes memory of its own.
        before[0].node.forget()
    problem = vault.keep(handle, before[0], job.facts.tool)
    if problem is None:
        return lanes
    job.payload, job.wrap, job.is_error = before
    job.facts = replace(bare, warnings=(*bare.warnings, not_stored(problem)))
    if words := _left_beside(spoken, job):
        job.facts = replace(job.facts, warnings=(*job.facts.warnings, words))
    return spoken.seal(job)


def _rankings(lists: Mapping[str, tuple[str, ...]]) -> dict[str, Ranking]:
    """By the path of a list, or by its bare name, wherever it is."""
    return {path: rank_by(*keys) for path, keys in lists.items()}


def _check(budget: object, rank: object, warnings: object, hint: object, read_as: object) -> None:
    """Mistakes that would otherwise show up far from here, in other words."""
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
        raise TypeError(f"warnings is a list of texts; got the text {warnings!r}")
    for warning in warnings if isinstance(warnings, list | tuple) else ():
        if not isinstance(warning, str):
            raise TypeError(f"a warning is a text; got {warning!r}")
    if hint is not None and not isinstance(hint, str):
        raise TypeError(f"hint is a text; got {hint!r}")
    if read_as not in _READINGS:
        raise ValueError(f"read_as is one of {', '.join(_READINGS)}; got {read_as!r}")
