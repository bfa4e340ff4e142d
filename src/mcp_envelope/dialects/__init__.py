"""The wire shapes. A dialect says how a fitted payload and the facts about it look to a client."""

from __future__ import annotations

from ..job import Dialect
from .native import Native

_DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in (Native(),)}
NAMES: tuple[str, ...] = tuple(_DIALECTS)


def dialect(name: str) -> Dialect:
    found = _DIALECTS.get(name)
    if found is None:
        raise ValueError(f"unknown dialect {name!r}; use one of {', '.join(NAMES)}")
    return found
