"""What becomes of an exception.

Strategy: exceptions are recognised by the names of their classes, the most special class first, so no library
is imported to know its errors. A message is shown only where somebody wrote it for the caller, and scrubbed. All
else is INTERNAL: a generic sentence and a correlation id, and the story behind it goes to the log.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from .codes import CATALOGUE, Catalogue
from .scrubbing import SAID, scrub, scrub_details, scrub_line, show_path

if TYPE_CHECKING:
    from .facts import Problem


class Call(NamedTuple):
    """What an adapter knows of the call that failed."""

    root: str | None = None
    known: Collection[str] = ()
    tool: str | None = None


class _Told(NamedTuple):
    code: str
    message: str = ""
    fields: tuple[str, ...] = ()
    # Written for the caller on purpose: all of its lines are shown.
    is_said: bool = False


class _Carried(NamedTuple):
    """A problem that its author put into the exception."""

    problem: Any


class Rule(NamedTuple):
    """Classes (with their top package), the code they get, what is shown of them, and how to tell it."""

    classes: str
    code: str
    shown: str
    tell: Callable[[Any, Call], _Told | None]


def passes_through(exception: BaseException) -> bool:
    """Cancellation (asyncio, trio), KeyboardInterrupt, SystemExit, GeneratorExit, and groups that hold one.

    None of them is an `Exception`, and whatever else isn't one is not ours to answer either.
    """
    return not isinstance(exception, Exception)


def raise_if_passing(exception: BaseException) -> None:
    if passes_through(exception):
        raise exception


def problem_of(
    exception: BaseException,
    *,
    correlation_id: Callable[[], str] = lambda: os.urandom(8).hex(),
    root: str | None = None,
    known: Collection[str] = (),
    tool: str | None = None,
    catalogue: Catalogue = CATALOGUE,
) -> Problem:
    """The coded failure that an exception becomes. What passes through is raised again.

    `root` is the directory that paths are shown relative to, `known` what the client passed, and `tool` the
    qualified name of the function that was called: a wrong call of it is the caller's mistake, one of another
    function is the tool's.
    """
    raise_if_passing(exception)
    told = [_told(leaf, Call(root, known, tool)) for leaf in _leaves(exception)]
    best = max(told, key=lambda each: (isinstance(each, _Carried), each is not None))
    details: dict[str, Any] = {}
    if None in told:
        # What nobody foresaw is logged even if another member of the group tells more.
        details["correlationId"] = re.sub(r"[^\w.:-]", "", str(correlation_id()))[:64]
    if len(told) > 1:
        details["otherErrors"] = len(told) - 1
    _log(exception, details.get("correlationId"))
    if best is None:
        # The id is in the sentence too, for dialects that show nothing else.
        message = f"Something went wrong inside the tool. The log has it under {details['correlationId']}."
        return catalogue.problem("INTERNAL", message, details=details)
    if isinstance(best, _Told):
        if best.fields:
            details["fields"] = list(best.fields)
        if best.is_said:
            message = scrub(best.message, root, SAID, known)
        else:
            message = scrub_line(best.message, root, known=known)
        return catalogue.problem(best.code, message, details=details or None)
    # The author of a failure says what may be known of it, in as many lines as it takes.
    words = {name: str(_attribute(best.problem, name) or "") for name in ("code", "message", "hint")}
    message, hint = (scrub(words[name], root, SAID, known) for name in ("message", "hint"))
    shown = scrub_details(_attribute(best.problem, "details"), root, known=known)
    if isinstance(shown, dict):
        details = {**shown, **details}
    return catalogue.problem(words["code"], message, hint, details or None)


def _log(exception: BaseException, correlation_id: str | None) -> None:
    import logging

    logger = logging.getLogger("mcp_envelope")
    if correlation_id is not None:
        logger.error("unexpected failure, correlation id %s", correlation_id, exc_info=exception)
    else:
        logger.debug("the tool failed", exc_info=exception)


def _leaves(exception: BaseException, depth: int = 0) -> Iterator[BaseException]:
    """The members of a group, of its groups, and so on; an exception is its own only leaf."""
    if isinstance(exception, BaseExceptionGroup) and depth < 16 and _attribute(exception, "problem") is None:
        for member in exception.exceptions[:64]:
            yield from _leaves(member, depth + 1)
    else:
        yield exception


def _told(exception: BaseException, call: Call) -> _Told | _Carried | None:
    """The problem that an exception carries, or what a rule tells of it, or else of its stated cause."""
    for _ in range(16):
        problem = _attribute(exception, "problem")
        if all(isinstance(_attribute(problem, name), str) for name in ("code", "message")):
            return _Carried(problem)
        for kind in type(exception).__mro__:
            package = kind.__module__.partition(".")[0]
            rule = _BY_CLASS.get(f"{package}.{kind.__name__}".removeprefix("builtins."))
            try:
                if rule and (told := rule.tell(exception, call)):
                    return told
            except Exception:
                # An exception may be as broken as what it reports. Then it counts as unexpected.
                return None
        # `raise … from` states the cause. What merely happened before, `__context__`, is another story.
        if exception.__cause__ is None:
            return None
        exception = exception.__cause__
    return None


def _attribute(value: object, name: str) -> Any:
    try:
        return getattr(value, name, None)
    except Exception:
        return None


def _says(exception: Exception) -> str:
    """The message that somebody wrote; "" if the exception was made of other things than one text."""
    if type(exception).__str__ is not BaseException.__str__:
        return str(exception)
    return exception.args[0] if len(exception.args) == 1 and isinstance(exception.args[0], str) else ""


def _raised_in(exception: BaseException) -> tuple[str, int]:
    """The module that raised it, and how many frames away that is."""
    trace, module, depth = exception.__traceback__, "", 0
    while trace is not None:
        module, depth, trace = str(trace.tb_frame.f_globals.get("__name__")), depth + 1, trace.tb_next
    return module, depth


def _invalid(reasons: Iterable[tuple[Iterable[Any], str]]) -> _Told:
    """Each reason with the place it is about. A part of the place that is no plain name could hold anything."""
    lines, fields = [], []
    for place, reason in reasons:
        parts = (str(part) for part in place)
        name = ".".join(part if re.fullmatch(r"[\w$@-]{1,64}", part) else "…" for part in parts)
        reason = scrub_line(reason, limit=160) or "is not valid"
        lines.append(f"{name}: {reason}" if name else reason)
        fields.append(name)
    more = f"; and {len(lines) - 5} more" if len(lines) > 5 else ""
    return _Told("BAD_ARGS", "; ".join(lines[:5]) + more, tuple(dict.fromkeys(filter(None, fields[:20]))))


def _pydantic(error: Any, call: Call) -> _Told:
    try:
        found = error.errors(include_url=False, include_context=False, include_input=False)
    except TypeError:  # version 1
        found = error.errors()
    return _invalid((each["loc"], each["msg"].removeprefix("Value error, ")) for each in found)


def _msgspec(error: Any, call: Call) -> _Told:
    reason, _, place = str(error).rpartition(" - at `")
    return _invalid([(re.findall(r"[\w-]+|\.\.\.", place), reason)] if reason else [((), str(error))])


def _jsonschema(error: Any, call: Call) -> _Told:
    place = _attribute(error, "absolute_path")
    reason = error.message
    # Both libraries open with the value, which may be a whole document.
    compact = json.dumps(error.instance, ensure_ascii=False, separators=(",", ":"), default=repr)
    for spelled in (repr(error.instance), compact):
        reason = reason.removeprefix(spelled).strip()
    return _invalid([(error.instance_path if place is None else place, "" if reason[:1] in "[{" else reason)])


_CALL: Final = (
    r"(?:([\w.<>]+)\(\) )?((?:got an unexpected|missing (?:\d+|a) required|got multiple values"
    r"|multiple values for|takes (?:from )?\d+|too many positional|got some positional-only)\b.*)"
)


def _wrong_call(error: TypeError, call: Call) -> _Told | None:
    found = re.fullmatch(_CALL, _says(error))
    if found is None:
        return None
    function, reason = found.groups()
    module, depth = _raised_in(error)
    if function is None:
        blame = module == "inspect"  # Signature.bind
    elif call.tool:
        blame = f".{function}".endswith(f".{call.tool}")
    else:
        blame = depth <= 1  # the call itself failed, and nothing inside of the tool
    fields = tuple(re.findall(r"'(\w+)'", reason))
    return _Told("BAD_ARGS", f"Wrong arguments: {reason}", fields) if blame else None


def _file(code: str, words: str) -> Callable[[Any, Call], _Told]:
    def tell(error: OSError, call: Call) -> _Told:
        name = os.fspath(error.filename) if isinstance(error.filename, str | os.PathLike) else ""
        shown = show_path(name, call.root, call.known) if isinstance(name, str) else ""
        if isinstance(error, FileNotFoundError) and _raised_in(error)[0] == "subprocess":
            return _Told("DEPENDENCY_UNAVAILABLE", f"Program not found: {shown}" if shown else "")
        return _Told(code, f"{words}: {shown}" if shown else f"{words}.")

    return tell


_ERRNO: Final = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EMFILE), "RESOURCE_EXHAUSTED"),
    **dict.fromkeys((errno.ENFILE, errno.ENOMEM), "RESOURCE_EXHAUSTED"),
    **dict.fromkeys((errno.ELOOP, errno.ENAMETOOLONG), "INVALID_PATH"),
    errno.EROFS: "FORBIDDEN",
    errno.EFBIG: "TOO_LARGE",
}


def _os(error: OSError, call: Call) -> _Told | None:
    code = _ERRNO.get(error.errno or 0)
    return _Told(code, os.strerror(error.errno or 0)) if code else None


def _lookup(error: LookupError, call: Call) -> _Told | None:
    # A KeyError or an IndexError is a slip of the program; a LookupError of one's own was raised on purpose.
    written = not isinstance(error, KeyError | IndexError) and _says(error)
    return _Told("NOT_FOUND", written) if written else None


def _unicode(error: Any, call: Call) -> _Told:
    encoding, start = _attribute(error, "encoding"), _attribute(error, "start")
    plain = isinstance(encoding, str) and re.fullmatch(r"[\w-]{1,32}", encoding)
    where = f", position {start}" if isinstance(start, int) else ""
    return _Told("BAD_ARGS", f"The text is not valid {encoding if plain else 'in its encoding'}{where}.")


def _syntax(error: SyntaxError, call: Call) -> _Told:
    return _Told("BAD_ARGS", f"Syntax error at line {error.lineno}." if error.lineno else "Syntax error.")


def _import(error: ImportError, call: Call) -> _Told:
    plain = isinstance(error.name, str) and re.fullmatch(r"[A-Za-z_][\w.]{0,100}", error.name)
    return _Told("DEPENDENCY_UNAVAILABLE", f"Python module not available: {error.name}" if plain else "")


def _tool_error(error: Exception, call: Call) -> _Told | None:
    # The SDKs wrap any exception in a ToolError that repeats its text. Then the cause tells more, and safely.
    text = _says(error)
    wrapped = error.__cause__ is not None and text.startswith(("Error executing tool", "Error calling tool"))
    return None if wrapped else _Told("TOOL_FAILED", text, is_said=True)


def _ours(code: str) -> Callable[[Any, Call], _Told]:
    return lambda error, call: _Told(code)


def _theirs(code: str) -> Callable[[Any, Call], _Told]:
    return lambda error, call: _Told(code, _says(error))


_LINE: Final = "the first line of its message"
_OURS: Final = "a sentence of ours"
_REASONS: Final = "field and reason, five at most; not the values"
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
_WRONG_CALL: Final = "what is wrong with the arguments, if the call itself failed; else it is unexpected"
_LOOKUP: Final = f"{_LINE}; KeyError and IndexError are unexpected"
_NUMBER: Final = "the system's words for its number; most numbers are unexpected"
_WRAPPED: Final = "its message; if it wraps another exception, what is shown of that one"
# Their authors wrote them for the other end of the wire.
_SAID: Final = "mcp.MCPError mcp.ResourceError fastmcp.ResourceError fastmcp.PromptError"
# The most special class of an exception decides, so the order does not matter.
RULES: Final = (
    Rule("ValueError", "BAD_ARGS", _LINE, _theirs("BAD_ARGS")),
    Rule("pydantic_core.ValidationError pydantic.ValidationError", "BAD_ARGS", _REASONS, _pydantic),
    Rule("msgspec.ValidationError", "BAD_ARGS", _REASONS, _msgspec),
    Rule(_SCHEMA, "BAD_ARGS", _REASONS, _jsonschema),
    Rule("TypeError", "BAD_ARGS", _WRONG_CALL, _wrong_call),
    Rule("UnicodeError", "BAD_ARGS", "the encoding and the position", _unicode),
    Rule("SyntaxError", "BAD_ARGS", "the line's number", _syntax),
    Rule("LookupError", "NOT_FOUND", _LOOKUP, _lookup),
    Rule("FileNotFoundError", "NOT_FOUND", "the path", _file("NOT_FOUND", "File not found")),
    Rule("NotADirectoryError", "INVALID_PATH", "the path", _file("INVALID_PATH", "Not a directory")),
    Rule("IsADirectoryError", "INVALID_PATH", "the path", _file("INVALID_PATH", "This is a directory")),
    Rule("FileExistsError", "INVALID_PATH", "the path", _file("INVALID_PATH", "It exists already")),
    Rule("PermissionError", "FORBIDDEN", "the path", _file("FORBIDDEN", "Not permitted")),
    Rule("MemoryError RecursionError", "RESOURCE_EXHAUSTED", _OURS, _ours("RESOURCE_EXHAUSTED")),
    Rule("OSError", "/".join(dict.fromkeys(_ERRNO.values())), _NUMBER, _os),
    Rule("NotImplementedError", "NOT_IMPLEMENTED", _LINE, _theirs("NOT_IMPLEMENTED")),
    Rule("ImportError", "DEPENDENCY_UNAVAILABLE", "the module's name", _import),
    Rule(_TIMEOUTS, "TIMEOUT", _OURS, _ours("TIMEOUT")),
    Rule(_CONNECTIONS, "DEPENDENCY_UNAVAILABLE", _OURS, _ours("DEPENDENCY_UNAVAILABLE")),
    Rule("mcp.ToolError fastmcp.ToolError", "TOOL_FAILED", _WRAPPED, _tool_error),
    Rule(_SAID, "TOOL_FAILED", _LINE, _theirs("TOOL_FAILED")),
    Rule("fastmcp.AuthorizationError", "FORBIDDEN", _LINE, _theirs("FORBIDDEN")),
)
_BY_CLASS: Final = {name: rule for rule in RULES for name in rule.classes.split()}
