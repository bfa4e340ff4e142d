"""`mcp-envelope seal`: fit a payload into a budget and print the `CallToolResult`.

Strategy: everything that a person can get wrong is checked here, before the work, and answered in one line
with its place. The result goes to standard output as the library made it, and nothing else does; a line on
standard error tells what happened.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Final, get_args

import msgspec

from ..budget import DEFAULT_TOKENS, Budget
from ..dialects import NAMES, dialect
from ..dialects.notice import ENVELOPE_KEY
from ..envelope import seal
from ..faults import JSONError
from ..fitting import Cut
from ..job import PROFILES
from ..jsontree import Node, TooDeep, parse
from ..meters import METERS, MeterUnavailable
from ..payload import As, PayloadError
from ..ranking import Ranking, parse_rank
from ..schema import Schema, SchemaError, widen
from ..sealed import Sealed
from . import console, files
from .console import BadInput, Parser

if TYPE_CHECKING:
    from ..policy import Policy

_DESCRIPTION: Final = """\
Fit a tool's payload into a budget and print the MCP CallToolResult as JSON.
A payload that fits comes out byte for byte. One that does not is cut, stays
valid, and says what was left out. Words for people go to standard error.
"""
_EPILOG: Final = """\
how the payload is read (--as auto):
  Valid JSON is JSON, anything else is text. A file named *.json must be JSON.
  What --error marks is text.

exit codes:
  0    sealed, cut or not
  2    wrong usage
  3    a file cannot be read, understood or written; the message says where
  4    RESULT_TOO_LARGE: it cannot be cut to the budget (the result is printed)
  130  interrupted
  141  the reader of the output went away

examples:
  seq 1 5000 | mcp-envelope seal --tokens 200
  echo '{"hits": [{"id": 1, "score": 2}, {"id": 2, "score": 9}]}' > hits.json
  mcp-envelope seal hits.json --bytes 1000 --rank /hits:-score
  echo '{"type": "object", "required": ["hits"]}' > schema.json
  mcp-envelope seal hits.json --schema schema.json --widen --profile debug
  mcp-envelope seal hits.json --dialect transcend --tokens 800
"""
# So many items of a list are looked at to see whether a ranking's field is there.
_LOOKED_AT: Final = 100
_TOLD: Final = 3
# A dialect without a budget has a limit beyond all measure.
_NO_LIMIT: Final = 1 << 60
_LONGEST_PATH: Final = 60


class _Misuse(Exception):
    """Options that do not go together, or not with what is installed."""


def run(arguments: list[str]) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        policy = _policy(options)
        options.dialect = options.dialect or (policy.dialect if policy else "native")
        return _run(options, policy, _budget(options, policy), _rankings(options.rank))
    except (_Misuse, MeterUnavailable) as error:
        parser.error(str(error))


def _run(
    options: argparse.Namespace, policy: Policy | None, budget: Budget, rankings: dict[str, Ranking]
) -> int:
    if options.widen and options.schema is None:
        raise _Misuse("--widen needs a schema: add --schema FILE")
    if options.widen and options.wrap:
        raise _Misuse("--widen wraps where it must; --wrap is for a schema that is wrapped already")
    if options.schema == files.STDIN == options.file:
        raise _Misuse("the payload and the schema cannot both come from standard input")
    if options.output != files.STDIN and files.are_same(options.output, options.file):
        raise _Misuse("--output would overwrite the payload; name another file")
    schema, wrap = _schema(options)
    if options.file == files.STDIN and sys.stdin is not None and sys.stdin.isatty() and not options.quiet:
        console.say("note", "reading the payload from the terminal; end it with Ctrl-D")
    data = files.read(options.file)
    read_as, node, notes = _reading(data, options)
    warnings = [budget.warning] if budget.warning else []
    if node is None:
        warnings += _unused(options, read_as)
    else:
        warnings += [said for path, ranking in rankings.items() for said in _doubts(node, path, ranking)]
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
            hint=options.hint,
            warnings=options.warning,
            tool=options.tool,
            is_error=options.error or None,
            read_as=read_as,
        )
    except (JSONError, PayloadError) as error:
        raise BadInput(f"{files.name_of(options.file)}: {error}") from None
    too_large = f"{sealed.problem.code}: {sealed.problem.message}" if sealed.problem else ""
    if sealed.structured_cuts and ENVELOPE_KEY.encode() not in (sealed.structured or b"") and not wrap:
        if options.dialect == "native":
            notes.append("the schema leaves no room for the notice in structuredContent; --widen makes some")
    if schema is not None and node is not None and (too_large or not sealed.truncated):
        warnings += _mismatch(schema, data, wrap, options)
    files.write(options.output, sealed.to_json() + b"\n")
    if not options.quiet:
        for note in notes:
            console.say("note", note)
    for warning in warnings:
        console.say("warning", warning)
    if too_large:
        console.say("error", too_large)
    if not options.quiet:
        console.say("done", _summary(sealed))
    return console.TOO_LARGE if too_large else console.SEALED


# -- what goes in -------------------------------------------------------------------------------------------


def _policy(options: argparse.Namespace) -> Policy | None:
    """The settings of the environment and of a file, if one is named; problems are told.

    Without a file nothing is masked: what is piped through comes out as it is.
    """
    from ..policy import Settings
    from ..policy.table import PREFIX

    environment = {**os.environ, **({f"{PREFIX}DIALECT": options.dialect} if options.dialect else {})}
    if options.config is not None:
        files.read(options.config)
    elif not any(name.startswith((PREFIX, "CTXO_", "SCALPEL_")) for name in environment):
        return None
    settings = Settings(options.config or os.devnull, environment, say=lambda _: None)
    policy = settings.policy(options.tool)
    for problem in settings.problems(policy.dialect):
        console.say("warning", problem)
    return policy if options.config else dataclasses.replace(policy, redact=False)


def _budget(options: argparse.Namespace, policy: Policy | None) -> Budget:
    asked = (options.tokens, options.bytes, options.meter) != (None, None, None)
    if policy is not None and not asked and (configured := policy.budget):
        return configured
    try:
        return dialect(options.dialect).budget(options.tokens, options.bytes, options.meter)
    except ValueError as error:
        raise _Misuse(str(error)) from None


def _rankings(texts: list[str]) -> dict[str, Ranking]:
    rankings: dict[str, Ranking] = {}
    for text in texts:
        try:
            path, ranking = parse_rank(text)
        except ValueError as error:
            raise _Misuse(f"argument --rank: {error}") from None
        if path in rankings:
            raise _Misuse(f"argument --rank: {path or 'the root'} is ranked twice; use PATH:KEY,KEY")
        rankings[path] = ranking
    return rankings


def _schema(options: argparse.Namespace) -> tuple[Schema | None, bool]:
    """The schema that the result is held to, and whether the payload is wrapped for it."""
    if options.schema is None:
        return None, options.wrap
    data, document = files.read_schema(options.schema)
    try:
        schema = Schema.of(document)
    except SchemaError as error:
        raise files.bad_schema(options.schema, data, error) from None
    if not options.widen:
        return schema, options.wrap
    try:
        widened = widen(document)
        schema = Schema.of(widened.schema)
    except SchemaError as error:
        raise BadInput(
            f"{files.name_of(options.schema)}: the widened schema cannot be used: {error}"
        ) from None
    if widened.wrapped and not options.quiet:
        console.say("note", f'the payload is wrapped as {{"result": …}}: {widened.reason}')
    return schema, widened.wrapped


def _reading(data: bytes, options: argparse.Namespace) -> tuple[As, Node | None, list[str]]:
    """How the payload is read, its document if it is one, and what a person should know about that."""
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


class _Result(msgspec.Struct):
    content: list[_Block]


def _check_blocks(node: Node, path: str) -> None:
    try:
        msgspec.json.decode(node.raw, type=list[_Block])
    except (msgspec.DecodeError, RecursionError) as error:
        advice = "content blocks come as a list of objects that have a `type`"
        with suppress(msgspec.DecodeError, RecursionError):
            msgspec.json.decode(node.raw, type=_Result)
            advice += "; this looks like a whole result: give its `content`"
        raise BadInput(f"{files.name_of(path)}: {advice} ({error})") from None


def _unused(options: argparse.Namespace, read_as: As) -> list[str]:
    """Options that need a document, when there is none."""
    given = {"--schema": options.schema, "--wrap": options.wrap, "--rank": options.rank}
    read = "text" if read_as == "text" else "content blocks"
    return [f"{option} has no effect: the payload is {read}" for option, value in given.items() if value]


def _doubts(node: Node, path: str, ranking: Ranking) -> list[str]:
    """Whether there is a list at the path, and something to rank it by."""
    try:
        found = _at(node, path)
        if found is None:
            return [f"--rank {path}: there is nothing at this path"]
        if found.kind != "array":
            return [f"--rank {path}: this is not a list, but of the kind {found.kind}"]
        items = [msgspec.json.decode(item) for item in islice(found.items(0), _LOOKED_AT)]
    except (TooDeep, RecursionError, msgspec.MsgspecError):
        return []
    fields = dict.fromkeys(key.field.split(".")[0] for key in ranking.keys)
    present = {field for item in items if isinstance(item, dict) for field in item}
    return [
        f"--rank {path}: no item has the field {field!r}{console.nearest(field, sorted(present))}"
        for field in fields
        if items and field not in present
    ]


def _at(node: Node, pointer: str) -> Node | None:
    for step in pointer.split("/")[1:]:
        if node.kind == "object":
            key = step.replace("~1", "/").replace("~0", "~")
            found = [index for index, member in enumerate(node.members()) if member.key == key]
        elif node.kind == "array" and step.isascii() and step.isdigit() and len(step) < 10:
            found = [int(step)] if int(step) < len(node.all_items()) else []
        else:
            found = []
        if not found:
            return None
        node = node.child(found[-1])
    return node


def _mismatch(schema: Schema, data: bytes, wrap: bool, options: argparse.Namespace) -> list[str]:
    """The payload itself may break its schema; nothing that is done to it can mend that."""
    error = schema.first_error(b'{"result":%b}' % data if wrap else data)
    if error is None:
        return []
    pointer, reason = error
    pointer = pointer.removeprefix("/result") if wrap else pointer
    where = files.locate(data, pointer)
    name = files.name_of(options.file)
    return [f"{name}{f', {where}' if where else ''}: the payload does not match the schema: {reason}"]


# -- what comes out -----------------------------------------------------------------------------------------


def _summary(sealed: Sealed) -> str:
    report = sealed.report
    limit = f" of {report.limit:,}" if report.limit < _NO_LIMIT else ""
    said = f"sealed: {report.used:,}{limit} {report.unit}"
    if not sealed.cuts:
        return f"{said}; nothing was cut"
    cuts = sorted(sealed.cuts, key=lambda cut: -cut.dropped)
    kept = ", ".join(map(_kept, cuts[:_TOLD]))
    more = f", and {len(cuts) - _TOLD} more cuts" if len(cuts) > _TOLD else ""
    about = "" if report.unit == "bytes" else "about "
    return f"{said}, from {about}{report.total:,}; kept {kept}{more}"


def _kept(cut: Cut) -> str:
    path = cut.path if len(cut.path) <= _LONGEST_PATH else f"{cut.path[: _LONGEST_PATH - 1]}…"
    return f"{cut.kept:,} of {cut.total:,} {cut.kind}{f' at {path}' if path else ''}"


# -- the arguments ------------------------------------------------------------------------------------------


def _handle(text: str) -> str:
    try:
        seal("", handle=text)  # which knows what a handle looks like
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _parser() -> Parser:
    parser = Parser(
        prog="mcp-envelope seal",
        usage="mcp-envelope seal [FILE] [--tokens N | --bytes N] [options]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add("file", nargs="?", default=files.STDIN, metavar="FILE", help="the payload (default: standard input)")

    budget = parser.add_argument_group("the budget")
    limit = budget.add_mutually_exclusive_group().add_argument
    limit(
        "--tokens",
        type=console.whole_number,
        metavar="N",
        help="the most tokens that each lane (content, structuredContent) may have "
        f"(default: {DEFAULT_TOKENS})",
    )
    limit("--bytes", type=console.whole_number, metavar="N", help="the same in bytes")
    budget.add_argument(
        "--meter",
        type=console.one_of(METERS),
        metavar="METER",
        help="what counts: bytes, chars4, estimate (the default for tokens) or exact (an extra)",
    )

    add = parser.add_argument_group("the payload").add_argument
    add(
        "--as",
        dest="read_as",
        type=console.one_of(get_args(As)),
        default="auto",
        metavar="KIND",
        help="auto, json, text, or blocks (a JSON list of MCP content blocks)",
    )
    add("--schema", metavar="FILE", help="the tool's output schema, which the result keeps to")
    add("--widen", action="store_true", help="first make room for the notice in the schema")
    add("--wrap", action="store_true", help='the schema is that of {"result": payload}')
    add(
        "--rank",
        action="append",
        default=[],
        metavar="PATH:KEY",
        help="order the list at PATH before it is cut: /hits:-score, /refs:@file,line "
        "(- down, @ grouped; may be repeated)",
    )
    add(
        "--error",
        action="store_true",
        help="the payload is the text of a failure: its beginning and its end stay",
    )

    add = parser.add_argument_group("the shape").add_argument
    add(
        "--dialect",
        type=console.one_of(NAMES),
        metavar="NAME",
        help="native (default), ctxo, transcend, gel or scalpel",
    )
    add("--config", metavar="FILE", help="settings for --tool from a mcp-envelope.toml; options go first")
    add(
        "--tool",
        type=console.plain_text,
        metavar="NAME",
        help="the tool's name, for the profiles beyond minimal",
    )
    add(
        "--profile",
        type=console.one_of(PROFILES),
        metavar="PROFILE",
        help="how much is told: minimal (default), standard or debug",
    )
    add("--handle", type=_handle, metavar="NAME", help="where the whole payload can be read")
    add("--hint", type=console.plain_text, metavar="TEXT", help="the next step, when something was cut")
    add(
        "--warning",
        type=console.plain_text,
        action="append",
        default=[],
        metavar="TEXT",
        help="a warning to pass on (may be repeated)",
    )

    add = parser.add_argument_group("the output").add_argument
    add(
        "--output",
        default=files.STDIN,
        metavar="FILE",
        help="write the result there (default: standard output)",
    )
    add("-q", "--quiet", action="store_true", help="no summary: only warnings and errors")
    return parser
