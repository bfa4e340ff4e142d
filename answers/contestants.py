"""What a model gets to see first of a large result: from us, and in the ways that others have.

Strategy: each is a function from a result and a number of o200k tokens to the texts that the model is shown, in no
more than so many tokens. Marks of omission are those that the originals write: FastMCP's behind a prefix, Claude
Code's around its preview of 2 KB, which is the same at any budget.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, Literal

from mcp_envelope import Sealed, seal
from mcp_envelope.budget import Budget, meter_named
from mcp_envelope.config.policy import Policy
from mcp_envelope.vault.read_tool import read
from mcp_envelope.vault.vault import Vault

from .data import DataSet

Shown = list[str]
Contestant = Callable[[DataSet, int], Shown]
PREVIEW: Final = 2000


def tokens(text: str) -> int:
    return meter_named("exact").count(text.encode())


class Ours:
    """`plain` is without profile and selection."""

    def __init__(self, vault: Vault, *, plain: bool = False) -> None:
        self._vault = vault
        self._plain = plain

    def __call__(self, data: DataSet, most: int) -> Shown:
        read_as: Literal["text", "json"] = "text" if isinstance(data.payload, str) else "json"
        options: dict[str, Any] = {"policy": _PLAIN} if self._plain else {}
        sealed = seal(
            data.payload, tokens=most, meter="exact", vault=self._vault.of(None), read_as=read_as, **options
        )
        return _texts(sealed)

    def read(self, arguments: dict[str, Any], most: int) -> Shown:
        """What `envelope_read` answers."""
        return _texts(read(self._vault, arguments, budget=Budget.of(tokens=most, meter="exact")))


_PLAIN: Final = Policy(select="head", describe="off")


def _texts(sealed: Sealed) -> Shown:
    return [str(block["text"]) for block in json.loads(sealed.content)]


def shrinkfit(data: DataSet, most: int) -> Shown:
    """Its own budget is in characters: the largest that stays within the tokens."""
    import shrinkfit as library

    if isinstance(data.payload, str):
        # It takes JSON and YAML only.
        return prefix(data, most)
    text = _text(data)

    def cut(characters: int) -> str:
        return str(library.shrink(text, characters, indent=0, input_format="json", format="json"))

    return [_largest(cut, most, 8 * most)]


def head_and_tail(data: DataSet, most: int) -> Shown:
    text = _text(data)

    def cut(characters: int) -> str:
        if len(text) <= characters:
            return text
        half = characters // 2
        return f"{text[:half]}\n\n... [{len(text) - 2 * half} characters truncated] ...\n\n{text[-half:]}"

    return [_largest(cut, most, 8 * most)]


def prefix(data: DataSet, most: int) -> Shown:
    text = _text(data)

    def cut(characters: int) -> str:
        whole = len(text) <= characters
        return text if whole else f"{text[:characters]}\n\n[Response truncated due to size limit]"

    return [_largest(cut, most, 8 * most)]


def preview(data: DataSet, most: int) -> Shown:
    text = _text(data)
    if tokens(text) <= most:
        return [text]
    head = f"Output too large ({len(text) / 1024:.1f}KB). Full output saved to: result.txt"
    return [f"{head}\n\nPreview (first 2KB):\n{text[:PREVIEW]}\n..."]


def _text(data: DataSet) -> str:
    return data.payload if isinstance(data.payload, str) else data.payload.decode()


def _largest(cut: Callable[[int], str], most: int, high: int) -> str:
    """The longest text within the tokens that a cut to a number of characters gives."""
    low, best = 1, ""
    while low <= high:
        middle = (low + high) // 2
        text = cut(middle)
        if tokens(text) <= most:
            low, best = middle + 1, text
        else:
            high = middle - 1
    return best
