"""`mcp-envelope check`: a scoreboard for a server's results, bare or behind the envelope.

Strategy: `check.probe` calls the tools, `check.score` judges what came back, `check.report` writes it down. Here is
only what a person types and sees.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ..extras import lacking
from . import console, proxy
from .console import BadInput, Misuse, Parser

if TYPE_CHECKING:
    from ..check.probe import Probe
    from ..check.score import Score

_DESCRIPTION: Final = """\
Call a server's tools and score the results: whether they fit, are valid, have
images that clients can show, can be read to the end, and expose no secrets.
"""
_EPILOG: Final = """\
Only tools that are marked read-only are called, unless you add --all.
Arguments come from --arguments, a JSON file such as
  {"search": {"query": "error"}, "read": [{"id": 1}, {"id": 2}]}
Without it, they are the smallest that a tool's input schema allows.

exit codes:
  0    every check that applies passed
  1    a check failed, or the server could not be reached
  2    wrong usage
  3    a file cannot be read or written

examples:
  mcp-envelope check -- npx -y @modelcontextprotocol/server-everything
  mcp-envelope check --compare -- uvx mcp-server-git --repository .
  mcp-envelope check --all --format junit --output check.xml -- python server.py
  mcp-envelope check --url http://127.0.0.1:8000/mcp --badge mcp.svg
"""
_FORMATS: Final = ("table", "json", "markdown", "junit")
_BAD: Final = 1


def run(arguments: list[str]) -> int:
    arguments, command = proxy.split(arguments)
    options = make_parser().parse_args(arguments)
    proxy.check_server(options, command, "check")
    if lacking("sdk"):
        raise Misuse(f"check {console.extra('sdk')}")
    if options.compare and (options.envelope or options.format != "table"):
        raise Misuse("--compare needs --format table, and cannot be combined with --envelope")
    given = _arguments(options.arguments)
    target = options.url or command
    from ..check import report, score

    # What is tried leaves nothing in the vault and the ledger of the person who tries it.
    with tempfile.TemporaryDirectory() as folder:
        behind = _proxied(target, folder)
        first = behind if options.envelope else target
        found = _probe(first, options, given)
        is_bare = not score.is_enveloped(found)
        results = score.scores(found, {} if is_bare else _as_clients(first, options, given))
        compared = None
        if options.compare:
            as_clients = _as_clients(behind, options, given)
            compared = score.scores(_probe(behind, options, given), as_clients)
    advice = score.suggestions(results, found.calls, target, is_bare=is_bare)
    if options.badge:
        _write(options.badge, report.as_badge(results))
    if options.format == "json":
        made = msgspec.json.encode(report.as_json(results, advice, found.left))
        text = msgspec.json.format(made).decode() + "\n"
    elif options.format == "markdown":
        text = report.as_markdown(results, advice)
    elif options.format == "junit":
        text = report.as_junit(results, options.url or proxy.short_name(command))
    else:
        text = _table(results, compared)
    if options.output:
        _write(options.output, text)
    else:
        console.write_text(text)
    _tell(found, advice if options.format == "table" else ())
    return console.OK if score.is_good(results) else _BAD


def _as_clients(
    target: Sequence[str] | str, options: argparse.Namespace, given: Mapping[str, Any]
) -> dict[str, Probe]:
    """Probe a server with the envelope as each client, because a result is cut to what its client takes."""
    from ..check.score import CLIENTS

    return {name: _probe(target, options, given, name) for name in CLIENTS}


def _probe(
    target: Sequence[str] | str,
    options: argparse.Namespace,
    given: Mapping[str, Any],
    client: str = "mcp-envelope",
) -> Probe:
    from ..check.probe import NoServer, ProbeOptions, probe

    calls = ProbeOptions(options.tools, options.all, given, options.timeout, client)
    _progress(client, 0, 0, "starting the server")
    try:
        found = probe(target, calls, partial(_progress, client))
    except NoServer as error:
        _progress(client, 0, 0, "")
        console.say("error", f"the server cannot be used: {error}")
        raise SystemExit(_BAD) from None
    _progress(client, 0, 0, "")
    known = {tool["name"] for tool in found.tools}
    for name in (*options.tools, *given):
        if name not in known:
            from ..spelling import did_you_mean

            raise Misuse(f"the server has no tool {name!r}{did_you_mean(name, known)}")
    return found


def _proxied(target: Sequence[str] | str, folder: str) -> list[str]:
    behind = ["--url", target] if isinstance(target, str) else ["--", *target]
    apart = ["--no-ledger", "--vault", str(Path(folder, "vault.db"))]
    return [sys.executable, "-m", "mcp_envelope", "proxy", *apart, *behind]


def _progress(client: str, done: int, total: int, doing: str) -> None:
    """Show at a terminal what is being done, and as which client; with nothing, the line is cleared."""
    if sys.stderr is None or not sys.stderr.isatty():
        return
    bar = f"{'█' * (20 * done // max(total, 1)):░<20} {done} of {total}  " if total else ""
    line = f"{bar}{console.printable(doing)[:30]}, as {client}"
    sys.stderr.write(f"\r{line:<79.79}" if doing else f"\r{' ' * 79}\r")
    sys.stderr.flush()


def _table(results: Sequence[Score], behind: Sequence[Score] | None) -> str:
    from ..check.report import figure

    def mark(score: Score) -> str:
        return " " if not score.of else "✓" if score.is_pass else "✗" if score.counts else "!"

    header = ["", "check", *(["passed"] if behind is None else ["bare", "behind"]), ""]
    rows = []
    for at, score in enumerate(results):
        figures = [figure(score)]
        if behind is not None:
            figures = [f"{figure(each)} {mark(each)}" for each in (score, behind[at])]
        rows.append([mark(score), score.title, *figures, score.note])
        failing = [] if score.is_pass else [*score.failing]
        if behind is not None and not behind[at].is_pass:
            failing += [f"behind: {each}" for each in behind[at].failing]
        rows += [["", f"  {console.printable(each)}", *[""] * (len(header) - 2)] for each in failing]
    return console.table(rows, header, right=(2, 3) if behind else (2,), dim=lambda row: not row[0])


def _tell(found: Probe, advice: Sequence[str]) -> None:
    made_up = [call.tool["name"] for call in found.calls if call.is_made_up and not _succeeded(call)]
    if not found.calls:
        console.say(
            "warning", "no tool was called: none is marked read-only; name some with --tools, or use --all"
        )
    elif found.left:
        console.say("note", f"not called (not marked read-only): {', '.join(found.left)}")
    if made_up:
        names = ", ".join(dict.fromkeys(made_up))
        console.say("note", f"failed with made-up arguments (provide real ones with --arguments): {names}")
    for line in advice:
        console.say("hint", line)


def _succeeded(call: Any) -> bool:
    return call.is_mistake or (call.result is not None and not call.result.get("isError"))


def _arguments(path: str | None) -> dict[str, list[Mapping[str, Any]]]:
    if path is None:
        return {}
    with console.trouble(f"read {path}"):
        data = Path(path).read_bytes()
    try:
        read = msgspec.json.decode(data, type=dict[str, dict[str, Any] | list[dict[str, Any]]])
    except msgspec.MsgspecError as error:
        raise BadInput(f'{path}: {error}; expected arguments by tool, such as {{"search": {{…}}}}') from None
    return {tool: [each] if isinstance(each, dict) else list(each) for tool, each in read.items()}


def _write(path: str, text: str) -> None:
    with console.trouble(f"write {path}"):
        Path(path).write_text(text, encoding="utf-8")


def _seconds(text: str) -> float:
    return float(console.positive_number(text))


def make_parser() -> Parser:
    parser = Parser("check", "[options] (--url URL | -- COMMAND ...)", _DESCRIPTION, _EPILOG)
    add = parser.options()
    add("--url URL", "the server's address")
    add("--tools NAMES", "call only these, separated by commas", console.names, default=[])
    add("--all", "call all tools, even those that are not marked read-only")
    add("--arguments FILE", "a JSON file with the arguments of calls, by tool")
    add("--envelope", "put the proxy in front of the server first")
    add("--compare", "compare the bare server with the proxy in front of it")
    add("--format FORMAT", f"what to print: {', '.join(_FORMATS)}", console.one_of(_FORMATS), default="table")
    add("--output FILE", "write the report there")
    add("--badge FILE", "write an SVG with the number of checks that passed")
    add("--timeout SECONDS", "how long a call may take (default: 30)", _seconds, default=30.0)
    return parser
