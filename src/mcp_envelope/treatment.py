"""What is done to a payload before it is measured: fields chosen, secrets masked.

Strategy: both come first, so that what is measured, cut and stored is what may be shown. Fields are chosen at the
top level of the data only. Secrets are masked in the payload and in every text that travels with it. What
needs no change is passed on as it is, the same bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import fields
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from .facts import Facts, Problem, UpgradeHint
from .jsontree import Buffer, Member, assembled
from .payload import Payload, read_payload, to_json
from .redaction import Redactor
from .schema import Schema
from .secrets import BUILT_IN

# What was masked had a format that the output schema fixes: the structure can't be sent, the text can.
REDACTED: Final = Problem(
    "RESULT_REDACTED",
    "A secret was masked in a field whose form the output schema fixes, so there is no structured result.",
    "Read the text; what was masked is marked there.",
)


def breaks(payload: Payload, schema: Schema, wrap: bool) -> bool:
    """Whether the payload, after secrets were masked in it, no longer conforms."""
    if payload.node is None:
        return False
    original = payload.original()
    return not schema.is_valid(b'{"result":%b}' % original if wrap else original)


@lru_cache(32)
def redactor(patterns: tuple[tuple[str, str], ...] = ()) -> Redactor:
    """The built-in patterns and some more; made once."""
    return Redactor({**BUILT_IN, **dict(patterns)})


def chosen(
    payload: Payload, include_only: Collection[str], exclude: Collection[str], schema: Schema | None = None
) -> Payload:
    """The payload with some of its top-level fields; what the schema requires stays."""
    if payload.node is None or payload.node.kind != "object" or not (include_only or exclude):
        return payload
    members: list[Member] = payload.node.members()
    must: Collection[str] = ()
    if schema is not None:
        place = schema.root.narrow("object", {member.key: member.value for member in members})
        must = place.required([member.key for member in members])
    kept = [
        member
        for member in members
        if member.key in must
        or ((not include_only or member.key in include_only) and member.key not in exclude)
    ]
    return payload if len(kept) == len(members) else Payload(node=assembled(kept), blocks=payload.blocks)


def masked(payload: Payload, using: Redactor, found: Counter[str]) -> Payload:
    """The payload with its secrets masked; each is counted by the pattern that found it."""
    if payload.partial:
        # Whoever stored it while it came in masked it there.
        return payload
    if payload.node is not None:
        original = payload.original()
        text, secrets = using.redact_json(original)
        found.update(secrets)
        same = text is original or not secrets
        if payload.blocks is None:
            return payload if same else read_payload(text, "json")
        document = payload if same else read_payload(text, "json")
        blocks = tuple([_masked_block(block, using, found) for block in payload.blocks])
        return Payload(node=document.node, source=document.source, blocks=blocks)
    if payload.text is not None:
        words = payload.text.decode()
        said, secrets = using.redact_text(words)
        found.update(secrets)
        return payload if not secrets else Payload(text=said.encode())
    if payload.blocks is None:
        return payload
    return Payload(blocks=tuple([_masked_block(block, using, found) for block in payload.blocks]))


def _masked_block(block: Buffer, using: Redactor, found: Counter[str]) -> Buffer:
    if not using.may_find(block):
        # Almost always; and a block may be large.
        return block
    text, secrets = using.redact_json(bytes(block))
    found.update(secrets)
    return text if secrets else block


def masked_facts(facts: Facts, using: Redactor, found: Counter[str]) -> Facts:
    """The same for everything that is said beside the payload."""

    def masked_value(value: Any) -> Any:
        if isinstance(value, str):
            said, secrets = using.redact_text(value)
            found.update(secrets)
            return said
        if isinstance(value, tuple):
            return tuple([masked_value(item) for item in value])
        if isinstance(value, Problem | UpgradeHint):
            return type(value)(*[masked_value(getattr(value, each.name)) for each in fields(value)])
        if isinstance(value, Mapping) and value:
            raw, secrets = using.redact_json(to_json(value))
            found.update(secrets)
            return msgspec.json.decode(raw) if secrets else value
        return value

    changes = {name: masked_value(getattr(facts, name)) for name in facts.__struct_fields__ if name != "cuts"}
    return replace(facts, **changes)
