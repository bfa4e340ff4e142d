"""The scoreboard as JSON, Markdown, JUnit and a badge. The table for terminals is in `cli/check`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from .score import Score, is_good


def as_json(found: Sequence[Score], advice: Sequence[str], left: Sequence[str]) -> dict[str, Any]:
    return {
        "good": is_good(found),
        "checks": [{**score._asdict(), "pass": score.is_pass} for score in found],
        "suggestions": list(advice),
        "notCalled": list(left),
    }


def figure(score: Score) -> str:
    return f"{score.passed} of {score.of}" if score.of else "-"


def as_markdown(found: Sequence[Score], advice: Sequence[str]) -> str:
    lines = ["| | check | passed | |", "|---|---|--:|---|"]
    for score in found:
        mark = "✅" if score.is_pass else "❌" if score.counts else "⚠️"
        told = "; ".join(filter(None, [score.note, *(() if score.is_pass else score.failing)])).replace(
            "|", "\\|"
        )
        lines.append(f"| {mark if score.of else ''} | {score.title} | {figure(score)} | {told} |")
    return "\n".join([*lines, "", *(f"- {line}" for line in advice)]).rstrip() + "\n"


def as_junit(found: Sequence[Score], name: str) -> str:
    cases = []
    for score in found:
        case = f"<testcase classname={quoteattr(name)} name={quoteattr(score.title)}>"
        if not score.of:
            case += "<skipped/>"
        elif not score.is_pass and score.counts:
            told = escape("\n".join(score.failing))
            case += f"<failure message={quoteattr(f'{figure(score)} passed')}>{told}</failure>"
        cases.append(f"  {case}</testcase>")
    failed = sum(score.counts and not score.is_pass for score in found)
    head = f'<testsuite name={quoteattr(name)} tests="{len(found)}" failures="{failed}">'
    return "\n".join(['<?xml version="1.0" encoding="UTF-8"?>', head, *cases, "</testsuite>"]) + "\n"


def as_badge(found: Sequence[Score]) -> str:
    """Return an SVG that says how many of the checks that apply passed."""
    counted = [score for score in found if score.counts and score.of]
    good = sum(score.is_pass for score in counted)
    colour = "#2e7d32" if good == len(counted) else "#b26a00" if 2 * good >= len(counted) else "#b00020"
    label, value = "MCP results", f"{good} of {len(counted)}"
    left, right = 84, 12 + 7 * len(value)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" '
        f'aria-label="{label}: {value}"><title>{label}: {value}</title>'
        f'<rect width="{left}" height="20" fill="#444"/>'
        f'<rect x="{left}" width="{right}" height="20" fill="{colour}"/>'
        '<g fill="#fff" text-anchor="middle" font-family="Verdana,Geneva,DejaVu Sans,sans-serif" font-size="11">'
        f'<text x="{left / 2}" y="14">{label}</text><text x="{left + right / 2}" y="14">{value}</text></g></svg>\n'
    )
