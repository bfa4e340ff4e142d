"""Whatever names a handle was stored, and whatever is not shown can be read: in every dialect, lane and budget."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from mcp_envelope import Failure, Miss, Reply, dialects, seal
from mcp_envelope.payload import Payload
from mcp_envelope.vault.vault import CallerVault, open_vault

ROWS = {"rows": [{"id": number, "name": f"row {number}"} for number in range(2000)]}
IMAGE = {"type": "image", "data": "A" * 90_000, "mimeType": "image/png"}
LINKS = [{"type": "resource_link", "uri": f"file:///{number}", "name": "n"} for number in range(3000)]
CLOSED = {
    "type": "object",
    "properties": {"rows": {"type": "array", "minItems": 2000}},
    "required": ["rows"],
    "additionalProperties": False,
}
ANSWERS: Mapping[str, Any] = {
    "small": {"a": 1},
    "rows": ROWS,
    "fewer rows": {"rows": ROWS["rows"][:150]},
    "list": list(range(20_000)),
    "text": "a line of text\n" * 5000,
    "two thousand characters": "é line of text\n" * 180,
    "blocks": [{"type": "text", "text": "x y " * 9000}, IMAGE],
    "image": [IMAGE],
    "links": LINKS,
    "text and JSON": [{"type": "text", "text": "hello"}, {"type": "text", "text": json.dumps(ROWS)}],
    "reply": Reply(ROWS, summary="s" * 300, details=["d" * 3000] * 20),
    "reply with texts": Reply({"a": 1}, details=["d" * 3000] * 20, next_steps=["n" * 900] * 90),
    "miss": Miss("Nothing is called that."),
    "failure": Failure("NOT_FOUND", "Nothing is called that.", "Try another."),
    "failure with a long message": Failure("NOT_FOUND", "word " * 790),
    "an envelope of its own": {"_envelope": {"note": "Cut to fit."}, "rows": list(range(9000))},
    "ctxo": {"results": list(range(5000)), "_meta": {"totalItems": 5000}},
    "gel": {"meta": {"status": "ok", "summary": "s", "details": ["d" * 900] * 60}, "data": ROWS},
}
BUDGETS: tuple[dict[str, Any], ...] = ({}, {"tokens": 128}, {"max_bytes": 3000})
# How a document says that something is missing.
SAYS = re.compile(rb'truncated\\*":\s*true|"truncated\\*":true')


class Noting:
    """A vault that notes what it promised and what it kept, or that keeps nothing."""

    def __init__(self, vault: CallerVault, works: bool) -> None:
        self._vault, self._works = vault, works
        self.promised: list[str] = []
        self.kept: list[str] = []

    def promise(self) -> tuple[str, float]:
        made = self._vault.promise()
        self.promised.append(made[0])
        return made

    def keep(self, handle: str, payload: Payload, tool: str | None) -> str | None:
        if not self._works:
            return "database or disk is full"
        problem = self._vault.keep(handle, payload, tool)
        if problem is None:
            self.kept.append(handle)
        return problem


@pytest.mark.parametrize("works", [True, False])
@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("dialect", dialects.NAMES)
def test_whatever_names_a_handle_was_stored(dialect: str, answer: str, works: bool, tmp_path: Path) -> None:
    vault = open_vault(str(tmp_path / "vault.db"), ttl=100, cap=1 << 30)
    assert vault is not None
    followed = (False, True) if answer in ("image", "blocks", "links") else (True,)
    schemas = (None, CLOSED) if answer.endswith("rows") else (None,)
    for budget, schema, links, is_error in product(BUDGETS, schemas, followed, (None, True)):
        noting = Noting(vault.of(None), works)
        sealed = seal(
            ANSWERS[answer],
            dialect=dialect,
            vault=noting,
            schema=schema,
            links=links,
            is_error=is_error,
            **budget,
        )
        sent = sealed.to_json()
        case = budget, schema is not None, links, is_error
        named = [handle for handle in noting.promised if handle.encode() in sent]
        assert set(named) <= set(noting.kept), case
        for handle in named:
            assert vault.open(handle).entry.size > 0, case
        if not works:
            continue
        if sealed.cuts or sealed.content_cuts or SAYS.search(sent):
            assert named or dialect == "ctxo", (case, sent[:300])
        if answer == "failure with a long message":
            assert named or sent.count(b"word") >= 790, case
    vault.close()
