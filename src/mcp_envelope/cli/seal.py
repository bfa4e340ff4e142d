"""`mcp-envelope seal`: fit a payload into a budget and print the `CallToolResult`.

Strategy: everything that a person can get wrong is checked here, before the work, and answered in one line
with its place. The result goes to standard output as the library made it, and nothing else does; a line on
standard error tells what happened, and another one how to read on. The vault is touched only if something had to
be left out.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec

from ..budget import Budget
from ..dialects.notice import ENVELOPE_KEY
from ..envelope import seal
from ..faults import JSONError
from ..fitting import Cut
from ..jsontree import Node, TooDeep, parse
from ..meters import MeterUnavailable
from ..payload import As, PayloadError
from ..ranking import Ranking, parse_rank
from ..schema import Schema, SchemaError, widen
from ..sealed import Sealed
from . import console, files, screen, seal_arguments, settings, vaults
from .console import BadInput, Misuse
from .settings import Place
from .vaults import Keeper

if TYPE_CHECKING:
    from ..policy import Policy

# So many items of a list are looked at to see whether a ranking's field is there.
_LOOKED_AT: Final = 100
_TOLD: Final = 3
# A dialect without a budget has a limit beyond all measure.
_NO_LIMIT: Final = 1 << 60
_LONGEST_PATH: Final = 60


def run(arguments: list[str]) -> int:
    parser = seal_arguments.parser()
    options = parser.parse_args(arguments)
    try:
        policy = settings.policy(options.config, options.tool, options.dialect)
        place = settings.place(options.vault, options.config, policy)
        vaults.check(place)
        if policy is not None and options.config is None:
            # Without a file nothing is masked: what is piped through comes out as it is.
            policy = dataclasses.replace(policy, redact=False)
        options.dialect = options.dialect or (policy.dialect if policy else "native")
        budget = settings.budget(options, policy, options.dialect)
        return _run(options, policy, place, budget, _rankings(options.rank))
    except (Misuse, MeterUnavailable) as error:
        parser.error(str(error))


def _run(
    options: argparse.Namespace,
    policy: Policy | None,
    place: Place,
    budget: Budget,
    rankings: dict[str, Ranking],
) -> int:
    if options.widen and options.schema is None:
        raise Misuse("--widen needs a schema: add --schema FILE")
    if options.widen and options.wrap:
        raise Misuse("--widen wraps where it must; --wrap is for a schema that is wrapped already")
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
        warnings += [said for path, ranking in rankings.items() for said in _doubts(node, path, ranking)]
    if options.handle is not None and options.vault is not None:
        warnings.append("--vault has no effect: --handle says that the payload is stored elsewhere")
    keeper = None if options.handle is not None or vaults.is_none(place) else Keeper(place)
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
        warnings.append(f"the whole result was not kept: {keeper.problem}")
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
        if keeper is not None and keeper.kept is not None:
            console.say("done", _read_on(sealed, keeper.kept, place))
    return console.TOO_LARGE if too_large else console.SEALED


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


def _read_on(sealed: Sealed, handle: str, place: Place) -> str:
    """The way to what lost most."""
    options: list[str] = []
    if sealed.cuts:
        cut = max(sealed.cuts, key=lambda cut: cut.dropped)
        options += screen.option("--path", cut.path) if cut.path else []
        options += screen.option("--offset", cut.offset) if cut.offset else []
    return f"read on: {vaults.read_command(handle, place, *options)}"
