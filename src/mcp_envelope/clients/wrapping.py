"""What `wrap` and `unwrap` do to a file: which servers, the new text, and whether it means what it should.

Strategy: `server_entry` says what an entry becomes, `config_file` edits the text so that it means that: a remote
server's `url` becomes `args`, its `type` `command`, its `headers` `env`, each where it is. So comments and order
survive, and unwrapping is the same renaming backwards. All edits of a file are made at once; the new text is parsed
again, and has to mean what the old one did with nothing but the chosen entries changed, or nothing is done. To
unwrap, the backup is wrapped once more as the file is now: if that gives the file, nobody has touched it, and the
backup's bytes are the answer. Otherwise the entries are unwrapped in the text as it is now.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from . import server_entry
from .config_file import ConfigFile, Edit, Path, ServerEntry
from .server_entry import Change, Launch, NotWrappable

Chosen = Callable[[str], bool]
_Changes = Mapping[Path, Change]


class Unsafe(Exception):
    """The edited text would not mean what it should, so nothing may be written. Names the entries."""


@dataclass(slots=True)
class WrapPlan:
    """What becomes of a file, and what there is to say about its servers."""

    file: ConfigFile
    text: str = ""
    changed: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    already: list[str] = field(default_factory=list)
    remote: list[str] = field(default_factory=list)
    logins: list[tuple[str, str]] = field(default_factory=list)  # with the address
    skipped: list[tuple[str, str]] = field(default_factory=list)  # with the reason
    is_wrapped: bool = False  # whether an entry was wrapped before

    @property
    def is_change(self) -> bool:
        return self.text != self.file.text

    def note_login(self, server: ServerEntry, file: ConfigFile) -> None:
        if (address := server_entry.login_address(server.value, file.syntax.headers)) is not None:
            self.logins.append((server.label, address))


@dataclass(frozen=True, slots=True)
class WrapOptions:
    """What the person asked for."""

    launch: Launch
    program: tuple[str, ...] | None = None  # if it was named
    settings: Mapping[str, str] = field(default_factory=dict)
    with_remote: bool = False


def wrap(
    file: ConfigFile, options: WrapOptions, chosen: Chosen, is_secret: Callable[[str], bool]
) -> WrapPlan:
    plan = WrapPlan(file)
    launch = options.launch.with_settings(None, options.settings)
    changes: dict[Path, Change] = {}
    for server in file.servers():
        proxied = server_entry.proxied(server.value)
        plan.is_wrapped |= proxied is not None or server_entry.is_gateway(server.value)
        if not chosen(server.name):
            continue
        if server_entry.is_gateway(server.value):
            plan.already.append(server.label)
        elif proxied is not None:
            wanted = proxied.launch.with_settings(options.program, options.settings)
            if wanted == proxied.launch:
                plan.already.append(server.label)
            else:
                changes[server.path] = server_entry.updated(server.value, wanted, proxied.server)
                plan.updated.append(server.label)
        elif server_entry.is_remote(server.value) and not options.with_remote:
            plan.remote.append(server.label)
        else:
            try:
                server_entry.check(server.value, file.syntax.headers, is_secret)
            except NotWrappable as reason:
                plan.skipped.append((server.label, str(reason)))
                continue
            changes[server.path] = server_entry.wrapped(server.value, launch, file.syntax.headers)
            plan.changed.append(server.label)
            plan.note_login(server, file)
    plan.text = _edited(file, changes)
    return plan


def unwrap(file: ConfigFile, backup: ConfigFile | None, chosen: Chosen) -> WrapPlan:
    plan = WrapPlan(file)
    before = {server.path: server for server in backup.servers()} if backup else {}
    changes: dict[Path, Change] = {}
    launches: dict[Path, Launch] = {}
    for server in file.servers():
        proxied = server_entry.proxied(server.value)
        if proxied is None:
            continue
        plan.is_wrapped = True
        was = before.get(server.path)
        if was is not None and server_entry.proxied(was.value) is not None:
            continue  # this proxy was there before `wrap` came
        launches[server.path] = proxied.launch
        if not chosen(server.name):
            continue
        args = server.node.fields.get("args")
        had_args = args is not None and file.was_empty(args.value)
        try:
            change = server_entry.unwrapped(server.value, proxied, file.syntax.headers, had_args)
        except NotWrappable as reason:
            plan.skipped.append((server.label, str(reason)))
            continue
        changes[server.path] = change
        plan.changed.append(server.label)
    if backup is not None and _wrapped_again(backup, launches) == file.text:
        rest = {path: launch for path, launch in launches.items() if path not in changes}
        plan.text = _wrapped_again(backup, rest) or ""
    else:
        plan.text = _edited(file, changes)
    return plan


def _wrapped_again(backup: ConfigFile, launches: Mapping[Path, Launch]) -> str | None:
    """The backup with these entries wrapped, or None if they are not all there."""
    found = {server.path: server.value for server in backup.servers()}
    headers, changes = backup.syntax.headers, {}
    try:
        for path, launch in launches.items():
            server_entry.check(found[path], headers, lambda url: False)
            changes[path] = server_entry.wrapped(found[path], launch, headers)
    except (NotWrappable, KeyError):
        return None
    return _changed(backup, changes)


def _edited(file: ConfigFile, changes: _Changes) -> str:
    text = _changed(file, changes)
    if text is not None:
        return text
    names = {server.path: server.name for server in file.servers()}
    alone = [names[path] for path, change in changes.items() if _changed(file, {path: change}) is None]
    raise Unsafe(", ".join(alone or [names[path] for path in changes]))


def _changed(file: ConfigFile, changes: _Changes) -> str | None:
    """The text with the entries changed, or None if it would not mean what it should."""
    expected = copy.deepcopy(file.value)
    for path, change in changes.items():
        if not path:
            expected = change.value
            continue
        holder = expected
        for step in path[:-1]:
            holder = holder[step]
        holder[path[-1]] = change.value
    edits: list[Edit] = []
    for server in file.servers():
        if (made := changes.get(server.path)) is not None:
            edits += file.rewritten(server, made)
    return file.edited_to(expected, edits)
