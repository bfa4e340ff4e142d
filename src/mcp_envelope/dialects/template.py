"""A dialect without code: a TOML or JSON file that shows how its results look.

Strategy: the file has one object each for a success, a failure and a miss, in which `$name` stands for a fact. A
string that is nothing but `$name` becomes the fact itself, with its type; `${name}` inside a longer string becomes
text; a member whose value is `$name?` is left out if there is nothing to say. Everything else follows from the
file: what is shortened under a tight budget, and the output schema.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NoReturn

import msgspec
from msgspec import Raw

from ..budget import METERS
from ..codes import CATALOGUE
from ..outcome import Outcome
from ..schema.widening import embed
from ..spelling import did_you_mean
from . import BudgetRange, Dialect, notice

_TEXT: Final = {"type": "string"}
_TEXTS: Final = {"type": "array", "items": _TEXT}
_COUNT: Final = {"type": "integer", "minimum": 0}
# Every fact, and what kind of value it is.
FACTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "data": {},
    "truncated": {"type": "boolean"},
    "note": _TEXT,
    "handle": _TEXT,
    "path": _TEXT,
    "kept": _COUNT,
    "total": _COUNT,
    "dropped": _COUNT,
    "offset": _COUNT,
    "hint": _TEXT,
    "warnings": _TEXTS,
    "code": _TEXT,
    "message": _TEXT,
    "details": {"type": "object"},
    "status": _TEXT,
    "summary": _TEXT,
    "next_steps": _TEXTS,
    "tool": _TEXT,
    "request_id": _TEXT,
    "duration_ms": {"type": "number"},
}
_WHOLE: Final = re.compile(r"\$(\w+)(\??)")
_INSIDE: Final = re.compile(r"\$\{(\w+)\}")
_LARGEST: Final = 1_000_000


class _File(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    success: dict[str, Any]
    failure: dict[str, Any]
    miss: dict[str, Any] | None = None
    tokens: int | None = None
    bytes: int | None = None
    meter: str = "exact"
    budget_argument: str = "tokenBudget"
    failures_are_errors: bool = True
    is_structured: bool = True


class Template(Dialect):
    """A dialect that a file describes. A subclass of this is made for each file."""

    def __init__(self, file: _File) -> None:
        self._success, self._failure = file.success, file.failure
        # A miss without a shape of its own looks like a failure.
        self._miss = file.failure if file.miss is None else file.miss

    def document(self, outcome: Outcome, data: Raw | None, length: int) -> Mapping[str, Any]:
        problem = outcome.error or outcome.miss
        shape = self._success if problem is None else self._failure if outcome.error else self._miss
        filled: dict[str, Any] = _filled(shape, self._facts(outcome, data, length))
        return filled

    def _facts(self, outcome: Outcome, data: Raw | None, length: int) -> dict[str, Any]:
        problem = outcome.error or outcome.miss
        # A page puts first what the next page continues with.
        cuts = outcome.cuts[:1] if outcome.reading is not None else outcome.cuts
        cut = max(cuts, key=lambda cut: cut.dropped, default=None)
        few = (1000, 3, 0)[length]
        warnings = [self.short(text, length) for text in outcome.warnings[:few]]
        if len(outcome.warnings) > few:
            warnings.append(f"{len(outcome.warnings) - few} more, left out to fit")
        status = outcome.status or "ok"
        hint = problem.hint if problem is not None else notice.next_step(outcome)
        return {
            "data": data,
            "truncated": cut is not None or (outcome.error is not None and outcome.handle is not None),
            "note": self.note(outcome, length),
            "handle": outcome.handle if cut is not None or outcome.error is not None else None,
            "path": self.short(cut.path, length) if cut is not None else None,
            "kept": cut.kept if cut is not None else None,
            "total": cut.total if cut is not None else None,
            "dropped": cut.dropped if cut is not None else None,
            "offset": cut.offset if cut is not None else None,
            "hint": self.short(hint, length),
            "warnings": warnings,
            "code": CATALOGUE.name(problem.code) if problem is not None else None,
            "message": self.short(problem.message, length) if problem is not None else None,
            "details": problem.details if problem is not None and length == 0 else None,
            "status": "error" if outcome.error is not None else status,
            "summary": self.short(outcome.summary, length),
            "next_steps": [self.short(text, length) for text in outcome.next_steps[:few]],
            "tool": self.short(outcome.tool, length),
            "request_id": self.short(outcome.request_id, length),
            "duration_ms": outcome.duration_ms,
        }

    def output_schema(self, data: Mapping[str, Any] | bool | None) -> dict[str, Any] | None:
        if not self.is_structured:
            return None
        shapes = (self._success, self._failure, self._miss)
        key = next(key for key, value in self._success.items() if _is_data(value))
        others = dict.fromkeys(name for shape in shapes for name in shape if name != key)
        kinds = {name: [_schema(shape[name]) for shape in shapes if name in shape] for name in others}
        merged = {name: _merged(each) for name, each in kinds.items()}
        required = [
            name
            for name in others
            if all(name in shape and not _is_optional(shape[name]) for shape in shapes)
        ]
        elsewhere = [_schema(shape[key]) for shape in shapes[1:] if key in shape]
        # Without data, `$data` is null.
        nothing = _merged([{"type": "null"}, *elsewhere])
        return embed(
            True if data is None else data, key, before={}, after=merged, required=required, instead=nothing
        )


def read_template(path: str) -> Template:
    """Return the dialect in a file. ValueError says where and what is wrong."""
    file = _read(path)
    if file.meter not in METERS:
        _refuse(path, f"meter is one of {', '.join(METERS)}; got {file.meter!r}")
    if file.tokens is not None and file.bytes is not None:
        _refuse(path, "a budget is in tokens or in bytes, not both")
    for name, shape in (("success", file.success), ("failure", file.failure), ("miss", file.miss or {})):
        for fact in _named(shape):
            if fact not in FACTS:
                _refuse(path, f"{name}: there is no fact ${fact}{did_you_mean(fact, FACTS)}")
    if not any(map(_is_data, file.success.values())):
        _refuse(path, 'success: one member must be "$data", the data')
    if "message" not in set(_named(file.failure)):
        _refuse(path, "failure: use $message, so that a failure says what went wrong")
    for name, shape in (("success", file.success), ("failure", file.failure)):
        if not {"note", "handle"} & set(_named(shape)):
            _refuse(path, f"{name}: what was left out must be announced: use $note or $handle")
    limits = BudgetRange(bytes=file.bytes, meter=file.meter)
    if file.tokens is not None or file.bytes is not None:
        limits = msgspec.structs.replace(limits, tokens=file.tokens)
    facts = {
        "name": file.name,
        "limits": limits,
        "budget_argument": file.budget_argument,
        "failures_are_errors": file.failures_are_errors,
        "is_structured": file.is_structured,
    }
    # Its place tells it from others of the same name.
    place = {"__module__": os.path.abspath(path)}
    made: type[Template] = type(f"Template_{file.name}", (Template,), {**facts, **place})
    return made(file)


def _read(path: str) -> _File:
    import tomllib

    try:
        with open(path, "rb") as opened:
            raw = opened.read(_LARGEST)
        found = tomllib.loads(raw.decode()) if path.endswith(".toml") else msgspec.json.decode(raw)
        return msgspec.convert(found, _File)
    except OSError as error:
        _refuse(path, error.strerror or "cannot be read")
    except (ValueError, RecursionError) as error:
        _refuse(path, str(error))


def _refuse(path: str, reason: str) -> NoReturn:
    raise ValueError(f"the dialect in {path} cannot be used: {reason}")


def _named(value: Any) -> Iterator[str]:
    """Yield the facts that a shape names."""
    if isinstance(value, str):
        whole = _WHOLE.fullmatch(value)
        yield from [whole[1]] if whole else _INSIDE.findall(value)
    elif isinstance(value, Mapping | list):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _named(each)


def _is_data(value: Any) -> bool:
    return value in ("$data", "$data?")


def _is_optional(value: Any) -> bool:
    whole = _WHOLE.fullmatch(value) if isinstance(value, str) else None
    return whole is not None and bool(whole[2])


def _filled(value: Any, facts: Mapping[str, Any]) -> Any:
    if isinstance(value, Mapping):
        shown = {key: each for key, each in value.items() if not _is_optional(each) or facts[each[1:-1]]}
        return {key: _filled(each, facts) for key, each in shown.items()}
    if isinstance(value, list):
        return [_filled(each, facts) for each in value]
    if not isinstance(value, str):
        return value
    if whole := _WHOLE.fullmatch(value):
        return facts[whole[1]]
    return _INSIDE.sub(lambda found: _text(facts[found[1]]), value)


def _text(fact: Any) -> str:
    if isinstance(fact, str):
        return fact
    return "" if fact is None else ", ".join(map(_text, fact)) if isinstance(fact, list) else str(fact)


def _schema(value: Any) -> dict[str, Any]:
    """Return what a part of a shape can look like."""
    if isinstance(value, Mapping):
        return {"type": "object", "properties": {key: _schema(each) for key, each in value.items()}}
    if isinstance(value, list):
        return {"type": "array"}
    if not isinstance(value, str):
        return {"const": value}
    if whole := _WHOLE.fullmatch(value):
        kind = dict(FACTS[whole[1]])
        # A fact may be absent, which is null, unless the member is left out then.
        return kind if whole[2] or not kind else {**kind, "type": [kind["type"], "null"]}
    return dict(_TEXT) if _INSIDE.search(value) else {"const": value}


def _merged(kinds: list[dict[str, Any]]) -> dict[str, Any]:
    unique = [kind for index, kind in enumerate(kinds) if kind not in kinds[:index]]
    return unique[0] if len(unique) == 1 else {"anyOf": unique}
