"""Edits of a text: spans that are replaced, and how a member comes into an object or goes out of it.

Strategy: every edit is a span of the old text and what stands there afterwards, so all other bytes stay by
construction. What is put in follows its neighbours: on a line of its own if they are, between commas if they are.
What was put in can be taken out again without a trace, because both know exactly where it goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .tree import Document, Field, Node


class Edit(NamedTuple):
    start: int
    end: int
    new: str


class Overlap(Exception):
    """Two edits want the same place."""


def apply(text: str, edits: Iterable[Edit]) -> str:
    parts: list[str] = []
    done = 0
    for start, end, new in sorted(edits, key=lambda edit: edit[:2]):
        if start < done:
            raise Overlap
        parts += [text[done:start], new]
        done = end
    return "".join([*parts, text[done:]])


def put(node: Node, new: str) -> Edit:
    return Edit(node.start, node.end, new)


def rename(document: Document, field: Field, name: str) -> list[Edit]:
    """Another key, wherever it is spelled; in quotes if the old one was."""
    return [Edit(start, end, _quoted_as(document, start, name)) for start, end in field.keys]


def separator(document: Document, first: int) -> str:
    """What parts items: a line break if the first one, at this offset, stands first on its line."""
    start = document.line_start(first)
    indent = document.text[start:first]
    if start and not indent.strip(" \t"):
        return f",{document.newline()}{indent}"
    return ", "


def put_first(document: Document, array: Node, words: Sequence[str]) -> Edit:
    """New items before those that a list has.

    In a list that was empty they begin with a space. That tells it from a list that was not there.
    """
    if not array.items:
        return Edit(array.start + 1, array.start + 1, f" {', '.join(words)}")
    at = array.items[0].start
    parted = separator(document, at)
    return Edit(at, at, "".join(f"{word}{parted}" for word in words))


def was_empty(document: Document, array: Node) -> bool:
    """Whether the list had no items before `put_first`."""
    return bool(array.items) and document.text[array.start + 1 : array.items[0].start] == " "


def take_first(document: Document, array: Node, count: int) -> Edit:
    """The first items taken away again."""
    if count < len(array.items):
        return Edit(array.items[0].start, array.items[count].start, "")
    end = array.items[-1].end
    rest = document.text[end : array.end].lstrip()
    if rest.startswith(","):
        end = document.text.index(",", end) + 1
    return Edit(array.start + 1, end, "")


def put_after(document: Document, field: Field, name: str, value: str) -> Edit:
    """A new member behind this one."""
    member = f"{_lead(document, field)}{document.syntax.key(name)}{_colon(document, field)}{value}"
    if field.inline:
        at = field.node.end
        return Edit(at, at, f"{separator(document, field.lead)}{member}")
    at = document.line_end(field.node.end)
    return Edit(at, at, f"{document.newline()}{_indent(document, field)}{member}")


def put_before(document: Document, field: Field, name: str, value: str) -> Edit:
    """A new member in front of this one."""
    member = f"{_lead(document, field)}{document.syntax.key(name)}{_colon(document, field)}{value}"
    if field.inline:
        return Edit(field.lead, field.lead, f"{member}{separator(document, field.lead)}")
    return Edit(field.lead, field.lead, f"{member}{document.newline()}{_indent(document, field)}")


def take_out_behind(document: Document, holder: Node, field: Field) -> Edit:
    """A member that `put_after` put in, taken out."""
    if not field.inline:
        start = document.line_start(field.lead)
        if not start:
            return _to_next(document, holder, field) or Edit(field.lead, field.node.end, "")
        start -= 2 if document.text[:start].endswith("\r\n") else 1
        return Edit(start, field.node.end, "")
    before = [other for other in holder.order if other.lead < field.lead]
    if before:
        return Edit(before[-1].node.end, field.node.end, "")
    return _to_next(document, holder, field) or Edit(field.lead, field.node.end, "")


def take_out_before(document: Document, holder: Node, field: Field) -> Edit:
    """A member that `put_before` put in, taken out."""
    return _to_next(document, holder, field) or take_out_behind(document, holder, field)


def _to_next(document: Document, holder: Node, field: Field) -> Edit | None:
    after = [other for other in holder.order if other.lead > field.lead]
    if not after or document.text[field.node.end : after[0].lead].strip(" \t\r\n,"):
        return None
    return Edit(field.lead, after[0].lead, "")


def _quoted_as(document: Document, start: int, name: str) -> str:
    quote = document.text[start]
    if quote == "'" and name.isprintable() and quote not in name:
        return f"'{name}'"
    return document.syntax.string(name) if quote == '"' else document.syntax.key(name)


def _indent(document: Document, field: Field) -> str:
    return document.text[document.line_start(field.lead) : field.lead].removeprefix("\ufeff")


def _lead(document: Document, field: Field) -> str:
    """The part of a dotted key that stands before the key itself."""
    return document.text[field.lead : field.keys[-1][0]]


def _colon(document: Document, field: Field) -> str:
    """What parts key and value: as in this member, if that is plain."""
    between = document.text[field.keys[-1][1] : field.node.start]
    plain = len(between) <= 3 and not between.strip(" :=")
    return between if plain else document.syntax.colon
