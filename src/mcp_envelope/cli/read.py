"""`mcp-envelope read`: read on in a stored result, as `envelope_read` does, and print the page for a person.

Strategy: the tool's own code makes the page. What is on it goes to standard output, exactly; what comes next
goes to standard error, as a command to paste. `--all` is another way: the stored bytes are passed on a piece at
a time, so their size does not matter. Nothing is created by reading.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import re
from collections.abc import Iterator
from itertools import chain
from typing import Final

import msgspec

from ..budget import Budget
from ..facts import Problem
from ..fitting import Cut
from ..meters import METERS, MeterUnavailable
from ..outcome import Failure
from ..sealed import Sealed
from ..vault.document import BadPath, Value
from ..vault.reading import exactly, read
from ..vault.spelling import Spelling
from ..vault.store import Damaged, DamagedFile, StoreError
from ..vault.vault import Stored, Vault
from . import console, files, screen, settings, vaults
from .console import Misuse, Parser
from .settings import Place

_DESCRIPTION: Final = """\
Read on in a result that was cut: the next page, a selection, a search, or all.
The page goes to standard output, the command for the next one to standard
error.
"""
_EPILOG: Final = """\
what is printed:
  The page itself: JSON for lists and objects, the characters of a text or a
  string. A content block that is not text is printed as JSON; with --output
  an image, a sound or an embedded file is written decoded.
  --exact prints text: the characters of a string, also of one that holds JSON,
  and of any other value the stored bytes.
  --all prints the stored bytes; with --path those of one value, so a string
  has its quotes. With --exact it has none.

exit codes:
  0    printed
  2    wrong usage
  3    the output cannot be written, or the file of --config not be read
  5    it cannot be read: the message begins with a code, such as
       HANDLE_UNKNOWN, HANDLE_EXPIRED, BAD_PATH, BAD_OFFSET, BAD_QUERY
  130  interrupted
  141  the reader of the output went away

examples, with the handle of a result that has a list `items`:
  mcp-envelope read HANDLE
  mcp-envelope read HANDLE --path /items --offset 20 --tokens 500
  mcp-envelope read HANDLE --query 'items[?size > `10`].name'
  mcp-envelope read HANDLE --grep 'time(d )?out' --context 2
  mcp-envelope read HANDLE --all --output whole.json
"""
_TOLD: Final = 3
# So much is read at a time when all of a value is wanted.
_PIECE: Final = 1 << 20
_BLOCK: Final = re.compile(r"(/content)?/[0-9]+")
_BLOCKS: Final = "/content"


def run(arguments: list[str]) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        _check(options)
        policy = settings.policy(options.config)
        budget = settings.budget(options, policy)
        place = settings.place(options.vault, options.config, policy)
        with vaults.opened(place) as vault:
            reading = _Reading(options, place, vault)
            return reading.all() if options.all else reading.page(budget)
    except (Misuse, MeterUnavailable) as error:
        parser.error(str(error))
    except Failure as failure:
        return told(failure.problem)
    except StoreError as error:
        return told(unavailable(error))
    except Damaged as error:
        return told(damaged(error))


def told(problem: Problem) -> int:
    """Why there is nothing to print, and what could be done."""
    console.say("error", f"{problem.code}: {problem.message}")
    if problem.hint:
        console.say("hint", problem.hint)
    return console.UNREAD


def unavailable(error: StoreError) -> Problem:
    # The tool keeps the reason to itself; a person at this machine may know.
    hint = "Mend that, or name another vault with --vault."
    if isinstance(error, DamagedFile):
        hint = "`mcp-envelope vault purge`, with the same --vault, removes it and starts anew."
    return Problem("VAULT_UNAVAILABLE", str(error), hint)


def damaged(error: Damaged) -> Problem:
    return Problem(
        "HANDLE_DAMAGED",
        f"the stored result cannot be read back whole: {error}",
        "Call the tool again; `mcp-envelope vault purge` starts anew.",
    )


def _check(options: argparse.Namespace) -> None:
    if options.context is not None and options.grep is None:
        raise Misuse("--context goes with --grep")
    for name in ("query", "grep"):
        if getattr(options, name) == "":
            raise Misuse(f"argument --{name}: it is empty")
    if options.exact and (options.query or options.grep):
        raise Misuse(f"--exact does not go with --{'query' if options.query else 'grep'}")
    if options.all:
        others = ("offset", "query", "grep", "json", "tokens", "bytes", "meter")
        values = [(name, getattr(options, name)) for name in others]
        given = [name for name, value in values if value is not None and value is not False]
        if given:
            raise Misuse(f"--all prints everything; it does not go with --{given[0]}")


class _Reading:
    """One run: what was asked for, and where."""

    def __init__(self, options: argparse.Namespace, place: Place, vault: Vault | None) -> None:
        self.options = options
        self.place = place
        self.vault = vault
        if vault is not None and (missing := vaults.missing_file(vault)):
            raise Failure(
                "HANDLE_UNKNOWN",
                f"Nothing is stored yet: there is no vault at {missing}.",
                "Name the vault that the result was stored in with --vault.",
            )
        if vault is not None and files.are_same(options.output, vault.store.place):
            raise Misuse("--output would overwrite the vault; name another file")

    # -- a page ---------------------------------------------------------------------------------------------

    def page(self, budget: Budget) -> int:
        options = self.options
        if options.output != files.STDIN and not (
            options.json or options.query or options.grep or options.exact
        ):
            if (file := self._block()) is not None:
                files.write(options.output, file)
                return console.SEALED
        if budget.warning:
            console.say("warning", budget.warning)
        asked = {
            "handle": options.handle,
            "path": options.path or "",
            "offset": options.offset or 0,
            "query": options.query,
            "grep": options.grep,
            "context": options.context or 0,
            "exact": options.exact,
        }
        # What was raised is told above, and nothing but a cut shall add a note to the page.
        sealed = read(self.vault, asked, budget=msgspec.structs.replace(budget, warning=None))
        if options.json:
            page = sealed.to_json() + b"\n"
            if options.output == files.STDIN:
                screen.show([page])
            else:
                files.write(options.output, page)
        if sealed.problem is not None:
            return told(self._reason(sealed.problem))
        if not options.json:
            self._write(sealed)
        self._tell(sealed)
        return console.SEALED

    def _reason(self, problem: Problem) -> Problem:
        """For a vault that cannot be used the tool's answer is vague on purpose; here the reason is asked for."""
        if problem.code == "VAULT_UNAVAILABLE" and self.vault is not None:
            try:
                self.vault.store.stats()
            except StoreError as error:
                return unavailable(error)
        return problem

    def _write(self, sealed: Sealed) -> None:
        blocks = msgspec.json.decode(sealed.content, type=list[msgspec.Raw])
        if sealed.cuts:
            blocks.pop()  # the note for models; people get their own
        shown = [_shown(bytes(block)) for block in blocks]
        page = b"\n".join(shown)
        if self.options.output == files.STDIN:
            screen.show([page])
            return
        file = _file_in(bytes(blocks[0])) if len(blocks) == 1 else None
        files.write(self.options.output, page if file is None else file)

    def _block(self) -> bytes | None:
        """The file in the content block at the path, whatever its size: a file has no budget."""
        if self.vault is None or not _BLOCK.fullmatch(self.options.path or ""):
            return None
        stored = self.vault.open(self.options.handle)
        if stored.entry.kind != "blocks":
            return None
        return _file_in(_found(stored, self.options.path).raw())

    def _tell(self, sealed: Sealed) -> None:
        cuts = sealed.cuts
        if self.options.grep is not None:
            # A place inside a match is no place in the payload.
            cuts = tuple([cut for cut in cuts if cut.path == (self.options.path or "")])
        if not cuts:
            return
        said = "; ".join(self._told(cut) for cut in cuts[:_TOLD])
        more = f"; and {len(cuts) - _TOLD} more cuts" if len(cuts) > _TOLD else ""
        console.say("done", f"page: {said}{more}")
        for cut in cuts[:_TOLD]:
            console.say("done", f"read on: {self._command(cut)}")

    def _told(self, cut: Cut) -> str:
        where = f" at {cut.path}" if cut.path else ""
        if cut.kind == "bytes":
            return f"left out {cut.total:,} bytes{where}"
        if self._is_of_page(cut) and cut.kept:
            span = f"{cut.offset - cut.kept:,} to {cut.offset - 1:,}"
            # How many matches there are is not always known.
            return (
                f"matches {span}{where}"
                if self.options.grep
                else f"{cut.kind} {span} of {cut.total:,}{where}"
            )
        return f"{cut.kept:,} of {cut.total:,} {cut.kind}{where}"

    def _is_of_page(self, cut: Cut) -> bool:
        return cut.path in (self.options.path or "", _BLOCKS)

    def _command(self, cut: Cut) -> str:
        options = self.options
        given = {
            "--query": options.query,
            "--grep": options.grep,
            "--context": options.context,
            "--path": cut.path or None,
            "--offset": cut.offset or None,
            "--tokens": options.tokens,
            "--bytes": options.bytes,
            "--meter": options.meter,
        }
        words = [screen.option(name, value) for name, value in given.items() if value is not None]
        words += [["--exact"]] if options.exact else []
        return vaults.read_command(options.handle, self.place, *chain.from_iterable(words))

    # -- all of it ------------------------------------------------------------------------------------------

    def all(self) -> int:
        options = self.options
        if self.vault is None:
            raise Failure(
                "HANDLE_UNKNOWN", "Nothing is stored here: there is no vault.", "Name one with --vault."
            )
        stored = self.vault.open(options.handle)
        chunks, size = stored.stream(), stored.entry.size
        if options.exact and options.path:
            text = exactly(stored, options.path)
            chunks, size = _texts(text), text.size
        elif options.path:
            value = _found(stored, options.path, opened=False)
            chunks, size = value.stream(), value.size
        to_screen = options.output == files.STDIN and screen.is_terminal()
        chunks = screen.watched(chunks, size, not to_screen)
        if options.output == files.STDIN:
            screen.show(chunks)
        else:
            files.write_all(options.output, chunks)
        return console.SEALED


def _texts(text: Value | Spelling) -> Iterator[bytes]:
    # What has no marks is decoded whole for every piece, so there are not many pieces.
    room = max(_PIECE, text.size // 16)
    at = 0
    while at < text.total:
        piece = text.text(at, room)
        yield piece.encode()
        at += len(piece)


def _found(stored: Stored, path: str, *, opened: bool = True) -> Value:
    if stored.entry.kind == "blocks" and path[1:].split("/")[0].isdigit():
        path = _BLOCKS + path
    try:
        return stored.root().find(path, opened=opened)
    except BadPath as error:
        raise Failure("BAD_PATH", f"There is nothing at {path[:200]!r}.", f"{error.there}.") from None


# -- content blocks -----------------------------------------------------------------------------------------


def _shown(block: bytes) -> bytes:
    said = msgspec.json.decode(block)
    return str(said["text"]).encode() if said.get("type") == "text" else block


def _file_in(block: bytes) -> bytes | None:
    """The bytes of an image, a sound or an embedded file."""
    try:
        said = msgspec.json.decode(block)
        if said["type"] in ("image", "audio"):
            return base64.b64decode(said["data"], validate=True)
        if said["type"] == "resource":
            held = said["resource"]
            return held["text"].encode() if "text" in held else base64.b64decode(held["blob"], validate=True)
    except (
        msgspec.DecodeError,
        RecursionError,
        binascii.Error,
        KeyError,
        TypeError,
        AttributeError,
        ValueError,
    ):
        return None  # it is not what it seemed: then it is shown as it is
    return None


def _parser() -> Parser:
    parser = Parser(
        prog="mcp-envelope read",
        usage="mcp-envelope read HANDLE [--path P] [--offset N] [options]\n"
        "       mcp-envelope read HANDLE [--query Q | --grep RE | --all] [options]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        takes="handle",
    )
    parser.add_argument("handle", metavar="HANDLE", help="the handle from the notice of the cut result")
    what = parser.add_argument_group("what to read")
    add = what.add_argument
    add(
        "--path",
        type=console.plain_text,
        metavar="P",
        help="a JSON pointer, such as /items/3 (default: the top)",
    )
    add(
        "--offset",
        type=console.whole_number,
        metavar="N",
        help="the first item, member, character or match, counted from 0",
    )
    group = what.add_mutually_exclusive_group()
    group.add_argument("--query", type=console.plain_text, metavar="Q", help="select with JMESPath")
    group.add_argument(
        "--grep", type=console.plain_text, metavar="RE", help="search lines, with an RE2 pattern"
    )
    group.add_argument("--all", action="store_true", help="all of it, exactly as it was stored")
    add("--exact", action="store_true", help="the exact characters, also of JSON, as text")
    add(
        "--context",
        type=console.whole_number,
        metavar="N",
        help="with --grep: lines around each match, up to 20",
    )

    size = parser.add_argument_group("how much of it")
    limit = size.add_mutually_exclusive_group().add_argument
    limit(
        "--tokens", type=console.whole_number, metavar="N", help="the most tokens of a page (default: 8000)"
    )
    limit("--bytes", type=console.whole_number, metavar="N", help="the same in bytes")
    size.add_argument(
        "--meter",
        type=console.one_of(METERS),
        metavar="METER",
        help="what counts: bytes, chars4, estimate (the default for tokens) or exact",
    )
    vaults.add_arguments(parser)
    add = parser.add_argument_group("the output").add_argument
    add("--output", default=files.STDIN, metavar="FILE", help="write it there (default: standard output)")
    add(
        "--json",
        action="store_true",
        help="print the CallToolResult that the tool envelope_read answers with",
    )
    return parser
