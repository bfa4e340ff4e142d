"""A server's entry wrapped, updated and unwrapped in the text itself.

Strategy: nothing is written anew that can stay. The spelling of a command moves into the arguments as it is. A
remote server's `url` becomes `args`, its `type` `command`, its `headers` `env`, each where it stands. So comments
and order survive, and the way back is the same renaming the other way round. Each function returns the edits
together with what the entry must mean afterwards, and the caller checks the one against the other.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from . import entries
from .edits import (
    Edit,
    put,
    put_after,
    put_before,
    put_first,
    rename,
    separator,
    take_first,
    take_out_before,
    take_out_behind,
    was_empty,
)
from .entries import Launch, Proxied
from .tree import Document, Server


class Rewritten(NamedTuple):
    edits: list[Edit]
    value: dict[str, Any]


def wrap(document: Document, server: Server, launch: Launch) -> Rewritten:
    headers_key = document.syntax.headers
    value = entries.wrapped(server.value, launch, headers_key)
    if entries.is_remote(server.value):
        return Rewritten(_wrap_remote(document, server, launch), value)
    return Rewritten(_wrap_local(document, server, launch), value)


def _wrap_local(document: Document, server: Server, launch: Launch) -> list[Edit]:
    string, fields = document.syntax.string, server.node.fields
    command = fields["command"]
    words = [*map(string, (*launch.words, entries.SEPARATOR)), document.raw(command.node)]
    edits = [put(command.node, string(launch.program[0]))]
    if "args" in fields:
        edits.append(put_first(document, fields["args"].node, words))
    else:
        edits.append(put_after(document, command, "args", f"[{', '.join(words)}]"))
    return edits


def _wrap_remote(document: Document, server: Server, launch: Launch) -> list[Edit]:
    string, fields, headers_key = document.syntax.string, server.node.fields, document.syntax.headers
    program = string(launch.program[0])
    url = fields[entries.url_key(server.value)]
    words = [*map(string, (*launch.words, *entries.remote_words(server.value, headers_key)))]
    if "type" in fields and server.value["type"] in ("http", "sse"):
        words[words.index(string("--transport")) + 1] = document.raw(fields["type"].node)
    edits = [
        *rename(document, url, "args"),
        put(url.node, f"[{', '.join((*words, document.raw(url.node)))}]"),
    ]
    if "type" in fields:
        edits += [*rename(document, fields["type"], "command"), put(fields["type"].node, program)]
    else:
        edits.append(put_before(document, url, "command", program))
    if headers_key in fields:
        edits += rename(document, fields[headers_key], "env")
        for name, variable in entries.variables(server.value[headers_key]).items():
            edits += rename(document, fields[headers_key].node.fields[name], variable)
    if "bearer_token_env_var" in fields:
        bearer = fields["bearer_token_env_var"]
        edits += [*rename(document, bearer, "env_vars"), put(bearer.node, f"[{document.raw(bearer.node)}]")]
    return edits


def update(document: Document, server: Server, told: Proxied, launch: Launch) -> Rewritten:
    """A wrapped entry with another launch."""
    string, items = document.syntax.string, server.node.fields["args"].node.items
    old = zip(server.value["args"][: told.stop], items[: told.stop], strict=True)
    spelled = {word: document.raw(item) for word, item in old}
    words = [*launch.words, *(told.remote.words if told.remote else ())]
    parted = separator(document, items[0].start)
    text = parted.join(spelled.get(word, string(word)) for word in words)
    edits = [
        put(server.node.fields["command"].node, string(launch.program[0])),
        Edit(items[0].start, items[told.stop - 1].end, text),
    ]
    value = {
        **server.value,
        "command": launch.program[0],
        "args": [*words, *server.value["args"][told.stop :]],
    }
    return Rewritten(edits, value)


def unwrap(document: Document, server: Server, told: Proxied) -> Rewritten:
    headers_key = document.syntax.headers
    if told.remote is not None:
        value = entries.unwrapped(server.value, told, headers_key, has_args=False)
        return Rewritten(_unwrap_remote(document, server, told, value), value)
    fields = server.node.fields
    array = fields["args"].node
    has_args = len(array.items) > told.stop + 2 or was_empty(document, array)
    edits = [put(fields["command"].node, document.raw(array.items[told.stop + 1]))]
    if has_args:
        edits.append(take_first(document, array, told.stop + 2))
    else:
        edits.append(take_out_behind(document, server.node, fields["args"]))
    return Rewritten(edits, entries.unwrapped(server.value, told, headers_key, has_args=has_args))


def _unwrap_remote(document: Document, server: Server, told: Proxied, value: dict[str, Any]) -> list[Edit]:
    remote, fields = told.remote, server.node.fields
    assert remote is not None
    args, command = fields["args"], fields["command"]
    edits = [
        *rename(document, args, entries.url_key(value)),
        put(args.node, document.raw(args.node.items[remote.url])),
    ]
    if remote.kind is not None:
        kind = document.raw(args.node.items[remote.kind])
        edits += [*rename(document, command, "type"), put(command.node, kind)]
    else:
        edits.append(take_out_before(document, server.node, command))
    if "env" in fields:
        edits += rename(document, fields["env"], document.syntax.headers)
        for variable, name in remote.headers.items():
            edits += rename(document, fields["env"].node.fields[variable], name)
    if "env_vars" in fields:
        names = fields["env_vars"]
        edits += [
            *rename(document, names, "bearer_token_env_var"),
            put(names.node, document.raw(names.node.items[0])),
        ]
    return edits
