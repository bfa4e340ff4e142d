"""The calls that every client makes, what is looked for in what its model sees, and the verdict.

Strategy: what the server sends is full of marks, so that it can be counted what reached the model. A case holds if
nothing that the model sees directly is lost through the proxy, or if what was left out is announced with a handle
that works. A model knows only what it is shown, so reading on uses the handle and the arguments found there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from itertools import pairwise

from .model import PROGRAM_GOT, Call, Json, Script, Seen
from .server import result

READ = "envelope_read"
_MARK = re.compile(r"#\d{5}|lab://report|SHOWN-[A-Z]+")
_READ_ON = re.compile(READ + r"\(([^()]*)\)")
_ARGUMENT = re.compile(r"(\w+)\s*[=:]\s*(?:\\*\"([^\"\\]*)\\*\"|(\d+))")
# Where a client says that it saved a file.
_SAVED = re.compile(r"saved to (/\S+)")
FILES = ("audio", "archive")
_HANDLE = re.compile(r"handle\W{1,8}([A-Za-z0-9_-]{20,64})")


@dataclass(frozen=True)
class Case:
    name: str
    tool: str
    size: int


CASES = (
    Case("two lanes", "lanes", 0),
    Case("a few rows", "typed_rows", 2_000),
    Case("typed rows", "typed_rows", 120_000),
    Case("untyped rows", "untyped_rows", 120_000),
    Case("text", "long_text", 120_000),
    Case("one long line", "one_line", 120_000),
    Case("error", "failure", 40_000),
    Case("picture, 100 KB", "picture", 90_000),
    Case("picture, 300 KB", "picture", 290_000),
    Case("picture beside structure", "picture_and_rows", 200_000),
    Case("several blocks", "text_blocks", 60_000),
    Case("embedded resource", "embedded_resource", 60_000),
    Case("embedded picture", "embedded_image", 90_000),
    # langchain ends at a link, and pydantic-ai at an archive.
    Case("link", "resource_link", 0),
    Case("audio", "audio", 40_000),
    Case("archive", "archive", 40_000),
)


@dataclass
class Observation:
    """What the model saw of a case, and of the page that it then read, if it was told of one."""

    case: Case
    seen: Seen
    read: Call | None = None
    page: Seen | None = None


def observe(found: list[Observation], read_on: bool, cases: Iterable[Case] = CASES) -> Script:
    """The cases, one after the other; after each that was cut, one page of the rest."""
    for case in cases:
        seen = yield Call(case.tool, {"size": case.size})
        observation = Observation(case, seen)
        found.append(observation)
        if read_on and (arguments := way_back(seen.text)):
            observation.read = Call(READ, arguments)
            observation.page = yield observation.read


def way_back(text: str) -> Json | None:
    """The arguments for reading on, as the text tells them."""
    told: Json = {}
    for call in _READ_ON.finditer(text):
        told = {
            name: quoted or int(number) if number else quoted
            for name, quoted, number in _ARGUMENT.findall(call[1])
        }
        if "offset" in told or "lines" in told:
            break
    if "handle" not in told and (handle := _HANDLE.search(text)):
        told["handle"] = handle[1]
    return told if "handle" in told else None


def marks(text: str) -> set[str]:
    return set(_MARK.findall(text))


def _numbered(text: str) -> int:
    return sum(mark[0] == "#" for mark in marks(text))


def reached(seen: Seen) -> int:
    """How many marks reached the model, or the program that it wrote."""
    if program := re.search(re.escape(PROGRAM_GOT) + r"(\d+)", seen.text):
        return int(program[1])
    return len(marks(seen.text))


def sent_marks(case: Case) -> int:
    """How many marks the server sends, in one lane."""
    whole = result(case.tool, case.size).model_dump(by_alias=True, exclude_none=True)
    return len(marks(json.dumps(whole)))


@dataclass(frozen=True)
class Verdict:
    """How a case went through the proxy, compared with going directly."""

    case: str
    total: int
    direct: int
    proxied: int
    pictures: tuple[int, int]
    note: bool | None
    reads_on: bool | None
    problems: tuple[str, ...]


def judge(direct: Observation, proxied: Observation, wire: Json | None) -> Verdict:
    case, before, after = direct.case, direct.seen, proxied.seen
    total, shown, shown_before = sent_marks(case), reached(after), reached(before)
    problems = []
    note = reads_on = None
    if len(after.pictures) < len(before.pictures):
        problems.append("the picture is lost")
    if case.tool in FILES and _SAVED.search(before.text) and not _SAVED.search(after.text):
        problems.append("the file is not saved")
    # A client may also fail on a result that is none: Gemini CLI on a JSON array.
    is_failure = result(case.tool, case.size).is_error
    if is_failure and before.marked_as_error and not after.marked_as_error:
        problems.append("no longer marked as an error")
    cut_by_us = wire is not None and '"truncated":true' in json.dumps(wire, separators=(",", ":"))
    if shown < total and (cut_by_us or shown < shown_before):
        note = proxied.read is not None
        fresh = marks(proxied.page.text) - marks(after.text) if proxied.page else set()
        reads_on = bool(fresh)
        if not note:
            problems.append("cut, and the model sees no handle")
        elif not reads_on:
            problems.append("reading on gives nothing new")
    if wire is not None and PROGRAM_GOT not in after.text and case.tool != "lanes":
        lanes = [_numbered(json.dumps(wire.get(lane))) for lane in ("content", "structuredContent")]
        if _numbered(after.text) < min(filter(None, lanes), default=0):
            problems.append("the client cut it again" if cut_by_us else "the client cut what we passed whole")
    if PROGRAM_GOT in after.text and shown < shown_before:
        problems.append("a program got less than all of it")
    pictures = (len(before.pictures), len(after.pictures))
    return Verdict(case.name, total, shown_before, shown, pictures, note, reads_on, tuple(problems))


@dataclass
class Limit:
    """The most characters of a kind that a client shows whole, and what it does with more."""

    kind: str
    tool: str
    whole: int = 0
    beyond: int | None = None
    what: str = ""


KINDS = (
    ("text", "long_text"),
    ("short lines", "short_lines"),
    ("one line", "one_line"),
    ("structure", "typed_rows"),
    ("error", "failure"),
)
_SIZES = (5_000, 10_000, 20_000, 45_000, 100_000, 200_000, 400_000)
_STEPS = 6


def bisect(limit: Limit) -> Script:
    """Sizes that double until one is not whole; then halves of the interval."""
    low, high = 0, 0
    for size in _SIZES:
        if not (yield from _is_whole(limit, size)):
            high = size
            break
        low = size
    for _ in range(_STEPS if high else 0):
        middle = (low + high) // 2
        if (yield from _is_whole(limit, middle)):
            low = middle
        else:
            high = middle


def _is_whole(limit: Limit, size: int) -> Generator[Call, Seen, bool]:
    case = Case(limit.kind, limit.tool, size)
    text = _lane_text(case)
    seen = yield Call(limit.tool, {"size": size})
    if whole := len(marks(seen.text)) >= len(marks(text)):
        limit.whole = max(limit.whole, len(text))
    elif limit.beyond is None or len(text) < limit.beyond:
        limit.beyond, limit.what = len(text), _what_happened(seen.text, text)
    return whole


def _lane_text(case: Case) -> str:
    sent = result(case.tool, case.size)
    block = sent.content[0]
    return str(getattr(block, "text", ""))


def _what_happened(shown: str, whole: str) -> str:
    seen, last = marks(shown), sorted(marks(whole))[-1]
    numbers = sorted(int(mark[1:]) for mark in seen if mark[0] == "#")
    saved = " and a file" if re.search(r"[Ss]aved to|[Ff]ull output", shown) else ""
    if not numbers:
        return f"nothing{saved}"
    if last in seen and any(later - earlier > 1 for earlier, later in pairwise(numbers)):
        return f"the middle is cut out{saved and ', and saved to a file'}"
    return f"the first {round(len(shown), -2 if len(shown) > 5000 else -1):,} characters{saved}"
