"""`mcp-envelope config`: the settings that apply to a tool, and where each of them came from.

Strategy: the command asks the library for a policy, as a server would, and prints all of it: as a table for a
person, as lines with tabs for a program, as JSON if asked. A value that nobody set is shown as what it comes to in
the dialect. What is wrong with a file goes to standard error, and the exit code says so; the policy is printed all
the same, because that is what would apply.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from typing import Any, Final

from ..policy import SETTINGS, Policy, Settings
from ..policy.table import BUILT_IN
from . import console, files
from .console import Parser
from .settings import without_password

_DESCRIPTION: Final = """\
Print the settings that apply to a tool, and where each of them came from.
Without TOOL: those of a tool that has no settings of its own.
"""
_EPILOG: Final = """\
mcp-envelope config schema
  prints a JSON Schema of mcp-envelope.toml for editors; with --dialect scalpel
  that of .code-scalpel/response_config.json.
  A tool that is called "schema" is asked for with --tool schema.

where settings come from, the weakest first:
  built-in, file, profile, tool, environment, the call's own tokenBudget
  The file is --config, or what MCP_ENVELOPE_CONFIG names, or the nearest
  mcp-envelope.toml or pyproject.toml with [tool.mcp-envelope], upwards from here.

exit codes:
  0    printed
  2    wrong usage
  3    something is wrong with a file; the messages say where

examples:
  mcp-envelope config
  mcp-envelope config search_code
  MCP_ENVELOPE_TOKENS=4000 mcp-envelope config search_code --json
  mcp-envelope config schema > mcp-envelope.schema.json
"""
_SCHEMA: Final = "schema"
_WIDEST: Final = 60


def run(arguments: list[str]) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    names = [*options.names, *([] if options.tool is None else [options.tool])]
    if options.names == names == [_SCHEMA]:
        return _schema(options, parser)
    if len(names) > 1:
        parser.error(f"one tool at most; {names[1]!r} is one too many")
    if options.dialect is not None:
        parser.error("--dialect goes with schema: mcp-envelope config schema --dialect scalpel")
    return _policy(options, names[0] if names else None)


def _policy(options: argparse.Namespace, tool: str | None) -> int:
    if options.config is not None:
        files.read(options.config)  # which says what is wrong with it, before anything is printed
    # What there is to say is said below, not in the log.
    settings = Settings(options.config, say=lambda problem: None)
    policy = settings.policy(tool)
    rows = [(name, *_row(name, policy)) for name in SETTINGS]
    if options.json:
        out = _as_json(settings, policy, tool, rows)
    elif sys.stdout is not None and sys.stdout.isatty():
        out = _as_table(settings, policy, tool, rows)
    else:
        out = "".join(
            f"{name}\t{_told(value)}\t{console.printable(source)}\n" for name, value, source in rows
        )
    console.write_out(out.encode("utf-8", "backslashreplace"))
    wrong = settings.problems(policy.dialect)
    for problem in wrong:
        console.say("error", problem)
    for problem in (*policy.problems, *settings.strangers()):
        console.say("warning", problem)
    if policy.vault is not None and not settings.may_place(policy):
        console.say(
            "note", "a file that was only found may not say where results are kept: name it with --config"
        )
    return console.BAD_INPUT if wrong else console.SEALED


def _row(name: str, policy: Policy) -> tuple[Any, str]:
    """A setting's value and source; for one that nobody set, what it comes to."""
    value, source = getattr(policy, name), policy.sources[name]
    allowance = policy.allowance
    if name == "vault" and value is not None:
        value = without_password(value)
    settled = {"max_tokens": allowance.ceiling, "meter": allowance.meter, allowance.unit: allowance.limit}
    return (settled.get(name) if value is None else value), source


def _as_json(settings: Settings, policy: Policy, tool: str | None, rows: list[tuple[str, Any, str]]) -> str:
    said = {
        "tool": tool,
        "file": settings.file,
        "detail": policy.detail,
        "settings": {name: {"value": _plain(value), "source": source} for name, value, source in rows},
        "problems": [*settings.problems(policy.dialect), *policy.problems],
    }
    return json.dumps(said, ensure_ascii=False, indent=2) + "\n"


def _as_table(settings: Settings, policy: Policy, tool: str | None, rows: list[tuple[str, Any, str]]) -> str:
    about = f"tool {tool}" if tool is not None else "any tool"
    file = settings.file or "no file"
    cells = [("setting", "value", "from")]
    cells += [(name, _cut(_told(value)), source) for name, value, source in rows]
    widths = [max(len(console.printable(row[column])) for row in cells) for column in (0, 1)]
    lines = [f"{about}, {file}", ""]
    for row in cells:
        name, value, source = map(console.printable, row)
        line = f"{name:<{widths[0]}}  {value:<{widths[1]}}  {source}"
        # What somebody set stands out from what was there anyway.
        if console.has_colour(sys.stdout) and (source == BUILT_IN or row is cells[0]):
            line = f"\x1b[2m{line}\x1b[0m"
        lines.append(line)
    return "\n".join(lines) + "\n"


def _told(value: Any) -> str:
    """A value on one line: a text as it is, the rest as JSON, nothing as a dash."""
    if value is None or value == "" or (isinstance(value, tuple | Mapping) and not value):
        return "-"
    text = value if isinstance(value, str) else json.dumps(_plain(value), ensure_ascii=False)
    return console.printable(text)


def _cut(text: str) -> str:
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(entry) for name, entry in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _schema(options: argparse.Namespace, parser: Parser) -> int:
    from ..policy.schema import response_config_schema, settings_schema

    if options.config is not None or options.json:
        parser.error("schema takes no other option than --dialect")
    schema = response_config_schema() if options.dialect == "scalpel" else settings_schema()
    console.write_out(json.dumps(schema, ensure_ascii=False, indent=2).encode() + b"\n")
    return console.SEALED


def _parser() -> Parser:
    parser = Parser(
        prog="mcp-envelope config",
        usage="mcp-envelope config [TOOL] [--config FILE] [--json]\n       mcp-envelope config schema",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add("names", nargs="*", metavar="TOOL", type=console.plain_text, help='the tool, or the word "schema"')
    add("--tool", metavar="NAME", type=console.plain_text, help='the same, also for a tool called "schema"')
    add("--config", metavar="FILE", help="the file to read (default: the nearest one)")
    add("--json", action="store_true", help="print JSON")
    add(
        "--dialect",
        metavar="DIALECT",
        type=console.one_of(("native", "scalpel")),
        help="with schema: whose file (native or scalpel)",
    )
    return parser
