"""What `wrap --gateway` and its reverse do to a file: several entries become one, which starts the gateway.

Strategy: the new entry stands where the first one was, and the others go, each with the comma or the header that
belongs to it; all other bytes stay. The entries themselves are in the backup, which the gateway reads. The new text
is parsed again, and has to mean the old one with nothing but these entries changed, or nothing is done. To undo it,
the backup is gathered once more as the file is now: if that gives the file, the backup's bytes are the answer.
Otherwise the entries' own text comes back from the backup to where the gateway's entry is.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from . import server_entry
from .commands import commands
from .config_file import JSON, ConfigFile, Edit, Path, ServerEntry
from .server_entry import GATEWAY, Launch
from .wrapping import Unsafe, WrapOptions, WrapPlan

NAME: Final = "mcp-envelope"
_HEADER: Final = re.compile(r"^[ \t]*\[", re.MULTILINE)
# What some clients want in every entry.
_COMMON: Final = ("type", "source", "tools", "enabled")


class _Anything(dict[str, str]):
    """An environment in which every variable is set: that of the client may differ from ours."""

    def get(self, name: str, default: Any = None) -> str:
        return ""


def gather(
    file: ConfigFile,
    options: WrapOptions,
    kept_in: str,
    chosen: Callable[[str], bool],
    is_secret: Callable[[str], bool],
) -> WrapPlan:
    """Replace entries by one that starts the gateway in front of them. `kept_in` is the path of the backup."""
    plan = WrapPlan(file, file.text)
    servers = [server for server in file.servers() if server.path[:1] != ("projects",)]
    found, left = commands(file, Launch((NAME,)), _Anything(), is_secret)
    reasons = dict(left)
    gathered: list[ServerEntry] = []
    for server in servers:
        if server_entry.is_gateway(server.value):
            plan.already.append(server.label)
        elif not chosen(server.name) or (gathered and server.path[:-1] != gathered[0].path[:-1]):
            continue
        elif server_entry.is_remote(server.value) and not options.with_remote:
            plan.remote.append(server.label)
        elif not _can_move(file, server):
            reason = "is in a list, in YAML or alone in its file, which --gateway cannot edit"
            plan.skipped.append((server.label, reason))
        elif server.name in found and "," not in server.name:
            gathered.append(server)
            plan.changed.append(server.label)
            plan.note_login(server, file)
        else:
            plan.skipped.append((server.label, reasons.get(server.name, "is disabled")))
    if not gathered or plan.already:
        return plan
    launch = options.launch.with_settings(None, options.settings)
    words = [*launch.program[1:], GATEWAY, kept_in]
    if len(gathered) < len(servers):
        words += ["--servers", ",".join(server.name for server in gathered)]
    value = _entry(gathered[0].value, launch.program[0], [*words, *launch.options])
    name = _free(NAME, [server.name for server in servers])
    text = _gathered(file, [server.path for server in gathered], name, value)
    if text is None:
        raise Unsafe(", ".join(plan.changed))
    plan.text = text
    return plan


def scatter(file: ConfigFile, backup: ConfigFile | None) -> WrapPlan:
    """The file with the entries back that the gateway stands for."""
    plan = WrapPlan(file, file.text)
    found = (server for server in file.servers() if server_entry.is_gateway(server.value))
    gateway = next((server for server in found if _can_move(file, server)), None)
    if gateway is None:
        return plan
    if backup is None:
        plan.skipped.append((gateway.label, "replaces servers that no backup has"))
        return plan
    here = {server.path for server in file.servers()}
    gone = [server for server in backup.servers() if server.path not in here]
    gone = [server for server in gone if server.path[:-1] == gateway.path[:-1]]
    plan.changed = [server.label for server in gone]
    paths = [server.path for server in gone]
    if _gathered(backup, paths, gateway.name, gateway.value) == file.text:
        plan.text = backup.text
        return plan
    text = _scattered(file, gateway, backup, gone)
    if text is None:
        raise Unsafe(gateway.label)
    plan.text = text
    return plan


def _can_move(file: ConfigFile, server: ServerEntry) -> bool:
    """Whether the entry is a member, rather than an item, of a file whose members `_spans` knows."""
    return bool(server.path) and isinstance(server.path[-1], str) and file.syntax.name != "YAML"


def _entry(like: Mapping[str, Any], program: str, args: list[str]) -> dict[str, Any]:
    """The gateway's entry, in the form of another one."""
    common = {key: like[key] for key in _COMMON if key in like and like[key] not in ("http", "sse", "remote")}
    if server_entry.is_inline(like):
        return {**common, "command": [program, *args]}
    return {**common, "command": program, "args": args}


def _free(name: str, taken: Sequence[str]) -> str:
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free


# -- the text -------------------------------------------------------------------------------------------------


def _gathered(file: ConfigFile, paths: Sequence[Path], name: str, value: Mapping[str, Any]) -> str | None:
    """The text with one entry in place of these; None if it would not mean that."""
    if not paths:
        return None
    expected = copy.deepcopy(file.value)
    holder = expected
    for step in paths[0][:-1]:
        holder = holder[step]
    for path in paths:
        holder.pop(path[-1], None)
    holder[name] = dict(value)
    edits: list[Edit] = []
    for path in paths:
        spans = _spans(file, path, is_alone=bool(edits))
        new = _spelled(file, path, name, value) if not edits else ""
        edits += [Edit(start, end, "" if at else new) for at, (start, end) in enumerate(spans)]
    return file.edited_to(expected, edits)


def _scattered(
    file: ConfigFile, gateway: ServerEntry, backup: ConfigFile, gone: Sequence[ServerEntry]
) -> str | None:
    expected = copy.deepcopy(file.value)
    holder = expected
    for step in gateway.path[:-1]:
        holder = holder[step]
    del holder[gateway.name]
    holder |= {server.name: server.value for server in gone}
    texts = [
        "".join(backup.text[start:end] for start, end in _spans(backup, server.path, is_alone=False))
        for server in gone
    ]
    spans = _spans(file, gateway.path, is_alone=False)
    between = "" if file.syntax is not JSON else _between(file, spans[0][0])
    edits = [Edit(start, end, "" if at else between.join(texts)) for at, (start, end) in enumerate(spans)]
    return file.edited_to(expected, edits)


def _spans(file: ConfigFile, path: Path, is_alone: bool) -> list[tuple[int, int]]:
    """Where an entry stands. With `is_alone`, what separates it from the one before it goes, too."""
    node = file.root
    for step in path[:-1]:
        member = node.member(str(step))
        assert member is not None
        node = member.value
    found = node.member(str(path[-1]))
    assert found is not None
    if file.syntax is JSON:
        before = [each.value.end for each in node.members if each.lead < found.lead]
        return [(max(before) if is_alone and before else found.lead, found.value.end)]
    return [_table(file.text, start) for start, _ in found.keys]


def _table(text: str, key: int) -> tuple[int, int]:
    """A table of TOML from the line of its header, in which the key is, to its last line that is not a comment."""
    start = text.rfind("\n", 0, key) + 1
    following = _HEADER.search(text, text.find("\n", key) + 1 or len(text))
    lines = text[start : following.start() if following else len(text)].splitlines(keepends=True)
    while len(lines) > 1 and (not lines[-1].strip() or lines[-1].lstrip().startswith("#")):
        lines.pop()
    return start, start + sum(map(len, lines))


def _spelled(file: ConfigFile, path: Path, name: str, value: Mapping[str, Any]) -> str:
    """A new entry in the place of an old one, laid out like it."""
    syntax = file.syntax

    def spelled(each: Any) -> str:
        if isinstance(each, list):
            return f"[{', '.join(map(spelled, each))}]"
        return syntax.string(each) if isinstance(each, str) else str(each).lower()

    members = [f"{syntax.key(key)}{syntax.colon}{spelled(each)}" for key, each in value.items()]
    [(start, _), *_] = _spans(file, path, is_alone=False)
    newline = "\r\n" if "\r\n" in file.text else "\n"
    if syntax is not JSON:
        header = ".".join(syntax.key(str(step)) for step in (*path[:-1], name))
        return newline.join([f"[{header}]", *members, ""])
    between = _between(file, start)
    if newline not in between:
        return f"{syntax.key(name)}{syntax.colon}{{{', '.join(members)}}}"
    indent = between.removeprefix(f",{newline}")
    deeper = indent + ("\t" if "\t" in indent else "  ")
    inner = f",{newline}{deeper}".join(members)
    return f"{syntax.key(name)}{syntax.colon}{{{newline}{deeper}{inner}{newline}{indent}}}"


def _between(file: ConfigFile, start: int) -> str:
    """What separates members of JSON, the first of which starts here."""
    line = file.text.rfind("\n", 0, start) + 1
    indent = file.text[line:start]
    if line == 0 or indent.strip(" \t"):
        return ", "
    newline = "\r\n" if file.text[:line].endswith("\r\n") else "\n"
    return f",{newline}{indent}"
