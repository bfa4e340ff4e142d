r"""Masks secrets in string values, before anything is measured or stored.

Strategy: almost every payload is clean, so the clean case must be nearly free. Each pattern has triggers:
looser expressions, one of which matches the raw JSON wherever the pattern matches a decoded value. The triggers
form one `re2.Set`, which scans close to a gigabyte per second; a clean document is returned as the same object.
Where a trigger matches, the place is narrowed down by halving, the string values around it are found by
counting quotes, and only these are decoded, searched by `re` and, if changed, encoded again. Everything else
keeps its bytes. An escape that could hide a letter (`\u0041`) is a trigger, too.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from functools import lru_cache
from importlib import import_module
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import re2  # type: ignore[import-untyped]
from msgspec.structs import replace

from .codes import Problem
from .jsontext.document import Buffer, sniff
from .outcome import Outcome, UpgradeHint
from .payload import Payload, read_payload, to_json
from .secrets import BUILT_IN, CREDENTIAL, PATH, PLAIN, SENSITIVE_KEYS, TRIGGERS

Scan: TypeAlias = Callable[[str], bool]

_CHUNK: Final = 1 << 16  # scanned at once
_LEAF: Final = 1 << 11  # where halving stops
_OVERLAP: Final = 1 << 10  # no trigger is longer
_REACH: Final = 1 << 15  # no built-in match is longer
_MARGIN: Final = 1 << 9  # no built-in match starts farther before its trigger
_INNER: Final = 8  # how many levels of JSON in strings are searched

_MARK: Final = re.compile(r"\[redacted:[A-Za-z0-9_.-]{1,64}\]")
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_STRING: Final = re.compile(rb'("[^"]*")(?:[ \t\r\n]*:[ \t\r\n]*)?')  # in bytes without escaped quotes
# Escapes of characters that occur in triggers, or of letters that fold to i, k or s.
_HIDING: Final = r"\\u(?:00[2-7]|013[01]|017[fF]|212[aA])"


class BadPattern(ValueError):
    """A pattern that can't be used. The message says which one, where and why."""


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
        # In a long text, use `re` only around the triggers: it is a hundred times slower than the scan.
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
                elif low < end and start < high:  # a mark is replaced whole or left alone, never cut
                    start, end = min(start, low), max(end, high)
            if copied <= start < end:
                found[self.name] += 1
                parts += text[copied:start], f"[redacted:{self.name}]"
                copied = end
        return "".join([*parts, text[copied:]]) if parts else text


class Redactor:
    r"""Replaces what the patterns match with `[redacted:NAME]`, and counts the replacements.

    `patterns` maps names to expressions for `re`; to add to the built-in ones, use
    `Redactor({**BUILT_IN, "ticket": r"TICKET-\d{6}"})`. If a pattern has groups whose names start with `secret`,
    only what they match is replaced. `keys` matches the keys whose values are secrets whatever they look like;
    None turns that off.
    """

    def __init__(self, patterns: Mapping[str, str] = BUILT_IN, *, keys: str | None = SENSITIVE_KEYS) -> None:
        self._patterns = [_compile(name, pattern) for name, pattern in patterns.items()]
        # Patterns without a trigger have to be tried on every value.
        self._blind = [pattern for pattern in self._patterns if pattern.scan is None]
        triggers = [trigger for pattern in self._patterns for trigger in pattern.triggers]
        self._keys: re.Pattern[str] | None = None
        self._everywhere = bool(self._blind)
        if keys is not None:
            sensitive = _compile("keys", keys)
            self._keys = sensitive.regex
            self._everywhere |= sensitive.scan is None
            triggers += sensitive.triggers
        self._scan = _scanner([*triggers, _HIDING])

    def redact_text(self, text: str) -> tuple[str, Counter[str]]:
        """Return the text with its secrets masked, and how many of each kind. JSON is treated as JSON."""
        found: Counter[str] = Counter()
        return self._text(text, found, 0), found

    def redact_json(self, raw: bytes) -> tuple[bytes, Counter[str]]:
        """Do the same for a valid JSON document. One without secrets is returned as the same object."""
        found: Counter[str] = Counter()
        return self._document(raw, found, 0), found

    def may_find(self, raw: Buffer) -> bool:
        """Whether a valid JSON document may contain secrets; if not, it needn't be searched."""
        if len(raw) <= _CHUNK:
            return self.may_find_in(str(raw, "utf-8", "replace"))
        return next(self._places(raw), None) is not None

    def may_find_in(self, text: str) -> bool:
        """Do the same for a short document that is already a string."""
        return self._everywhere or self._scan(text)

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
        """Yield the ranges that may contain secrets, in order and narrowed down."""
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
        # `PWD` is also the name of the working directory.
        return not (key.lower() in ("pwd", "oldpwd") and PATH.match(text))

    def _text(self, text: str, found: Counter[str], depth: int) -> str:
        suspicious = _scan_any(self._scan, text)
        if not suspicious and not self._everywhere:
            return text
        if depth < _INNER and (inner := _json_inside(text)) is not None:
            clean = self._document(inner, found, depth + 1)
            return text if clean is inner else clean.decode()
        patterns = self._patterns if suspicious else self._blind
        # Repeat until nothing changes, because one replacement may expose a match for another pattern. Each
        # round leaves less text outside of marks, so this ends; and redacting again changes nothing.
        while True:
            before = text
            for pattern in [p for p in patterns if p.scan is None or _scan_any(p.scan, text)]:
                text = pattern.replaced(text, found)
            if text == before:
                return text
            patterns = self._patterns


class _Strings:
    """The strings of a JSON document, found from any position without parsing it from the start."""

    def __init__(self, raw: bytes) -> None:
        # The same length, but the only quotes left are those around strings.
        self._bare = raw.replace(rb"\\", b"__").replace(rb"\"", b"__") if b"\\" in raw else raw
        self._at = self._quotes = 0

    def values(self, low: int, high: int) -> Iterator[tuple[tuple[int, int] | None, int, int]]:
        """Yield key, start and end of the string values that touch [low, high). Calls must go forward."""
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
        """Return the start and end of the key of the value that starts here, and where the value starts."""
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
        raise BadPattern(f"{where}: a name consists of letters, digits, '_', '-' and '.'")
    if known := TRIGGERS.get(pattern):
        return _Pattern(name, re.compile(pattern, re.ASCII | re.MULTILINE), known, _scanner(known), True)
    try:
        regex = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        position = getattr(error, "pos", None)
        at = "" if position is None else f" at position {position}"
        raise BadPattern(f"{where}: {getattr(error, 'msg', error)}{at}: {pattern!r}") from None
    if regex.search(""):
        raise BadPattern(f"{where} matches the empty string, and so everywhere: {pattern!r}")
    # The parser of `re` is private, but what it returns has been the same for twenty years.
    tree = import_module("re._parser").parse(pattern)
    if _nested(tree):
        raise BadPattern(
            f"{where} has an unbounded repetition inside another one, which can take forever; "
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
    """Whether an unbounded repetition is inside another one and can be entered again, as in `(a+)+`."""
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
    """Return literals of which every match contains one: the set whose shortest member is longest, if any."""
    choices: list[set[str]] = []
    run = ""
    for op, value in [*tree, (None, None)]:
        kind = str(op)
        # Characters that JSON may escape end a run.
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
        # Unlike RE2, `re` folds two more letters to an i.
        spelled = "|".join(
            text.replace("i", "[i\u0130\u0131]").replace("I", "[i\u0130\u0131]") for text in escaped
        )
        return (f"(?i:{spelled})",)
    return tuple(escaped)


def _scanner(triggers: Iterable[str]) -> Scan:
    """Return a function that says whether any trigger matches a text, in one linear pass."""
    options = re2.Options()
    options.never_capture = True
    triggers_set = re2.Set.SearchSet(options)
    for trigger in dict.fromkeys(triggers):
        triggers_set.Add(trigger)
    triggers_set.Compile()
    match = triggers_set.Match
    return lambda text: bool(match(text))


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
    # Not with msgspec: half a surrogate pair is legal here, and must come out as it went in.
    return json.loads(raw) if b"\\" in raw else raw[1:-1].decode()


def _encode(text: str) -> bytes:
    try:
        return json.dumps(text, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(text).encode()


# The masked value no longer conforms to the output schema: the structure can't be sent, but the text can.
REDACTED: Final = Problem(
    "RESULT_REDACTED",
    "A secret was masked in a field whose format the output schema defines, so there is no structured result.",
    "Read the text; masked values are marked there.",
)


@lru_cache(32)
def redactor(patterns: tuple[tuple[str, str], ...] = ()) -> Redactor:
    """Return the redactor for the built-in patterns and these; it is cached."""
    return Redactor({**BUILT_IN, **dict(patterns)})


def redact_payload(payload: Payload, using: Redactor, found: Counter[str]) -> Payload:
    """Return the payload with its secrets masked, and count them by pattern in `found`."""
    if payload.partial:
        # It was masked when it was stored.
        return payload
    if payload.node is not None:
        original = payload.original()
        text, secrets = using.redact_json(original)
        found.update(secrets)
        same = text is original or not secrets
        if payload.blocks is None:
            return payload if same else read_payload(text, "json")
        document = payload if same else read_payload(text, "json")
        blocks = tuple([_redact_block(block, using, found) for block in payload.blocks])
        return Payload(node=document.node, source=document.source, blocks=blocks)
    if payload.text is not None:
        clean, secrets = using.redact_text(payload.text.decode())
        found.update(secrets)
        return payload if not secrets else Payload(text=clean.encode())
    if payload.blocks is None:
        return payload
    return Payload(blocks=tuple([_redact_block(block, using, found) for block in payload.blocks]))


def _redact_block(block: Buffer, using: Redactor, found: Counter[str]) -> Buffer:
    if not using.may_find(block):
        # The usual case, and worth a shortcut, since a block may be large.
        return block
    text, secrets = using.redact_json(bytes(block))
    found.update(secrets)
    return text if secrets else block


def redact_outcome(outcome: Outcome, using: Redactor, found: Counter[str]) -> Outcome:
    """Return the outcome with the secrets in its texts masked."""

    def masked(value: Any) -> Any:
        if isinstance(value, str):
            clean, secrets = using.redact_text(value)
            found.update(secrets)
            return clean
        if isinstance(value, tuple):
            return tuple([masked(item) for item in value])
        if isinstance(value, Problem | UpgradeHint):
            return type(value)(*[masked(getattr(value, each.name)) for each in fields(value)])
        if isinstance(value, Mapping) and value:
            raw, secrets = using.redact_json(to_json(value))
            found.update(secrets)
            return msgspec.json.decode(raw) if secrets else value
        return value

    changes = {
        name: masked(getattr(outcome, name))
        for name in outcome.__struct_fields__
        if name not in ("cuts", "rank")
    }
    return replace(outcome, **changes)
