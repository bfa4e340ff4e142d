"""The words of our own dialect: what was cut, counted, and the way back.

Strategy: one reserved property, `_envelope`, joins an object as its last member; where the payload is not an
object the same facts follow as a short text. The notice comes in three lengths, because under a tight budget
the payload should get most of the room; each length still says that something was cut and how to get it. The
shortest is made of our own words alone, so that nobody's long hint or warning can push it over the smallest
budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ..blocks import text_block
from ..facts import Facts, Problem
from ..fitting import Cut
from ..jsontree import encode

ENVELOPE_KEY: Final = "_envelope"
META_KEY: Final = "io.github.mcp-envelope/notice"
READ_TOOL: Final = "envelope_read"

# For each length of notice: so many cuts in the list, in the sentence, and characters of others' words.
_LISTED: Final = (8, 2, 0)
# A machine is told of more.
_LISTED_IN_META: Final = 64
_TOLD: Final = (3, 1, 0)
_CLIP: Final = (100_000, 120, 0)
# So many of a reply's texts, and of its links.
_BESIDE: Final = (1000, 3, 0)


def notice(facts: Facts, length: int) -> dict[str, Any]:
    """The value of `_envelope`; empty when there is nothing to say."""
    said = _reply(facts, length)
    if facts.cuts:
        said["truncated"] = True
        said["note"] = sentence(facts, length)
        if listed := _dropped(facts.cuts, _LISTED[length]):
            said["dropped"] = listed
    if facts.error is not None:
        said["error"] = _error(facts.error, length)
    if facts.handle is not None and (facts.cuts or facts.error is not None):
        said["handle"] = facts.handle
    if facts.cuts and length < 2 and (hint := facts.next_step()):
        said["hint"] = _clipped(hint, _CLIP[length])
    if warnings := _all_warnings(facts, length):
        said["warnings"] = _warnings(warnings, length)
    if length == 0:
        said.update(facts.extras)
    return said


def _reply(facts: Facts, length: int) -> dict[str, Any]:
    """What the author of a reply says besides the data."""
    said: dict[str, Any] = {}
    if length == 2 or not _is_reply(facts):
        return said
    if facts.status in ("info", "warn"):
        said["status"] = facts.status
    if facts.summary:
        said["summary"] = _clipped(facts.summary, _CLIP[length])
    if facts.details and facts.show_details:
        said["details"] = _warnings(facts.details, length)
    if facts.next_steps:
        said["nextSteps"] = _warnings(facts.next_steps, length)
    return said


def _is_reply(facts: Facts) -> bool:
    # A miss and a failure have their own places for such words.
    return facts.miss is None and facts.error is None


def beside(facts: Facts, length: int) -> list[bytes]:
    """The texts and links of a reply: content blocks of their own."""
    if not _is_reply(facts):
        return []
    most = _BESIDE[length]
    texts = [text_block(_clipped(text, _CLIP[length])) for text in facts.texts[:most]]
    return texts + [encode(dict(link)) for link in facts.links[:most]]


def _all_warnings(facts: Facts, length: int) -> tuple[str, ...]:
    most = _BESIDE[length]
    left = len(facts.texts[most:]) + len(facts.links[most:]) if _is_reply(facts) else 0
    return (*facts.warnings, f"{left} texts or links left out, see _meta") if left else facts.warnings


def _error(error: Problem, length: int) -> dict[str, Any]:
    if length == 2:
        return {"code": error.code}
    said: dict[str, Any] = {"code": error.code, "message": _clipped(error.message, _CLIP[length])}
    if error.hint:
        said["hint"] = _clipped(error.hint, _CLIP[length])
    if error.details and length == 0:
        said["details"] = error.details
    return said


def sentence(facts: Facts, length: int = 0, *, beside_handle: bool = True) -> str:
    """What was left out, counted, and the way back. Beside the handle it needn't be spelled out again."""
    # What a page leaves for the next one comes first; elsewhere, what lost most.
    cuts = facts.cuts if facts.reading is not None else _by_loss(facts.cuts)
    if length == 2:
        return _way_back(facts, None, beside_handle)
    told = cuts[: _TOLD[length]]
    # A single path stands in the way back already.
    with_path = len(cuts) > 1 or facts.handle is None
    shown = "; ".join(_told(cut, with_path, facts.reading is not None) for cut in told)
    more = len(cuts) - len(told)
    if more:
        shown += f"; and {more} more cut{'s' if more > 1 else ''}"
    return f"{shown[:1].upper()}{shown[1:]}. {_way_back(facts, told[0], beside_handle)}"


def _told(cut: Cut, with_path: bool, in_page: bool) -> str:
    where = f" at {cut.path}" if cut.path and with_path else ""
    if cut.kind == "bytes":
        return f"left out {cut.total} bytes{where}"
    if in_page and cut.kept:
        return f"{cut.kind} {cut.offset - cut.kept} to {cut.offset - 1} of {cut.total}{where}"
    return f"showing {cut.kept} of {cut.total} {cut.kind}{where}"


def _way_back(facts: Facts, cut: Cut | None, beside_handle: bool) -> str:
    if facts.handle is None:
        return "The rest was not kept: ask for less, or for a larger budget."
    if cut is None:
        return f"Cut to fit. Read on with {READ_TOOL}."
    path = f", path={quoted(cut.path)}" if cut.path else ""
    offset = f", offset={cut.offset}" if cut.offset else ""
    handle = "handle" if beside_handle else f"handle={quoted(facts.handle)}"
    # Of a ranked list the best are shown: there is no place to go on from.
    way = "All, in their own order" if cut.kind == "items" and cut.offset < cut.kept else "Read on"
    return f"{way}: {READ_TOOL}({handle}{facts.reading or ''}{path}{offset})."


def quoted(text: str) -> str:
    return encode(text).decode()


def _dropped(cuts: Sequence[Cut], most: int) -> list[dict[str, Any]]:
    return [_dropped_entry(cut) for cut in _by_loss(cuts)[:most]]


def _by_loss(cuts: Sequence[Cut]) -> list[Cut]:
    """What lost most comes first; before all, that whole blocks are missing."""
    return sorted(cuts, key=lambda cut: (cut.kind != "blocks", -cut.dropped))


def _dropped_entry(cut: Cut) -> dict[str, Any]:
    entry: dict[str, Any] = {"path": cut.path, "kept": cut.kept, "total": cut.total}
    if cut.kind != "items":
        entry["unit"] = cut.kind
    return entry


def _warnings(warnings: Sequence[str], length: int) -> list[str]:
    """So many of somebody's texts, and how many more there are."""
    if length == 2:
        return [f"{len(warnings)}, see _meta"]
    most = (20, 2)[length]
    said = [_clipped(warning, _CLIP[length]) for warning in warnings[:most]]
    if len(warnings) > most:
        said[-1] += f" (and {len(warnings) - most} more)"
    return said


def _clipped(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def join(body: bytes, said: dict[str, Any]) -> bytes:
    """An object and its notice, as the object's last member."""
    if not said:
        return body
    comma = b"" if body == b"{}" else b","
    return b'%b%b"%b":%b}' % (body[:-1], comma, ENVELOPE_KEY.encode(), encode(said))


def text_note(facts: Facts, length: int) -> str:
    """The notice as words, for a payload that has no place for a property."""
    lines = _reply_lines(facts, length)
    if facts.error is not None:
        message = f": {_clipped(facts.error.message, _CLIP[length])}" if length < 2 else ""
        lines.append(facts.error.code + message)
    if facts.cuts:
        lines.append(sentence(facts, length, beside_handle=False))
        if facts.handle is not None and length == 2:
            lines.append(f"handle: {facts.handle}")
    elif facts.error is not None and facts.handle is not None:
        lines.append(f"Read it: {READ_TOOL}(handle={quoted(facts.handle)}).")
    if facts.cuts and length < 2 and (hint := facts.next_step()):
        lines.append(_clipped(hint, _CLIP[length]))
    if warnings := _all_warnings(facts, length):
        lines += [f"Warning: {warning}" for warning in _warnings(warnings, length)]
    if length == 0:
        lines += [f"{key}: {encode(value).decode()}" for key, value in facts.extras.items()]
    return "\n".join(lines)


def _reply_lines(facts: Facts, length: int) -> list[str]:
    said = _reply(facts, length)
    steps = [f"Next: {step}" for step in said.get("nextSteps", ())]
    return [*([said["summary"]] if "summary" in said else []), *said.get("details", ()), *steps]


def meta(facts: Facts) -> dict[str, Any] | None:
    """The same facts for machines, in the result's `_meta`."""
    said = notice(facts, 0)
    if _is_reply(facts):
        said |= {"texts": list(facts.texts)} if facts.texts else {}
        said |= {"links": [dict(link) for link in facts.links]} if facts.links else {}
    if facts.cuts:
        first = facts.cuts if facts.reading is not None else _by_loss(facts.cuts)
        said["dropped"] = [{**_dropped_entry(cut), "offset": cut.offset} for cut in first[:_LISTED_IN_META]]
        if facts.handle is not None and facts.expires is not None:
            said["expires"] = int(facts.expires)
    return {META_KEY: said} if said else None
