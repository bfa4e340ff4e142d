"""One catalogue of codes.

Strategy: a code is told once, in our own UPPER_SNAKE name, and each dialect has a spelling for it. `scalpel`
has a closed set of eleven, so there a code takes the one of its kind. `transcend` and `gel` call their codes
stable and don't forbid more, so there our names go out as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

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
RESULT_REDACTED internal: A secret was masked where the output schema fixes the form, so there is no structure.
Read the text of the result; what was masked is marked there.
Loosen the schema of that field, or leave the secret out of the result.
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
