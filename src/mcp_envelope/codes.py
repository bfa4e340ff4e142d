"""The catalogue of error codes.

Strategy: a code is described once, under its own UPPER_SNAKE name. Contracts that call their codes stable but
don't rule out others get that name. A contract with a closed set gets the general code of the same kind instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, Final

# The general code of each kind; a code may override it.
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
GENERAL: Final = frozenset({*KINDS.values(), "invalid_path", "too_large", "upgrade_required"})

_NAME: Final = r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*"


@dataclass(frozen=True, slots=True)
class Problem:
    """A coded failure, safe to show."""

    code: str
    message: str
    hint: str = ""
    details: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Code:
    """`hint` is the model's next step; docs/errors.md has a person's. `general` is one of the set `GENERAL`."""

    name: str
    meaning: str
    hint: str
    kind: str = "internal"
    general: str = ""

    def __post_init__(self) -> None:
        if not re.fullmatch(_NAME, self.name):
            raise ValueError(
                f"a code's name is UPPER_SNAKE, such as {code_name(self.name)}; got {self.name!r}"
            )
        if self.kind not in KINDS:
            raise ValueError(f"{self.name}: unknown kind {self.kind!r}; one of {', '.join(KINDS)}")
        object.__setattr__(self, "general", self.general or KINDS[self.kind])
        if self.general not in GENERAL:
            raise ValueError(f"{self.name}: the general codes are {', '.join(sorted(GENERAL))}")


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
        """Add a code. Adding an equal one again is fine; a different one under a taken name is an error."""
        taken = self.find(code.name)
        if taken == code:
            return taken
        if taken is not None:
            raise ValueError(f"{code.name} is taken: {taken.name} means {taken.meaning!r}")
        self._codes[code.name] = code
        # Several codes share a general one, which finds the first of them.
        for spelled in (code.name, code.general.upper()):
            self._spelled.setdefault(spelled, code)
        return code

    def find(self, text: str) -> Code | None:
        """Return the code with this name, or this general code; upper or lower case."""
        key = text.strip().upper()
        return self._codes.get(key) or self._spelled.get(key)

    def name(self, code: str) -> str:
        """Return the name of a code, which need not be in the catalogue."""
        known = self.find(code)
        return code_name(code) if known is None else known.name

    def closest(self, code: str) -> Code:
        """Return the code; for one that isn't in the catalogue, the one that its words come closest to."""
        known = self.find(code)
        if known is None:
            known = self._codes[code_of_words(code_name(code).replace("_", " ")) or "INTERNAL"]
        return known

    def general(self, code: str) -> str:
        """Return the general code, which is one of a closed set."""
        return self.closest(code).general

    def problem(
        self, code: str, message: str = "", hint: str = "", details: Mapping[str, Any] | None = None
    ) -> Problem:
        """Return a problem, with the catalogue's words where none are given. Nothing is scrubbed here."""
        known = self.find(code)
        if known is None:
            return Problem(code_name(code), message or "The tool could not do this.", hint, details)
        return Problem(known.name, message or known.meaning, hint or known.hint, details)


def code_name(text: str) -> str:
    """Return a text as a name: `quota-spent` is QUOTA_SPENT."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", text[:64])
    return re.sub(r"[^A-Z0-9]+", "_", words.upper()).strip("_0123456789") or "INTERNAL"


_SYSTEM: Final = {
    name: code
    for code, names in {
        "NOT_FOUND": "ENOENT ESRCH ENXIO",
        "INVALID_PATH": "ENOTDIR EISDIR EEXIST ENAMETOOLONG ELOOP ENOTEMPTY",
        "FORBIDDEN": "EACCES EPERM EROFS",
        "TIMEOUT": "ETIMEDOUT ETIME",
        "RESOURCE_EXHAUSTED": "ENOSPC EDQUOT EMFILE ENFILE ENOMEM ENOBUFS",
        "TOO_LARGE": "EFBIG E2BIG EMSGSIZE",
        "DEPENDENCY_UNAVAILABLE": "ECONNREFUSED ECONNRESET ECONNABORTED ENOTFOUND EHOSTUNREACH ENETUNREACH EPIPE",
        "BAD_ARGS": "EINVAL EDOM ERANGE",
        "NOT_IMPLEMENTED": "ENOSYS ENOTSUP EOPNOTSUPP",
    }.items()
    for name in names.split()
}
# What servers write in failures of each kind.
_PHRASES: Final = {
    "BAD_ARGS": r"(?:invalid|bad|wrong|missing|unexpected) (?:required )?(?:keyword )?(?:arg|param|input|propert)"
    r"|validation errors?\b|(?:is a|field|property) required|required propert|invalid_type|is not of type"
    r"|input should be",
    "BAD_NODE_ID": r"(?:bad|invalid|malformed) node id",
    "TIMEOUT": r"tim(?:ed|e)[ -]?out|deadline exceeded|took too long",
    "RATE_LIMITED": r"rate[ -]limit|too many requests|quota",
    "UPGRADE_REQUIRED": r"upgrade required|requires? (?:an? )?(?:higher|paid|pro|enterprise) (?:tier|plan)",
    "FORBIDDEN": r"(?:permission|access)(?: is| was)? denied|forbidden|unauthori[sz]ed"
    r"|not (?:allowed|permitted|authori[sz]ed)",
    "NOT_FOUND": r"not[ -]found|no such |unknown tool\b|\bno [^.\n]{1,60}? found\b|does(?: not|n't) exist"
    r"|(?:can(?:not|'t)|could(?: not|n't)) find",
    "NOT_IMPLEMENTED": r"not (?:yet )?(?:implemented|supported)|unsupported",
    "TOO_LARGE": r"too (?:large|big|long)|exceeds (?:the )?(?:max|limit|size)",
    "RESOURCE_EXHAUSTED": r"out of memory|no space left|disk (?:is )?full|resource exhausted",
    "DEPENDENCY_UNAVAILABLE": r"connection (?:refused|reset|closed)|(?:could not|failed to|cannot) connect"
    r"|unavailable|unreachable|not installed|not on (?:the )?path",
}


@cache
def _words() -> re.Pattern[str]:
    phrases = "|".join(f"(?P<{code}>{phrase})" for code, phrase in _PHRASES.items())
    return re.compile(rf"\b(?P<errno>{'|'.join(_SYSTEM)})\b|(?i:{phrases})")


def code_of_words(text: str) -> str | None:
    """Return the code that the first name of a system error, or the first common phrase, in a text stands for."""
    found = _words().search(text)
    if found is None or found.lastgroup is None:
        return None
    return _SYSTEM[found[0]] if found.lastgroup == "errno" else found.lastgroup


# Name, kind, general code if it isn't the kind's: the meaning. Then the hint.
_CODES: Final = """
BAD_ARGS argument: The arguments do not have the shape that the tool expects.
Correct the argument that the message names, then call again.
INTERNAL internal: Something failed unexpectedly.
Do not repeat the same call. Go on without it, and tell the user the correlation id.
NOT_FOUND missing: What the call names does not exist.
Check the spelling, or list what exists and pick a name from there.
INVALID_PATH argument invalid_path: The file path is malformed, of the wrong kind, or outside what may be read.
Pass a path relative to the project's root, with forward slashes, to a file that exists.
FORBIDDEN refused: The server is not allowed to do this.
Do not retry. Ask the user for access, or work with what can be reached.
LOGIN_REQUIRED refused: The server wants a login, which only the user can do.
Ask the user to run the command that the message names, then call again.
TIMEOUT timeout: There was no answer within the time allowed.
Ask for less at once, or try again once.
TOO_LARGE limit too_large: What the call asks to work on is larger than the tool accepts.
Pass a part of it: one file, a narrower range or a filter.
RESOURCE_EXHAUSTED limit: Memory, disk space, open files or another resource ran out.
Ask for less at once. If that fails too, stop and tell the user.
NOT_IMPLEMENTED unsupported: The tool does not do this, or not for this kind of input.
Use another tool, or another option of this one.
UPGRADE_REQUIRED refused upgrade_required: The feature needs a higher tier.
Go on without the feature, and tell the user which tier has it.
DEPENDENCY_UNAVAILABLE unavailable: A program, module or service that the tool needs is not available.
Tell the user what is missing. Tools that do not need it still work.
RATE_LIMITED limit: Too many calls in too short a time.
Wait for the time that the details state, then call again.
TOOL_FAILED internal: The tool reported a failure in its own words.
Read the message: it is the tool's own.
MAP_NOT_BUILT unavailable: There is no index: it is still being built, or cannot be built here.
Build the index, or use tools that look at the files directly.
NODE_NOT_FOUND missing: No node of the index has this id.
Take an id from a search or an overview. The index may be older than the files.
BAD_NODE_ID argument: The node id cannot be parsed.
Write it as <lang>:<relpath>[#qualifiedName], for example py:src/app.py#App.run.
FILE_DELETED missing: The file existed when the index was built, but is gone now.
Search for the symbol: it may have moved to another file.
SYMBOL_NOT_FOUND missing: The file has no symbol of this name now.
Look at the names that the details list, or search for the symbol.
LSP_UNAVAILABLE unavailable: The language server is not installed, or not on the PATH.
Tell the user which language server to install. The index still answers.
LSP_FAILED unavailable: The language server crashed repeatedly and was switched off.
Use the index instead, and tell the user.
LSP_TIMEOUT timeout: The language server did not answer in time.
Try once more, or use the index instead.
RESULT_TOO_LARGE limit too_large: The result cannot be cut to the budget and stay valid.
Ask for less, raise the budget, or read it in parts by its handle.
RESULT_REDACTED internal: A secret was masked where the schema fixes the format, so there is no structured content.
Read the text of the result; what was masked is marked there.
BAD_RESULT internal: The tool returned something that cannot be put on the wire.
Do not repeat the same call. Tell the user that the tool is broken.
MASK_UNKNOWN argument: A placeholder in the arguments stands for a masked value that is not known here.
Read the value again from the same server, and use the new placeholder as it is; do not make one up.
HANDLE_UNKNOWN missing: No stored result has this handle.
Copy the handle exactly as it was given, or call the tool again.
HANDLE_EXPIRED missing: The stored result has expired.
Call the tool again and read on from the new handle.
HANDLE_DELETED missing: The stored result was deleted on purpose.
Call the tool again if the result is still needed.
HANDLE_DAMAGED unavailable: The stored result cannot be read back whole.
Call the tool again and use the new handle.
BAD_PATH argument: The JSON pointer leads nowhere in the stored result.
Go up one segment and read what is there. Pointers look like /items/0/name.
BAD_OFFSET argument: The offset is past the end, or not a position.
Use the offset that the last page stated. Past the end there is nothing more to read.
BAD_QUERY argument: The query or the pattern cannot be parsed.
Fix it at the position given. `query` is JMESPath; `grep` is an RE2 pattern, without lookaround.
QUERY_TOO_COSTLY limit: The query was stopped: it needed more time or memory than is allowed.
Narrow it with a path, or read pages instead.
VAULT_UNAVAILABLE unavailable: The vault, which keeps whole results, cannot be reached.
Try again in a moment, or call the tool again with a narrower request.
UPSTREAM_UNAVAILABLE unavailable: The server behind the proxy could not be started or reached.
Do not retry at once. Tell the user that the server is down.
UPSTREAM_DIED unavailable: The server behind the proxy exited before it answered.
The call may have taken effect. Check before calling again.
UPSTREAM_TIMEOUT timeout: The server behind the proxy did not answer in time.
The call may still take effect. Check, then ask for less at once.
UPSTREAM_BAD_REPLY internal: The server behind the proxy answered with something that is not a valid message.
Do not repeat the same call. Tell the user that the server is broken.
FRAME_TOO_LARGE limit too_large: The message is larger than the proxy reads.
Ask for less at once.
"""


def _read(text: str) -> Iterator[Code]:
    lines = iter(text.strip().splitlines())
    for head, hint in zip(lines, lines, strict=True):
        names, _, meaning = head.partition(": ")
        name, kind, *general = names.split()
        yield Code(name, meaning, hint, kind, *general)


CATALOGUE: Final = Catalogue(_read(_CODES))


def register(code: Code) -> Code:
    """Add a server's own code to the default catalogue."""
    return CATALOGUE.register(code)
