"""`mcp-envelope read`: read a stored result, as `envelope_read` does, and print the page for a person.

Strategy: the tool's own code makes the page. What is on it goes to standard output, exactly; what comes next
goes to standard error, as a command to paste. `--all` passes the stored bytes on a part at a time, so their
size does not matter. Reading creates nothing.
"""

from __future__ import annotations

import argparse
import base64
import re
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Final

import msgspec

from ..budget import Budget
from ..codes import Problem
from ..envelope import Sealed
from ..fit.documents import Cut
from ..outcome import Failure
from ..vault.document import StoredValue, text_parts
from ..vault.read_tool import block_path, exact_text, find, read
from ..vault.store import Damaged, DamagedFile, StoreError
from ..vault.vault import Stored, Vault
from . import console, files, settings
from .console import Misuse, Parser
from .settings import VaultAddress

_DESCRIPTION: Final = """\
Read a result that was cut: the next page, a selection, a search, or all of it.
The page goes to standard output, the command for the next one to standard
error.
"""
_EPILOG: Final = """\
what is printed:
  The page itself: JSON for lists and objects, the characters of a text or a
  string. A content block that is not text is printed as JSON; with --output
  images, audio and embedded files are decoded.
  --exact prints text: the characters of a string, even if it holds JSON, and
  the stored bytes of any other value.
  --all prints the stored bytes; with --path, those of one value: a string comes
  with its quotes, or without them if you add --exact.

exit codes:
  0    printed
  2    wrong usage
  3    the output cannot be written, or the --config file cannot be read
  5    it cannot be read: the message begins with a code, such as
       HANDLE_UNKNOWN, HANDLE_EXPIRED, BAD_PATH, BAD_OFFSET, BAD_QUERY
  130  interrupted
  141  the output was closed

examples, with the handle of a result that has a list `items`:
  mcp-envelope read HANDLE
  mcp-envelope read HANDLE --path /items --offset 20 --tokens 500
  mcp-envelope read HANDLE --sql 'SELECT why, count(*) FROM items GROUP BY 1'
  mcp-envelope read HANDLE --query 'items[?size > `10`].name'
  mcp-envelope read HANDLE --grep 'time(d )?out' --context 2
  mcp-envelope read HANDLE --query 'items[?size > `10`]' \\
      --sql 'SELECT why, count(*) FROM data GROUP BY 1'
  mcp-envelope read HANDLE --all --output whole.json
"""
_CUTS_NAMED: Final = 3
_BLOCK: Final = re.compile(r"(/content)?/[0-9]+")
_BLOCKS: Final = "/content"
# What an empty answer means, by what was asked first.
_NOTHING: Final = {"sql": "no rows", "grep": "no matches", "query": "nothing selected"}
_WAYS: Final = ("lines", "query", "grep", "sql")


def run(arguments: list[str]) -> int:
    options = make_parser().parse_args(arguments)
    return reported(lambda: _run(options))


def _run(options: argparse.Namespace) -> None:
    _check(options)
    policy = settings.policy(options.config)
    budget = settings.budget(options, policy)
    address = settings.vault_address(options.vault, options.config, policy)
    with address.opened() as vault:
        reading = _Reading(options, address, vault)
        if options.all:
            reading.all()
        else:
            reading.page(budget)


def reported(work: Callable[[], None]) -> int:
    """Do the work and return the exit code; say why if the vault cannot be used."""
    try:
        work()
        return console.OK
    except Failure as failure:
        problem = failure.problem
    except StoreError as error:
        # The tool hides the reason; a person at this machine may know it.
        hint = "Fix that, or name another vault with --vault."
        if isinstance(error, DamagedFile):
            hint = "`mcp-envelope vault purge`, with the same --vault, removes it and starts over."
        problem = Problem("VAULT_UNAVAILABLE", str(error), hint)
    except Damaged as error:
        message = f"the stored result cannot be read back whole: {error}"
        hint = "Call the tool again; `mcp-envelope vault purge` starts over."
        problem = Problem("HANDLE_DAMAGED", message, hint)
    console.say("error", f"{problem.code}: {problem.message}")
    if problem.hint:
        console.say("hint", problem.hint)
    return console.UNREAD


def _check(options: argparse.Namespace) -> None:
    if options.context is not None and options.grep is None:
        raise Misuse("--context needs --grep")
    for name in _WAYS:
        if getattr(options, name) == "":
            raise Misuse(f"argument --{name}: it is empty")
    if options.sql and options.lines:
        raise Misuse("--sql cannot be combined with --lines; in SQL, a text is the table lines(n, text)")
    if options.exact and (way := next((name for name in _WAYS if getattr(options, name)), None)):
        raise Misuse(f"--exact cannot be combined with --{way}")
    if options.all:
        others = ("offset", *_WAYS, "json", "tokens", "bytes", "meter")
        values = [(name, getattr(options, name)) for name in others]
        given = [name for name, value in values if value is not None and value is not False]
        if given:
            raise Misuse(f"--all prints everything, so it cannot be combined with --{given[0]}")


class _Reading:
    """One run: what was asked for, and where."""

    def __init__(self, options: argparse.Namespace, address: VaultAddress, vault: Vault | None) -> None:
        self.options = options
        self.address = address
        self.vault = vault
        if vault is not None and (missing := settings.missing_file(vault)):
            message = f"Nothing is stored yet: there is no vault at {missing}."
            hint = "Name the vault that the result was stored in with --vault."
            raise Failure("HANDLE_UNKNOWN", message, hint)
        if vault is not None and files.are_same(options.output, vault.store.place):
            raise Misuse("--output would overwrite the vault; name another file")

    # -- a page ---------------------------------------------------------------------------------------------

    def page(self, budget: Budget) -> None:
        options = self.options
        views = (options.region, options.scale, *[getattr(options, name) for name in _WAYS])
        is_whole = not (options.json or options.exact or any(view is not None for view in views))
        if options.output != files.STDIN and is_whole and (file := self._block()) is not None:
            self._put([file])
            return
        if budget.warning:
            console.say("warning", budget.warning)
        names = ("handle", "path", "offset", *_WAYS, "context", "exact", "region", "scale")
        asked = {name: value for name in names if (value := getattr(options, name)) is not None}
        # The warning was printed above; only a cut adds a note to the page.
        sealed = read(self.vault, asked, budget=msgspec.structs.replace(budget, warning=None))
        if options.json:
            self._put([sealed.to_json() + b"\n"])
        if (problem := sealed.problem) is not None:
            if problem.code == "VAULT_UNAVAILABLE" and self.vault is not None:
                self.vault.store.stats()  # the tool is vague on purpose; this raises the reason
            raise Failure(problem.code, problem.message, problem.hint)
        if not options.json:
            self._write(sealed)
            self._say_what_is_missing(sealed)
        self._say_what_is_next(sealed)

    def _write(self, sealed: Sealed) -> None:
        blocks = msgspec.json.decode(sealed.content, type=list[msgspec.Raw])
        if sealed.noted:
            del blocks[0]  # the note for models; people get their own
        page = b"\n".join([_shown(bytes(block)) for block in blocks])
        is_file = self.options.output != files.STDIN and len(blocks) == 1
        file = _file_in(bytes(blocks[0])) if is_file else None
        self._put([page if file is None else file])

    def _say_what_is_missing(self, sealed: Sealed) -> None:
        """An empty list alone could be the answer as well as a misunderstanding."""
        said = next((words for way, words in _NOTHING.items() if getattr(self.options, way)), None)
        if said is not None and msgspec.json.decode(sealed.content)[-1].get("text") in ("[]", "null"):
            console.say("note", said)

    def _put(self, chunks: Iterable[bytes]) -> None:
        if self.options.output == files.STDIN:
            console.show(chunks)
        else:
            files.write_all(self.options.output, chunks)

    def _block(self) -> bytes | None:
        """The file in the content block at the path, whatever its size: a file has no budget."""
        if self.vault is None or not _BLOCK.fullmatch(self.options.path or ""):
            return None
        stored = self.vault.open(self.options.handle)
        if stored.entry.kind != "blocks":
            return None
        return _file_in(_found(stored, self.options.path).raw())

    def _say_what_is_next(self, sealed: Sealed) -> None:
        cuts = sealed.cuts
        if self._is_search:
            # A path inside a match does not lead into the payload.
            cuts = tuple([cut for cut in cuts if cut.path == (self.options.path or "")])
        if not cuts:
            return
        shown = "; ".join(self._described(cut) for cut in cuts[:_CUTS_NAMED])
        more = f"; and {len(cuts) - _CUTS_NAMED} more cuts" if len(cuts) > _CUTS_NAMED else ""
        console.say("done", f"page: {shown}{more}")
        for cut in cuts[:_CUTS_NAMED]:
            console.say("done", f"read on: {self._command(cut)}")

    @property
    def _is_search(self) -> bool:
        return self.options.grep is not None and self.options.sql is None

    def _described(self, cut: Cut) -> str:
        where = f" at {cut.path}" if cut.path else ""
        if cut.said:
            return cut.said
        if cut.kind == "bytes":
            return f"left out {cut.total:,} bytes{where}"
        if cut.path in (self.options.path or "", _BLOCKS) and cut.kept:
            span = f"{cut.offset - cut.kept:,} to {cut.offset - 1:,}"
            kind = "matches" if self._is_search else cut.kind
            return f"{kind} {span} of {'at least ' if cut.at_least else ''}{cut.total:,}{where}"
        return f"{cut.kept:,} of {cut.total:,} {cut.kind}{where}"

    def _command(self, cut: Cut) -> str:
        options = self.options
        given = {name: getattr(options, name) for name in ("query", "grep", "context", "sql")}
        given |= {"path": cut.path or None, "offset": cut.offset or None, "region": cut.region or None}
        given |= {name: getattr(options, name) for name in ("tokens", "bytes", "meter")}
        words = [console.option(f"--{name}", value) for name, value in given.items() if value is not None]
        words += [["--exact"]] if options.exact else []
        return self.address.read_command(options.handle, *chain.from_iterable(words))

    # -- all of it ------------------------------------------------------------------------------------------

    def all(self) -> None:
        options = self.options
        if self.vault is None:
            message = "Nothing is stored here: there is no vault."
            raise Failure("HANDLE_UNKNOWN", message, "Name one with --vault.")
        stored = self.vault.open(options.handle)
        if options.exact and options.path:
            self._put(part.encode() for part in text_parts(exact_text(stored, options.path)))
        elif options.path:
            self._put(_found(stored, options.path, opened=False).stream())
        else:
            self._put(stored.stream())


def _found(stored: Stored, path: str, *, opened: bool = True) -> StoredValue:
    return find(stored.root(), block_path(path) if stored.entry.kind == "blocks" else path, opened=opened)


# -- content blocks -----------------------------------------------------------------------------------------


def _shown(block: bytes) -> bytes:
    decoded = msgspec.json.decode(block)
    return str(decoded["text"]).encode() if decoded.get("type") == "text" else block


def _file_in(block: bytes) -> bytes | None:
    """Return the bytes of an image, audio or an embedded file."""
    try:
        decoded = msgspec.json.decode(block)
        if decoded["type"] in ("image", "audio"):
            return base64.b64decode(decoded["data"], validate=True)
        if decoded["type"] == "resource":
            held = decoded["resource"]
            return held["text"].encode() if "text" in held else base64.b64decode(held["blob"], validate=True)
    except (RecursionError, LookupError, TypeError, AttributeError, ValueError):
        return None  # not base64 after all: shown as it is
    return None


def make_parser() -> Parser:
    usage = "HANDLE [--path P] [--offset N] [options]\nHANDLE [--query Q | --grep RE] [--sql S] | --all [...]"
    parser = Parser("read", usage, _DESCRIPTION, _EPILOG, takes="handle")
    text, number = console.plain_text, console.whole_number
    parser.add_argument("handle", metavar="HANDLE", help="the handle from the notice of the cut result")
    add, way = parser.options("what to read"), parser.options("what to read", exclusive=True)
    add("--path P", "a JSON pointer, such as /items/3 (default: the whole result)", text)
    add("--offset N", "start at this item, member, character or match, counted from 0", number)
    way("--lines A-B", "these lines of a text, counted from 1", text)
    way("--query Q", "select with JMESPath", text)
    way("--grep RE", "search lines, with an RE2 pattern", text)
    add(
        "--sql S",
        "ask in SQL: the tables are the lists in the result, or what --query or --grep finds",
        text,
    )
    way("--all", "all of it, exactly as it was stored")
    add("--exact", "the exact characters, even of JSON, as text")
    add("--region X,Y,W,H", "this part of the image, in pixels of the original", text)
    add("--scale F", "scale the image: down, or up to 4 times its size", text)
    add("--context N", "with --grep: lines around each match, up to 20", number)
    meters = "how size is counted: exact (the default for tokens), estimate, chars4 or bytes"
    parser.budget_options("the size of a page", "maximum tokens in a page (default: 8000)", meters)
    settings.vault_options(parser)
    add = parser.options("the output")
    add("--output FILE", "write it there (default: standard output)", default=files.STDIN)
    add("--json", "print the CallToolResult that the tool envelope_read returns")
    return parser
