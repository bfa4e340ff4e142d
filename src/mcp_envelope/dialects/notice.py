"""The wording of our own dialect: what was cut, with counts, and how to read the rest.

Strategy: one reserved property, `_envelope`, becomes the first member of an object; if the payload is not an
object, the same facts come first as a short text. The notice comes in three lengths, because under a tight budget
the payload should get most of the room; every length still says that something was cut and how to get it. The
shortest contains no text from the tool, so that no long hint or warning can push it over the smallest budget.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..codes import Problem
from ..fit.documents import Cut
from ..jsontext.document import encode, quoted, text_block
from ..outcome import Outcome

ENVELOPE_KEY: Final = "_envelope"
META_KEY: Final = "io.github.mcp-envelope/notice"
READ_TOOL: Final = "envelope_read"
# The note of a page that has all of its value.
WHOLE: Final = "The whole value:"

# Limits for each length of notice: cuts in `dropped`, cuts in the sentence, characters of a text from the tool,
# and content blocks made of a reply's texts and links.
_LISTED: Final = (8, 2, 0)
_IN_SENTENCE: Final = (3, 1, 0)
_IMAGES_IN_SENTENCE: Final = (8, 1, 0)
_CLIP: Final = (100_000, 120, 0)
_EXTRA_BLOCKS: Final = (1000, 3, 0)
# How long the shortest notice's list of the items that are shown may be, in characters.
_MOST_ROWS: Final = 60
# The same of the columns of a table.
_MOST_COLUMNS: Final = 120
# What the forms of a list are called.
_FORMS: Final = {"rows": "rows", "csv": "CSV"}
# The keys in a path are the payload's: what looks like a path is shown as it is, anything else in quotes.
_PLAIN_PATH: Final = re.compile(r"[\w/~.$@:+*-]{1,200}")
LONGEST_PATH: Final = 200
# `_meta` is for machines, so it lists more cuts.
_LISTED_IN_META: Final = 64


def notice(outcome: Outcome, length: int) -> dict[str, Any]:
    """Return the value of `_envelope`, empty if there is nothing to report."""
    fields = _reply(outcome, length)
    if outcome.cuts:
        fields["truncated"] = True
        fields["note"] = sentence(outcome, length)
        if listed := _dropped(outcome.cuts, _LISTED[length]):
            fields["dropped"] = listed
    if outcome.error is not None:
        fields["error"] = _error(outcome.error, length)
    if outcome.handle is not None and (outcome.cuts or outcome.error is not None):
        fields["handle"] = outcome.handle
    # The hint of a miss stands beside the notice.
    if outcome.cuts and length < 2 and outcome.miss is None and (hint := next_step(outcome)):
        fields["hint"] = _clipped(hint, _CLIP[length])
    if warnings := _all_warnings(outcome, length):
        fields["warnings"] = _warnings(warnings, length)
    if outcome.cuts and outcome.profiles and length == 0:
        fields["profile"] = list(outcome.profiles)
    if length == 0:
        fields.update(outcome.extras)
    return fields


def _reply(outcome: Outcome, length: int) -> dict[str, Any]:
    """Return the fields of a reply other than its data."""
    fields: dict[str, Any] = {}
    if length == 2 or not _is_reply(outcome):
        return fields
    if outcome.status in ("info", "warn"):
        fields["status"] = outcome.status
    if outcome.summary:
        fields["summary"] = _clipped(outcome.summary, _CLIP[length])
    if outcome.details and outcome.show_details:
        fields["details"] = _warnings(outcome.details, length)
    if outcome.next_steps:
        fields["nextSteps"] = _warnings(outcome.next_steps, length)
    return fields


def _is_reply(outcome: Outcome) -> bool:
    # Misses and failures show their texts elsewhere.
    return outcome.miss is None and outcome.error is None


def next_step(outcome: Outcome) -> str | None:
    """Return the hint for what was cut: the tool's own, else that of the list that lost most."""
    if outcome.hint or not outcome.hints:
        return outcome.hint
    for cut in sorted(outcome.cuts, key=lambda cut: -cut.loss):
        found = outcome.hints.get(cut.path) or outcome.hints.get(cut.path.rpartition("/")[2])
        if found:
            return found
    return None


def extra_blocks(outcome: Outcome, length: int) -> list[bytes]:
    """Return a reply's texts and links as content blocks."""
    if not _is_reply(outcome):
        return []
    most = _EXTRA_BLOCKS[length]
    texts = [text_block(_clipped(text, _CLIP[length])) for text in outcome.texts[:most]]
    return texts + [encode(dict(link)) for link in outcome.links[:most]]


def _all_warnings(outcome: Outcome, length: int) -> tuple[str, ...]:
    most = _EXTRA_BLOCKS[length]
    left = len(outcome.texts[most:]) + len(outcome.links[most:]) if _is_reply(outcome) else 0
    return (*outcome.warnings, f"{left} texts or links left out, see _meta") if left else outcome.warnings


def _error(error: Problem, length: int) -> dict[str, Any]:
    if length == 2:
        return {"code": error.code}
    fields: dict[str, Any] = {"code": error.code, "message": _clipped(error.message, _CLIP[length])}
    if error.hint:
        fields["hint"] = _clipped(error.hint, _CLIP[length])
    if error.details and length == 0:
        fields["details"] = error.details
    return fields


def sentence(outcome: Outcome, length: int = 0, *, beside_handle: bool = True) -> str:
    """Return what was left out, with counts, and how to read it. Next to the handle, the handle isn't repeated."""
    # A page puts first what the next page continues with; anything else puts first what lost most.
    cuts = outcome.cuts if outcome.reading is not None else _by_loss(outcome.cuts)
    if length == 2:
        rows = next((f" Items {cut.rows}." for cut in cuts if cut.rows), "")
        form = next((f" Items as {_FORMS[cut.form]}." for cut in cuts if cut.form), "")
        return _way_back(outcome, None, beside_handle) + (rows if len(rows) <= _MOST_ROWS else "") + form
    images = [cut for cut in cuts if cut.said]
    said = [_image(cut, outcome, beside_handle) for cut in images[: _IMAGES_IN_SENTENCE[length]]]
    if more := len(images) - len(said):
        said.append(f"And {more} more image{'s' if more > 1 else ''} not shown as sent.")
    if len(images) == len(cuts):
        return " ".join(said)
    cuts = [cut for cut in cuts if not cut.said]
    groups = _together(cuts, _IN_SENTENCE[length])
    named = groups[: _IN_SENTENCE[length]]
    # The call of envelope_read already names the path of a single cut.
    with_path = len(cuts) > 1 or outcome.handle is None
    # Beside the handle, `dropped` tells which items are shown.
    shown = "; ".join(
        _described(group, with_path, outcome.reading is not None, not beside_handle) for group in named
    )
    more = len(cuts) - sum(map(len, named))
    if more:
        shown += f"; and {more} more cut{'s' if more > 1 else ''}"
    return " ".join([f"{shown[:1].upper()}{shown[1:]}.", _way_back(outcome, cuts[0], beside_handle), *said])


def _image(cut: Cut, outcome: Outcome, beside_handle: bool) -> str:
    said = f"{cut.said[:1].upper()}{cut.said[1:]}."
    if cut.kept and not cut.way:
        return said
    if outcome.handle is None:
        return f"{said} The whole was not kept."
    handle = "handle" if beside_handle else f"handle={quoted(outcome.handle)}"
    if not cut.way:
        return f"{said} It is kept: {handle}, path={quoted(cut.path)}."
    region = f", region={quoted(cut.region)}" if cut.region else ""
    return f"{said} {cut.way}: {READ_TOOL}({handle}, path={quoted(cut.path)}{region})."


def image_sentences(cuts: Sequence[Cut], outcome: Outcome) -> list[str]:
    """Return what isn't shown of images, and the calls that show it."""
    return [_image(cut, outcome, False) for cut in cuts]


def _described(group: Sequence[Cut], with_path: bool, in_page: bool, with_rows: bool) -> str:
    cut, several = group[0], len(group) > 1
    path = _path_of(group) if several else cut.path
    where = f" at {_shown(path)}" if path and (with_path or several) else ""
    where = f" in {len(group)} places{where}" if several else where
    total = sum(each.total for each in group)
    if cut.kind == "bytes":
        return f"left out {total} bytes{where}"
    if several:
        return f"showing {sum(each.kept for each in group)} of {total} {cut.kind}{where}"
    if in_page and cut.kept:
        most = f"at least {cut.total}" if cut.at_least else str(cut.total)
        return f"{cut.kind} {cut.offset - cut.kept} to {cut.offset - 1} of {most}{where}"
    which = f" ({cut.rows})" if cut.rows and with_rows else ""
    return f"showing {cut.kept} of {cut.total} {cut.kind}{which}{where}{in_form(cut)}"


def _together(cuts: Sequence[Cut], most: int) -> list[list[Cut]]:
    """Return each cut by itself; if those are too many, the like ones together, so that none goes unmentioned."""

    def alike(cut: Cut) -> tuple[str, int, str]:
        *_, last = cut.path.split("/")
        return cut.kind, cut.path.count("/"), "*" if last.isdigit() else last

    def at_one_depth(cut: Cut) -> tuple[str, int]:
        return cut.kind, cut.path.count("/")

    groups = [[cut] for cut in cuts]
    for likeness in (alike, at_one_depth):
        if len(groups) > most:
            found: dict[Any, list[Cut]] = {}
            for cut in cuts:
                found.setdefault(likeness(cut), []).append(cut)
            groups = list(found.values())
    return groups


def _path_of(group: Sequence[Cut]) -> str:
    """Return the path that cuts at one depth have in common, with `*` where they differ."""
    steps = zip(*(cut.path.split("/") for cut in group), strict=True)
    return "/".join([each[0] if len(set(each)) == 1 else "*" for each in steps])


def in_form(cut: Cut) -> str:
    """Return how a list is spelled, if not as it came: `, rows as [id, state]`."""
    if not cut.form:
        return ""
    columns = _clipped(", ".join(map(_shown, cut.columns)), _MOST_COLUMNS)
    return f", rows as {'CSV of ' if cut.form == 'csv' else ''}[{columns}]"


def _way_back(outcome: Outcome, cut: Cut | None, beside_handle: bool) -> str:
    if outcome.handle is None:
        return "The rest was not kept: narrow the request or raise the budget."
    if cut is None:
        return f"Cut to fit. Read on with {READ_TOOL}."
    is_short = len(cut.path) <= LONGEST_PATH
    path = f", path={quoted(cut.path)}" if cut.path and is_short else ""
    offset = f", offset={cut.offset}" if cut.offset and is_short else ""
    handle = "handle" if beside_handle else f"handle={quoted(outcome.handle)}"
    # A ranked list shows its best items, so there is no offset to continue from.
    is_ranked = cut.kind == "items" and cut.offset < cut.kept and not cut.rows
    way = "All items in original order" if is_ranked else "Read on"
    example = outcome.examples.get(cut.path)
    asking = f", or {example}" if example else ""
    return f"{way}: {READ_TOOL}({handle}{outcome.reading or ''}{path}{offset}){asking}."


def read_it(handle: str, path: str = "") -> str:
    at = f", path={quoted(path)}" if path else ""
    return f"Read it: {READ_TOOL}(handle={quoted(handle)}{at})."


def respelled(handle: str | None) -> str:
    """Return the warning that comes with JSON of which only the whitespace was left out."""
    return "The JSON is shown without its whitespace." + (f" {read_it(handle)}" if handle else "")


def whole_table(cut: Cut, handle: str | None) -> str:
    """Return the warning that comes with a list that is shown whole, but not as it came."""
    return f"All {cut.total} items{in_form(cut)}." + (f" {read_it(handle)}" if handle else "")


def last_items(first: int, total: int) -> str:
    """Return the note of a page that reaches the end of a list."""
    return f"Items {first} to {total - 1} of {total}." if first < total else "No items."


def _shown(path: str) -> str:
    return path if _PLAIN_PATH.fullmatch(path) else quoted(_clipped(path, LONGEST_PATH))


def _dropped(cuts: Sequence[Cut], most: int) -> list[dict[str, Any]]:
    groups = _together(_by_loss(cuts), most)[:most]
    return [_dropped_entry(group[0]) if len(group) == 1 else _dropped_entries(group) for group in groups]


def _dropped_entries(group: Sequence[Cut]) -> dict[str, Any]:
    """Return an entry for several cuts."""
    kept, total = sum(cut.kept for cut in group), sum(cut.total for cut in group)
    together = Cut(_path_of(group), group[0].kind, kept, total, 0)
    return {**_dropped_entry(together), "places": len(group)}


def _by_loss(cuts: Sequence[Cut]) -> list[Cut]:
    """Return the cuts with missing blocks first, then by how much was lost; what can't be read in parts is last."""
    return sorted(cuts, key=lambda cut: (cut.kind != "blocks", cut.kind == "bytes", -cut.loss))


def _dropped_entry(cut: Cut) -> dict[str, Any]:
    path, kept = _clipped(cut.path, LONGEST_PATH), cut.rows or cut.kept
    entry: dict[str, Any] = {"path": path, "kept": kept, "total": cut.total}
    if cut.kind != "items":
        entry["unit"] = cut.kind
    if cut.at_least:
        entry["atLeast"] = True
    return entry


def _warnings(warnings: Sequence[str], length: int) -> list[str]:
    """Return the first texts, shortened, and how many more there are."""
    if length == 2:
        return [f"{len(warnings)}, see _meta"]
    most = (20, 2)[length]
    texts = [_clipped(warning, _CLIP[length]) for warning in warnings[:most]]
    if len(warnings) > most:
        texts[-1] += f" (and {len(warnings) - most} more)"
    return texts


def _clipped(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def join(value: dict[str, Any], body: bytes) -> bytes:
    """Return an object with its notice as the first member."""
    if not value:
        return body
    comma = b"" if body == b"{}" else b","
    return b'{"%b":%b%b%b' % (ENVELOPE_KEY.encode(), encode(value), comma, body[1:])


def text_note(outcome: Outcome, length: int) -> str:
    """Return the notice as text, for a payload that can't take a property."""
    lines = _reply_lines(outcome, length)
    if outcome.error is not None:
        message = f": {_clipped(outcome.error.message, _CLIP[length])}" if length < 2 else ""
        lines.append(outcome.error.code + message)
    if outcome.cuts:
        lines.append(sentence(outcome, length, beside_handle=False))
        if outcome.handle is not None and length == 2:
            lines.append(f"handle: {outcome.handle}")
    elif outcome.error is not None and outcome.handle is not None:
        lines.append(read_it(outcome.handle))
    if outcome.cuts and length < 2 and (hint := next_step(outcome)):
        lines.append(_clipped(hint, _CLIP[length]))
    if warnings := _all_warnings(outcome, length):
        lines += [f"Warning: {warning}" for warning in _warnings(warnings, length)]
    if outcome.cuts and length == 0:
        lines += [line for profile in outcome.profiles for line in _profile_lines(profile)]
    if length == 0:
        lines += [f"{key}: {encode(value).decode()}" for key, value in outcome.extras.items()]
    return "\n".join(lines)


def _profile_lines(profile: Mapping[str, Any]) -> list[str]:
    """A profile as text: a headline, then a line for each field or entry."""
    figures = ", ".join(f"{value} {name}" for name, value in profile.items() if isinstance(value, int))
    entries = [name for name, value in profile.items() if isinstance(value, list)]
    where = _shown(profile["path"]) if "path" in profile else "All"
    fields = [f"{_shown(name)}: {said}" for name, said in profile.get("fields", {}).items()]
    for by, means in profile.get("meansBy", {}).items():
        fields += [f"Means by {_shown(by)}", *(f"{_shown(name)}: {said}" for name, said in means.items())]
    return [
        f"{where}: {profile.get('told') or figures}",
        *fields,
        *(line for name in entries for line in profile[name]),
    ]


def _reply_lines(outcome: Outcome, length: int) -> list[str]:
    fields = _reply(outcome, length)
    steps = [f"Next: {step}" for step in fields.get("nextSteps", ())]
    return [*([fields["summary"]] if "summary" in fields else []), *fields.get("details", ()), *steps]


def with_profiles(meta: Mapping[str, Any] | None, outcome: Outcome) -> Mapping[str, Any] | None:
    """Return the `_meta` of a result whose dialect has no place for profiles with them in it."""
    if not outcome.profiles:
        return meta
    fields = (meta or {}).get(META_KEY, {})
    return {**(meta or {}), META_KEY: {**fields, "profile": list(outcome.profiles)}}


def meta(outcome: Outcome) -> dict[str, Any] | None:
    """Return the same facts for machines, for the result's `_meta`."""
    fields = notice(outcome, 0)
    if _is_reply(outcome):
        fields |= {"texts": list(outcome.texts)} if outcome.texts else {}
        fields |= {"links": [dict(link) for link in outcome.links]} if outcome.links else {}
    if outcome.cuts:
        first = outcome.cuts if outcome.reading is not None else _by_loss(outcome.cuts)
        fields["dropped"] = [{**_dropped_entry(cut), "offset": cut.offset} for cut in first[:_LISTED_IN_META]]
        if outcome.handle is not None and outcome.expires is not None:
            fields["expires"] = int(outcome.expires)
    return {META_KEY: fields} if fields else None
