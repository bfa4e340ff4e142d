"""What a setting is, and how its value is decoded: by msgspec, from the annotation of its field.

Our own code adds what msgspec doesn't do: units, numbers that are moved into their range instead of refused, and
entries of a table or a list that are decoded one by one, so that a wrong one costs no more than itself. Decoding
never raises: what can't be used is reported and left out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final, NamedTuple, get_args, get_origin

import msgspec
from msgspec import UNSET, Meta

from ..spelling import did_you_mean

PREFIX: Final = "MCP_ENVELOPE_"
NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})
_LONGEST: Final = 40
_WORDS: Final = {"int": "a whole number", "str": "a string", "array": "a list", "object": "a table"}

# Called as report(message, *path): the path leads from the setting to what is wrong inside it.
Report = Callable[..., None]


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


class Units(NamedTuple):
    """Units of a number, which a file may write as a string: `24h`. Without a unit, it is in the smallest."""

    noun: str
    example: str
    factors: Mapping[str, int]
    least: int
    most: int

    def read(self, text: str) -> int:
        units = "|".join(self.factors)
        # Only what a person would write: no sign, no exponent, no digits of another script.
        found = re.fullmatch(rf"([0-9][0-9_ ]*(?:\.[0-9]+)?) *({units})?", text.strip().lower())
        if found is None or len(text) > _LONGEST:
            units = ", ".join(self.factors)
            raise ValueError(f"expected a {self.noun} such as {self.example} (units: {units})")
        number = float(found[1].replace("_", "").replace(" ", ""))
        return round(number * self.factors.get(found[2], 1))

    @property
    def pattern(self) -> str:
        # Case doesn't matter, and JSON Schema has no other way to say so.
        units = "|".join("".join(f"[{letter}{letter.upper()}]" for letter in unit) for unit in self.factors)
        return rf"^[0-9][0-9_]*(\.[0-9]+)? *({units})?$"


class Setting(NamedTuple):
    """A setting: what its field in `Policy` declares."""

    name: str
    # Of a value in a file. None isn't part of it: it means that nothing is set.
    type: Any
    default: Any
    doc: str
    meta: Meta = Meta()
    units: Units | None = None
    # Sees a value, or the name and the value of each entry in a table; raises ValueError for what it refuses.
    check: Callable[..., object] | None = None

    @classmethod
    def of(cls, field: msgspec.structs.FieldInfo) -> Setting:
        """Read the annotation: a type, perhaps its `Meta`, units, a check or a struct for a table, and the help."""
        declared, *extras, doc = get_args(field.type)
        inner = get_args(declared)
        found = cls(field.name, inner[0] if type(None) in inner else declared, field.default, doc)
        for extra in extras:
            if isinstance(extra, Meta):
                found = found._replace(meta=extra)
            elif isinstance(extra, Units):
                found = found._replace(meta=Meta(ge=extra.least, le=extra.most), units=extra)
            elif isinstance(extra, type):
                found = found._replace(type=extra)
            else:
                found = found._replace(check=extra)
        return found

    @property
    def variable(self) -> str:
        return PREFIX + self.name.upper()

    @property
    def choices(self) -> list[str]:
        found: list[str] = (self.meta.extra_json_schema or {}).get("enum", [])
        return found

    def read(self, value: object, report: Report) -> Any:
        """Return the value as a policy holds it, or UNSET after a report."""
        inner = get_args(self.type)
        if get_origin(self.type) is Mapping and isinstance(value, dict):
            entries = {name: self._decode(inner[1], each, report, name) for name, each in value.items()}
            return {name: entry for name, entry in entries.items() if entry is not UNSET}
        if get_origin(self.type) is tuple and isinstance(value, list):
            items = dict.fromkeys(self._decode(inner[0], each, report) for each in value)
            return tuple(item for item in items if item is not UNSET)
        return self._decode(Annotated[self.type, self.meta], value, report)

    def parse(self, text: str) -> object:
        """Return what a file would say for the text of a variable."""
        if self.type is str:
            return text
        try:
            if self.type is int:
                return int(text) if text.isascii() else text
            if text.lstrip()[:1] in ("[", "{"):
                return msgspec.json.decode(text)
        except (ValueError, RecursionError):
            return text  # which the type doesn't allow, so that the complaint shows it
        if get_origin(self.type) is tuple:
            return [name.strip() for name in text.split(",") if name.strip()]
        # The first field of a struct may stand alone.
        return {self.type.__struct_fields__[0]: text} if hasattr(self.type, "__struct_fields__") else text

    def _decode(self, kind: Any, value: Any, report: Report, *path: str) -> Any:
        said = "".join(f".{key}" for key in path)
        said += ":" if isinstance(value, dict | list) else f" = {shown(value)}:"
        try:
            if self.choices and value not in self.choices:
                near = did_you_mean(value, self.choices) if isinstance(value, str) else ""
                raise ValueError(f"expected one of {', '.join(self.choices)}{near}")
            if self.units is not None and type(value) is not int:
                is_number = isinstance(value, float) and math.isfinite(value)
                value = round(value) if is_number else self.units.read(str(value))
            if type(value) is int and self.meta.ge is not None:
                value, wanted = min(max(value, self.meta.ge), self.meta.le or value), value
                if value != wanted:
                    report(f"{said} too {'small' if wanted < value else 'large'}; {value} is used", *path)
            decoded = msgspec.convert(value, kind)
            msgspec.json.encode([path, decoded])  # half a surrogate pair, or a stray byte, is in no result
            if isinstance(decoded, msgspec.Struct):
                decoded = msgspec.to_builtins(decoded)
            if self.check is not None:
                self.check(*path, decoded)
            return decoded
        except UnicodeEncodeError:
            report(f"{said} not valid UTF-8", *path)
        except RecursionError:
            report(f"{said} nested too deeply", *path)
        except ValueError as error:
            report(f"{said} {_plain(str(error), getattr(self.type, '__struct_fields__', ()))}", *path)
        return UNSET


def _plain(message: str, names: Iterable[str] = ()) -> str:
    """Return a message of msgspec's in the words of a settings file. `names` are those of a table's entries."""
    message, _, place = re.sub(r", got `\w+`", "", message).partition(" - at `$.")
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", message, re.DOTALL):
        return f"there is no key {shown(unknown[1])}{did_you_mean(unknown[1], names)}"
    message = re.sub(r"Object missing required field `(\w+)`", r"\1 is missing", message)
    message = re.sub(r"`(int|str|array|object)( \| null)?`", lambda found: _WORDS[found[1]], message)
    message = message.replace(" of length >= 1", " that isn't empty")
    return (
        f"{place.rstrip('`')}: {message[:1].lower()}{message[1:]}"
        if place
        else message[:1].lower() + message[1:]
    )
