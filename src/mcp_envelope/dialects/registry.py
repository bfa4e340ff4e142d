"""Dialects from elsewhere: registered by a call, installed as an entry point, or named by where they are.

Strategy: a dialect has one name, under which it is kept once it was found. Nothing is imported to see whether a
name can be meant: code runs only when the dialect is first spoken. Whoever reads a file that nobody vouches for
asks `is_code` first.
"""

from __future__ import annotations

import os
import re
import sys
from functools import cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ..spelling import did_you_mean
from . import DIALECTS, NAMES, BudgetRange, Dialect

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "mcp_envelope.dialects"
_NAME: Final = re.compile(r"[A-Za-z][\w.-]{0,63}")
_CODE: Final = re.compile(r"(?P<module>(?:\w+\.)*\w+|.+\.py):(?P<name>\w+(?:\.\w+)*)")
_TEMPLATES: Final = (".toml", ".json")

T = TypeVar("T", bound=type[Dialect])


def register_dialect(kind: T) -> T:
    """Make a dialect known by its name, from here on. This also works as a decorator of its class."""
    _add(_made(kind, kind.__qualname__ if isinstance(kind, type) else repr(kind)))
    return kind


def names() -> tuple[str, ...]:
    """Return the names of all dialects that are known or installed."""
    own = (name for name, found in DIALECTS.items() if name == found.name)
    return tuple(dict.fromkeys((*NAMES, *own, *_entry_points())))


def is_code(spec: str) -> bool:
    """Whether a dialect is named by the place of its class, whose code would run."""
    return not is_template(spec) and _CODE.fullmatch(spec) is not None


def is_template(spec: str) -> bool:
    return spec.endswith(_TEMPLATES)


def check(spec: str) -> None:
    """Raise ValueError for what can't be the name or the place of a dialect. Nothing is loaded."""
    if spec in DIALECTS or is_template(spec) or is_code(spec) or spec in (known := names()):
        return
    advice = did_you_mean(spec, known) or f"; use one of {', '.join(known)}, module:Class, or a template file"
    raise ValueError(f"unknown dialect {spec!r}{advice}")


def located(spec: str, folder: str) -> str:
    """Return the spec with the path in it, if it has one, taken from a folder."""
    if is_template(spec):
        return os.path.join(folder, spec)
    found = _CODE.fullmatch(spec)
    if found is None or not found["module"].endswith(".py"):
        return spec
    return f"{os.path.join(folder, found['module'])}:{found['name']}"


def find(spec: str) -> Dialect:
    """Return the dialect of a name or a place, loaded now. ValueError says what is wrong with it."""
    check(spec)
    if (entry := _entry_points().get(spec)) is not None:
        found = _made(_attempt(spec, entry.load), spec)
        if found.name != spec:
            raise ValueError(f"the entry point {spec!r} has a dialect that calls itself {found.name!r}")
    elif is_template(spec):
        from .template import read_template

        found = read_template(spec)
    else:
        found = _made(_attempt(spec, lambda: _imported(spec)), spec)
    return _add(found)


def _add(found: Dialect) -> Dialect:
    known = DIALECTS.get(found.name)
    is_same = known is not None and _identity(known) == _identity(found)
    if found.name in NAMES or (known is not None and not is_same):
        raise ValueError(f"there is another dialect named {found.name!r}; choose another name")
    DIALECTS[found.name] = found
    return found


def _identity(dialect: Dialect) -> tuple[str, str]:
    return type(dialect).__module__, type(dialect).__qualname__


@cache
def _entry_points() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points  # takes a while

    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _attempt(spec: str, load: Any) -> Any:
    try:
        return load()
    except Exception as error:  # somebody else's code runs
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"the dialect {spec!r} cannot be loaded: {reason}") from error


def _imported(spec: str) -> Any:
    module, _, name = spec.rpartition(":")
    if not module.endswith(".py"):
        found: Any = import_module(module)
    else:
        path = os.path.abspath(module)
        key = f"mcp_envelope_dialect_{re.sub(r'[^A-Za-z0-9]', '_', path)}"
        if (found := sys.modules.get(key)) is None:
            source = spec_from_file_location(key, path)
            assert source is not None
            assert source.loader is not None
            found = sys.modules[key] = module_from_spec(source)
            try:
                source.loader.exec_module(found)
            except BaseException:
                del sys.modules[key]
                raise
    for step in name.split("."):
        found = getattr(found, step)
    return found


def _made(kind: Any, spec: str) -> Dialect:
    """Return an instance, after a look at what every dialect must have."""
    if not (isinstance(kind, type) and issubclass(kind, Dialect)):
        raise ValueError(f"the dialect {spec!r} is not a subclass of mcp_envelope.Dialect")
    name = getattr(kind, "name", None)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"the dialect {spec!r} needs a name of letters, digits, - and _; got {name!r}")
    if not isinstance(kind.limits, BudgetRange):
        raise ValueError(f"the dialect {name!r}: limits is a BudgetRange; got {kind.limits!r}")
    if kind.fit is Dialect.fit and kind.document is Dialect.document:
        raise ValueError(f"the dialect {name!r} needs a method document (or fit)")
    made: Dialect = _attempt(spec, kind)
    return made
