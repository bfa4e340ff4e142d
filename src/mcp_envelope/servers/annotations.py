"""Return annotations that speak of outcomes: `-> Rows | Miss`, `-> Reply[Rows]`, `-> Reply`.

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
    if _is_outcome(stated):
        return Stated(_data_of(stated), _is_outcome(stated, Miss))
    if typing.get_origin(stated) not in (typing.Union, types.UnionType):
        return None
    parts = typing.get_args(stated)
    if not any(map(_is_outcome, parts)):
        return None
    misses = any(_is_outcome(part, Miss) for part in parts)
    # A plain `Reply` says nothing of its data: what else is stated does.
    data = [part if not _is_outcome(part) else _data_of(part) for part in parts if not _is_silent(part)]
    return Stated(typing.Union[tuple(data)] if data else Any, misses)  # noqa: UP007


def _is_outcome(stated: Any, kind: type[Any] | types.UnionType = Reply | Miss | Failure) -> bool:
    bare = typing.get_origin(stated) or stated
    return isinstance(bare, type) and issubclass(bare, kind)


def _is_silent(stated: Any) -> bool:
    return _is_outcome(stated) and not typing.get_args(stated)


def _data_of(stated: Any) -> Any:
    """What `Reply[Book]` says that its data is."""
    return (typing.get_args(stated) or (Any,))[0]
