"""What a server says of a result besides its payload, in plain JSON: in the result's `_meta`, or in the settings.

Strategy: a server in any language can say what a Python tool says with `Reply`, `Miss`, `Failure` and `warn`. Each
fact is judged on its own, so that a wrong one costs no more than itself. All of them are bounded and on one line:
they are shown among our own words, which they must not be able to imitate.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta
from msgspec.structs import replace

from .jsontext.document import Buffer
from .outcome import Outcome, UpgradeHint, sendable, shortened

REPLY_KEY: Final = "io.github.mcp-envelope/reply"
# The whole statement, in bytes of JSON; one text, in characters; texts in a list.
_LARGEST: Final = 1 << 14
_LONGEST: Final = 1000
_MOST: Final = 20
# Controls, and marks that are invisible or change the direction of text.
_INVISIBLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]+")
# What only a notice of ours says.
_OURS: Final = b"envelope_read"

_Text = Annotated[str, Meta(min_length=1)]
_Facts = dict[str, Any]


class StatedLink(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A resource link, as the protocol has it."""

    uri: _Text
    name: _Text
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None


class StatedError(msgspec.Struct, frozen=True, omit_defaults=True):
    """A failure. Without a message, the result's own text is the message."""

    code: str = ""
    message: str = ""
    hint: str = ""
    details: _Facts | None = None


class ReplyMeta(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The facts that can be said. Those that nobody says are None or empty."""

    status: Literal["ok", "info", "warn"] | None = None
    summary: _Text | None = None
    details: tuple[_Text, ...] = ()
    next_steps: tuple[_Text, ...] = ()
    links: tuple[StatedLink, ...] = ()
    warnings: tuple[_Text, ...] = ()
    hint: _Text | None = None
    # False: a miss, whose next step is the hint.
    found: bool = True
    error: StatedError | None = None
    tier: Literal["community", "pro", "enterprise"] | None = None
    tool_version: _Text | None = None
    capabilities: tuple[_Text, ...] | None = None
    upgrade_hints: tuple[UpgradeHint, ...] = ()
    rate_limit: _Facts | None = None
    token_usage: _Facts | None = None
    workspace: dict[str, str] | None = None

    def add_to(self, outcome: Outcome) -> Outcome:
        links = [{"type": "resource_link", **msgspec.to_builtins(link)} for link in self.links]
        return replace(
            outcome,
            status=self.status or outcome.status,
            summary=self.summary or outcome.summary,
            details=(*outcome.details, *self.details),
            next_steps=(*outcome.next_steps, *self.next_steps),
            links=(*outcome.links, *links),
            warnings=tuple(dict.fromkeys((*outcome.warnings, *self.warnings))),
            hint=self.hint or outcome.hint,
            tier=self.tier or outcome.tier,
            tool_version=self.tool_version or outcome.tool_version,
            capabilities=outcome.capabilities if self.capabilities is None else self.capabilities,
            upgrade_hints=(*outcome.upgrade_hints, *self.upgrade_hints),
            rate_limit=self.rate_limit or outcome.rate_limit,
            token_usage=self.token_usage or outcome.token_usage,
            workspace=self.workspace or outcome.workspace,
        )


# By the name in JSON; in a settings file they are spelled with underscores.
_FIELDS: Final = {field.encode_name: field for field in msgspec.structs.fields(ReplyMeta)}
NAMES: Final = tuple(field.name for field in _FIELDS.values())
NOTHING: Final = ReplyMeta()


def read_reply_meta(said: object, report: Callable[..., None] | None = None) -> ReplyMeta:
    """Return what is said, without what can't be used, which is reported with the fact's name."""
    report = report or (lambda message, *path: None)
    if not isinstance(said, Mapping):
        report("is not a table")
        return NOTHING
    if len(msgspec.json.encode(dict(said))) > _LARGEST:
        report(f"has more than {_LARGEST} bytes")
        return NOTHING
    found = {}
    for name, value in said.items():
        field = _FIELDS.get(_camel(name))
        if field is None:
            report("no such fact", name)
            continue
        try:
            fact = _lines(value)
            if _OURS in msgspec.json.encode(fact):
                raise ValueError("names envelope_read, which only our own notices do")
            found[field.name] = msgspec.convert(fact, field.type)
        except ValueError as error:
            report(str(error), name)
    return ReplyMeta(**found)


def reply_meta_in(meta: Buffer) -> ReplyMeta | None:
    """Return what the JSON of a result's `_meta` says; None if it says nothing."""
    try:
        raw = msgspec.json.decode(meta, type=_Said).said
        return None if raw is UNSET else read_reply_meta(msgspec.json.decode(raw))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


class _Said(msgspec.Struct):
    said: msgspec.Raw | msgspec.UnsetType = msgspec.field(default=UNSET, name=REPLY_KEY)


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _lines(value: Any) -> Any:
    """Return the value with each of its texts on one line, and bounded like its lists."""
    if isinstance(value, str):
        return shortened(" ".join(_INVISIBLE.sub(" ", sendable(value) or "").split()), _LONGEST)
    if isinstance(value, list | tuple):
        return [_lines(each) for each in value[:_MOST]]
    if isinstance(value, Mapping):
        return {_lines(key): _lines(each) for key, each in value.items()}
    return value
