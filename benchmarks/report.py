"""Tables: plain in a pipe, a little colour in a terminal; and the figures that the design demands."""

import os
import sys
from dataclasses import dataclass, field
from typing import Any, Literal

Cell = float | str | None


@dataclass(frozen=True)
class Check:
    """One figure that the design demands."""

    what: str
    measured: float
    bound: float
    side: Literal["≤", "≥"]
    unit: str

    @property
    def met(self) -> bool:
        return self.measured <= self.bound if self.side == "≤" else self.measured >= self.bound

    def to_json(self) -> dict[str, Any]:
        demand = f"{self.side} {self.bound:g} {self.unit}"
        return {"what": self.what, "measured": self.measured, "demand": demand, "met": self.met}


@dataclass
class Table:
    """Rows of a name and figures. A column's format belongs to its name."""

    name: str
    title: str
    columns: dict[str, str]
    note: str = ""
    rows: dict[str, list[Cell]] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)

    def add(self, name: str, *cells: Cell) -> None:
        self.rows[name] = list(cells)

    def check(self, what: str, measured: float, side: Literal["≤", "≥"], bound: float, unit: str) -> None:
        self.checks.append(Check(what, measured, bound, side, unit))

    def to_json(self) -> dict[str, Any]:
        rows = [
            {"name": name, **dict(zip(self.columns, cells, strict=False))}
            for name, cells in self.rows.items()
        ]
        return {
            "name": self.name,
            "title": self.title,
            "rows": rows,
            "checks": [c.to_json() for c in self.checks],
        }

    def show(self) -> None:
        print(f"\n{_styled(self.title, '1')}")
        if self.note:
            print(_styled(self.note, "2"))
        lines = [["", *self.columns]]
        for name, cells in self.rows.items():
            shown = [_shown(cell, form) for cell, form in zip(cells, self.columns.values(), strict=False)]
            lines.append([name, *shown, *[""] * (len(self.columns) - len(shown))])
        _print_aligned(lines)
        if self.checks:
            lines = [["demand", "measured", "must reach", ""]]
            for check in self.checks:
                demand = f"{check.side} {check.bound:g} {check.unit}"
                outcome = _styled("met", "32") if check.met else _styled("NOT MET", "1;31")
                lines.append([check.what, f"{check.measured:.3g} {check.unit}", demand, outcome])
            print()
            _print_aligned(lines)


def progress(words: str) -> None:
    """A line for a person who waits: on stderr, so that the tables stay clean."""
    print(_styled(f"… {words}", "2", sys.stderr), file=sys.stderr, flush=True)


def _shown(cell: Cell, form: str) -> str:
    if cell is None:
        return "–"
    return cell if isinstance(cell, str) else form.format(cell)


def _styled(text: str, code: str, stream: Any = None) -> str:
    is_plain = not (stream or sys.stdout).isatty() or "NO_COLOR" in os.environ
    return text if is_plain else f"\x1b[{code}m{text}\x1b[0m"


def _print_aligned(lines: list[list[str]]) -> None:
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    # The last column holds words, and colour has a length that cannot be seen: it is not padded.
    is_wordy = lines[0][-1] == ""
    for line in lines:
        cells = [line[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        if is_wordy:
            cells[-1] = line[-1]
        print("  " + "  ".join(cells).rstrip())
