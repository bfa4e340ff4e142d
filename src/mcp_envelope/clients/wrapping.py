"""What `wrap` and `unwrap` do to a file: which servers, the new text, and whether it means what it should.

Strategy: nothing is written anew that can stay. The spelling of a command moves into the arguments as it is. A
remote server's `url` becomes `args`, its `type` `command`, its `headers` `env`, each where it stands, so comments
and order survive, and unwrapping is the same renaming backwards. All edits of a file are made at once; the new text
is parsed again, and its meaning has to be the old one with nothing but the chosen entries changed, or nothing is
done. To unwrap, the backup is wrapped once more as the file is now: if that gives the file, nobody has touched it,
and the backup's bytes are the answer. Otherwise the entries are unwrapped in the text as it is now.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from . import server_entry
from .config_file import ConfigFile, Edit, Overlap, ServerEntry, put
from .server_entry import SEPARATOR, Launch, NotWrappable, Proxied, with_settings

Chosen = Callable[[str], bool]
_Path = tuple[str, ...]


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
    skipped: list[tuple[str, str]] = field(default_factory=list)  # with the reason
    is_wrapped: bool = False  # whether an entry was wrapped before

    @property
    def is_change(self) -> bool:
        return self.text != self.file.text


@dataclass(frozen=True, slots=True)
class WrapOptions:
    """What the person asked for."""

    launch: Launch
    program: tuple[str, ...] | None = None  # if it was named
    settings: Mapping[str, str] = field(default_factory=dict)
    with_remote: bool = False


class _Rewrite:
    """An entry being rewritten: the edits of its text, and what it must mean after them."""

    def __init__(self, file: ConfigFile, server: ServerEntry) -> None:
        self.file = file
        self.fields = server.node.fields
        self.value: dict[str, Any] = dict(server.value)
        self.edits: list[Edit] = []

    def put(self, key: str, value: Any, text: str, name: str | None = None) -> None:
        """Replace the value of a member, and rename the member if there is another name for it."""
        self.edits.append(put(self.fields[key].value, text))
        if name is not None:
            self.edits += self.file.rename(self.fields[key], name)
            del self.value[key]
        self.value[name or key] = value

    def rename_with_members(self, key: str, name: str, members: Mapping[str, str]) -> None:
        self.edits += self.file.rename(self.fields[key], name)
        for old, new in members.items():
            self.edits += self.file.rename(self.fields[key].value.fields[old], new)
        self.value[name] = {members[old]: value for old, value in self.value.pop(key).items()}

    def raw(self, key: str) -> str:
        return self.file.raw(self.fields[key].value)


# -- files --------------------------------------------------------------------------------------------------


def wrap(
    file: ConfigFile, options: WrapOptions, chosen: Chosen, is_secret: Callable[[str], bool]
) -> WrapPlan:
    plan = WrapPlan(file)
    launch = with_settings(options.launch, None, options.settings)
    work: dict[_Path, _Rewrite] = {}
    for server in file.servers():
        proxied = server_entry.proxied(server.value)
        plan.is_wrapped |= proxied is not None
        if not chosen(server.name):
            continue
        if proxied is not None:
            wanted = with_settings(proxied.launch, options.program, options.settings)
            if wanted == proxied.launch:
                plan.already.append(server.label)
            else:
                work[server.path] = _updated(file, server, proxied, wanted)
                plan.updated.append(server.label)
        elif server_entry.is_remote(server.value) and not options.with_remote:
            plan.remote.append(server.label)
        else:
            try:
                server_entry.check(server.value, file.syntax.headers, is_secret)
            except NotWrappable as reason:
                plan.skipped.append((server.label, str(reason)))
                continue
            work[server.path] = _wrapped(file, server, launch)
            plan.changed.append(server.label)
    plan.text = _edited(file, work)
    return plan


def unwrap(file: ConfigFile, backup: ConfigFile | None, chosen: Chosen) -> WrapPlan:
    plan = WrapPlan(file)
    before = {server.path: server for server in backup.servers()} if backup else {}
    work: dict[_Path, _Rewrite] = {}
    launches: dict[_Path, Launch] = {}
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
        try:
            server_entry.check_wrapped(server.value, proxied)
        except NotWrappable as reason:
            plan.skipped.append((server.label, str(reason)))
            continue
        work[server.path] = _unwrapped(file, server, proxied)
        plan.changed.append(server.label)
    if backup is not None and _wrapped_again(backup, launches) == file.text:
        rest = {path: launch for path, launch in launches.items() if path not in work}
        plan.text = _wrapped_again(backup, rest) or ""
    else:
        plan.text = _edited(file, work)
    return plan


def _wrapped_again(backup: ConfigFile, launches: Mapping[_Path, Launch]) -> str | None:
    """The backup with these entries wrapped, or None if they are not all there."""
    found = {server.path: server for server in backup.servers()}
    edits: list[Edit] = []
    try:
        for path, launch in launches.items():
            server_entry.check(found[path].value, backup.syntax.headers, lambda url: False)
            edits += _wrapped(backup, found[path], launch).edits
        return backup.edited(edits)
    except (NotWrappable, KeyError, Overlap):
        return None


def _edited(file: ConfigFile, work: Mapping[_Path, _Rewrite]) -> str:
    text = _checked(file, work)
    if text is not None:
        return text
    alone = [path[-1] for path in work if _checked(file, {path: work[path]}) is None]
    raise Unsafe(", ".join(alone or [path[-1] for path in work]))


def _checked(file: ConfigFile, work: Mapping[_Path, _Rewrite]) -> str | None:
    """The edited text, or None if it does not mean what it should."""
    expected = copy.deepcopy(file.value)
    edits: list[Edit] = []
    for path, rewritten in work.items():
        edits += rewritten.edits
        holder = expected
        for step in path[:-1]:
            holder = holder[step]
        holder[path[-1]] = rewritten.value
    try:
        text = file.edited(edits)
        return text if file.syntax.parse(text) == expected else None
    except (Overlap, ValueError):  # NotJSON and NotTOML are ValueErrors
        return None


# -- entries ------------------------------------------------------------------------------------------------


def _wrapped(file: ConfigFile, server: ServerEntry, launch: Launch) -> _Rewrite:
    rewrite = _Rewrite(file, server)
    if server_entry.is_remote(server.value):
        _wrap_remote(rewrite, launch)
        return rewrite
    string, program, words = file.syntax.string, launch.program[0], [*launch.words, SEPARATOR]
    if server_entry.is_inline(server.value):
        whole = rewrite.fields["command"].value
        rewrite.edits.append(file.prepend(whole, [string(program), *map(string, words)]))
        rewrite.value["command"] = [program, *words, *server.value["command"]]
        return rewrite
    spelled = [*map(string, words), rewrite.raw("command")]
    if "args" in rewrite.fields:
        rewrite.edits.append(file.prepend(rewrite.fields["args"].value, spelled))
    else:
        rewrite.edits.append(file.insert_after(rewrite.fields["command"], "args", _array(spelled)))
    rewrite.value["args"] = [*words, server.value["command"], *server.value.get("args", [])]
    rewrite.put("command", program, string(program))
    return rewrite


def _wrap_remote(rewrite: _Rewrite, launch: Launch) -> None:
    file, fields, entry = rewrite.file, rewrite.fields, dict(rewrite.value)
    string, headers_key, url_key = file.syntax.string, file.syntax.headers, server_entry.url_key(entry)
    program, words = launch.program[0], [*launch.words, *server_entry.remote_words(entry, headers_key)]
    spelled = [*map(string, words), rewrite.raw(url_key)]
    if entry.get("type") in ("http", "sse"):
        spelled[words.index("--transport") + 1] = rewrite.raw("type")
    rewrite.put(url_key, [*words, entry[url_key]], _array(spelled), "args")
    if "type" in fields:
        rewrite.put("type", program, string(program), "command")
    else:
        rewrite.edits.append(file.insert_before(fields[url_key], "command", string(program)))
        rewrite.value["command"] = program
    if headers_key in fields:
        rewrite.rename_with_members(headers_key, "env", server_entry.variables(entry[headers_key]))
    if "bearer_token_env_var" in fields:
        bearer = "bearer_token_env_var"
        rewrite.put(bearer, [entry[bearer]], _array([rewrite.raw(bearer)]), "env_vars")


def _updated(file: ConfigFile, server: ServerEntry, proxied: Proxied, launch: Launch) -> _Rewrite:
    """A wrapped entry with another launch."""
    rewrite, string, program = _Rewrite(file, server), file.syntax.string, launch.program[0]
    is_inline = server_entry.is_inline(server.value)
    key, first = ("command", 1) if is_inline else ("args", 0)
    items, args = server.node.fields[key].value.items[first:], server_entry.arguments(server.value)
    old = zip(args[: proxied.stop], items[: proxied.stop], strict=True)
    spelled = {word: file.raw(item) for word, item in old}
    words = [*launch.words, *(proxied.remote.words if proxied.remote else ())]
    text = file.separator(items[0].start).join(spelled.get(word, string(word)) for word in words)
    rewrite.edits.append(Edit(items[0].start, items[proxied.stop - 1].end, text))
    if is_inline:
        was = server.node.fields[key].value.items[0]
        rewrite.edits.append(Edit(was.start, was.end, string(program)))
        rewrite.value["command"] = [program, *words, *args[proxied.stop :]]
        return rewrite
    rewrite.value["args"] = [*words, *args[proxied.stop :]]
    rewrite.put("command", program, string(program))
    return rewrite


def _unwrapped(file: ConfigFile, server: ServerEntry, proxied: Proxied) -> _Rewrite:
    rewrite, args = _Rewrite(file, server), server_entry.arguments(server.value)
    if server_entry.is_inline(server.value):
        rewrite.edits.append(file.remove_first(rewrite.fields["command"].value, proxied.stop + 2))
        rewrite.value["command"] = args[proxied.stop + 1 :]
        return rewrite
    if proxied.remote is not None:
        _unwrap_remote(rewrite, server, proxied.remote)
        return rewrite
    member, stop = rewrite.fields["args"], proxied.stop + 1
    rewrite.put("command", args[stop], file.raw(member.value.items[stop]))
    if len(args) > stop + 1 or file.was_empty(member.value):
        rewrite.edits.append(file.remove_first(member.value, stop + 1))
        rewrite.value["args"] = args[stop + 1 :]
    else:
        rewrite.edits.append(file.remove_after(server.node, member))
        del rewrite.value["args"]
    return rewrite


def _unwrap_remote(rewrite: _Rewrite, server: ServerEntry, remote: server_entry.Remote) -> None:
    file, fields, args = rewrite.file, rewrite.fields, server.value["args"]
    spelled = [file.raw(item) for item in fields["args"].value.items]
    has_http_url = remote.transport is not None and remote.kind is None
    rewrite.put("args", args[remote.url], spelled[remote.url], "httpUrl" if has_http_url else "url")
    if remote.kind is not None:
        rewrite.put("command", remote.transport, spelled[remote.kind], "type")
    else:
        rewrite.edits.append(file.remove_before(server.node, fields["command"]))
        del rewrite.value["command"]
    if "env" in fields:
        rewrite.rename_with_members("env", file.syntax.headers, remote.headers)
    if "env_vars" in fields:
        token = fields["env_vars"].value.items[0]
        rewrite.put("env_vars", server.value["env_vars"][0], file.raw(token), "bearer_token_env_var")


def _array(words: Iterable[str]) -> str:
    return f"[{', '.join(words)}]"
