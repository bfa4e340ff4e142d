"""`mcp-envelope demo`: real servers flood the proxy, and everything that it promises is checked."""

from __future__ import annotations

from typing import Final

from ..extras import lacking
from . import console
from .console import Misuse, Parser

_DESCRIPTION: Final = """\
Run real servers through the proxy, and show each result before and after. Every
promise is checked: sizes, schema, and the pages that are read back. It needs no
network, and neither reads nor changes anything of yours.
"""
_EPILOG: Final = """\
exit codes:
  0    every promise was kept
  1    a promise was broken
  2    something is not installed

examples:
  mcp-envelope demo
  uvx --from 'mcp-envelope[demo]' mcp-envelope demo
"""
_BROKEN: Final = 1


def run(arguments: list[str]) -> int:
    make_parser().parse_args(arguments)
    if lacking("demo"):
        raise Misuse(f"the demo {console.extra('demo')}")
    from ..demo import tour

    try:
        return console.OK if tour.run() else _BROKEN
    except BaseExceptionGroup as group:
        # The reader of the output stopped, as `| head` does.
        if stopped := group.subgroup(BrokenPipeError):
            raise BrokenPipeError from stopped
        raise


def make_parser() -> Parser:
    return Parser("demo", "[options]", _DESCRIPTION, _EPILOG)
