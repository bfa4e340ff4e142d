"""`mcp-envelope config`: the settings that apply to a tool, and where each of them came from.

The command asks the library for a policy, as the proxy would, and prints all of it: as a table for a person,
as tab-separated lines for a program, as JSON on request. A setting that isn't set is shown with the value
that it gets in the dialect. Complaints about files go to standard error, and the exit code reflects them; the
policy is printed all the same, because that is what would apply.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ..config import BUILT_IN, SETTINGS, Policy
from ..state_files import state_folder
from . import console, settings
from .console import Parser

_DESCRIPTION: Final = """\
Print the settings that apply to a tool, and where each of them came from.
Without TOOL: those of a tool without settings of its own.
"""
_EPILOG: Final = """\
mcp-envelope config schema
  prints a JSON Schema of mcp-envelope.toml for editors; with --dialect scalpel,
  that of .code-scalpel/response_config.json.
  For a tool that is called "schema", use --tool schema.

where settings come from, weakest first:
  built-in, file, profile, tool, environment, the call's own tokenBudget
  The file is the one named by --config or MCP_ENVELOPE_CONFIG, or the nearest
  mcp-envelope.toml or pyproject.toml with [tool.mcp-envelope], from here upwards.
  The proxy lets a file that it merely found lower budgets and do nothing else,
  until you accept it: mcp-envelope trust FILE

exit codes:
  0    printed
  2    wrong usage
  3    a file has errors; the messages say where

examples:
  mcp-envelope config
  mcp-envelope config search_code
  MCP_ENVELOPE_TOKENS=4000 mcp-envelope config search_code --json
  mcp-envelope config schema > mcp-envelope.schema.json
"""
_SCHEMA: Final = "schema"
_WIDEST: Final = 60
# Settings in bytes and in seconds.
_SIZES: Final = ("program_bytes", "image_bytes", "vault_size")
_TIMES: Final = ("vault_ttl",)


def run(arguments: list[str]) -> int:
    parser = make_parser()
    options = parser.parse_args(arguments)
    names = [*options.names, *([] if options.tool is None else [options.tool])]
    if options.names == names == [_SCHEMA]:
        return _schema(options, parser)
    if len(names) > 1:
        parser.error(f"at most one tool; unexpected argument {names[1]!r}")
    if options.dialect is not None:
        parser.error("--dialect works with schema: mcp-envelope config schema --dialect scalpel")
    return _policy(options, names[0] if names else None)


def _policy(options: argparse.Namespace, tool: str | None) -> int:
    found = settings.for_proxy(options.config)
    policy, wrong, notes = found.report(tool)
    rows = [(name, *_row(name, policy)) for name in SETTINGS]
    if options.json:
        described = {name: {"value": value, "source": source} for name, value, source in rows}
        about = {"tool": tool, "file": found.file, "detail": policy.detail}
        console.write_json({**about, "settings": described, "problems": [*wrong, *notes]})
    else:
        is_terminal = console.is_terminal()
        shown = _for_people if is_terminal else lambda name, value: _on_one_line(value)
        cells = [(name, shown(name, value), console.printable(source)) for name, value, source in rows]
        if is_terminal:
            about_tool = f"tool {tool}" if tool is not None else "any tool"
            console.write_text(console.printable(f"{about_tool}, {found.file or 'no file'}") + "\n\n")
            cells = [(name, console.shortened(value, _WIDEST), source) for name, value, source in cells]
        # What differs from the defaults stands out.
        header = ("setting", "value", "from")
        console.write_text(console.table(cells, header, dim=lambda row: row[2] == BUILT_IN))
    for problem in wrong:
        console.say("error", problem)
    for problem in notes:
        console.say("warning", problem)
    return console.BAD_INPUT if wrong else console.OK


def _row(name: str, policy: Policy) -> tuple[Any, str]:
    """Return a setting's value and source; for one that isn't set, the dialect's value."""
    value = policy.in_force(name)
    if name == "vault" and value is not None:
        value = settings.without_password(value)
    return value, policy.sources[name]


def _for_people(name: str, value: Any) -> str:
    """A value at a terminal: sizes and times in units, and the vault's own place."""
    if name == "vault" and value is None:
        value = str(state_folder() / "vault.db")
    if name in _SIZES and isinstance(value, int):
        return console.human_size(value)
    if name in _TIMES and isinstance(value, int | float):
        return console.human_time(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    text = _on_one_line(value)
    home = str(Path.home())
    return f"~{text[len(home) :]}" if text.startswith(home + os.sep) else text


def _on_one_line(value: Any) -> str:
    """Return a value on one line: a string as it is, the rest as JSON, nothing as a dash."""
    if value is None or value == "" or (isinstance(value, tuple | Mapping) and not value):
        return "-"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=dict)
    return console.printable(text)


def _schema(options: argparse.Namespace, parser: Parser) -> int:
    from ..config.schema import own_file_schema, settings_schema
    from ..dialects import dialect

    if options.config is not None or options.json:
        parser.error("schema takes only the option --dialect")
    file = dialect(options.dialect).file if options.dialect else None
    console.write_json(settings_schema() if file is None else own_file_schema(file))
    return console.OK


def make_parser() -> Parser:
    parser = Parser("config", "[TOOL] [--config FILE] [--json]\nschema", _DESCRIPTION, _EPILOG)
    text, add = console.plain_text, parser.options()
    parser.add_argument("names", nargs="*", metavar="TOOL", type=text, help='the tool, or the word "schema"')
    add("--tool NAME", 'the same, also for a tool called "schema"', text)
    add("--config FILE", "the file to read (default: the nearest one)")
    add("--json", "print JSON")
    add("--dialect DIALECT", "with schema: print that of this dialect's own file", console.dialect_name)
    return parser
