"""`mcp-envelope lint`: find MCP tools that bypass the envelope, and mend the simple cases.

Strategy: the report goes to standard output in the form asked for, and nothing else does; counts and complaints
go to standard error. A file that cannot be read is one complaint with its place: the others are linted all the
same, and the exit code says that something was not looked at. A file is written only if mending changed it.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from typing import Any, Final

from ..lint import RULES, Finding, NotPython, Source, lint, mend
from ..lint.lines import Unreadable
from ..lint.report import FORMATS, Linted, told
from ..lint.rules import Rule, chosen
from ..lint.walking import python_files
from . import console, files
from .console import Parser

_DESCRIPTION: Final = """\
Find MCP tools that bypass the envelope: results and text blocks made by hand,
data returned as text, cuts and errors by hand, servers without the envelope.
The code is read, never run.
"""
_EPILOG: Final = """\
A finding is silenced with `# noqa: ENV003` on its line, a file with
`# mcp-envelope: off` on a line of its own.

exit codes:
  0    nothing found
  1    something found (with --fix: something left)
  2    wrong usage
  3    a file could not be read; the others were looked at

examples:
  mcp-envelope lint src
  mcp-envelope lint server.py --diff
  mcp-envelope lint src --fix --ignore ENV007
  mcp-envelope lint src --format sarif > lint.sarif
  mcp-envelope lint - --stdin-filename server.py < server.py
  mcp-envelope lint --explain ENV003
"""
_FOUND: Final = 1


class _Parser(Parser):
    """As its parent, but paths may stand anywhere between the options."""

    def parse_args(self, args: Sequence[str], namespace: Any = None) -> Any:  # type: ignore[override]
        known, unknown = self.parse_known_intermixed_args(args, namespace)
        if unknown:
            name = unknown[0].partition("=")[0]
            self.error(f"there is no option {name!r}{console.nearest(name, self._option_string_actions)}")
        return known


def run(arguments: list[str]) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.list or options.explain:
        if options.paths:
            parser.error("--list and --explain take no paths")
        console.write_out((_listed() if options.list else _explained(options.explain)).encode())
        return console.SEALED
    if not options.paths:
        parser.error("a file or a folder is needed")
    if files.STDIN in options.paths and len(options.paths) > 1:
        parser.error("- is linted alone")
    if options.stdin_filename and files.STDIN not in options.paths:
        parser.error("--stdin-filename goes with -")
    if options.fix and options.diff:
        parser.error("--fix changes the files, --diff shows what it would change: one of them")
    return _Lint(options).run()


class _Lint:
    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._rules = chosen(options.select, options.ignore)
        self._files: list[Linted] = []
        self._diff: list[str] = []
        self._mended = 0

    def run(self) -> int:
        for path in python_files(self._options.paths, self._complain):
            self._files.append(self._file(path))
        self._report()
        for file in self._files:
            if isinstance(file.problem, Unreadable):
                console.say("error", f"cannot read {file.path}: {file.problem.reason}")
            elif file.problem is not None:
                place = f"{file.path}:{file.problem.line}:{file.problem.column + 1}"
                console.say("error", f"{place}: not Python: {file.problem.reason}")
        self._summary()
        if any(file.problem for file in self._files):
            return console.BAD_INPUT
        return _FOUND if any(file.findings for file in self._files) else console.SEALED

    def _complain(self, error: OSError) -> None:
        self._files.append(Linted(str(error.filename), problem=Unreadable(console.reason(error))))

    def _file(self, path: str) -> Linted:
        shown = self._options.stdin_filename or "stdin" if path == files.STDIN else path
        try:
            data = _read(path)
        except (OSError, ValueError) as error:
            return Linted(shown, problem=Unreadable(console.reason(error)))
        try:
            source = Source(data)
            findings = self._mend(path, shown, source) if self._changes else lint(source, self._rules)
        except NotPython as problem:
            return Linted(shown, problem=problem)
        return Linted(shown, findings)

    @property
    def _changes(self) -> bool:
        return bool(self._options.fix or self._options.diff)

    def _mend(self, path: str, shown: str, source: Source) -> list[Finding]:
        mended = mend(source, self._rules)
        self._mended += mended.fixed
        if self._options.diff:
            self._diff += _difference(shown, source.data, mended.data, source.encoding)
            return lint(source, self._rules)
        if mended.fixed or path == files.STDIN:
            files.write(path, mended.data)
        return lint(Source(mended.data), self._rules)

    def _report(self) -> None:
        if self._options.diff:
            console.write_out("".join(self._diff).encode("utf-8", "backslashreplace"))
            return
        colour = sys.stdout is not None and console.has_colour(sys.stdout)
        out = told(self._options.format, self._files, colour)
        if self._options.fix and files.STDIN in self._options.paths:
            # Standard output has the mended source.
            for line in out.splitlines():
                console.say("warning", line)
            return
        console.write_out(out.encode("utf-8", "backslashreplace"))

    def _summary(self) -> None:
        found = sum(len(file.findings) for file in self._files)
        fixable = sum(finding.fixable for file in self._files for finding in file.findings)
        looked = _count(sum(file.problem is None for file in self._files), "file")
        words = f"{looked}, {_count(found, 'finding') if found else 'nothing found'}"
        if self._options.fix:
            words = f"{looked}, {self._mended} mended, {found} left"
        elif fixable:
            words += f", {fixable} of them can be mended with --fix"
        if not self._files:
            words = "no Python files there"
        console.say("done", words)


def _read(path: str) -> bytes:
    """The bytes as they are: how to decode them is for Python's own rules to say."""
    if path == files.STDIN:
        if sys.stdin is None:
            raise OSError("it is closed")
        return sys.stdin.buffer.read()
    with open(path, "rb") as file:
        return file.read()


def _difference(name: str, before: bytes, after: bytes, encoding: str) -> list[str]:
    from difflib import unified_diff

    def lines(data: bytes) -> list[str]:
        return re.findall(r"[^\n]*\n|[^\n]+", data.decode(encoding, "replace"))

    found = unified_diff(lines(before), lines(after), name, name)
    return [line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in found]


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _listed() -> str:
    width = max(len(rule.name) for rule in RULES.values())
    return "".join(f"{rule.id}  {rule.name:<{width}}  {rule.message}\n" for rule in RULES.values())


def _explained(rule: Rule) -> str:
    from textwrap import fill

    return (
        f"{rule.id} {rule.name}: {rule.message}\n\n{fill(rule.why, 79)}\n\n{fill(rule.mend, 79)}\n\n"
        f"before:\n{_indented(rule.before)}after:\n{_indented(rule.after)}"
    )


def _indented(code: str) -> str:
    return "".join(f"    {line}\n" for line in code.splitlines())


def _rule(text: str) -> Rule:
    known = {key: rule for rule in RULES.values() for key in (rule.id, rule.name)}
    found = known.get(text) or known.get(text.upper())
    if found is None:
        raise argparse.ArgumentTypeError(f"there is no rule {text!r}{console.nearest(text, known)}")
    return found


def _prefixes(text: str) -> list[str]:
    names = [name.strip().upper() for name in text.split(",") if name.strip()]
    for name in names:
        if not any(rule.startswith(name) for rule in RULES):
            raise argparse.ArgumentTypeError(f"there is no rule {name!r}{console.nearest(name, RULES)}")
    return names


def _parser() -> _Parser:
    parser = _Parser(
        prog="mcp-envelope lint",
        usage="mcp-envelope lint PATH... [--fix | --diff] [--format FORMAT]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add("paths", nargs="*", metavar="PATH", help="files, folders, or - for standard input")
    add(
        "--format",
        metavar="FORMAT",
        type=console.one_of(FORMATS),
        default="text",
        help="text (default), json, github or sarif",
    )
    add(
        "--select",
        metavar="RULES",
        action="extend",
        type=_prefixes,
        default=[],
        help="only these, as ENV003,ENV005",
    )
    add("--ignore", metavar="RULES", action="extend", type=_prefixes, default=[], help="all but these")
    add("--fix", action="store_true", help="mend the simple cases in place")
    add("--diff", action="store_true", help="show what --fix would change, and change nothing")
    add("--explain", metavar="RULE", type=_rule, help="tell about a rule, with an example")
    add("--list", action="store_true", help="list the rules")
    add("--stdin-filename", metavar="NAME", help="what to call standard input in the report")
    return parser
