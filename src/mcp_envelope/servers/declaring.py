"""Settings at the tool: `@enveloped(budget=2000, lists={"references": rank("file", "line")}, hint="…")`.

Strategy: the decorator only hangs what its author declared on the function; an adapter looks for it there. A
settings file goes before it, so that whoever runs a server has the last word.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from ..budget import MIN_BYTES, MIN_TOKENS
from ..front import Declared
from ..policy import Settings
from ..ranking import Ranking

_F = TypeVar("_F", bound=Callable[..., Any])
_MARK: Final = "__enveloped__"


def enveloped(
    *,
    budget: int | None = None,
    max_bytes: int | None = None,
    lists: Mapping[str, Ranking] | None = None,
    hint: str | None = None,
    stoppable: bool = False,
) -> Callable[[_F], _F]:
    """Say how a tool's results are cut.

    `budget` is in tokens, `max_bytes` in bytes; `lists` ranks lists by their path or bare name before they are
    cut; `hint` is the next step to suggest when something was cut. A tool that yields its items and says that
    it is `stoppable` is not asked for more of them than the budget can hold.
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

    def hang(function: _F) -> _F:
        setattr(function, _MARK, declared)
        return function

    return hang


def check_budget(budget: object, max_bytes: object) -> None:
    """ValueError if a budget that stands in somebody's code cannot be one."""
    if budget is not None and max_bytes is not None:
        raise ValueError("a budget is in tokens (budget) or in bytes (max_bytes), not both")
    for name, value, least in (("budget", budget, MIN_TOKENS), ("max_bytes", max_bytes, MIN_BYTES)):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
            raise ValueError(f"{name} is a whole number from {least} on; got {value!r}")


def settings_of(config: str | os.PathLike[str] | None) -> Settings:
    """The settings of a server. A file that is named has to be there; later on it may come and go."""
    if config is not None and not os.path.isfile(config) and os.fspath(config) != os.devnull:
        raise FileNotFoundError(errno.ENOENT, "there is no settings file", os.fspath(config))
    return Settings(config)


def declared_at(function: object) -> Declared:
    """What was declared at a function, or at the function that it wraps."""
    while function is not None:
        found = getattr(function, _MARK, None)
        if isinstance(found, Declared):
            return found
        function = getattr(function, "__wrapped__", None) or getattr(function, "__func__", None)
    return Declared()
