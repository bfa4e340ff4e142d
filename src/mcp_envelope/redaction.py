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
from functools import lru_cache
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

import jsonschema_rs

from .jsontree import sniff

Scan: TypeAlias = Callable[[str], bool]

# The name under which values of telling keys and assignments (`password=…`) are counted.
CREDENTIAL: Final = "credential"

_CHUNK: Final = 1 << 16  # what is scanned at once
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

# A token starts where no word goes on; the `n` of an escaped line break is no word.
_L: Final = r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrt]))"
_R: Final = r"(?![A-Za-z0-9_-])"

# Tokens that tell themselves by their prefix. The expression is pattern and trigger in one.
_TOKENS: Final = {
    "anthropic_key": r"sk-ant-[A-Za-z0-9_-]{20,}",
    "atlassian_token": r"ATATT3[A-Za-z0-9_=-]{60,}",
    "databricks_token": r"dapi[0-9a-f]{32}",
    "digitalocean_token": r"do[opr]_v1_[0-9a-f]{64}",
    "docker_token": r"dckr_pat_[A-Za-z0-9_-]{27,}",
    "github_token": r"(?:gh[oprsu]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,})",
    "gitlab_token": r"gl(?:pat|ptt|oas|cbt|soat|rt|dt)-[A-Za-z0-9_-]{20,}",
    "google_oauth": r"(?:ya29\.[A-Za-z0-9_-]{30,}|GOCSPX-[A-Za-z0-9_-]{28})",
    "huggingface_token": r"hf_[A-Za-z]{34}",
    "pypi_token": r"pypi-AgE[A-Za-z0-9_-]{50,}",
    "sendgrid_key": r"SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}",
    "shopify_token": r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}",
    "slack_token": r"(?:xox[a-z]-[A-Za-z0-9-]{10,}|xapp-[0-9]-[A-Za-z0-9-]{20,})",
    "stripe_key": r"(?:(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+]{24,})",
    "vault_token": r"hv[bs]\.[A-Za-z0-9_-]{24,}",
}
# The same for prefixes that also occur inside words or blobs: these need an edge on both sides.
_EDGED: Final = {
    "aws_access_key": r"(?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}",
    "google_api_key": r"AIza[A-Za-z0-9_-]{35}",
    "npm_token": r"npm_[A-Za-z0-9]{36}",
    "openai_key": r"sk-(?:(?:proj|svcacct|admin|or-v1)-[A-Za-z0-9_-]{20,}|[A-Za-z0-9]{32,})",
    "twilio_key": r"SK[0-9a-f]{32}",
}
# Names whose values are secrets; in groups, because the engine is fast when it looks for few beginnings.
_NAME_GROUPS: Final = (
    "pass(?:word|wd|phrase|code)|credentials?",
    "pwd|secret(?:[_-]?key)?|token",
    "(?:api|access)[_-]?key",
    "(?:account|auth)[_-]?key|authorization",
    "(?:private|shared|signing|encryption)[_-]?key",
)
_NAMES: Final = "|".join(_NAME_GROUPS).replace("|authorization", "")
_NAMED: Final = [rf"(?i:(?:{group})[0-9]{{0,3}}(?:[\"'\\]|\s{{0,8}}[:=]))" for group in _NAME_GROUPS]
# Tokens that only page through results, or belong to a vocabulary.
_HARMLESS: Final = (
    "next|page|prev|previous|continuation|cursor|progress|sync|resume|start|end|stop|input|output|request"
    "|eos|bos|pad|unk|mask|sep|cls|special"
)
SENSITIVE_KEYS: Final = rf"(?i:^(?!.*(?:{_HARMLESS})[_-]?token\d*$).*(?:{_NAMES}|authorization)\d*$)"
_NOT_PAGING: Final = "".join(
    f"(?<!{word}{joint}token)" for word in _HARMLESS.split("|") for joint in ("", "_", "-")
)
# Values that name a secret or stand for one, and are none.
_STAND_IN: Final = (
    r"(?:\$\{|\$\(|\$[A-Z_]+(?![^\s\"',;&@])|%[A-Z_]+%|%\(|\{{1,2}[A-Za-z_ ]|<[A-Za-z]|[*•.xX]+(?![^\s\"',;&@])"
    r"|(?i:none|null|nil|true|false|undefined|required|optional|string|str|bytes|any|unset|n/a)"
    r"(?![^\s\"',;&@)])|\[redacted:)"
)
_PLAIN: Final = re.compile(rf"\s*(?:{_STAND_IN}\S*\s*)?\Z")
_PATH: Final = re.compile(r"[/~.]|[A-Za-z]:[\\/]")
# One run of an unquoted value.
_V: Final = r"[^\s\"'`,;&|<>()\[\]{}\\]"
# `config.password` is code.
_ATTRIBUTE: Final = rf"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+(?!{_V})"

# (pattern, trigger), for what needs its surroundings. Groups named `secret…` are what goes.
_CONTEXT: Final = {
    "private_key": (
        r"-----BEGIN [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:(?=(?:[^-]|-(?!-)){0,600}?[A-Za-z0-9+/=]{32})(?:[^-]|-(?!----)){0,16384}"
        r"-----END [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----"
        # Cut off: as far as it looks like one.
        r"|(?=(?:\s|\\[nr]){0,8}[A-Za-z0-9+/=]{40})(?:(?:\s|\\[nr])*+[A-Za-z0-9+/=]{8,}+){1,400})",
        r"-----BEGIN [A-Z0-9 ]{0,32}PRIVATE KEY",
    ),
    "telegram_token": (rf"(?<![0-9])[0-9]{{8,10}}:AA[A-Za-z0-9_-]{{33}}{_R}", r":AA[A-Za-z0-9_-]{33}"),
    "jwt": (
        rf"{_L}eyJ[A-Za-z0-9_-]{{10,1000}}\.[A-Za-z0-9_-]{{10,12000}}(?:\.[A-Za-z0-9_-]{{0,4000}}){{1,3}}",
        r"eyJ[A-Za-z0-9_-]{10}[A-Za-z0-9_-]*\.[A-Za-z0-9_-]",
    ),
    "slack_webhook": (
        r"hooks\.slack\.com/(?:services|workflows)/(?P<secret>[A-Za-z0-9_/+-]{20,200})",
        r"hooks\.slack\.com",
    ),
    "azure_key": (
        r"(?:(?:Account|SharedAccess)Key=|[?&]sig=)(?P<secret>[A-Za-z0-9+/%]{40,256}={0,2})",
        r"(?:(?:Account|SharedAccess)Key=|[?&]sig=)",
    ),
    "aws_secret_key": (
        r"(?i:secret[_-]?(?:access[_-]?)?key)[\"'\s\\]{0,4}[:=]>?[\"'\s\\]{0,4}"
        r"(?P<secret>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])",
        *_NAMED,
    ),
    "authorization": (
        r"(?:(?i:authorization)[\"'\s\\]{0,4}[:=][\"'\s\\]{0,4}(?i:basic|bearer|token|apikey) "
        r"(?P<secret>[A-Za-z0-9._~+/=-]{6,8192})"
        rf"|{_L}(?:[Bb]earer|BEARER) (?P<secret2>(?=[A-Za-z._~+/-]{{0,64}}[0-9])"
        r"[A-Za-z0-9._~+/-]{20,8192}={0,2})"
        rf"|{_L}Basic (?P<secret3>(?=[A-Za-z]{{0,64}}[0-9+/=])[A-Za-z0-9+/]{{12,4096}}={{0,2}}){_R})",
        *_NAMED,
        r"(?:Basic|[Bb]earer|BEARER) [A-Za-z0-9._~+/=\\-]{12}",
    ),
    "url_password": (
        r"[A-Za-z][A-Za-z0-9+.-]{1,30}://[^\s/?#:@\"'<>]{0,256}:"
        rf"(?!{_STAND_IN})(?P<secret>[^\s/\"'<>]{{1,256}})@",
        r'//[^\s/?#:@"]*:[^\s/"]+@',
        r'\\/[^\s/?#:@"]*:[^\s/"]+@',
    ),
    CREDENTIAL: (
        rf"(?i:{_NAMES})(?i:{_NOT_PAGING})[0-9]{{0,3}}(?:"
        # Both sides in quotes, as in JSON: what the quotes hold is the value, spaces included.
        rf"\"\s{{0,8}}:\s{{0,8}}\"(?!{_STAND_IN})(?P<secret>(?:[^\"\\]|\\.){{1,4096}})"
        # A quoted value without spaces, as in code and configuration.
        rf"|(?:[\"']\]?)?\s{{0,8}}(?::=|=>|=|:)\s{{0,8}}(?P<quote>[\"'])(?!{_STAND_IN})"
        r"(?P<secret2>[^\s\"'\\]{3,4096})(?P=quote)"
        # Without quotes: a value with a digit that is no code, `password=hunter2`.
        rf"|[ ]?=[ ]?(?!{_STAND_IN}|[/~.]|{_ATTRIBUTE})(?={_V}{{0,256}}[0-9])(?P<secret3>{_V}{{4,4096}}+)(?![(\[])"
        # A word, where it can be nothing else: in a query, a connection string, a line of settings.
        rf"|=(?!{_STAND_IN}|[/~.]|{_ATTRIBUTE}|\w{{0,40}}?(?i:{_NAMES})(?!{_V}))"
        rf"(?P<secret4>{_V.replace('[^', '[^=')}{{4,4096}}+={{0,2}})(?=[;&]|\\[nr]|[ \t\r]{{0,8}}$)"
        # `password: hunter2`; a plain number or a date is none.
        rf"|:[ \t]{{0,8}}(?!{_STAND_IN}|[/~.]|{_ATTRIBUTE}|[0-9.,:%-]+(?!{_V}))(?={_V}{{0,256}}[0-9])"
        rf"(?P<secret5>{_V}{{6,4096}}+)(?=[\s,;\\]|$))",
        *_NAMED,
    ),
}


def _built_in() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    # A private key first: other patterns may find something in its letters.
    for name in ("private_key", *_TOKENS, *_EDGED, *list(_CONTEXT)[1:]):
        if name in _CONTEXT:
            pattern, *triggers = _CONTEXT[name]
            yield name, pattern, tuple(triggers)
        else:
            token = _TOKENS.get(name) or _EDGED[name]
            yield name, token if name in _TOKENS else f"{_L}{token}{_R}", (token,)


BUILT_IN: Final[Mapping[str, str]] = MappingProxyType({name: pattern for name, pattern, _ in _built_in()})
_TRIGGERS: Final = {
    SENSITIVE_KEYS: tuple(_NAMED),
    **{pattern: triggers for _, pattern, triggers in _built_in()},
}


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
        self._scan = _scanner([*triggers, _HIDING])

    def redact_text(self, text: str) -> tuple[str, Counter[str]]:
        """The text without its secrets, and how many of each kind there were. JSON is treated as JSON."""
        found: Counter[str] = Counter()
        return self._text(text, found, 0), found

    def redact_json(self, raw: bytes) -> tuple[bytes, Counter[str]]:
        """The same for a valid JSON document. One without secrets is returned as it is, the same object."""
        found: Counter[str] = Counter()
        return self._document(raw, found, 0), found

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

    def _places(self, raw: bytes) -> Iterator[tuple[int, int]]:
        """Where there may be something, in order and narrowed down."""
        if self._everywhere:
            yield 0, len(raw)
            return
        for at in range(0, len(raw), _CHUNK):
            stack = [(at, min(at + _CHUNK, len(raw)))]
            while stack:
                low, high = stack.pop()
                if not self._scan(raw[low : high + _OVERLAP].decode("utf-8", "replace")):
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
        if self._keys is None or not self._keys.search(key) or _PLAIN.match(text):
            return False
        # The working directory has the name of a password.
        return not (key.lower() in ("pwd", "oldpwd") and _PATH.match(text))

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
    if known := _TRIGGERS.get(pattern):
        return _Pattern(name, re.compile(pattern, re.ASCII | re.MULTILINE), known, _scanner(known), True)
    try:
        regex = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        at = "" if getattr(error, "pos", None) is None else f" at position {error.pos}"  # type: ignore[union-attr]
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
    joined = ["|".join(half) for half in (plain[::2], plain[1::2]) if half]
    schema = {"anyOf": [{"pattern": pattern} for pattern in joined + others]}
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
