"""`mcp-envelope lint`: find MCP tools that bypass the envelope, and fix the simple cases.

Strategy: standard output carries the report in the format asked for, and nothing else; counts and problems go to
standard error. A file that cannot be read is one problem with its position: the others are linted all the same, and
the exit code says that something was not checked. A file is written only if fixing changed it.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from typing import Any, Final

from ..lint import RULES, Finding, LintRule, NotPython, SourceFile, fix, lint, python_files
from ..lint.report import FORMATS, Linted, render
from ..lint.rules import chosen
from ..lint.source import NotReadable
from ..spelling import did_you_mean
from . import console, files
from .console import Parser

_DESCRIPTION: Final = """\
Find MCP tools that bypass the envelope: results and text blocks made by hand,
data returned as text, results cut by hand, errors returned as results, servers
without the envelope. The code is read, never run.
"""
_EPILOG: Final = """\
`# noqa: ENV003` on its line silences a finding, `# mcp-envelope: off` on a line
of its own silences a file.

exit codes:
  0    nothing found
  1    something found (with --fix: something left)
  2    wrong usage
  3    a file could not be read; the others were checked

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
    """Like its parent, but paths may come anywhere between the options."""

    def parse_args(self, args: Sequence[str], namespace: Any = None) -> Any:  # type: ignore[override]
        known, unknown = self.parse_known_intermixed_args(args, namespace)
        if unknown:
            self.check_option(unknown[0].partition("=")[0])
        return known


def run(arguments: list[str]) -> int:
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.list or options.explain:
        if options.paths:
            parser.error("--list and --explain take no paths")
        console.write_out((_list() if options.list else _explain(options.explain)).encode())
        return console.OK
    if not options.paths:
        parser.error("name a file or a folder")
    if files.STDIN in options.paths and len(options.paths) > 1:
        parser.error("- cannot be combined with other paths")
    if options.stdin_filename and files.STDIN not in options.paths:
        parser.error("--stdin-filename needs -")
    if options.fix and options.diff:
        parser.error("--fix changes the files, --diff only shows what it would change: choose one")
    return _Run(options).run()


class _Run:
    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._rules = chosen(options.select, options.ignore)
        self._files: list[Linted] = []
        self._diff: list[str] = []
        self._fixed = 0

    def run(self) -> int:
        for path in python_files(self._options.paths, self._complain):
            self._files.append(self._lint(path))
        self._report()
        for path, _, problem in self._files:
            if isinstance(problem, NotReadable):
                console.say("error", f"cannot read {path}: {problem.message}")
            elif problem is not None:
                position = f"{path}:{problem.line}:{problem.column + 1}"
                console.say("error", f"{position}: not Python: {problem.message}")
        console.say("done", self._summary())
        if any(file.problem for file in self._files):
            return console.BAD_INPUT
        return _FOUND if any(file.findings for file in self._files) else console.OK

    def _complain(self, error: OSError) -> None:
        self._files.append(Linted(str(error.filename), problem=NotReadable(console.reason(error))))

    def _lint(self, path: str) -> Linted:
        shown = self._options.stdin_filename or "stdin" if path == files.STDIN else path
        try:
            # The bytes as they are: Python's own rules say how to decode them.
            data = files.read_bytes(path)
        except (OSError, ValueError) as error:
            return Linted(shown, problem=NotReadable(console.reason(error)))
        try:
            return Linted(shown, self._findings(path, shown, SourceFile(data)))
        except NotPython as problem:
            return Linted(shown, problem=problem)

    def _findings(self, path: str, shown: str, source: SourceFile) -> list[Finding]:
        if not (self._options.fix or self._options.diff):
            return lint(source, self._rules)
        data, count = fix(source, self._rules)
        self._fixed += count
        if self._options.diff:
            self._diff += _difference(shown, source.data, data, source.encoding)
            return lint(source, self._rules)
        if count or path == files.STDIN:
            files.write(path, data)
        return lint(SourceFile(data), self._rules)

    def _report(self) -> None:
        if self._options.diff:
            out = "".join(self._diff)
        else:
            out = render(self._options.format, self._files, console.has_colour(sys.stdout))
        if self._options.fix and files.STDIN in self._options.paths:
            # Standard output carries the fixed source.
            for line in out.splitlines():
                console.say("warning", line)
            return
        console.write_out(out.encode("utf-8", "backslashreplace"))

    def _summary(self) -> str:
        if not self._files:
            return "no Python files found"
        found = sum(len(file.findings) for file in self._files)
        fixable = sum(finding.fixable for file in self._files for finding in file.findings)
        checked = console.counted(sum(file.problem is None for file in self._files), "file")
        if self._options.fix:
            return f"{checked}, {self._fixed} fixed, {found} left"
        words = f"{checked}, {console.counted(found, 'finding') if found else 'nothing found'}"
        return f"{words}, {fixable} of them fixable with --fix" if fixable else words


def _difference(name: str, before: bytes, after: bytes, encoding: str) -> list[str]:
    from difflib import unified_diff

    def lines(data: bytes) -> list[str]:
        return re.findall(r"[^\n]*\n|[^\n]+", data.decode(encoding, "replace"))

    found = unified_diff(lines(before), lines(after), name, name)
    return [line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in found]


def _list() -> str:
    width = max(len(rule.name) for rule in RULES.values())
    return "".join(f"{rule.id}  {rule.name:<{width}}  {rule.message}\n" for rule in RULES.values())


def _explain(rule: LintRule) -> str:
    from textwrap import fill, indent

    before, after = indent(rule.before, "    "), indent(rule.after, "    ")
    return (
        f"{rule.id} {rule.name}: {rule.message}\n\n{fill(rule.why, 79)}\n\n{fill(rule.advice, 79)}\n\n"
        f"before:\n{before}\nafter:\n{after}\n"
    )


def _rule(text: str) -> LintRule:
    known = {key: rule for rule in RULES.values() for key in (rule.id, rule.name)}
    found = known.get(text) or known.get(text.upper())
    if found is None:
        raise argparse.ArgumentTypeError(f"there is no rule {text!r}{did_you_mean(text, known)}")
    return found


def _prefixes(text: str) -> list[str]:
    by_name = {rule.name: rule.id for rule in RULES.values()}
    names = [by_name.get(name.lower(), name.upper()) for name in console.names(text)]
    for name in names:
        if not any(rule.startswith(name) for rule in RULES):
            raise argparse.ArgumentTypeError(f"there is no rule {name!r}{did_you_mean(name, RULES)}")
    return names


def make_parser() -> _Parser:
    parser = _Parser("lint", "PATH... [--fix | --diff] [--format FORMAT]", _DESCRIPTION, _EPILOG)
    add = parser.options()
    parser.add_argument("paths", nargs="*", metavar="PATH", help="files, folders, or - for standard input")
    add("--format FORMAT", "text (default), json, github or sarif", console.one_of(FORMATS), default="text")
    several: dict[str, Any] = {"action": "extend", "default": []}
    add("--select RULES", "only these rules, such as ENV003,ENV005", _prefixes, **several)
    add("--ignore RULES", "all rules but these", _prefixes, **several)
    add("--fix", "fix the simple cases in place")
    add("--diff", "show what --fix would change, and change nothing")
    add("--explain RULE", "explain a rule, with an example", _rule)
    add("--list", "list the rules")
    add("--stdin-filename NAME", "the name of standard input in the report")
    return parser
