"""Return annotations that speak of outcomes: `-> Rows | Miss`, `-> Reply`.

Strategy: outcomes are how a tool answers, not what its data is. They are taken out of the annotation, and what is
left is the data, whose schema is published.
"""

from __future__ import annotations

import functools
import types
import typing
from typing import Any, NamedTuple

from ..outcome import Failure, Miss, Reply


class Stated(NamedTuple):
    """The annotation of the data alone, and whether the tool says that it may miss."""

    annotation: Any
    misses: bool


def without_outcomes(function: Any) -> Stated | None:
    """What is left of a function's return annotation; None if it speaks of no outcome."""
    while isinstance(function, functools.partial):
        function = function.func
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except Exception:
        # Names that only exist for a type checker: the library copes with them, or not, in its own way.
        return None
    stated = hints.get("return")
    if isinstance(stated, type) and issubclass(stated, Reply | Miss | Failure):
        return Stated(Any, issubclass(stated, Miss))
    if typing.get_origin(stated) not in (typing.Union, types.UnionType):
        return None
    parts = typing.get_args(stated)
    data = [
        part for part in parts if not (isinstance(part, type) and issubclass(part, Reply | Miss | Failure))
    ]
    if len(data) == len(parts):
        return None
    misses = any(isinstance(part, type) and issubclass(part, Miss) for part in parts)
    return Stated(typing.Union[tuple(data)] if data else Any, misses)  # noqa: UP007
