"""`mcp-envelope stats`: what was saved, by tool, server, client, dialect, code or day.

Strategy: all of it comes from the ledger, which has sizes and no payloads. Savings are net: what a model read back
is subtracted. Calls that were only observed are summed apart, since nothing was saved in them. A terminal gets a
table with bars, a pipe tabs and plain numbers, a program JSON.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Sequence
from typing import Final, get_args

from ..vault.ledger import By, Ledger, Total
from ..vault.store import StoreError
from . import console
from .console import Parser

_DESCRIPTION: Final = """\
Show what the envelope saved in the last thirty days: the tokens that models did
not get, minus what they read back. The figures never leave this machine.
"""
_EPILOG: Final = """\
columns:
  calls   how many results
  cut     how many of them were cut to fit
  read    of those that were stored, how many were read again
  failed  how many were failures
  before, after, saved
          tokens of the whole, of what the model got (pages that it read back
          included), and the difference
The bar is as long as `before`; its dark part is `after`.

exit codes:
  0    done, even if nothing was recorded yet
  2    wrong usage
  3    the ledger cannot be read

examples:
  mcp-envelope stats
  mcp-envelope stats --by day --since 7d
  mcp-envelope stats --by client --json
"""
_COLUMNS: Final = ("calls", "cut", "read", "failed", "before", "after", "saved")
_BAR: Final = 24
_EIGHTHS: Final = " ▏▎▍▌▋▊▉"
_DURATION: Final = re.compile(r"([0-9]{1,6})([dhm])")
_SECONDS: Final = {"d": 86_400, "h": 3600, "m": 60}


def run(arguments: list[str]) -> int:
    options = make_parser().parse_args(arguments)
    since = time.time() - options.since if options.since else 0.0
    ledger = Ledger()
    try:
        sums = [ledger.totals(options.by, since, observed=observed) for observed in (False, True)]
    except StoreError as error:
        raise console.BadInput(f"the ledger cannot be read: {error}") from None
    finally:
        ledger.close()
    if options.json:
        calls, observed = ([total.as_json() for total in totals] for totals in sums)
        console.write_json({"calls": calls, "observed": observed, "place": ledger.place})
    elif not any(sums):
        console.say("note", f"no calls have been recorded yet; the ledger is {ledger.place}")
    else:
        for is_observed, totals in zip((False, True), sums, strict=True):
            if totals:
                _show(totals, options.by, is_observed)
    return console.OK


def _show(totals: Sequence[Total], by: By | None, observed: bool) -> None:
    rows = [
        (console.printable(total.group or ("all" if by is None else "-")), *_cells(total)) for total in totals
    ]
    if not console.is_terminal():
        console.write_text(console.table([(*row, "observed") for row in rows] if observed else rows))
        return
    if observed:
        console.say(
            "note", "observed only: nothing was saved; these are the sizes that results would have had"
        )
    most = max(total.tokens_before for total in totals)
    rows = [(*row, _bar(total, most)) for row, total in zip(rows, totals, strict=True)]
    header, numbers = (by or "", *_COLUMNS, ""), range(1, len(_COLUMNS) + 1)
    console.write_text(console.table(rows, header, right=numbers))


def _cells(total: Total) -> list[str]:
    counted = [f"{number:,}" for number in (total.calls, total.cut)]
    read = f"{total.read:,} of {total.stored:,}" if total.stored else "-"
    saved = f"{total.tokens_saved:,}"
    if total.tokens_before:
        saved += f" ({total.tokens_saved / total.tokens_before:.0%})"
    sizes = [f"{total.tokens_before:,}", f"{total.tokens_after + total.tokens_read:,}", saved]
    cells = [*counted, read, f"{total.failed:,}", *sizes]
    return cells if console.is_terminal() else [cell.replace(",", "") for cell in cells]


def _bar(total: Total, most: int) -> str:
    """Return what was saved and what was shown, as parts of a bar whose length is the whole."""
    shown = total.tokens_after + total.tokens_read
    eighths = round(8 * _BAR * shown / most) if most else 0
    rest = round(_BAR * total.tokens_before / most) - -(-eighths // 8) if most else 0
    part = _EIGHTHS[eighths % 8] if eighths % 8 else ""
    return "█" * (eighths // 8) + part + "░" * max(rest, 0)


def _duration(text: str) -> int:
    found = _DURATION.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a duration such as 7d, 12h or 30m")
    return int(found[1]) * _SECONDS[found[2]]


def make_parser() -> Parser:
    parser = Parser("stats", "[options]", _DESCRIPTION, _EPILOG)
    add = parser.options()
    add("--by KIND", f"one row for each: {', '.join(get_args(By))}", console.one_of(get_args(By)))
    add(
        "--since TIME",
        "only calls within this time, such as 7d, 12h or 30m (default: thirty days)",
        _duration,
    )
    add("--json", "print JSON")
    return parser
