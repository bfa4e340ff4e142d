"""From an exception, or from what a server says of a failure, to the coded failure that the caller sees.

Strategy: exceptions are recognised by the names of their classes, the most specific class first, so that no library
has to be imported for its errors. A message is shown only if it was written for the caller, and it is scrubbed.
Everything else is INTERNAL: a generic sentence and a correlation id, with the details in the log.

What a server says is judged in this order: the words of the settings; a code that it names, in its structure, in
JSON or beside `code:` in its text; JSON-RPC's own numbers, the names of system errors, and common phrases, of which
the first in the text counts. The message is the server's own: its paths stay, since they are what the tool was
asked about, and only stack traces and source are removed.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Final, NamedTuple

from .codes import CATALOGUE, Catalogue, Problem, code_of_words
from .scrubbing import SAID, scrub, scrub_details, scrub_line, show_path

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


class FailedCall(NamedTuple):
    """What an adapter knows about the call that failed."""

    root: str | None = None
    known: Collection[str] = ()
    tool: str | None = None
    phrases: Mapping[str, str] = {}


class _Explained(NamedTuple):
    code: str
    message: str = ""
    fields: tuple[str, ...] = ()
    # Whether it was written for the caller: then all of its lines are shown.
    for_caller: bool = False


class _Carried(NamedTuple):
    """A problem that its author attached to the exception."""

    problem: Any


_Rule = Callable[[Any, FailedCall], _Explained | _Carried | None]


def passes_through(exception: BaseException) -> bool:
    """Whether this is a cancellation, KeyboardInterrupt, SystemExit, GeneratorExit, or a group with one of them.

    None of them is an `Exception`, and anything else that isn't one is not ours to answer, either.
    """
    return not isinstance(exception, Exception)


def problem_of(
    exception: BaseException,
    *,
    correlation_id: Callable[[], str] = lambda: os.urandom(8).hex(),
    root: str | None = None,
    known: Collection[str] = (),
    tool: str | None = None,
    catalogue: Catalogue = CATALOGUE,
    is_logged: bool = False,
    phrases: Mapping[str, str] | None = None,
) -> Problem:
    """Return the coded failure for an exception. One that passes through is raised again.

    `root` is the directory that paths are shown relative to, `known` what the client passed, and `tool` the
    qualified name of the function that was called: calling it with wrong arguments is the caller's mistake, while
    calling any other function so is the tool's. `is_logged` says that the traceback has been logged elsewhere.
    `phrases` are the words of the settings, with the codes that they stand for in what a tool says itself.
    """
    if passes_through(exception):
        raise exception
    found = [_explain(leaf, FailedCall(root, known, tool, phrases or {})) for leaf in _leaves(exception)]
    best = max(found, key=lambda each: (isinstance(each, _Carried), each is not None))
    details: dict[str, Any] = {}
    if None in found:
        # The unexpected is logged even if another member of the group says more.
        details["correlationId"] = re.sub(r"[^\w.:-]", "", str(correlation_id()))[:64]
    if len(found) > 1:
        details["otherErrors"] = len(found) - 1
    _log(exception, details.get("correlationId"), is_logged)
    if best is None:
        # The id is also in the sentence, for dialects that show nothing else.
        message = (
            f"Something went wrong inside the tool. See the log, correlation id {details['correlationId']}."
        )
        return catalogue.problem("INTERNAL", message, details=details)
    if isinstance(best, _Explained):
        if best.fields:
            details["fields"] = list(best.fields)
        if best.for_caller:
            message = scrub(best.message, root, SAID, known)
        else:
            message = scrub_line(best.message, root, known=known)
        return catalogue.problem(best.code, message, details=details or None)
    # The author of a failure decides what is shown, in as many lines as it takes.
    words = {name: str(_attribute(best.problem, name) or "") for name in ("code", "message", "hint")}
    message, hint = (scrub(words[name], root, SAID, known) for name in ("message", "hint"))
    shown = scrub_details(_attribute(best.problem, "details"), root, known=known)
    if isinstance(shown, dict):
        details = {**shown, **details}
    return catalogue.problem(words["code"], message, hint, details or None)


def _log(exception: BaseException, correlation_id: str | None, is_logged: bool) -> None:
    import logging

    logger = logging.getLogger("mcp_envelope")
    if correlation_id is not None and is_logged:
        # The traceback is in the log already; only the id is missing.
        logger.error("unexpected failure, correlation id %s: %r", correlation_id, exception)
    elif correlation_id is not None:
        logger.error("unexpected failure, correlation id %s", correlation_id, exc_info=exception)
    else:
        logger.debug("the tool failed", exc_info=exception)


def _leaves(exception: BaseException, depth: int = 0) -> Iterator[BaseException]:
    """Yield the members of a group, at any depth; an exception is its own only leaf."""
    if isinstance(exception, BaseExceptionGroup) and depth < 16 and _attribute(exception, "problem") is None:
        for member in exception.exceptions[:64]:
            yield from _leaves(member, depth + 1)
    else:
        yield exception


def _explain(exception: BaseException, call: FailedCall) -> _Explained | _Carried | None:
    """Return the problem that an exception carries, or what a rule says about it, or about its explicit cause."""
    for _ in range(16):
        problem = _attribute(exception, "problem")
        if all(isinstance(_attribute(problem, name), str) for name in ("code", "message")):
            return _Carried(problem)
        for kind in type(exception).__mro__:
            package = kind.__module__.partition(".")[0]
            rule = _BY_CLASS.get(f"{package}.{kind.__name__}".removeprefix("builtins."))
            try:
                if rule and (explained := rule(exception, call)):
                    return explained
            except Exception:
                # An exception may be as broken as what it reports. Then it counts as unexpected.
                return None
        # `raise … from` states the cause. What merely happened before (`__context__`) doesn't count.
        if exception.__cause__ is None:
            return None
        exception = exception.__cause__
    return None


def _attribute(value: object, name: str) -> Any:
    try:
        return getattr(value, name, None)
    except Exception:
        return None


def _own_message(exception: Exception) -> str:
    """Return the message that somebody wrote; "" if the exception was created from anything but one text."""
    if type(exception).__str__ is not BaseException.__str__:
        return str(exception)
    return exception.args[0] if len(exception.args) == 1 and isinstance(exception.args[0], str) else ""


def _raised_in(exception: BaseException) -> tuple[str, int]:
    """Return the module that raised it, and how many frames away that is."""
    trace, module, depth = exception.__traceback__, "", 0
    while trace is not None:
        module, depth, trace = str(trace.tb_frame.f_globals.get("__name__")), depth + 1, trace.tb_next
    return module, depth


def _invalid(reasons: Iterable[tuple[Iterable[Any], str]]) -> _Explained:
    """Join the reasons with their places. A part of a place that isn't a plain name could hold anything."""
    lines, fields = [], []
    for place, reason in reasons:
        parts = (str(part) for part in place)
        name = ".".join(part if re.fullmatch(r"[\w$@-]{1,64}", part) else "…" for part in parts)
        reason = scrub_line(reason, limit=160) or "is not valid"
        lines.append(f"{name}: {reason}" if name else reason)
        fields.append(name)
    more = f"; and {len(lines) - 5} more" if len(lines) > 5 else ""
    return _Explained(
        "BAD_ARGS", "; ".join(lines[:5]) + more, tuple(dict.fromkeys(filter(None, fields[:20])))
    )


def _pydantic(error: Any, call: FailedCall) -> _Explained:
    try:
        found = error.errors(include_url=False, include_input=False)
    except TypeError:  # version 1
        found = error.errors()
    explained = _invalid((each["loc"], each["msg"].removeprefix("Value error, ")) for each in found)
    # What the type of an argument raised may have a code of its own.
    raised = [each.get("ctx", {}).get("error") for each in found]
    own = _explain(raised[0], call) if len(raised) == 1 and isinstance(raised[0], Exception) else None
    return explained._replace(code=own.code) if isinstance(own, _Explained) else explained


def _msgspec(error: Any, call: FailedCall) -> _Explained:
    reason, _, place = str(error).rpartition(" - at `")
    return _invalid([(re.findall(r"[\w-]+|\.\.\.", place), reason)] if reason else [((), str(error))])


def _jsonschema(error: Any, call: FailedCall) -> _Explained:
    place = _attribute(error, "absolute_path")
    reason = error.message
    # Both libraries begin with the value, which may be a whole document.
    compact = json.dumps(error.instance, ensure_ascii=False, separators=(",", ":"), default=repr)
    for spelled in (repr(error.instance), compact):
        reason = reason.removeprefix(spelled).strip()
    return _invalid([(error.instance_path if place is None else place, "" if reason[:1] in "[{" else reason)])


_CALL: Final = (
    r"(?:([\w.<>]+)\(\) )?((?:got an unexpected|missing (?:\d+|a) required|got multiple values"
    r"|multiple values for|takes (?:from )?\d+|too many positional|got some positional-only)\b.*)"
)


def _wrong_call(error: TypeError, call: FailedCall) -> _Explained | None:
    found = re.fullmatch(_CALL, _own_message(error))
    if found is None:
        return None
    function, reason = found.groups()
    module, depth = _raised_in(error)
    if function is None:
        blame = module == "inspect"  # Signature.bind
    elif call.tool:
        blame = f".{function}".endswith(f".{call.tool}")
    else:
        blame = depth <= 1  # the call itself failed, and nothing inside the tool
    # Python 3.13 and later suggest another name, which is not at fault.
    fields = tuple(re.findall(r"'(\w+)'", reason.partition(". Did you mean")[0]))
    return _Explained("BAD_ARGS", f"Wrong arguments: {reason}", fields) if blame else None


def _file(code: str, words: str) -> Callable[[Any, FailedCall], _Explained]:
    def explain(error: OSError, call: FailedCall) -> _Explained:
        name = os.fspath(error.filename) if isinstance(error.filename, str | os.PathLike) else ""
        shown = show_path(name, call.root, call.known) if isinstance(name, str) else ""
        if isinstance(error, FileNotFoundError) and _raised_in(error)[0] == "subprocess":
            return _Explained("DEPENDENCY_UNAVAILABLE", f"Program not found: {shown}" if shown else "")
        return _Explained(code, f"{words}: {shown}" if shown else f"{words}.")

    return explain


_ERRNO: Final = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EMFILE), "RESOURCE_EXHAUSTED"),
    **dict.fromkeys((errno.ENFILE, errno.ENOMEM), "RESOURCE_EXHAUSTED"),
    **dict.fromkeys((errno.ELOOP, errno.ENAMETOOLONG), "INVALID_PATH"),
    errno.EROFS: "FORBIDDEN",
    errno.EFBIG: "TOO_LARGE",
}


def _os(error: OSError, call: FailedCall) -> _Explained | None:
    code = _ERRNO.get(error.errno or 0)
    return _Explained(code, os.strerror(error.errno or 0)) if code else None


def _lookup(error: LookupError, call: FailedCall) -> _Explained | None:
    # A KeyError or an IndexError is a bug; any other LookupError was raised on purpose.
    written = not isinstance(error, KeyError | IndexError) and _own_message(error)
    return _Explained("NOT_FOUND", written) if written else None


def _unicode(error: Any, call: FailedCall) -> _Explained:
    encoding, start = _attribute(error, "encoding"), _attribute(error, "start")
    plain = isinstance(encoding, str) and re.fullmatch(r"[\w-]{1,32}", encoding)
    where = f", position {start}" if isinstance(start, int) else ""
    return _Explained("BAD_ARGS", f"The text is not valid {encoding if plain else 'in its encoding'}{where}.")


def _syntax(error: SyntaxError, call: FailedCall) -> _Explained:
    return _Explained(
        "BAD_ARGS", f"Syntax error at line {error.lineno}." if error.lineno else "Syntax error."
    )


def _import(error: ImportError, call: FailedCall) -> _Explained:
    plain = isinstance(error.name, str) and re.fullmatch(r"[A-Za-z_][\w.]{0,100}", error.name)
    return _Explained("DEPENDENCY_UNAVAILABLE", f"Python module not available: {error.name}" if plain else "")


def _tool_error(error: Exception, call: FailedCall) -> _Explained | None:
    # The SDKs wrap any exception in a ToolError that repeats its text. Then the cause says more, and safely.
    text = _own_message(error)
    wrapped = error.__cause__ is not None and text.startswith(("Error executing tool", "Error calling tool"))
    if wrapped:
        return None
    return _Explained(diagnose(text, phrases=call.phrases).code, text, for_caller=True)


def _mcp(error: Any, call: FailedCall) -> _Carried:
    problem = diagnose(error.error.message, error.error.data, error.error.code, call.phrases)
    data = error.error.data
    return _Carried(replace(problem, details=data if isinstance(data, Mapping) else None))


def _generic(code: str) -> Callable[[Any, FailedCall], _Explained]:
    return lambda error, call: _Explained(code)


def _in_its_words(code: str) -> Callable[[Any, FailedCall], _Explained]:
    return lambda error, call: _Explained(code, _own_message(error))


_SCHEMA: Final = "jsonschema.ValidationError jsonschema_rs.ValidationError"
_TIMEOUTS: Final = (
    "TimeoutError subprocess.TimeoutExpired requests.Timeout httpx.TimeoutException httpx2.TimeoutException"
    " httpcore.TimeoutException redis.TimeoutError valkey.TimeoutError"
)
_CONNECTIONS: Final = (
    "ConnectionError socket.gaierror ssl.SSLError urllib.URLError requests.ConnectionError redis.ConnectionError"
    " valkey.ConnectionError httpx.TransportError httpx2.TransportError httpcore.NetworkError"
    " aiohttp.ClientConnectionError"
)
# Written for the other end of the wire.
_FOR_CALLERS: Final = "mcp.ResourceError fastmcp.ResourceError fastmcp.PromptError"
# Classes, with their top-level package, and what is shown of them; docs/errors.md says it in words. The most
# specific class of an exception decides, so the order doesn't matter.
RULES: Final[Mapping[str, _Rule]] = {
    "ValueError": _in_its_words("BAD_ARGS"),
    "pydantic_core.ValidationError pydantic.ValidationError": _pydantic,
    "msgspec.ValidationError": _msgspec,
    _SCHEMA: _jsonschema,
    "TypeError": _wrong_call,
    "UnicodeError": _unicode,
    "SyntaxError": _syntax,
    "LookupError": _lookup,
    "FileNotFoundError": _file("NOT_FOUND", "File not found"),
    "NotADirectoryError": _file("INVALID_PATH", "Not a directory"),
    "IsADirectoryError": _file("INVALID_PATH", "This is a directory"),
    "FileExistsError": _file("INVALID_PATH", "It exists already"),
    "PermissionError": _file("FORBIDDEN", "Not permitted"),
    "MemoryError RecursionError": _generic("RESOURCE_EXHAUSTED"),
    "OSError": _os,
    "NotImplementedError": _in_its_words("NOT_IMPLEMENTED"),
    "ImportError": _import,
    _TIMEOUTS: _generic("TIMEOUT"),
    _CONNECTIONS: _generic("DEPENDENCY_UNAVAILABLE"),
    "mcp.ToolError fastmcp.ToolError": _tool_error,
    "mcp.MCPError": _mcp,
    "mcp_envelope.BadNodeId": _in_its_words("BAD_NODE_ID"),
    _FOR_CALLERS: _in_its_words("TOOL_FAILED"),
    "fastmcp.AuthorizationError": _in_its_words("FORBIDDEN"),
}
_BY_CLASS: Final = {name: rule for names, rule in RULES.items() for name in names.split()}


# -- what a server says ---------------------------------------------------------------------------------------


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
