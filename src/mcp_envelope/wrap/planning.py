"""What will be done to a file: which servers, the new text, and whether it is what was meant.

Strategy: all the edits of a file are made at once on the text. The new text is parsed again, and its meaning has to
be the old one with nothing but the chosen entries changed; otherwise nothing is done. To unwrap, the backup is
wrapped once more as the file is now: if that gives the file, nobody touched it meanwhile, and the backup's bytes
are the answer. If somebody did, the entries are unwrapped in the text as it is now.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from . import entries, jsonc, rewriting, toml
from .edits import Edit, Overlap, apply
from .entries import Launch, Unfit
from .rewriting import Rewritten
from .tree import Broken, Document, Path, servers


class Unsafe(Exception):
    """The edited text would not mean what it should. Nothing may be written. Names the entries."""


@dataclass(slots=True)
class Plan:
    """What becomes of a file, and what there is to say about its servers."""

    document: Document
    text: str = ""
    changed: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    already: list[str] = field(default_factory=list)
    remote: list[str] = field(default_factory=list)
    unfit: list[tuple[str, str]] = field(default_factory=list)
    is_wrapped: bool = False  # whether an entry was wrapped before

    @property
    def is_change(self) -> bool:
        return self.text != self.document.text


@dataclass(frozen=True, slots=True)
class Wish:
    """What the person asked for."""

    launch: Launch
    program: tuple[str, ...] | None = None  # if it was named
    settings: Mapping[str, str] = field(default_factory=dict)
    with_remote: bool = False


Chosen = Callable[[str], bool]


def read(data: bytes, name: str) -> Document:
    """A file's text and tree; the name tells the format if it ends in one."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Broken(f"line {line}: not UTF-8; save it as UTF-8") from None
    ending = name.rpartition(".")[2].lower()
    if ending not in ("json", "jsonc", "toml"):
        start = text.lstrip("\ufeff \t\r\n")[:1]
        ending = "json" if start in ("{", "/") else "toml"
    return toml.read(text) if ending == "toml" else jsonc.read(text)


def wrap(document: Document, wish: Wish, chosen: Chosen, is_secret: Callable[[str], bool]) -> Plan:
    plan = Plan(document)
    launch = entries.with_settings(wish.launch, None, wish.settings)
    work: dict[Path, Rewritten] = {}
    for server in servers(document):
        told = entries.proxied(server.value)
        plan.is_wrapped |= told is not None
        if not chosen(server.name):
            continue
        try:
            if told is not None:
                wanted = entries.with_settings(told.launch, wish.program, wish.settings)
                if wanted == told.launch:
                    plan.already.append(server.label)
                else:
                    work[server.path] = rewriting.update(document, server, told, wanted)
                    plan.updated.append(server.label)
                continue
            if entries.is_remote(server.value):
                if not wish.with_remote:
                    plan.remote.append(server.label)
                    continue
                entries.check_remote(server.value, document.syntax.headers, is_secret)
            else:
                entries.check_local(server.value)
        except Unfit as reason:
            plan.unfit.append((server.label, str(reason)))
            continue
        work[server.path] = rewriting.wrap(document, server, launch)
        plan.changed.append(server.label)
    plan.text = _edited(document, work)
    return plan


def unwrap(document: Document, backup: Document | None, chosen: Chosen) -> Plan:
    plan = Plan(document)
    before = {server.path: server for server in servers(backup)} if backup else {}
    work: dict[Path, Rewritten] = {}
    launches: dict[Path, Launch] = {}
    for server in servers(document):
        told = entries.proxied(server.value)
        if told is None:
            continue
        plan.is_wrapped = True
        was = before.get(server.path)
        if was is not None and entries.proxied(was.value) is not None:
            continue  # a person put this proxy there, before `wrap` came
        launches[server.path] = told.launch
        if not chosen(server.name):
            continue
        try:
            entries.check_wrapped(server.value, told)
        except Unfit as reason:
            plan.unfit.append((server.label, str(reason)))
            continue
        work[server.path] = rewriting.unwrap(document, server, told)
        plan.changed.append(server.label)
    if backup is not None and _wrapped_again(backup, launches) == document.text:
        plan.text = (
            _wrapped_again(backup, {path: launches[path] for path in launches if path not in work}) or ""
        )
    else:
        plan.text = _edited(document, work)
    return plan


def _wrapped_again(backup: Document, launches: Mapping[Path, Launch]) -> str | None:
    """The backup with these entries wrapped, or None if they are not all there."""
    found = {server.path: server for server in servers(backup)}
    edits: list[Edit] = []
    for path, launch in launches.items():
        server = found.get(path)
        try:
            if server is None:
                return None
            if entries.is_remote(server.value):
                entries.check_remote(server.value, backup.syntax.headers, lambda url: False)
            else:
                entries.check_local(server.value)
            edits += rewriting.wrap(backup, server, launch).edits
        except (Unfit, KeyError):
            return None
    try:
        return apply(backup.text, edits)
    except Overlap:
        return None


def _edited(document: Document, work: Mapping[Path, Rewritten]) -> str:
    text = _checked(document, work)
    if text is not None:
        return text
    alone = [path[-1] for path in work if _checked(document, {path: work[path]}) is None]
    raise Unsafe(", ".join(alone or [path[-1] for path in work]))


def _checked(document: Document, work: Mapping[Path, Rewritten]) -> str | None:
    """The edited text, or None if it does not mean what it should."""
    expected = copy.deepcopy(document.value)
    edits: list[Edit] = []
    for path, rewritten in work.items():
        edits += rewritten.edits
        _put(expected, path, rewritten.value)
    try:
        text = apply(document.text, edits)
        return text if document.syntax.parse(text) == expected else None
    except (Overlap, Broken):
        return None


def _put(root: Any, path: Path, value: Any) -> None:
    for step in path[:-1]:
        root = root[step]
    root[path[-1]] = value
