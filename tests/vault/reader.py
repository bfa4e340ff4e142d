"""Reads a stored payload back by calling `envelope_read` again and again, as a client would."""

from __future__ import annotations

import json
from typing import Any

from mcp_envelope.budget import Budget
from mcp_envelope.dialects.notice import META_KEY
from mcp_envelope.vault.read_tool import read
from mcp_envelope.vault.vault import Vault

from ..shown import shown

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


class Reader:
    """`calls` counts the calls; each answer is checked to be within the budget, and the same when asked twice."""

    def __init__(self, vault: Vault, handle: str, budget: Budget) -> None:
        self.vault = vault
        self.handle = handle
        self.budget = budget
        self.calls = 0

    def call(self, **arguments: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The blocks of an answer and its cuts."""
        self.calls += 1
        asked = {"handle": self.handle, **arguments}
        sealed = read(self.vault, asked, budget=self.budget)
        assert self.budget.meter.count(shown(sealed.content)) <= self.budget.limit
        assert sealed.structured is None
        if self.calls % 7 == 1:
            assert read(self.vault, asked, budget=self.budget).to_json() == sealed.to_json()
        result = json.loads(sealed.to_json())
        assert not sealed.is_error, result
        return result["content"], (sealed.meta or {}).get(META_KEY, {}).get("dropped", [])

    def text(self, path: str, offset: int = 0, total: int | None = None, **more: Any) -> str:
        """All characters of a string or a text, page by page."""
        parts: list[str] = []
        while total is None or offset < total:
            blocks, cuts = self.call(path=path, offset=offset, **more)
            parts.append(blocks[-1]["text"])
            if not cuts:
                break
            (cut,) = cuts
            assert cut["path"] == path
            assert cut["unit"] == "characters"
            assert cut["offset"] == offset + len(parts[-1]) > offset
            assert (total or cut["total"]) == cut["total"]
            offset = cut["offset"]
        return "".join(parts)

    def value(self, path: str, like: Any, offset: int = 0) -> Any:
        """The value at a path, from an offset on; `like` is what it should be, and says only of which kind."""
        if isinstance(like, str):
            held = _held(like)
            if held is None:
                return self.text(path, offset, len(like))
            return _ENCODER.encode(self.value(path, held, offset))
        if not isinstance(like, list | dict):
            blocks, cuts = self.call(path=path)
            assert not cuts
            return json.loads(blocks[-1]["text"])
        total = len(like)
        items: list[tuple[str | None, Any]] = []
        if not total:
            assert json.loads(self.call(path=path)[0][-1]["text"]) == like
        at = offset
        while at < total:
            blocks, cuts = self.call(path=path, offset=at)
            page = json.loads(blocks[-1]["text"])
            after = next((cut["offset"] for cut in cuts if cut["path"] == path), total)
            assert after > at, "a page that does not go on"
            inside = [cut for cut in cuts if cut["path"] != path]
            there: list[tuple[str | None, Any]]
            there = list(page.items()) if isinstance(page, dict) else [(None, item) for item in page]
            if inside:
                # One item that is too large for a page: read for itself.
                assert after == at + 1
                key = list(like)[at] if isinstance(like, dict) else None
                step = str(at) if key is None else key.replace("~", "~0").replace("/", "~1")
                child = like[key] if isinstance(like, dict) and key is not None else like[at]
                there = [(key, self.value(f"{path}/{step}", child))]
            assert len(there) == after - at
            items += there
            at = after
        if isinstance(like, dict):
            return dict(items)
        return [item for _, item in items]


def _held(text: str) -> Any:
    """The JSON container that a string holds."""
    if text.lstrip(" \t\r\n")[:1] not in ("{", "["):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, list | dict) else None
