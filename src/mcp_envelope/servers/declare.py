"""What a tool's author declares: `@enveloped(...)` at the function, and outcomes in its return annotation.

Strategy: the decorator attaches what was declared to the function, and an adapter finds it there. A settings
file takes precedence, so whoever runs a server has the last word. Outcomes (`-> Rows | Miss`, `-> Reply[Rows]`)
say how a tool answers, not what its data is: they are removed from the annotation, and the schema of the rest
is published.
"""

from __future__ import annotations

import errno
import functools
import os
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from .. import extras
from ..budget import MIN_BYTES, MIN_TOKENS
from ..config import Settings
from ..fit.ranking import Ranking
from ..gateway import Declared, Gateway
from ..outcome import Failure, Miss, Reply

_F = TypeVar("_F", bound=Callable[..., Any])
_ATTRIBUTE: Final = "__enveloped__"
NOTHING_DECLARED: Final = Declared()
# The packages that extras install for the adapters.
_PACKAGES: Final = {"sdk": "mcp", "fastmcp": "fastmcp"}


def enveloped(
    *,
    budget: int | None = None,
    max_bytes: int | None = None,
    lists: Mapping[str, Ranking] | None = None,
    hint: str | None = None,
    stoppable: bool = False,
) -> Callable[[_F], _F]:
    """Declare how a tool's results are cut.

    `budget` is in tokens, `max_bytes` in bytes. `lists` ranks lists, by path or bare name, before they are cut.
    `hint` is the next step to suggest when something was cut. A tool that yields its items and is `stoppable`
    is stopped once it has yielded more than the budget can hold.
    """
    check_budget(budget, max_bytes)
    for path, ranking in (lists or {}).items():
        if not isinstance(ranking, Ranking):
            raise TypeError(
                f'a ranking is made by rank(), such as rank("-score"); got {ranking!r} for {path!r}'
            )
    declared = Declared(
        tokens=budget, max_bytes=max_bytes, lists=dict(lists or {}), hint=hint, stoppable=stoppable
    )

    def attach(function: _F) -> _F:
        setattr(function, _ATTRIBUTE, declared)
        return function

    return attach


def declared_at(function: object) -> Declared:
    """Return what was declared at a function, or at the function that it wraps."""
    while function is not None:
        found = getattr(function, _ATTRIBUTE, None)
        if isinstance(found, Declared):
            return found
        function = getattr(function, "__wrapped__", None) or getattr(function, "__func__", None)
    return NOTHING_DECLARED


def check_budget(budget: object, max_bytes: object) -> None:
    """Raise ValueError if a budget given in code is impossible."""
    if budget is not None and max_bytes is not None:
        raise ValueError("a budget is in tokens (budget) or in bytes (max_bytes), not both")
    for name, value, least in (("budget", budget, MIN_TOKENS), ("max_bytes", max_bytes, MIN_BYTES)):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
            raise ValueError(f"{name} must be a whole number, {least} or more; got {value!r}")


def gateway_of(
    *,
    budget: int | None,
    max_bytes: int | None,
    config: str | os.PathLike[str] | None,
    settings: Settings | None,
    **options: Any,
) -> Gateway:
    """Return the gateway of a server. A settings file that is named must exist now; later it may come and go."""
    check_budget(budget, max_bytes)
    if config is not None and not os.path.isfile(config) and os.fspath(config) != os.devnull:
        raise FileNotFoundError(errno.ENOENT, "there is no settings file", os.fspath(config))
    return Gateway(settings or Settings(config), budget=budget, max_bytes=max_bytes, **options)


def missing_extra(library: str, extra: str, error: ImportError) -> ImportError:
    """Return an error that says what to install for an adapter, for `raise … from error`."""
    state, needs = extras.state(_PACKAGES[extra], error), extras.OLDEST[_PACKAGES[extra]]
    message = f'{library} {needs} or newer is needed here ({state}): pip install -U "mcp-envelope[{extra}]"'
    return ImportError(message, name=error.name, path=error.path)


class DataAnnotation(NamedTuple):
    """The annotation of a tool's data alone, and whether the tool may return a `Miss`."""

    annotation: Any
    misses: bool


def without_outcomes(function: Any) -> DataAnnotation | None:
    """Return a function's return annotation without outcomes; None if there are none in it."""
    while isinstance(function, functools.partial):
        function = function.func
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except Exception:
        # Names that exist only for a type checker: the library deals with them in its own way, or not at all.
        return None
    stated = hints.get("return")
    if _is_outcome(stated):
        return DataAnnotation(_data_of(stated), _is_outcome(stated, Miss))
    if typing.get_origin(stated) not in (typing.Union, types.UnionType):
        return None
    parts = typing.get_args(stated)
    if not any(map(_is_outcome, parts)):
        return None
    misses = any(_is_outcome(part, Miss) for part in parts)
    # A bare `Reply` says nothing about its data; the other parts do.
    data = [
        _data_of(part) if _is_outcome(part) else part
        for part in parts
        if not _is_outcome(part) or typing.get_args(part)
    ]
    return DataAnnotation(typing.Union[tuple(data)] if data else Any, misses)  # noqa: UP007


def _is_outcome(stated: Any, kind: type[Any] | types.UnionType = Reply | Miss | Failure) -> bool:
    bare = typing.get_origin(stated) or stated
    return isinstance(bare, type) and issubclass(bare, kind)


def _data_of(stated: Any) -> Any:
    """Return what `Reply[Book]` says its data is."""
    return (typing.get_args(stated) or (Any,))[0]
