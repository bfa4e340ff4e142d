"""What a server says of a failure, as a code: for results and errors that somebody else wrote.

Strategy: the words of the settings come first. Then a code that the server names, in its structure, in JSON or
beside `code:` in its text; then JSON-RPC's own numbers, the names of system errors, and common phrases, of which
the first in the text counts. The message is the server's own: its paths stay, since they are what the tool was
asked about, and only stack traces and source are removed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from .codes import CATALOGUE, Problem, code_of_words
from .scrubbing import SAID, scrub

# Errors that tell a client how to talk to the server: nothing that a tool was asked for failed.
_PROTOCOL: Final = frozenset({-32700, -32600, -32020, -32021, -32022, -32042})
_NO_METHOD: Final = -32601
_BY_NUMBER: Final = {
    _NO_METHOD: "NOT_IMPLEMENTED",
    -32602: "BAD_ARGS",
    -32001: "TIMEOUT",
    -32002: "NOT_FOUND",
    400: "BAD_ARGS",
    401: "FORBIDDEN",
    403: "FORBIDDEN",
    404: "NOT_FOUND",
    408: "TIMEOUT",
    413: "TOO_LARGE",
    429: "RATE_LIMITED",
    501: "NOT_IMPLEMENTED",
    503: "DEPENDENCY_UNAVAILABLE",
    504: "TIMEOUT",
}
_CODES: Final = ("error_code", "errorCode", "code")
_MESSAGES: Final = ("message", "error", "detail", "reason")
_UNKNOWN_TOOL: Final = (
    r"(?i)\b(?:unknown|no such|invalid) tool\b|\btool\b.{0,200}\b(?:not found|unknown|not exist)"
)
_NAMED: Final = r"\b(?:error_code|errorCode|code)[\"']?\s*[:=]\s*[\"']?([A-Za-z][\w-]{1,63})"
_SPELLED: Final = r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b"
_RPC: Final = r"(?<![\w-])-32\d{3}\b"
# It is of no use to a model, and indented like source code.
_LINE_OF_PYDANTIC: Final = r"\n +For further information visit https://errors\.pydantic\.dev/\S*"
_NO_REASON: Final = "The server gave no reason."
# The beginning of JSON that a message ends with.
_JSON: Final = r"[\[{]\s*[\[{\"\]}]"
_compiled = cache(re.compile)


def is_protocol_error(number: object, message: str, is_known: bool) -> bool:
    """Whether an error is about the request and not about what the tool did. `is_known`: the tool is listed."""
    if number in _PROTOCOL:
        return True
    return not is_known and (number == _NO_METHOD or bool(_compiled(_UNKNOWN_TOOL).search(message)))


def diagnose(
    words: str, structure: Any = None, number: object = None, phrases: Mapping[str, str] | None = None
) -> Problem:
    """Return the coded failure for a server's words and whatever structure came with them."""
    facts: Mapping[str, Any] = structure if isinstance(structure, Mapping) else {}
    inner: Mapping[str, Any] = facts["error"] if isinstance(facts.get("error"), Mapping) else {}
    if not words:
        found = [
            each[name] for each in (facts, inner) for name in _MESSAGES if isinstance(each.get(name), str)
        ]
        words = found[0] if found else _NO_REASON if structure is None else _compact(structure)
    words = _compiled(_LINE_OF_PYDANTIC).sub("", words)
    message = scrub(_with_short_json(words), limit=SAID, paths=False)
    code = _configured(words, phrases or {}) or next(_codes(words, facts, inner, number), "TOOL_FAILED")
    hint = next((each["hint"] for each in (facts, inner) if isinstance(each.get("hint"), str)), "")
    return CATALOGUE.problem(code, message, hint)


def _configured(words: str, phrases: Mapping[str, str]) -> str | None:
    folded = words.casefold()
    # The longest says most.
    matching = [phrase for phrase in phrases if phrase and phrase.casefold() in folded]
    return phrases[max(matching, key=len)] if matching else None


def _codes(words: str, facts: Mapping[str, Any], inner: Mapping[str, Any], number: object) -> Iterator[str]:
    for value in [each[name] for each in (facts, inner) for name in _CODES if name in each]:
        if isinstance(value, str) and value:
            yield _known(value) or value
        elif isinstance(value, int) and value in _BY_NUMBER:
            yield _BY_NUMBER[value]
    head = words[:SAID]
    for found in _compiled(_NAMED).findall(head) + _compiled(_SPELLED).findall(head):
        if known := _known(found):
            yield known
    for value in (number, *map(int, _compiled(_RPC).findall(head))):
        if isinstance(value, int) and value in _BY_NUMBER:
            yield _BY_NUMBER[value]
    if said := code_of_words(head):
        yield said


def _known(code: str) -> str | None:
    """Return the catalogue's own name of a code; for the name of a system error, its meaning."""
    found = CATALOGUE.find(code)
    return (
        found.name
        if found is not None
        else code_of_words(code)
        if code.isupper() and code[0] == "E"
        else None
    )


def _with_short_json(words: str) -> str:
    """Return the words with JSON at their end on one line: indented, it would look like source code."""
    for found in list(_compiled(_JSON).finditer(words[:SAID]))[:4]:
        try:
            return words[: found.start()] + _compact(json.loads(words[found.start() :]))
        except (ValueError, RecursionError):
            continue
    return words


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
