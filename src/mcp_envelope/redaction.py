r"""Secrets taken out of string values, before anything is measured or stored.

Strategy: almost every payload is clean, so the clean case has to be nearly free. Each pattern has triggers,
looser expressions of which one is true of the raw JSON wherever the pattern is true of a decoded value. The
triggers are run by the linear-time engine inside jsonschema-rs (a validator whose only rule is "one of these
patterns occurs"), which reads gigabytes a second; a clean document is returned as the same object. Where a
trigger is true, the place is narrowed by halving, the string values around it are found by counting quotes,
and only these are decoded, looked at by `re` and, if changed, written again. Everything else keeps its bytes.
An escape that could hide a letter (`\u0041`) is a trigger too, so spelling is no hiding place.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from importlib import import_module
from typing import Any, Final, NamedTuple, TypeAlias

import jsonschema_rs

from .jsontree import Buffer, sniff
from .secrets import BUILT_IN, CREDENTIAL, PATH, PLAIN, SENSITIVE_KEYS, TRIGGERS

Scan: TypeAlias = Callable[[str], bool]

_CHUNK: Final = 1 << 16  # what is scanned at once
_BRIEF: Final = 1 << 12  # what is scanned by one expression
_LEAF: Final = 1 << 11  # where halving stops
_OVERLAP: Final = 1 << 10  # no trigger is longer
_REACH: Final = 1 << 15  # no built-in match is longer
_MARGIN: Final = 1 << 9  # no built-in match starts farther before its trigger
_INNER: Final = 8  # JSON in a string in JSON, so many times

_MARK: Final = re.compile(r"\[redacted:[A-Za-z0-9_.-]{1,64}\]")
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_STRING: Final = re.compile(rb'("[^"]*")(?:[ \t\r\n]*:[ \t\r\n]*)?')  # in bytes without escaped quotes
# Escapes that may stand for a character of a trigger, or for a letter that folds to i, k or s.
_HIDING: Final = r"\\u(?:00[2-7]|013[01]|017[fF]|212[aA])"


class BadPattern(ValueError):
    """A pattern that cannot be used. Says which, where and why."""


class _Pattern(NamedTuple):
    name: str
    regex: re.Pattern[str]
    triggers: tuple[str, ...]
    scan: Scan | None
    built_in: bool

    def span(self, match: re.Match[str]) -> tuple[int, int]:
        for group in self.regex.groupindex:
            if group.startswith("secret") and match.start(group) >= 0:
                return match.span(group)
        return match.span()

    def matches(self, text: str) -> Iterator[re.Match[str]]:
        if self.scan is None or not self.built_in:
            yield from self.regex.finditer(text)
            return
        # In a long text `re` reads only around the triggers; it is a hundred times slower than the scan.
        done = 0
        for low in range(0, len(text), _CHUNK):
            high = low + _CHUNK + _OVERLAP
            if len(text) <= _CHUNK or _scan_any(self.scan, text[low:high]):
                for match in self.regex.finditer(text, max(done, low - _MARGIN), high + _REACH):
                    if match.start() >= high:
                        break
                    done = match.end()
                    yield match

    def replaced(self, text: str, found: Counter[str]) -> str:
        marks = [mark.span() for mark in _MARK.finditer(text)]
        parts: list[str] = []
        copied = 0
        for start, end in map(self.span, self.matches(text)):
            for low, high in marks:
                if low <= start and end <= high:
                    end = start
                elif low < end and start < high:  # a mark is taken whole or left alone, never cut
                    start, end = min(start, low), max(end, high)
            if copied <= start < end:
                found[self.name] += 1
                parts += text[copied:start], f"[redacted:{self.name}]"
                copied = end
        return "".join([*parts, text[copied:]]) if parts else text


class Redactor:
    r"""Replaces what the patterns find by `[redacted:NAME]`, and counts it.

    `patterns` maps names to expressions for `re`; to add to the built-in ones, say
    `Redactor({**BUILT_IN, "ticket": r"TICKET-\d{6}"})`. If a pattern has groups whose names start with
    `secret`, only what they match is replaced. `keys` tells which keys have values that are secrets
    whatever they look like; None turns that off."""

    def __init__(self, patterns: Mapping[str, str] = BUILT_IN, *, keys: str | None = SENSITIVE_KEYS) -> None:
        self._patterns = [_compile(name, pattern) for name, pattern in patterns.items()]
        # Without a trigger there is no short cut: every value is looked at.
        self._blind = [pattern for pattern in self._patterns if pattern.scan is None]
        triggers = [trigger for pattern in self._patterns for trigger in pattern.triggers]
        self._keys: re.Pattern[str] | None = None
        self._everywhere = bool(self._blind)
        if keys is not None:
            telling = _compile("keys", keys)
            self._keys = telling.regex
            self._everywhere |= telling.scan is None
            triggers += telling.triggers
        self._triggers = [*triggers, _HIDING]
        self._scan = _scanner(self._triggers)

    def redact_text(self, text: str) -> tuple[str, Counter[str]]:
        """The text without its secrets, and how many of each kind there were. JSON is treated as JSON."""
        found: Counter[str] = Counter()
        return self._text(text, found, 0), found

    def redact_json(self, raw: bytes) -> tuple[bytes, Counter[str]]:
        """The same for a valid JSON document. One without secrets is returned as it is, the same object."""
        found: Counter[str] = Counter()
        return self._document(raw, found, 0), found

    def may_find(self, raw: Buffer) -> bool:
        """Whether a closer look at a valid JSON document is worth it: without one, there is no secret in it."""
        if len(raw) <= _CHUNK:
            return self.may_find_in(str(raw, "utf-8", "replace"))
        return next(self._places(raw), None) is not None

    def may_find_in(self, text: str) -> bool:
        """The same for a document that is a text already, and not long."""
        return self._everywhere or (self._brief(text) if len(text) <= _BRIEF else self._scan(text))

    @cached_property
    def _brief(self) -> Scan:
        """For short texts: one expression is slower, but a call finds far less of it missing in the caches."""
        return _validator([("|".join(f"(?:{trigger})" for trigger in dict.fromkeys(self._triggers)))])

    def _document(self, raw: bytes, found: Counter[str], depth: int) -> bytes:
        strings: _Strings | None = None
        parts: list[bytes] = []
        done = copied = 0
        for low, high in self._places(raw):
            strings = strings or _Strings(raw)
            for key, start, end in strings.values(max(low, done), high):
                done = end
                first = start if key is None else key[0]
                if not self._everywhere and not self._scan(raw[first:end].decode("utf-8", "replace")):
                    continue
                text = _decode(raw[start:end])
                name = None if key is None else _decode(raw[key[0] : key[1]])
                clean = self._value(name, text, found, depth)
                if clean != text:
                    parts += raw[copied:start], _encode(clean)
                    copied = end
        return b"".join([*parts, raw[copied:]]) if parts else raw

    def _places(self, raw: Buffer) -> Iterator[tuple[int, int]]:
        """Where there may be something, in order and narrowed down."""
        if self._everywhere:
            yield 0, len(raw)
            return
        view = memoryview(raw)
        for at in range(0, len(raw), _CHUNK):
            stack = [(at, min(at + _CHUNK, len(raw)))]
            while stack:
                low, high = stack.pop()
                if not self._scan(str(view[low : high + _OVERLAP], "utf-8", "replace")):
                    continue
                if high - low <= _LEAF:
                    yield low, high + _OVERLAP
                else:
                    middle = (low + high) // 2
                    stack += (middle, high), (low, middle)

    def _value(self, key: str | None, text: str, found: Counter[str], depth: int) -> str:
        inside: Counter[str] = Counter()
        clean = self._text(text, inside, depth)
        if key is not None and self._is_secret(key, text) and not _MARK.fullmatch(clean):
            found[CREDENTIAL] += 1
            return f"[redacted:{CREDENTIAL}]"
        found.update(inside)
        return clean

    def _is_secret(self, key: str, text: str) -> bool:
        if self._keys is None or not self._keys.search(key) or PLAIN.match(text):
            return False
        # The working directory has the name of a password.
        return not (key.lower() in ("pwd", "oldpwd") and PATH.match(text))

    def _text(self, text: str, found: Counter[str], depth: int) -> str:
        suspicious = _scan_any(self._scan, text)
        if not suspicious and not self._everywhere:
            return text
        if depth < _INNER and (inner := _json_inside(text)) is not None:
            clean = self._document(inner, found, depth + 1)
            return text if clean is inner else clean.decode()
        patterns = self._patterns if suspicious else self._blind
        # Until nothing changes: what one pattern replaces may show the next one more. Each turn leaves
        # less text outside of marks, so it ends; and a second call finds nothing to do.
        while True:
            before = text
            for pattern in [p for p in patterns if p.scan is None or _scan_any(p.scan, text)]:
                text = pattern.replaced(text, found)
            if text == before:
                return text
            patterns = self._patterns


class _Strings:
    """The strings of a JSON document, found from any place in it without reading it from the start."""

    def __init__(self, raw: bytes) -> None:
        # Of the same length, and with no quotes left but those that open and close strings.
        self._bare = raw.replace(rb"\\", b"__").replace(rb"\"", b"__") if b"\\" in raw else raw
        self._at = self._quotes = 0

    def values(self, low: int, high: int) -> Iterator[tuple[tuple[int, int] | None, int, int]]:
        """The strings that are values and touch [low, high): key, start, end. Calls go forward only."""
        bare = self._bare
        self._quotes += bare.count(b'"', self._at, low)
        self._at = low
        start = bare.rfind(b'"', 0, low) if self._quotes % 2 else bare.find(b'"', low)
        if start < 0:
            return
        key = self._key(start)
        for match in _STRING.finditer(bare, start):
            start, end = match.span(1)
            if key and key[2] != start:
                key = None
            if start >= high and not key:
                break
            if match.end() == end:
                yield key and key[:2], start, end
            else:
                key = start, end, match.end()

    def _key(self, start: int) -> tuple[int, int, int] | None:
        """The key before the value that starts here: start, end, and where the value starts."""
        at = start - 1
        while at >= 0 and self._bare[at] in b" \t\r\n":
            at -= 1
        if at < 0 or self._bare[at] != 0x3A:
            return None
        end = self._bare.rindex(b'"', 0, at)
        return self._bare.rindex(b'"', 0, end), end + 1, start


@lru_cache(maxsize=256)
def _compile(name: str, pattern: str) -> _Pattern:
    where = f"redaction pattern {name!r}"
    if not _NAME.fullmatch(name):
        raise BadPattern(f"{where}: a name is made of letters, digits, '_', '-' and '.'")
    if known := TRIGGERS.get(pattern):
        return _Pattern(name, re.compile(pattern, re.ASCII | re.MULTILINE), known, _scanner(known), True)
    try:
        regex = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        position = getattr(error, "pos", None)
        at = "" if position is None else f" at position {position}"
        raise BadPattern(f"{where}: {getattr(error, 'msg', error)}{at}: {pattern!r}") from None
    if regex.search(""):
        raise BadPattern(f"{where} matches the empty text, so everywhere: {pattern!r}")
    # The parser of `re` has no public name; what it returns has been the same for twenty years.
    tree = import_module("re._parser").parse(pattern)
    if _nested(tree):
        raise BadPattern(
            f"{where} repeats without end inside a repetition, which can take forever; "
            f"bound one of them ({{1,40}}) or make it possessive (++, *+): {pattern!r}"
        )
    triggers = _triggers(pattern, _literals(tree))
    return _Pattern(name, regex, triggers, _scanner(triggers) if triggers else None, False)


def _subtrees(value: Any) -> Iterator[Any]:
    if hasattr(value, "state"):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _subtrees(part)


def _nested(tree: Any, inside: bool = False) -> bool:
    """Whether a repetition without end stands in another one and can be entered again, as in `(a+)+`."""
    for op, value in tree:
        kind = str(op)
        within = inside and kind in ("SUBPATTERN", "BRANCH", "GROUPREF_EXISTS")
        if kind in ("MAX_REPEAT", "MIN_REPEAT"):
            endless = value[1] > 1000
            if inside and endless:
                return True
            within = inside or endless
        if any(_nested(part, within) for part in _subtrees(value)):
            return True
    return False


def _literals(tree: Any) -> set[str]:
    """One of these is in every match: the choice whose shortest member is longest, or nothing."""
    choices: list[set[str]] = []
    run = ""
    for op, value in [*tree, (None, None)]:
        kind = str(op)
        # Characters that JSON may write in another way end a run.
        if kind == "LITERAL" and 0x20 <= value < 0x7F and chr(value) not in '"\\/':
            run += chr(value)
            continue
        if len(run) > 1:
            choices.append({run})
        run = ""
        if kind in ("SUBPATTERN", "ATOMIC_GROUP", "BRANCH") or ("REPEAT" in kind and value[0] > 0):
            parts = [_literals(part) for part in _subtrees(value)]
            choices.append(set().union(*parts) if all(parts) else set())
    return max(filter(None, choices), key=lambda choice: min(map(len, choice)), default=set())


def _triggers(pattern: str, literals: set[str]) -> tuple[str, ...]:
    escaped = ["".join(c if c.isalnum() else f"\\x{ord(c):02x}" for c in text) for text in sorted(literals)]
    if literals and re.search(r"\(\?[a-zA-Z]*i", pattern):
        # `re` folds two more letters to an i than the engine does.
        spelled = "|".join(
            text.replace("i", "[i\u0130\u0131]").replace("I", "[i\u0130\u0131]") for text in escaped
        )
        return (f"(?i:{spelled})",)
    return tuple(escaped)


def _scanner(triggers: Iterable[str]) -> Scan:
    """Whether any trigger is true of a text. Those that begin with a literal are joined: the engine then
    looks for all the beginnings at once, two dozen at best. Joined with the others they would lose that."""
    plain: list[str] = []
    others: list[str] = []
    for trigger in dict.fromkeys(triggers):
        (others if trigger.startswith(("(?i:", "\\", "/", ":", "SK")) else plain).append(trigger)
    return _validator(["|".join(half) for half in (plain[::2], plain[1::2]) if half] + others)


def _validator(patterns: Iterable[str]) -> Scan:
    schema = {"anyOf": [{"pattern": pattern} for pattern in patterns]}
    validator = jsonschema_rs.validator_for(schema, pattern_options=jsonschema_rs.RegexOptions())
    return validator.is_valid


def _scan_any(scan: Scan, text: str) -> bool:
    try:
        return scan(text)
    except UnicodeEncodeError:  # half a surrogate pair
        return scan(text.encode("utf-8", "replace").decode())


def _json_inside(text: str) -> bytes | None:
    if text.lstrip(" \t\r\n")[:1] not in ("{", "["):
        return None
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        return None
    return raw if sniff(raw) is not None else None


def _decode(raw: bytes) -> str:
    # Not msgspec: half a surrogate pair is legal here, and must come out as it went in.
    return json.loads(raw) if b"\\" in raw else raw[1:-1].decode()


def _encode(text: str) -> bytes:
    try:
        return json.dumps(text, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(text).encode()
