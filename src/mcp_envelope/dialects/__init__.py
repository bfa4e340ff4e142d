"""The wire shapes. A dialect says how a fitted payload and the facts about it look to a client."""

from __future__ import annotations

from importlib import import_module

from ..job import Dialect

# Each in a file of its own, imported when it is spoken.
_CLASSES: dict[str, str] = {
    "native": "Native",
    "ctxo": "Ctxo",
    "transcend": "Transcend",
    "gel": "Gel",
    "scalpel": "Scalpel",
}
NAMES: tuple[str, ...] = tuple(_CLASSES)
_made: dict[str, Dialect] = {}


def dialect(name: str) -> Dialect:
    if name not in _made:
        if name not in _CLASSES:
            raise ValueError(f"unknown dialect {name!r}; use one of {', '.join(NAMES)}")
        made: Dialect = getattr(import_module(f".{name}", __name__), _CLASSES[name])()
        if name != "native":
            from .beside import Beside

            made = Beside(made)
        _made[name] = made
    return _made[name]
