"""`mcp-envelope seal`: fit a payload into a budget and print the `CallToolResult`.

Strategy: everything that a person can get wrong is checked here, before the work, and reported in one line with its
position. The result goes to standard output as the library made it, and nothing else does; one line on standard
error says what happened, and another how to read on. The vault is touched only if something had to be left out.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final, get_args

import msgspec

from ..budget import DEFAULT_TOKENS, Budget
from ..dialects import dialect
from ..dialects.notice import ENVELOPE_KEY
from ..envelope import Sealed, seal
from ..fit.documents import Cut
from ..fit.ranking import Ranking, parse_rank
from ..jsontext.document import Node, parse
from ..jsontext.errors import JSONError
from ..lanes import PROFILES
from ..payload import As, PayloadError
from ..schema import Schema, SchemaError, widen
from ..spelling import did_you_mean
from . import console, files, settings
from .console import BadInput, Misuse, Parser
from .settings import VaultAddress, VaultOnDemand

if TYPE_CHECKING:
    from ..config import Policy

# How many items of a list are checked for a ranking's field.
_LOOKED_AT: Final = 100
# How many cuts the summary names.
_NAMED_CUTS: Final = 3
# Limits above this are those of a dialect without a budget.
_NO_LIMIT: Final = 1 << 60
_LONGEST_PATH: Final = 60
_TYPES: Final = {
    dict: "object",
    str: "string",
    int: "number",
    float: "number",
    bool: "boolean",
    type(None): "null",
}

_DESCRIPTION: Final = """\
Fit a tool's payload into a budget and print the MCP CallToolResult as JSON.
A payload that fits comes out byte for byte. One that does not is cut, stays
valid, and says what was left out; the whole is stored in a vault, to be read
with `mcp-envelope read`. Messages go to standard error.
"""
_EPILOG: Final = """\
how the payload is read (--as auto):
  Valid JSON is JSON, anything else is text. A file named *.json must be JSON.
  With --error it is text.

exit codes:
  0    sealed, whether or not it was cut and the whole could be stored
  2    wrong usage
  3    a file cannot be read, parsed or written; the message says where
  4    RESULT_TOO_LARGE: it cannot be cut to the budget (the result is printed)
  130  interrupted
  141  the output was closed

examples:
  seq 1 5000 | mcp-envelope seal --tokens 200
  echo '{"hits": [{"id": 1, "score": 2}, {"id": 2, "score": 9}]}' > hits.json
  mcp-envelope seal hits.json --bytes 1000 --rank /hits:-score
  echo '{"type": "object", "required": ["hits"]}' > schema.json
  mcp-envelope seal hits.json --schema schema.json --widen --profile debug
  mcp-envelope seal hits.json --dialect transcend --tokens 800
  seq 1 5000 | mcp-envelope seal --tokens 200 --vault ./vault.db
"""


def run(arguments: list[str]) -> int:
    options = make_parser().parse_args(arguments)
    policy = settings.policy(options.config, options.tool, options.dialect)
    address = settings.vault_address(options.vault, options.config, policy)
    address.check()
    options.dialect = options.dialect or (policy.dialect if policy else "native")
    budget = settings.budget(options, policy, options.dialect)
    return _run(options, policy, address, budget, _rankings(options.rank))


def _run(
    options: argparse.Namespace,
    policy: Policy | None,
    address: VaultAddress,
    budget: Budget,
    rankings: dict[str, Ranking],
) -> int:
    if options.widen and options.schema is None:
        raise Misuse("--widen needs a schema: add --schema FILE")
    if options.widen and options.wrap:
        raise Misuse("--widen wraps where necessary; --wrap is for a schema that is already wrapped")
    if options.schema == files.STDIN == options.file:
        raise Misuse("the payload and the schema cannot both come from standard input")
    if options.output != files.STDIN and files.are_same(options.output, options.file):
        raise Misuse("--output would overwrite the payload; name another file")
    schema, wrap = _schema(options)
    if options.file == files.STDIN and sys.stdin is not None and sys.stdin.isatty() and not options.quiet:
        console.say("note", "reading the payload from the terminal; end it with Ctrl-D")
    data = files.read(options.file)
    read_as, node, notes = _reading(data, options)
    warnings = [budget.warning] if budget.warning else []
    if node is None:
        warnings += _unused(options, read_as)
    else:
        warnings += [said for path, ranking in rankings.items() for said in _doubts(data, path, ranking)]
    if options.handle is not None and options.vault is not None:
        warnings.append("--vault has no effect: --handle says that the payload is stored elsewhere")
    keeper = None if options.handle is not None or address.is_none else VaultOnDemand(address)
    try:
        sealed = seal(
            data,
            budget=budget,
            policy=policy,
            dialect=options.dialect,
            schema=schema,
            wrap=wrap,
            rank=rankings,
            profile=options.profile,
            handle=options.handle,
            vault=keeper,
            hint=options.hint,
            warnings=options.warning,
            tool=options.tool,
            is_error=options.error or None,
            read_as=read_as,
        )
    except (JSONError, PayloadError) as error:
        raise BadInput(f"{files.name_of(options.file)}: {error}") from None
    if keeper is not None and keeper.problem is not None:
        warnings.append(f"the whole result was not stored: {keeper.problem}")
    too_large = f"{sealed.problem.code}: {sealed.problem.message}" if sealed.problem else ""
    lacks_notice = sealed.structured_cuts and ENVELOPE_KEY.encode() not in (sealed.structured or b"")
    if lacks_notice and not wrap and dialect(options.dialect).in_place:
        notes.append("the schema leaves no room for the notice in structuredContent; --widen makes room")
    if schema is not None and node is not None and (too_large or not sealed.truncated):
        warnings += _mismatch(schema, data, wrap, options)
    files.write(options.output, sealed.to_json() + b"\n")
    if sealed.over_budget:
        report = sealed.report
        warnings.append(
            f"{report.used:,} {report.unit} exceed the {report.limit:,} of {options.dialect}, whose contract "
            "allows no cut here and sends such a result whole; --tokens or --bytes would be enforced"
        )
    for note in notes if not options.quiet else ():
        console.say("note", note)
    for warning in warnings:
        console.say("warning", warning)
    if too_large:
        console.say("error", too_large)
    if not options.quiet:
        console.say("done", _summary(sealed))
        if keeper is not None and keeper.kept is not None:
            console.say("done", _read_on(sealed, keeper.kept, address))
    return console.TOO_LARGE if too_large else console.OK


# -- what goes in -------------------------------------------------------------------------------------------


def _rankings(texts: list[str]) -> dict[str, Ranking]:
    rankings: dict[str, Ranking] = {}
    for text in texts:
        try:
            path, ranking = parse_rank(text)
        except ValueError as error:
            raise Misuse(f"argument --rank: {error}") from None
        if path in rankings:
            raise Misuse(f"argument --rank: {path or 'the root'} is ranked twice; use PATH:KEY,KEY")
        rankings[path] = ranking
    return rankings


def _schema(options: argparse.Namespace) -> tuple[Schema | None, bool]:
    """The schema that the result must match, and whether the payload is wrapped for it."""
    if options.schema is None:
        return None, options.wrap
    document, schema = files.read_schema(options.schema)
    if not options.widen:
        return schema, options.wrap
    try:
        widened = widen(document)
        schema = Schema.of(widened.schema)
    except SchemaError as error:
        name = files.name_of(options.schema)
        raise BadInput(f"{name}: the widened schema cannot be used: {error}") from None
    if widened.wrapped and not options.quiet:
        console.say("note", f'the payload is wrapped as {{"result": …}}: {widened.reason}')
    return schema, widened.wrapped


def _reading(data: bytes, options: argparse.Namespace) -> tuple[As, Node | None, list[str]]:
    """How the payload is read, its document if it is one, and notes about that."""
    wanted: As = options.read_as
    if wanted == "auto" and options.error:
        wanted = "text"
    if wanted == "blocks":
        _check_blocks(files.parse_json(data, options.file), options.file)
        return "blocks", None, []
    if wanted == "json" or (wanted == "auto" and options.file.lower().endswith(".json")):
        return "json", files.parse_json(data, options.file), []
    notes = [] if data else ["the payload is empty"]
    if wanted == "auto":
        try:
            return "json", parse(data), notes
        except JSONError as error:
            if data.lstrip()[:1] in (b"{", b"["):
                notes.append(f"taken as text; {error}")
    return "text", None, notes


class _Block(msgspec.Struct):
    type: str


class _WholeResult(msgspec.Struct):
    content: list[_Block]


def _check_blocks(node: Node, path: str) -> None:
    try:
        msgspec.json.decode(node.raw, type=list[_Block])
    except (msgspec.DecodeError, RecursionError) as error:
        advice = "content blocks must be a list of objects with a `type`"
        with suppress(msgspec.DecodeError, RecursionError):
            msgspec.json.decode(node.raw, type=_WholeResult)
            advice += "; this looks like a whole result: pass only its `content`"
        raise BadInput(f"{files.name_of(path)}: {advice} ({error})") from None


def _unused(options: argparse.Namespace, read_as: As) -> list[str]:
    """Warnings about options that need a document, when there is none."""
    given = {"--schema": options.schema, "--wrap": options.wrap, "--rank": options.rank}
    read = "text" if read_as == "text" else "content blocks"
    return [f"{option} has no effect: the payload is {read}" for option, value in given.items() if value]


def _doubts(data: bytes, path: str, ranking: Ranking) -> list[str]:
    """Warnings if there is no list at the path, or nothing to rank it by."""
    try:
        found = json.loads(data)
        for step in files.pointer_steps(path):
            found = found[int(step)] if isinstance(found, list) and step.isdecimal() else found[step]
    except (LookupError, TypeError):
        return [f"--rank {path}: there is nothing at this path"]
    except (ValueError, RecursionError):
        return []
    if not isinstance(found, list):
        return [f"--rank {path}: this is not a list but of type {_TYPES[type(found)]}"]
    present = {field for item in found[:_LOOKED_AT] if isinstance(item, dict) for field in item}
    return [
        f"--rank {path}: no item has the field {field!r}{did_you_mean(field, sorted(present))}"
        for field in dict.fromkeys(key.field.split(".")[0] for key in ranking.keys)
        if found and field not in present
    ]


def _mismatch(schema: Schema, data: bytes, wrap: bool, options: argparse.Namespace) -> list[str]:
    """A warning if the payload itself does not match its schema."""
    error = schema.first_error(b'{"result":%b}' % data if wrap else data)
    if error is None:
        return []
    pointer, reason = error
    pointer = pointer.removeprefix("/result") if wrap else pointer
    where = files.position(options.file, files.locate(data, pointer))
    return [f"{where}: the payload does not match the schema: {reason}"]


# -- what comes out -----------------------------------------------------------------------------------------


def _summary(sealed: Sealed) -> str:
    report = sealed.report
    limit = f" of {report.limit:,}" if report.limit < _NO_LIMIT else ""
    said = f"sealed: {report.used:,}{limit} {report.unit}"
    if sealed.problem is not None:
        return said
    if not sealed.cuts:
        return f"{said}; nothing was cut"
    cuts = sorted(sealed.cuts, key=lambda cut: -cut.loss)
    kept = ", ".join(map(_kept, cuts[:_NAMED_CUTS]))
    more = f", and {len(cuts) - _NAMED_CUTS} more cuts" if len(cuts) > _NAMED_CUTS else ""
    about = "" if report.unit == "bytes" else "about "
    return f"{said}, from {about}{report.total:,}; kept {kept}{more}"


def _kept(cut: Cut) -> str:
    path = cut.path if len(cut.path) <= _LONGEST_PATH else f"{cut.path[: _LONGEST_PATH - 1]}…"
    return f"{cut.kept:,} of {cut.total:,} {cut.kind}{f' at {path}' if path else ''}"


def _read_on(sealed: Sealed, handle: str, address: VaultAddress) -> str:
    """The command that reads on where most was cut."""
    options: list[str] = []
    if sealed.cuts:
        cut = max(sealed.cuts, key=lambda cut: cut.loss)
        options += console.option("--path", cut.path) if cut.path else []
        options += console.option("--offset", cut.offset) if cut.offset else []
    return f"read on: {address.read_command(handle, *options)}"


# -- arguments ----------------------------------------------------------------------------------------------


def _handle(text: str) -> str:
    try:
        seal("", handle=text)  # which knows what a handle looks like
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def make_parser() -> Parser:
    parser = Parser("seal", "[FILE] [--tokens N | --bytes N] [options]", _DESCRIPTION, _EPILOG)
    text, one_of = console.plain_text, console.one_of
    payload = "the payload (default: standard input)"
    parser.add_argument("file", nargs="?", default=files.STDIN, metavar="FILE", help=payload)
    tokens = "maximum tokens in each lane (content, structuredContent)"
    meters = "how size is counted: exact (the default for tokens), estimate, chars4 or bytes"
    parser.budget_options("the budget", f"{tokens} (default: {DEFAULT_TOKENS})", meters)

    add = parser.options("the payload")
    kinds = "auto, json, text, or blocks (a JSON list of MCP content blocks)"
    add("--as KIND", kinds, one_of(get_args(As)), dest="read_as", default="auto")
    add("--schema FILE", "the tool's output schema, which the result will match")
    add("--widen", "first make room for the notice in the schema")
    add("--wrap", 'the schema describes {"result": payload}')
    rank = "order the list at PATH before it is cut: /hits:-score, /refs:@file,line (- descending, @ grouped)"
    add("--rank PATH:KEY", f"{rank}; repeatable", action="append", default=[])
    add("--error", "the payload is the text of a failure: keep its beginning and its end")

    add = parser.options("the shape")
    add(
        "--dialect NAME",
        "native (default), ctxo, transcend, gel, scalpel, or one of your own",
        console.dialect_name,
    )
    add("--config FILE", "settings for --tool from a mcp-envelope.toml; options override them")
    add("--tool NAME", "the tool's name, for the profiles beyond minimal", text)
    profiles = "how much the notice says: minimal (default), standard or debug"
    add("--profile PROFILE", profiles, one_of(PROFILES))
    add("--handle NAME", "the whole payload is stored elsewhere under this name", _handle)
    add("--hint TEXT", "the next step, if something was cut", text)
    add("--warning TEXT", "pass on a warning; repeatable", text, action="append", default=[])

    settings.vault_options(parser, config=False)

    add = parser.options("the output")
    add("--output FILE", "where to write it (default: standard output)", default=files.STDIN)
    add("-q --quiet", "print no summary, only warnings and errors")
    return parser
