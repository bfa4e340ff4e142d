"""One catalogue of codes, and what becomes of an exception.

Strategy: a code is told once, in our own UPPER_SNAKE name, and each dialect has a spelling for it. `scalpel`
has a closed set of eleven, so there a code takes the one of its kind. `transcend` and `gel` call their codes
stable and don't forbid more, so there our names go out as they are. Exceptions are recognised by the names of
their classes, the most special class first, so no library is imported to know its errors. A message is shown
only where somebody wrote it for the caller, and scrubbed. All else is INTERNAL: a generic sentence and a
correlation id, and the story behind it goes to the log.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from .scrubbing import scrub, scrub_details, scrub_line, show_path

if TYPE_CHECKING:
    from .facts import Problem

# How scalpel spells a code of each kind, unless the code says otherwise.
KINDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "argument": "invalid_argument",
        "missing": "not_found",
        "refused": "forbidden",
        "limit": "resource_exhausted",
        "timeout": "timeout",
        "unavailable": "dependency_unavailable",
        "unsupported": "not_implemented",
        "internal": "internal_error",
    }
)
SCALPEL: Final = frozenset({*KINDS.values(), "invalid_path", "too_large", "upgrade_required"})
# The dialects that have codes. ctxo has none; native uses our names.
DIALECTS: Final = ("native", "transcend", "gel", "scalpel")

_NAME: Final = r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*"


@dataclass(frozen=True, slots=True)
class Code:
    """`hint` is the model's next step, `recovery` a person's. `spellings` are those that the rule doesn't give."""

    name: str
    meaning: str
    hint: str
    recovery: str = ""
    kind: str = "internal"
    spellings: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not re.fullmatch(_NAME, self.name):
            raise ValueError(
                f"a code's name is UPPER_SNAKE, such as {code_name(self.name)}; got {self.name!r}"
            )
        if self.kind not in KINDS:
            raise ValueError(f"{self.name}: unknown kind {self.kind!r}; one of {', '.join(KINDS)}")
        if unknown := set(self.spellings) - set(DIALECTS[1:]):
            raise ValueError(
                f"{self.name}: no codes in dialect {unknown.pop()!r}; one of {', '.join(DIALECTS[1:])}"
            )
        if self.spellings.get("scalpel", "timeout") not in SCALPEL:
            raise ValueError(f"{self.name}: scalpel's codes are {', '.join(sorted(SCALPEL))}")
        object.__setattr__(self, "spellings", MappingProxyType(dict(self.spellings)))

    def spelling(self, dialect: str) -> str:
        if dialect not in DIALECTS:
            raise ValueError(f"no codes in dialect {dialect!r}; one of {', '.join(DIALECTS)}")
        return self.spellings.get(dialect) or (KINDS[self.kind] if dialect == "scalpel" else self.name)


class Catalogue(Mapping[str, Code]):
    """Codes by name. A copy, `Catalogue(CATALOGUE.values())`, can be added to without touching the original."""

    def __init__(self, codes: Iterable[Code] = ()) -> None:
        self._codes: dict[str, Code] = {}
        self._spelled: dict[str, Code] = {}
        for code in codes:
            self.register(code)

    def __getitem__(self, name: str) -> Code:
        return self._codes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._codes)

    def __len__(self) -> int:
        return len(self._codes)

    def register(self, code: Code) -> Code:
        """Add a code. The very same one twice is fine; another one under a name that is taken is not."""
        taken = self.find(code.name)
        if taken == code:
            return taken
        if taken is not None:
            raise ValueError(f"{code.name} is taken: {taken.name} means {taken.meaning!r}")
        self._codes[code.name] = code
        for dialect in DIALECTS:
            # Several codes share a spelling in scalpel. The first one, which is the general one, is found by it.
            self._spelled.setdefault(code.spelling(dialect).upper(), code)
        return code

    def find(self, text: str) -> Code | None:
        """The code with this name, or with this spelling in any dialect; upper or lower case."""
        key = text.strip().upper()
        return self._codes.get(key) or self._spelled.get(key)

    def nearest(self, text: str) -> str | None:
        """The name that was probably meant."""
        from difflib import get_close_matches

        close = get_close_matches(code_name(text), [*self._codes, *self._spelled], 1, 0.6)
        return self._spelled[close[0]].name if close else None

    def spelling(self, code: str, dialect: str) -> str:
        """How a dialect spells a code, which need not be in the catalogue."""
        known = self.find(code)
        if known is not None:
            return known.spelling(dialect)
        # Nothing is known of its kind, so even scalpel gets the name itself.
        return code_name(code).lower() if dialect == "scalpel" else code_name(code)

    def problem(
        self, code: str, message: str = "", hint: str = "", details: Mapping[str, Any] | None = None
    ) -> Problem:
        """A problem with the catalogue's words where none are given. Nothing is scrubbed here."""
        from .facts import Problem

        known = self.find(code)
        if known is None:
            return Problem(code_name(code), message or "The tool could not do this.", hint, details)
        return Problem(known.name, message or known.meaning, hint or known.hint, details)


def code_name(text: str) -> str:
    """Any text as a name: `quota-spent` is QUOTA_SPENT."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", text[:64])
    return re.sub(r"[^A-Z0-9]+", "_", words.upper()).strip("_0123456789") or "INTERNAL"


# Name, kind, scalpel's spelling if its kind doesn't give it: the meaning; the hint; the recovery.
_CODES: Final = """
BAD_ARGS argument: The arguments do not have the shape that the tool expects.
Correct the argument that the message names, then call again.
The message names the argument and what is wrong with it. The tool's input schema has the rest.
INTERNAL internal: Something failed that nobody foresaw.
Do not repeat the same call. Go on without it, and tell the user the correlation id.
The log has the whole story under the correlation id. It is a bug: report it.
NOT_FOUND missing: What the call names does not exist.
Check the spelling, or list what there is and take a name from there.
A search or a listing tool shows the names that exist.
INVALID_PATH argument invalid_path: The file path is malformed, of the wrong kind, or outside of what may be read.
Pass a path relative to the project's root, with forward slashes, to a file that exists.
Check whether a file or a directory is expected, and which root the server was started with.
FORBIDDEN refused: The server is not allowed to do this.
Do not retry. Ask the user for access, or work with what can be reached.
Give the server's user the right that is missing, or leave the resource out.
TIMEOUT timeout: There was no answer within the time allowed.
Ask for less at once, or try again once.
Narrow the call. If it is always slow, raise the server's deadline.
TOO_LARGE limit too_large: What the call asks to work on is larger than the tool accepts.
Pass a part of it: one file, a narrower range or a filter.
Split the work, or raise the server's limit.
RESOURCE_EXHAUSTED limit: Memory, disk space, open files or another resource ran out.
Ask for less at once. If that fails too, stop and tell the user.
Free the resource, or give the server more of it.
NOT_IMPLEMENTED unsupported: The tool does not do this, or not for this kind of input.
Use another tool, or another option of this one.
The tool's description says what it covers.
UPGRADE_REQUIRED refused upgrade_required: The feature needs a higher tier.
Go on without the feature, and tell the user which tier has it.
The upgrade hints name the feature and the tier.
DEPENDENCY_UNAVAILABLE unavailable: A program, module or service that the tool needs is not there.
Tell the user what is missing. Tools that do not need it still work.
Install what the message names, or bring the service back.
RATE_LIMITED limit: Too many calls in too short a time.
Wait for the time that the details state, then call again.
Space the calls out, or raise the quota.
TOOL_FAILED internal: The tool reported a failure in its own words.
Read the message: it is the tool's own.
See the tool's documentation.
MAP_NOT_BUILT unavailable: The index is not there: it is still being built, or cannot be built here.
Build the index, or use tools that look at the files directly.
Run the server's rebuild tool. A first build takes a while.
NODE_NOT_FOUND missing: No node of the index has this id.
Take an id from a search or an overview. The index may be older than the files.
Rebuild the index if files were added or renamed.
BAD_NODE_ID argument: The node id cannot be read.
Write it as <lang>:<relpath>[#qualifiedName], for example py:src/app.py#App.run.
Copy ids from results instead of composing them.
FILE_DELETED missing: The file was there when the index was made, and is gone now.
Search for the symbol: it may have moved to another file.
Rebuild the index.
SYMBOL_NOT_FOUND missing: The file has no symbol of this name now.
Look at the names that the details list, or search for the symbol.
Rebuild the index if the symbol was renamed or moved.
LSP_UNAVAILABLE unavailable: The language server is not installed where it can be found.
Tell the user which language server to install. The index still answers.
Install the program that the message names and put it on the PATH.
LSP_FAILED unavailable: The language server crashed again and again and was switched off.
Use the index instead, and tell the user.
The server's status tool shows the end of its error output.
LSP_TIMEOUT timeout: The language server did not answer in time.
Try once more, or use the index instead.
Large projects need a while after the start. Raise the deadline if it goes on.
RESULT_TOO_LARGE limit too_large: The result cannot be cut to the budget and stay valid.
Ask for less, raise the budget, or read it in parts by its handle.
Use a filter of the tool, or give the tool a larger budget in the configuration.
BAD_RESULT internal: The tool returned something that cannot be put on the wire.
Do not repeat the same call. Tell the user that the tool is broken.
Return JSON values, text, or content blocks.
HANDLE_UNKNOWN missing: No stored result has this handle.
Copy the handle exactly as it was given, or call the tool again.
A handle of another caller counts as unknown too. Check that all replicas use one vault.
HANDLE_EXPIRED missing: The stored result was kept for its time and is gone.
Call the tool again and read on from the new handle.
Raise the time that results are kept, or the size of the vault.
HANDLE_DELETED missing: The stored result was deleted on purpose.
Call the tool again if the result is still needed.
Somebody purged the vault.
HANDLE_DAMAGED unavailable: The stored result cannot be read back whole.
Call the tool again and use the new handle.
Check the disk, then purge the vault.
BAD_PATH argument: The JSON pointer leads nowhere in the stored result.
Go up one segment and read what is there. Pointers look like /items/0/name.
In a segment, ~1 stands for a slash and ~0 for a tilde.
BAD_OFFSET argument: The offset is past the end, or not a position.
Use the offset that the last page stated. Past the end there is nothing more to read.
Offsets count from 0, in the unit that the page states.
BAD_QUERY argument: The query or the pattern cannot be read.
Mend it at the position stated. `query` is JMESPath; `grep` is an RE2 pattern, without lookaround.
Try the expression on a small result first.
QUERY_TOO_COSTLY limit: The query was stopped: it needed more time or memory than one may use.
Narrow it with a path, or read pages instead.
Raise the limits of the vault if such queries are usual.
VAULT_UNAVAILABLE unavailable: The place where whole results are kept cannot be reached.
Try again in a moment, or call the tool again with a narrower request.
Check the vault's file or server. Results are still cut, but not kept, until it is back.
UPSTREAM_UNAVAILABLE unavailable: The server behind the proxy could not be started or reached.
Do not retry at once. Tell the user that the server is down.
Run the server's command, or open its address, without the proxy.
UPSTREAM_DIED unavailable: The server behind the proxy ended before it answered.
The call may have taken effect. Check before calling again.
The server's own error output says why it ended.
UPSTREAM_TIMEOUT timeout: The server behind the proxy did not answer in time.
The call may still take effect. Check, then ask for less at once.
Raise the proxy's deadline if the tool is slow by nature.
UPSTREAM_BAD_REPLY internal: The server behind the proxy answered with something that is no valid message.
Do not repeat the same call. Tell the user that the server is broken.
Look at the reply without the proxy, and report it to the server's authors.
FRAME_TOO_LARGE limit too_large: The message is larger than the proxy reads.
Ask for less at once.
Raise the proxy's limit on frames and bodies.
"""


def _read(text: str) -> Iterator[Code]:
    lines = iter(text.strip().splitlines())
    for head, hint, recovery in zip(lines, lines, lines, strict=True):
        (name, kind, *own), meaning = (head.partition(": ")[0].split(), head.partition(": ")[2])
        yield Code(name, meaning, hint, recovery, kind, {"scalpel": own[0]} if own else {})


CATALOGUE: Final = Catalogue(_read(_CODES))


def register(code: Code) -> Code:
    """Add a server's own code to the default catalogue."""
    return CATALOGUE.register(code)


def find(text: str) -> Code | None:
    return CATALOGUE.find(text)


def nearest(text: str) -> str | None:
    return CATALOGUE.nearest(text)


# Exceptions


class Call(NamedTuple):
    """What an adapter knows of the call that failed."""

    root: str | None = None
    known: Collection[str] = ()
    tool: str | None = None


class _Told(NamedTuple):
    code: str
    message: str = ""
    fields: tuple[str, ...] = ()


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
        message = scrub_line(best.message, root, known=known)
        return catalogue.problem(best.code, message, details=details or None)
    # The author of a failure says what may be known of it, in as many lines as it takes.
    words = {name: str(_attribute(best.problem, name) or "") for name in ("code", "message", "hint")}
    message, hint = (scrub(words[name], root, known=known) for name in ("message", "hint"))
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
    return None if wrapped else _Told("TOOL_FAILED", text)


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
_WRAPPED: Final = f"{_LINE}; if it wraps another exception, what is shown of that one"
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
)
_BY_CLASS: Final = {name: rule for rule in RULES for name in rule.classes.split()}
