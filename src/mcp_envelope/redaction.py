r"""Masks secrets in string values, before anything is measured or stored, and puts them back.

Strategy: almost every payload is clean, so the clean case must be nearly free. The triggers of all rules form one
`re2.Set`, which scans some 500 MB a second; a clean document is returned as the same object. Where a trigger
matches, the place is narrowed down by halving, the string values around it are found by counting quotes, and only
these are decoded, searched and, if changed, encoded again. Everything else keeps its bytes. An escape that could
hide a letter (`\u0041`) is a trigger, too. Every expression is RE2, so all of it takes linear time.

A masked value is replaced by a placeholder, `[redacted:github-token:k3f9qa]`. Somebody else remembers what it
stands for (`vault.masked_values`); here, placeholders in the arguments of a call are replaced by what they stand
for. A text that looks like a placeholder is masked as well, so that masking and restoring is the identity for any
text.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import re2  # type: ignore[import-untyped]
from msgspec.structs import replace

from .codes import Problem
from .jsontext.document import Buffer
from .outcome import Failure, Outcome, UpgradeHint
from .payload import Payload, read_payload, to_json
from .secrets import LEVELS, TELLING, Rule, is_secret, rules

# Remembers a value under the name of its kind, and returns its placeholder; None if it can't be remembered.
Mark: TypeAlias = Callable[[str, str], str | None]

_CHUNK: Final = 1 << 16  # scanned at once
_LEAF: Final = 1 << 11  # where halving stops
_OVERLAP: Final = 1 << 10  # no trigger is longer
_MEMORY: Final = 1 << 26  # for the automaton of all triggers

_NAME: Final = r"[A-Za-z0-9_.-]{1,64}"
# Or what may have been one, before somebody changed its case or its brackets, or put in spaces.
_PLACEHOLDER: Final = re.compile(
    rf"\[redacted:{_NAME}(?::([a-z2-7]{{4,32}}))?\]|(?i:\bredacted ?: ?{_NAME} ?: ?[a-z2-7]{{4,32}}\b)",
    re.ASCII,
)
_OPENING: Final = "[redacted:"
# The name of what only looks like a placeholder.
_LOOKALIKE: Final = "text"
_STRING: Final = re.compile(rb'("[^"]*")(?:[ \t\r\n]*:[ \t\r\n]*)?')  # in bytes without escaped quotes
# Escapes of characters that occur in triggers.
_HIDING: Final = r"\\u00[2-7]"
_WORD: Final = re.compile(rb"[A-Za-z0-9_-]")
_ESCAPES: Final = (b"\\n", b"\\r", b"\\t")


class BadPattern(ValueError):
    """A pattern that can't be used. The message says which one and why."""


class Masking:
    """What was masked in one result: how many values of each kind, and how many can't be restored."""

    def __init__(self, mark: Mark | None = None) -> None:
        self.found: Counter[str] = Counter()
        self.lost = 0
        self._mark = mark
        # Whether what only looks like a placeholder is masked.
        self.lookalikes = mark is not None

    def mask(self, name: str, value: str) -> str:
        self.found[name] += 1
        placeholder = None if self._mark is None else self._mark(name, value)
        if placeholder is not None:
            return placeholder
        self.lost += 1
        return f"{_OPENING}{name}]"

    def notice(self) -> str:
        """Return what the reader should know."""
        total = self.found.total()
        kinds = ", ".join(f"{count} {name}" for name, count in self.found.most_common())
        masked = f"{total} secret{'s are' if total > 1 else ' is'} masked ({kinds})."
        if self.lost:
            return f"{masked} A placeholder without an id cannot be restored: do not write it back."
        return f"{masked} Use a placeholder as it is: in a call to this server it stands for the original."


class _Compiled(NamedTuple):
    rule: Rule
    regex: Any
    secrets: tuple[int, ...]
    names: tuple[int, ...]

    def spans(self, data: bytes) -> Iterator[tuple[int, int]]:
        for match in self.regex.finditer(data):
            group = next((each for each in self.secrets if match.start(each) >= 0), 0)
            start, end = match.span(group)
            value = data[start:end].decode("utf-8", "surrogatepass")
            if self.names:
                name = next(match.group(each) for each in self.names if match.start(each) >= 0)
                # A value that goes on with a bracket is code: `password = get_password2()`.
                if data[end : end + 1] not in (b"(", b"[") and is_secret(name.decode(), value):
                    yield start, end
            elif self.rule.check(value) and not (self.rule.edged and _in_word(data, start, end)):
                yield start, end


def _in_word(data: bytes, start: int, end: int) -> bool:
    # The `n` of an escaped line break isn't part of a word.
    before = _WORD.match(data, start - 1) if start else None
    return bool(_WORD.match(data, end) or (before and data[start - 2 : start] not in _ESCAPES))


class Redactor:
    r"""Replaces secrets by placeholders.

    `level` is "tokens", "keys", or "custom" for `patterns` alone. These map names to expressions for RE2, such as
    `{"ticket": r"TICKET-\d{6}"}`. If one has groups whose names start with `secret`, only what they match is
    replaced. A pattern with the name of a built-in rule replaces it, and an empty one switches it off.
    """

    def __init__(self, level: str = "tokens", patterns: Mapping[str, str] | None = None) -> None:
        own = patterns or {}
        built_in = [rule for known in LEVELS if known == level for rule in rules(known)]
        self._rules = [rule for rule in built_in if rule.name not in own]
        self._own = [_custom(name, pattern) for name, pattern in own.items() if pattern]
        self._by_name = level == "keys"
        lookalike = Rule(_LOOKALIKE, _PLACEHOLDER.pattern, "(?i:redacted) ?:", bool, edged=False)
        self._rules.append(lookalike)
        self._set = re2.Set.SearchSet(_options(never_capture=True, max_mem=_MEMORY))
        for trigger in [*(rule.trigger for rule in self._rules), _HIDING]:
            self._set.Add(trigger.encode())
        self._set.Compile()

    def may_find(self, raw: Buffer) -> bool:
        """Whether a valid JSON document may contain secrets; if not, it needn't be searched."""
        if len(raw) <= _CHUNK and not self._own:
            return self._set.Match(raw) is not None
        return next(self._places(raw), None) is not None

    def redact_text(self, text: str, masking: Masking) -> str:
        """Return the text with its secrets masked."""
        data = text.encode("utf-8", "surrogatepass")
        parts: list[str] = []
        copied = 0
        for start, end, name in self._spans(data, masking):
            value = data[start:end].decode("utf-8", "surrogatepass")
            parts += data[copied:start].decode("utf-8", "surrogatepass"), masking.mask(name, value)
            copied = end
        return "".join(parts) + data[copied:].decode("utf-8", "surrogatepass") if parts else text

    def _spans(self, data: bytes, masking: Masking) -> list[tuple[int, int, str]]:
        """Return what is to be masked, in order. Where matches overlap, all of it goes under the first name."""
        hits = [
            _compiled(self._rules[at]) for at in sorted(self._set.Match(data) or ()) if at < len(self._rules)
        ]
        found = [
            (start, end, hit.rule.name)
            for hit in (*self._own, *hits)
            if hit.rule.name != _LOOKALIKE or masking.lookalikes
            for start, end in hit.spans(data)
        ]
        joined: list[tuple[int, int, str]] = []
        for start, end, name in sorted(found, key=lambda span: span[:2]):
            if joined and start < joined[-1][1]:
                first, last, kept = joined[-1]
                joined[-1] = first, max(last, end), kept
            elif start < end:
                joined.append((start, end, name))
        return joined

    def redact_json(self, raw: bytes, masking: Masking) -> bytes:
        """Do the same for the string values of a JSON document. A clean one is returned as the same object."""
        strings: _Strings | None = None
        parts: list[bytes] = []
        done = copied = 0
        for low, high in self._places(raw):
            strings = strings or _Strings(raw)
            for key, start, end in strings.values(max(low, done), high):
                done = end
                first = start if key is None else key[0]
                if not self._own and not self._set.Match(raw[first:end]):
                    continue
                text = _decode(raw[start:end])
                name = None if key is None else _decode(raw[key[0] : key[1]])
                clean = self._value(name, text, masking)
                if clean != text:
                    parts += raw[copied:start], _encode(clean)
                    copied = end
        return b"".join([*parts, raw[copied:]]) if parts else raw

    def _value(self, name: str | None, text: str, masking: Masking) -> str:
        if self._by_name and name is not None and TELLING.search(name) and is_secret(name, text):
            spans = self._spans(text.encode("utf-8", "surrogatepass"), masking)
            return masking.mask(spans[0][2] if spans else "credential", text)
        return self.redact_text(text, masking)

    def _places(self, raw: Buffer) -> Iterator[tuple[int, int]]:
        """Yield the ranges that may contain secrets, in order and narrowed down."""
        if self._own:
            # What these match may be spelled in many ways, so that all strings have to be decoded.
            yield 0, len(raw)
            return
        view = memoryview(raw)
        for at in range(0, len(raw), _CHUNK):
            stack = [(at, min(at + _CHUNK, len(raw)))]
            while stack:
                low, high = stack.pop()
                if not self._set.Match(view[low : high + _OVERLAP]):
                    continue
                if high - low <= _LEAF:
                    yield low, high + _OVERLAP
                else:
                    middle = (low + high) // 2
                    stack += (middle, high), (low, middle)


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


def _options(**more: Any) -> Any:
    """Return options for expressions over bytes."""
    options = re2.Options()
    options.encoding, options.log_errors = re2.Options.Encoding.LATIN1, False
    for name, value in more.items():
        setattr(options, name, value)
    return options


@cache
def _compiled(rule: Rule) -> _Compiled:
    return _with_groups(rule, re2._Regexp(rule.pattern.encode(), _options()))


@lru_cache(maxsize=256)
def _custom(name: str, pattern: str) -> _Compiled:
    where = f"redaction pattern {name!r}"
    if not re.fullmatch(_NAME, name):
        raise BadPattern(f"{where}: a name consists of letters, digits, '_', '-' and '.'")
    options = re2.Options()
    options.log_errors = False
    try:
        regex = re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0].decode("utf-8", "replace") if isinstance(error.args[0], bytes) else str(error)
        raise BadPattern(f"{where}: {reason} (the syntax is RE2's: no look-around): {pattern!r}") from None
    if regex.search(""):
        raise BadPattern(f"{where} matches the empty string, and so everywhere: {pattern!r}")
    return _with_groups(Rule(name, pattern, "", bool, edged=False), regex)


def _with_groups(rule: Rule, regex: Any) -> _Compiled:
    groups = {name if isinstance(name, str) else name.decode(): at for name, at in regex.groupindex.items()}
    named = [tuple(at for name, at in groups.items() if name.startswith(kind)) for kind in ("secret", "name")]
    return _Compiled(rule, regex, named[0], named[1] if rule.trigger else ())


def _decode(raw: bytes) -> str:
    # Not with msgspec: half a surrogate pair is legal here, and must come out as it went in.
    return json.loads(raw) if b"\\" in raw else raw[1:-1].decode()


def _encode(text: str) -> bytes:
    try:
        return json.dumps(text, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(text).encode()


@lru_cache(32)
def redactor(level: str, patterns: tuple[tuple[str, str], ...] = ()) -> Redactor:
    """Return the redactor for a level and the user's own patterns; it is cached."""
    return Redactor(level, dict(patterns))


# -- restoring ----------------------------------------------------------------------------------------------


def restored(value: Any, original: Callable[[str], str | None], *, strict: bool) -> Any:
    """Return arguments with the originals in place of placeholders. JSON comes as bytes, and stays JSON.

    `original` returns what an id stands for. With `strict`, `Failure` is raised for a placeholder that stands for
    nothing; otherwise it is left as it is.
    """
    is_json = isinstance(value, bytes)

    def put_back(match: re.Match[str]) -> str:
        known = original(match[1]) if match[1] else None
        if known is None and strict:
            raise Failure(
                "MASK_UNKNOWN", f"The masked value {match[0]} is unknown here, so the call was not sent."
            )
        if known is None:
            return match[0]
        return _encode(known).decode()[1:-1] if is_json else known

    if isinstance(value, bytes):
        return _PLACEHOLDER.sub(put_back, value.decode("utf-8", "surrogateescape")).encode(
            "utf-8", "surrogateescape"
        )
    if isinstance(value, str):
        return _PLACEHOLDER.sub(put_back, value)
    if isinstance(value, dict):
        return {
            restored(key, original, strict=strict): restored(item, original, strict=strict)
            for key, item in value.items()
        }
    return [restored(item, original, strict=strict) for item in value] if isinstance(value, list) else value


# -- payloads and outcomes ----------------------------------------------------------------------------------

# The masked value no longer conforms to the output schema: the structure can't be sent, but the text can.
REDACTED: Final = Problem(
    "RESULT_REDACTED",
    "A secret was masked in a field whose format the output schema defines, so there is no structured result.",
    "Read the text; masked values are marked there.",
)


def redact_payload(payload: Payload, using: Redactor, masking: Masking) -> Payload:
    """Return the payload with its secrets masked."""
    blocks = payload.blocks
    if blocks is not None:
        blocks = tuple([_redact_block(block, using, masking) for block in blocks])
    if payload.node is not None:
        original = payload.original()
        beside, masking.found = masking.found, Counter()
        text = using.redact_json(original, masking)
        # The lanes often say the same, and nobody reads both.
        masking.found |= beside
        document = payload if text is original else read_payload(text, "json")
        return Payload(node=document.node, source=document.source, blocks=blocks) if blocks else document
    if payload.text is not None:
        words = payload.text.decode()
        clean = using.redact_text(words, masking)
        return payload if clean is words else Payload(text=clean.encode("utf-8", "replace"))
    return payload if blocks is None else Payload(blocks=blocks)


def _redact_block(block: Buffer, using: Redactor, masking: Masking) -> Buffer:
    # A block may be large, and is usually clean.
    return using.redact_json(bytes(block), masking) if using.may_find(block) else block


def redact_outcome(outcome: Outcome, using: Redactor, masking: Masking) -> Outcome:
    """Return the outcome with the secrets in its texts masked, which may name placeholders."""
    masking.lookalikes = False

    def masked(value: Any) -> Any:
        if isinstance(value, str):
            return using.redact_text(value, masking)
        if isinstance(value, tuple):
            return tuple([masked(item) for item in value])
        if isinstance(value, Problem | UpgradeHint):
            return type(value)(*[masked(getattr(value, each.name)) for each in fields(value)])
        if isinstance(value, Mapping) and value:
            raw = to_json(value)
            clean = using.redact_json(raw, masking)
            return value if clean is raw else msgspec.json.decode(clean)
        return value

    changes = {
        name: masked(getattr(outcome, name))
        for name in outcome.__struct_fields__
        if name not in ("cuts", "rank")
    }
    return replace(outcome, **changes)
