"""Whatever names a handle was stored, and whatever is not shown can be read: in every dialect, lane and budget."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mcp_envelope import Failure, Miss, Reply, dialects, seal
from mcp_envelope.payload import Payload
from mcp_envelope.vault.vault import CallerVault, open_vault

from .pairwise import pairwise

ROWS = {"rows": [{"id": number, "name": f"row {number}"} for number in range(2000)]}
IMAGE = {"type": "image", "data": "A" * 90_000, "mimeType": "image/png"}
BLOCKS = [{"type": "text", "text": "x y " * 9000}, IMAGE]
LINKS = [{"type": "resource_link", "uri": f"file:///{number}", "name": "n"} for number in range(3000)]
CLOSED = {
    "type": "object",
    "properties": {"rows": {"type": "array", "minItems": 2000}},
    "required": ["rows"],
    "additionalProperties": False,
}
ANSWERS: Mapping[str, dict[str, Any]] = {
    "small": {"payload": {"a": 1}},
    "rows": {"payload": ROWS},
    "rows of a closed schema": {"payload": ROWS, "schema": CLOSED},
    "fewer rows": {"payload": {"rows": ROWS["rows"][:150]}},
    "fewer rows than the schema wants": {"payload": {"rows": ROWS["rows"][:150]}, "schema": CLOSED},
    "list": {"payload": list(range(20_000))},
    "text": {"payload": "a line of text\n" * 5000},
    "two thousand characters": {"payload": "é line of text\n" * 180},
    "blocks": {"payload": BLOCKS},
    "blocks, and links to what was cut": {"payload": BLOCKS, "links": True},
    "image": {"payload": [IMAGE]},
    "image, and a link to it": {"payload": [IMAGE], "links": True},
    "links": {"payload": LINKS},
    "links, and a link to the others": {"payload": LINKS, "links": True},
    "text and JSON": {
        "payload": [{"type": "text", "text": "hello"}, {"type": "text", "text": json.dumps(ROWS)}]
    },
    "reply": {"payload": Reply(ROWS, summary="s" * 300, details=["d" * 3000] * 20)},
    "reply with texts": {"payload": Reply({"a": 1}, details=["d" * 3000] * 20, next_steps=["n" * 900] * 90)},
    "miss": {"payload": Miss("Nothing is called that.")},
    "failure": {"payload": Failure("NOT_FOUND", "Nothing is called that.", "Try another.")},
    "failure with a long message": {"payload": Failure("NOT_FOUND", "word " * 790)},
    "an envelope of its own": {"payload": {"_envelope": {"note": "Cut to fit."}, "rows": list(range(9000))}},
    "ctxo": {"payload": {"results": list(range(5000)), "_meta": {"totalItems": 5000}}},
    "gel": {"payload": {"meta": {"status": "ok", "summary": "s", "details": ["d" * 900] * 60}, "data": ROWS}},
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


@pairwise(
    dialect=dialects.NAMES,
    answer=ANSWERS,
    works=(True, False),
    budget=BUDGETS,
    is_error=(None, True),
)
def test_whatever_names_a_handle_was_stored(
    dialect: str,
    answer: str,
    works: bool,
    budget: dict[str, Any],
    is_error: bool | None,
    tmp_path: Path,
) -> None:
    vault = open_vault(str(tmp_path / "vault.db"), ttl=100, cap=1 << 30)
    assert vault is not None
    noting = Noting(vault.of(None), works)
    sealed = seal(
        **ANSWERS[answer],
        dialect=dialect,
        vault=noting,
        is_error=is_error,
        **budget,
    )
    sent = sealed.to_json()
    named = [handle for handle in noting.promised if handle.encode() in sent]
    assert set(named) <= set(noting.kept)
    for handle in named:
        assert vault.open(handle).entry.size > 0
    if works:
        if sealed.cuts or sealed.content_cuts or SAYS.search(sent):
            assert named or dialect == "ctxo", sent[:300]
        if answer == "failure with a long message":
            assert named or sent.count(b"word") >= 790
    vault.close()
