"""What was measured, as JSON (`lab/results.json`), as a page (`docs/clients.md`), and in short on the terminal."""

from __future__ import annotations

import json
from collections.abc import Iterable

import msgspec

from mcp_envelope.budget import meter_named

from .cases import CASES, READ, Limit, Observation, Verdict, marks
from .clients import ROOT
from .model import Json, Tool

RESULTS = ROOT / "lab" / "results.json"
PAGE = ROOT / "docs" / "clients.md"
_NOTHING = "–"


class Weight(msgspec.Struct, kw_only=True):
    """What the tool list costs a model, in tokens of its JSON as the client sends it."""

    direct: int
    proxied: int
    read_tool: int
    a_tool: float

    @classmethod
    def of(cls, direct: tuple[Tool, ...], proxied: tuple[Tool, ...]) -> Weight | None:
        if not direct or not proxied:
            return None
        before, after = _tokens(direct), _tokens(proxied)
        read_tool = _tokens(tuple(tool for tool in proxied if tool.name.endswith(READ)))
        return cls(
            direct=before,
            proxied=after,
            read_tool=read_tool,
            a_tool=round((after - read_tool - before) / len(direct), 1),
        )


def _tokens(tools: tuple[Tool, ...]) -> int:
    meter = meter_named("exact")
    return sum(meter.count(json.dumps(tool.entry, separators=(",", ":")).encode()) for tool in tools)


class Measured(msgspec.Struct):
    """Everything known of one client."""

    name: str
    package: str
    version: str
    date: str
    about: str = ""
    client_info: Json = {}
    lane: str = "unknown"
    error_lane: str = ""
    pictures: str = ""
    picture_beside_structure: bool | None = None
    link: bool | None = None
    resource: bool | None = None
    verdicts: list[Verdict] = []
    limits: list[Limit] = []
    weight: Weight | None = None
    problem: str = ""

    def add_direct(self, info: Json, seen: list[Observation], tools: tuple[Tool, ...]) -> None:
        """What is seen without the proxy: lanes, pictures, links."""
        self.client_info = {key: info[key] for key in ("name", "version") if key in info}
        found = {each.case.name: each.seen for each in seen}
        if "two lanes" in found:
            words = marks(found["two lanes"].text)
            lanes = {"SHOWN-TEXT": "content", "SHOWN-STRUCTURE": "structured"}
            shown = [name for word, name in lanes.items() if word in words]
            self.lane = "both" if len(shown) == 2 else shown[0] if shown else "none"
        if picture := found.get("picture, 300 KB"):
            self.pictures = (
                ", ".join(f"{each.width}×{each.height}" for each in picture.pictures) or "not shown"
            )
        if beside := found.get("picture beside structure"):
            self.picture_beside_structure = bool(beside.pictures)
        if link := found.get("link"):
            self.link = "lab://report" in link.text
        if resource := found.get("embedded resource"):
            self.resource = "#00000" in resource.text


def load() -> dict[str, Measured]:
    if not RESULTS.exists():
        return {}
    return msgspec.json.decode(RESULTS.read_bytes(), type=dict[str, Measured])


def merged(old: Measured | None, new: Measured) -> Measured:
    """Limits are kept from an earlier run of the same version, if they were not looked for again."""
    if old and not new.limits and old.version == new.version:
        new.limits = old.limits
    return new


def save(results: dict[str, Measured], order: list[str]) -> None:
    ordered = {name: results[name] for name in order if name in results}
    RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(ordered), indent=1) + b"\n")
    PAGE.write_text(page(list(ordered.values())))


def limits_of(measured: Measured) -> str:
    """One line for all limits, those that are equal put together."""
    groups: dict[str, list[str]] = {}
    for limit in measured.limits:
        groups.setdefault(_limit(limit), []).append(limit.kind)
    return "; ".join(f"{', '.join(kinds)}: {text}" for text, kinds in groups.items()) or "not looked for"


def _limit(limit: Limit) -> str:
    if limit.beyond is None:
        return f"none up to {limit.whole:,}" if limit.whole else f"unknown {limit.what}"
    return f"{limit.whole:,}; of {limit.beyond:,} {limit.what}"


def summary(measured: Measured) -> str:
    lines = [f"  lane: {measured.lane}; picture: {measured.pictures}; limits: {limits_of(measured)}"]
    if weight := measured.weight:
        lines.append(
            f"  tool list: {weight.direct} tokens, {weight.proxied} through the proxy "
            f"({weight.a_tool:+} a tool, {weight.read_tool} for {READ})"
        )
    if measured.problem:
        lines.append(f"  directly, {measured.problem}")
    for verdict in measured.verdicts:
        state = "; ".join(verdict.problems) or "holds"
        lines.append(f"  {verdict.case:<25} {_counts(verdict):<34} {state}")
    return "\n".join(lines)


def _counts(verdict: Verdict) -> str:
    text = f"{verdict.direct} → {verdict.proxied} of {verdict.total}" if verdict.total else ""
    if any(verdict.pictures):
        text += f"{', ' if text else ''}pictures {verdict.pictures[0]} → {verdict.pictures[1]}"
    if verdict.note is not None:
        text += ", reads on" if verdict.reads_on else ", note" if verdict.note else ""
    return text


def _cell(value: bool | None) -> str:
    return _NOTHING if value is None else "yes" if value else "no"


def page(results: list[Measured]) -> str:
    titles = (
        "client",
        "lane",
        "picture of 300 KB",
        "beside structure",
        "link",
        "resource",
        "tool list",
        "`envelope_read`, each tool",
        "cases that hold",
    )
    shown = []
    for each in results:
        weight = f"{each.weight.direct} → {each.weight.proxied}" if each.weight else _NOTHING
        ours = f"{each.weight.read_tool}, {each.weight.a_tool:g}" if each.weight else _NOTHING
        held = sum(not verdict.problems for verdict in each.verdicts)
        facts = map(_cell, (each.picture_beside_structure, each.link, each.resource))
        state = f"{held} of {len(each.verdicts)}"
        shown.append(
            (f"{each.name} {each.version}", each.lane, each.pictures or _NOTHING, *facts, weight, ours, state)
        )
    measured = [each for each in results if each.limits]
    limits = [(each.name, *map(_limit, each.limits)) for each in measured]
    kinds = [limit.kind for limit in measured[0].limits] if measured else []
    found = [{verdict.case: verdict for verdict in each.verdicts} for each in results]
    cases = [
        (
            case.name,
            *(_counts(verdicts[case.name]) if case.name in verdicts else _NOTHING for verdicts in found),
        )
        for case in CASES
    ]
    problems = [
        f"- {each.name}, {verdict.case}: {'; '.join(verdict.problems)}."
        for each in results
        for verdict in each.verdicts
        if verdict.problems
    ] + [f"- {each.name}, without the proxy: {each.problem}." for each in results if each.problem]
    versions = [
        (
            each.name,
            f"{each.package} {each.version}",
            f"`{each.client_info.get('name', _NOTHING)}`",
            each.date,
            each.about,
        )
        for each in results
    ]
    return "\n".join((
        _INTRODUCTION, *_table(titles, shown),
        _LIMITS, *_table(("client", *kinds), limits),
        _CASES, *_table(("case", *(each.name for each in results)), cases),
        "\n## What does not hold\n", *(problems or ["Nothing."]),
        "\n## Versions\n", *_table(("client", "package", "clientInfo.name", "measured", "setting"), versions),
    )) + "\n"  # fmt: skip


def _table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    heads = list(titles)
    return [_row(heads), "|" + "---|" * len(heads), *map(_row, rows)]


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell or _NOTHING for cell in cells)} |"


_INTRODUCTION = """\
# What clients show their models

Generated by `make lab` ([lab/README.md](../lab/README.md)); don't edit it. Real clients were run offline with a
scripted model, directly and through the proxy. This page shows what the *model* was sent as the result of a call.

*lane* is the part of a result that the model is shown. *tool list* is the size of the lab's tools in tokens, as
the JSON that the client sends, directly → through the proxy. The next column has the part that `envelope_read`
takes, and what is added to each tool (`tokenBudget`). Gemini CLI gives every tool an argument of its own,
`wait_for_previous`, which costs 55 of those tokens. A case doesn't hold if the model sees less through the proxy
than directly and isn't told how to read the rest, if a picture is lost, or if the client cuts again what the proxy
already cut.
"""
_LIMITS = """
## Limits

The most characters that were shown whole, the fewest that weren't, and what was shown of those.
"""
_CASES = """
## Cases

How many of the marks sent the model sees, directly → through the proxy. *reads on*: it was cut, and the handle that
the model sees leads to more.
"""
