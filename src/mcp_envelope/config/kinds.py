"""The kinds of values that settings take: how each is read, spelled in the environment, and described.

msgspec checks the types and writes the JSON Schema. A kind adds what msgspec cannot know: units, ranges that
clamp instead of refusing, and words for people. Reading never raises: what cannot be used is reported, with
the path inside the value, and left out, so that one wrong entry costs no more than itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Meta

from ..spelling import did_you_mean

# Called as report(message, *path): the path leads from the setting to what is wrong inside it.
Report = Callable[..., None]
NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
_LONGEST: Final = 40


def shown(value: object) -> str:
    """Return a value as a person wrote it, cut if it is long, or the kind of thing it is."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return repr(value if len(value) <= _LONGEST else f"{value[: _LONGEST - 1]}…")
    if isinstance(value, int):  # Python itself may refuse to print a longer one
        return str(value) if abs(value) < 1 << 63 else "a number of many digits"
    if isinstance(value, float):
        return str(value)
    if isinstance(value, Mapping):
        return "a table"
    return "a list" if isinstance(value, list | tuple) else f"a {type(value).__name__}"


class Kind(NamedTuple):
    noun: str  # for complaints: "… is not a whole number"
    words: str  # for the documentation
    type: Any  # of a value in a file, as the JSON Schema should describe it
    accepts: Any = None  # the type to decode to, if that is less strict
    # Sees what was decoded, reports what it corrects, and raises ValueError for what it refuses.
    check: Callable[[Any, Report], Any] | None = None
    # Turns the text of a variable into what a file would say.
    parse: Callable[[str], object] = str

    def read(self, value: object, report: Report) -> Any:
        """Return the value as a policy holds it, or UNSET after a report."""
        try:
            decoded = msgspec.convert(value, self.accepts or self.type)
            return decoded if self.check is None else self.check(decoded, report)
        except msgspec.ValidationError:
            report(f"{shown(value)} is not {self.noun}")
        except ValueError as error:
            report(str(error))
        return UNSET


def _utf8(text: str, report: Report) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair, from an escape or a stray byte: no result can hold it
        raise ValueError(f"{shown(text)} is not valid UTF-8") from None
    return text


def _parse_json(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return text  # which no list or table accepts, so that the complaint shows it


TEXT: Final = Kind("a string", "string", str, check=_utf8)


def text_such_as(*names: str) -> Kind:
    """Any string; the names are only offered."""
    offered = {"anyOf": [{"enum": list(names)}, {"type": "string"}]}
    words = ", ".join(f"`{name}`" for name in names) + " or a name of your own"
    return TEXT._replace(type=Annotated[str, Meta(extra_json_schema=offered)], words=words)


def choice(*names: str) -> Kind:
    """One of a few names."""
    noun = f"one of {', '.join(names)}"

    def check(value: str, report: Report) -> str:
        if value not in names:
            raise ValueError(f"{shown(value)} is not {noun}{did_you_mean(value, names)}")
        return value

    return Kind(noun, "one of " + ", ".join(f"`{name}`" for name in names), Literal[names], str, check)


# -- numbers: one that is out of range is moved to the nearest end of the range -----------------------------


def _clamped(value: object, number: float, least: int, most: int, unit: str, report: Report) -> int:
    if least <= number <= most:
        return round(number)
    size, used = ("small", least) if number < least else ("large", most)
    report(f"{shown(value)} is too {size}; {used}{unit} is used")
    return used


def whole(least: int, most: int) -> Kind:
    """A whole number."""

    def check(value: int, report: Report) -> int:
        return _clamped(value, value, least, most, "", report)

    def parse(text: str) -> object:
        try:
            return int(text) if text.isascii() and len(text) < 1000 else text
        except ValueError:
            return text

    words, described = f"whole number, {least:,} to {most:,}", Annotated[int, Meta(ge=least, le=most)]
    return Kind("a whole number", words, described, int, check, parse)


def _amount(noun: str, example: str, units: Mapping[str, int], smallest: str, least: int, most: int) -> Kind:
    """A time or a size: a number with a unit, or a bare one in the smallest unit, which is what a policy holds."""
    expected = f"a {noun}; write {example} (units: {', '.join(units)})"

    def check(value: int | float | str, report: Report) -> int:
        number = math.nan if isinstance(value, str) else value
        if isinstance(value, str) and len(text := value.strip().lower()) < 60:
            digits = text.rstrip("abcdefghijklmnopqrstuvwxyz")
            factor = units.get(text[len(digits) :] or smallest[0])
            # Only what a person would write: no sign, no exponent, no digits of another script.
            if factor and digits[:1].isdigit() and not set(digits) - set("0123456789_. "):
                number = float(digits) * factor
        if math.isnan(number):
            raise ValueError(f"{shown(value)} is not {expected}")
        return _clamped(value, number, least, most, f" {smallest}", report)

    # Case does not matter, and JSON Schema has no other way to say so.
    names = "|".join("".join(f"[{letter}{letter.upper()}]" for letter in unit) for unit in units)
    pattern = {"pattern": rf"^[0-9][0-9_]*(\.[0-9]+)? *({names})?$"}
    described = Annotated[int, Meta(ge=least, le=most)] | Annotated[str, Meta(extra_json_schema=pattern)]
    words = f"{smallest}, or a {noun} such as `{example}`"
    return Kind(expected, words, described, int | float | str, check)


_TIMES: Final = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SIZES: Final = {
    "b": 1,
    **{f"{prefix}b": 1000**power for power, prefix in enumerate("kmgt", 1)},
    **{f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgt", 1)},
}
TIME: Final = _amount("time", "24h", _TIMES, "seconds", 1, 3650 * 86_400)
SIZE: Final = _amount("size", "1GiB", _SIZES, "bytes", 1 << 20, 1 << 50)


# -- lists and tables: each entry is judged on its own ------------------------------------------------------


def _names(values: list[Any], report: Report) -> tuple[str, ...]:
    read = dict.fromkeys(_NAME.read(value, report) for value in values)
    return tuple(name for name in read if name is not UNSET)


def _parse_names(text: str) -> object:
    if text.lstrip().startswith("["):
        return _parse_json(text)
    return [name.strip() for name in text.split(",") if name.strip()]


def _ranking(keys: str | list[str], report: Report) -> tuple[str, ...]:
    from ..fit.ranking import rank  # only here: most files rank nothing

    if isinstance(keys, str):
        keys = [key.strip() for key in keys.split(",")] if keys.strip() else []
    if keys:
        rank(*keys)
    return tuple(_utf8(key, report) for key in keys)


def _check_path(name: str, entry: object) -> None:
    if "/" in name and not name.startswith("/"):
        raise ValueError("write a path from the root, such as /data/items, or a bare field name")


def _check_code(name: str, code: str) -> None:
    if code and not (code.isascii() and code.replace("_", "").isalnum()):
        raise ValueError("write a code, such as NODE_NOT_FOUND")


def _check_pattern(name: str, pattern: str) -> None:
    if pattern:
        from ..redaction import Redactor  # only here: most files have no patterns

        Redactor("custom", {name: pattern})  # which knows what it can use


def _check_workspace(name: str, entry: object) -> None:
    if name not in _Workspace.__annotations__:
        raise ValueError(f"there is no key {shown(name)}{did_you_mean(name, _Workspace.__annotations__)}")


def _table(words: str, entry: Kind, check_entry: Callable[[str, Any], None]) -> Kind:
    """Entries by name."""

    def check(table: dict[str, Any], report: Report) -> Mapping[str, Any]:
        entries = {}
        for name, value in table.items():

            def within(message: str, name: str = name) -> None:
                report(message, name)

            if TEXT.read(name, report) is UNSET or (read := entry.read(value, within)) is UNSET:
                continue
            try:
                check_entry(name, read)
                entries[name] = read
            except ValueError as error:
                within(str(error))
        return MappingProxyType(entries)

    of: Any = entry.type
    return Kind("a table", f"table: {words}", dict[str, of], dict, check, _parse_json)


def _workspace(table: dict[str, Any], report: Report) -> Mapping[str, Any]:
    found: Mapping[str, Any] = _WORKSPACE_KEYS.read(table, report)
    if "root" not in found:
        raise ValueError("root is missing")
    return found


def _parse_workspace(text: str) -> object:
    return _parse_json(text) if text.lstrip().startswith("{") else {"root": text}


class _Workspace(msgspec.Struct, forbid_unknown_fields=True):
    root: str
    package: str | msgspec.UnsetType = UNSET


_Name = Annotated[str, Meta(min_length=1)]
_NAME: Final = Kind("a name", "", _Name, check=_utf8)
NAMES: Final = Kind(
    'a list of names; write ["a", "b"]', "list of names", list[_Name], list, _names, _parse_names
)
_RankingKey = Annotated[str, Meta(extra_json_schema={"pattern": "^([-@+].|[^-@+])"})]
_RANKING: Final = Kind(
    'a ranking; write ["file", "-score"]', "", str | list[_RankingKey], str | list[str], _ranking
)
TEXTS: Final = _table("path or field → string", TEXT, _check_path)
RANKINGS: Final = _table("path or field → ranking keys", _RANKING, _check_path)
CODES: Final = _table("words → code", TEXT, _check_code)
PATTERNS: Final = _table("name → regular expression", TEXT, _check_pattern)
_WORKSPACE_KEYS: Final = _table("", TEXT, _check_workspace)
WORKSPACE: Final = Kind("a table", "table: root, package?", _Workspace, dict, _workspace, _parse_workspace)


def _statement(table: dict[str, Any], report: Report) -> Mapping[str, Any]:
    from ..reply_meta import NAMES, ReplyMeta, read_reply_meta  # only here: most files have none

    wrong: set[str] = set()

    def within(message: str, *path: str) -> None:
        wrong.update(path)
        known = not path or path[0] in NAMES
        report(message if known else f"there is no key {shown(path[0])}{did_you_mean(path[0], NAMES)}", *path)

    if read_reply_meta(table, within) == ReplyMeta():
        return NOTHING
    return MappingProxyType({name: value for name, value in table.items() if name not in wrong})


STATEMENT: Final = Kind(
    "a table", "table: summary, warnings, …", dict[str, Any], dict, _statement, _parse_json
)
