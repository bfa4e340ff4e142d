"""What `wrap` and `unwrap` promise, over configuration files of every spelling."""

from __future__ import annotations

import copy
import json
import tomllib
from random import Random
from typing import Any

import pytest
import yaml
from hypothesis import given, settings

from mcp_envelope.clients import config_file, server_entry, wrapping
from mcp_envelope.clients.config_file import ConfigFile
from mcp_envelope.clients.server_entry import Launch
from mcp_envelope.clients.wrapping import WrapOptions, WrapPlan
from mcp_envelope.jsontext.scanner import plain_json

from ..conftest import examples
from . import texts

LAUNCH = Launch(("/opt/bin/mcp-envelope",))
WISH = WrapOptions(LAUNCH, with_remote=True)
FORMATS = ("json", "toml", "yaml")
# What clients call a URL.
URLS = {"url", "httpUrl", "serverUrl"}


def read(text: str, kind: str) -> ConfigFile:
    return config_file.read(text.encode(), f"file.{kind}")


def meaning(text: str, kind: str) -> Any:
    """By parsers that know nothing of places."""
    text = text.removeprefix("\ufeff")
    if kind == "yaml":
        return yaml.safe_load(text.replace(".nan", "0.0"))
    return tomllib.loads(text, parse_float=str) if kind == "toml" else json.loads(plain_json(text))


def wrap(document: ConfigFile, wish: WrapOptions = WISH, leave: str | None = None) -> WrapPlan:
    return wrapping.wrap(document, wish, lambda name: name != leave, lambda url: False)


def unwrap(text: str, kind: str, backup: ConfigFile | None = None) -> str:
    return wrapping.unwrap(read(text, kind), backup, lambda name: True).text


def made(random: Random, kind: str) -> tuple[str, dict[str, Any]]:
    found = texts.entries(random, is_toml=kind == "toml")
    return texts.WRITERS[kind](random).file(found), found


@pytest.mark.parametrize("kind", FORMATS)
@given(random=texts.texts())
@settings(max_examples=examples(25))
def test_unwrap_restores_every_byte_without_a_backup(kind: str, random: Random) -> None:
    text, _ = made(random, kind)
    plan = wrap(read(text, kind))
    assert plan.changed
    assert not plan.skipped
    assert plan.text != text
    assert unwrap(plan.text, kind) == text


@pytest.mark.parametrize("kind", FORMATS)
@given(random=texts.texts())
@settings(max_examples=examples(25))
def test_unwrap_restores_every_byte_with_a_backup(kind: str, random: Random) -> None:
    text, _ = made(random, kind)
    document = read(text, kind)
    once = wrap(document).text
    updated = wrap(read(once, kind), WrapOptions(LAUNCH, settings={"--tokens": "5"})).text
    assert unwrap(updated, kind, document) == text
    # Somebody changes the file: that stays, and all the rest is as it was.
    note = "// note\n" if kind == "json" else "# note\n"
    assert unwrap(f"{updated}\n{note}", kind, document) == f"{text}\n{note}"


@pytest.mark.parametrize("kind", FORMATS)
@given(random=texts.texts())
@settings(max_examples=examples(25))
def test_wrapping_twice_is_wrapping_once(kind: str, random: Random) -> None:
    text, _ = made(random, kind)
    once = wrap(read(text, kind)).text
    again = wrap(read(once, kind))
    assert again.text == once
    assert not again.is_change
    assert not again.changed
    assert again.is_wrapped
    other = WrapOptions(LAUNCH, settings={"--tokens": "5"})
    updated = wrap(read(once, kind), other).text
    assert updated != once
    assert (
        wrap(read(text, kind), WrapOptions(LAUNCH, settings={"--tokens": "5"}, with_remote=True)).text
        == updated
    )
    assert wrap(read(updated, kind), other).text == updated


@pytest.mark.parametrize("kind", FORMATS)
@given(random=texts.texts())
@settings(max_examples=examples(25))
def test_only_the_chosen_entries_mean_something_else(kind: str, random: Random) -> None:
    text, _ = made(random, kind)
    before = read(text, kind)
    leave = before.servers()[0].name
    after = wrap(before, leave=leave).text
    old, new = meaning(text, kind), meaning(after, kind)
    for server in before.servers():
        if server.name == leave:
            continue
        told = _at(new, server.path)
        assert told["command"] == LAUNCH.program[0]
        assert told["args"][0] == "proxy"
        if "command" in server.value:
            tail = [server.value["command"], *server.value.get("args", [])]
            assert told["args"] == ["proxy", "--", *tail]
        else:
            (key,) = server.value.keys() & URLS
            assert told["args"][-2:] == ["--url", server.value[key]]
        same = set(server.value) - {"command", "args", *URLS, "type", "bearer_token_env_var"}
        for key in same - {"headers", "http_headers"}:
            assert told[key] == server.value[key]
        _put(old, server.path)
        _put(new, server.path)
    assert old == new


@given(random=texts.texts())
@settings(max_examples=examples(25))
def test_every_byte_outside_the_wrapped_entries_survives_in_json(random: Random) -> None:
    text, _ = made(random, "json")
    before = read(text, "json")
    leave = before.servers()[0].name
    after = read(wrap(before, leave=leave).text, "json")
    assert _outside(before, leave) == _outside(after, leave)
    assert _comments(before) == _comments(after)


@pytest.mark.parametrize("kind", ["toml", "yaml"])
@given(random=texts.texts())
@settings(max_examples=examples(25))
def test_everything_outside_the_wrapped_members_survives(kind: str, random: Random) -> None:
    text, _ = made(random, kind)
    before = read(text, kind)
    after = read(wrap(before).text, kind)
    assert _comments(before) == _comments(after)
    assert _untouched(before) == _untouched(after)


def _untouched(document: ConfigFile) -> str:
    """The text without the members that wrapping changes, and without the space around them."""
    gone: list[tuple[int, int]] = []
    for server in document.servers():
        for name, field in server.node.fields.items():
            if name in ("command", "args", *URLS, "type", "bearer_token_env_var", "env_vars"):
                gone.append((field.lead, field.value.end))
            elif name in ("http_headers", "headers", "env"):
                gone += [span for inner in (field, *field.value.members) for span in inner.keys]
    parts: list[str] = []
    done = 0
    for start, end in sorted(gone):
        parts.append(document.text[done:start])
        done = end
    return "".join("".join([*parts, document.text[done:]]).replace(",", "").split())


def _outside(document: ConfigFile, leave: str) -> list[str]:
    parts: list[str] = []
    done = 0
    for server in sorted(document.servers(), key=lambda server: server.node.start):
        if server.name != leave:
            parts.append(document.text[done : server.node.start])
            done = server.node.end
    return [*parts, document.text[done:]]


def _comments(document: ConfigFile) -> list[str]:
    return [document.text[start:end].rstrip("\r") for start, end in document.comments]


def _at(root: Any, path: config_file.Path) -> Any:
    for step in path:
        root = root[step]
    return root


def _put(root: Any, path: config_file.Path) -> None:
    _at(root, path[:-1])[path[-1]] = None


@pytest.mark.parametrize("kind", FORMATS)
@given(random=texts.texts())
@settings(max_examples=examples(30))
def test_no_header_stands_on_a_command_line(kind: str, random: Random) -> None:
    key = "http_headers" if kind == "toml" else "headers"
    entry = {"url": "https://example.com", key: {"X-A": "topsecret", "X-B": "topsecret2"}}
    found = {**texts.entries(random, is_toml=kind == "toml"), "one": entry}
    plan = wrap(read(texts.WRITERS[kind](random).file(copy.deepcopy(found)), kind))
    for server in read(plan.text, kind).servers():
        assert not any("topsecret" in word for word in server.value["args"])
        told = server_entry.proxied(server.value)
        assert told is not None
        if server.name == "one":
            assert sorted(server.value["env"].values()) == ["topsecret", "topsecret2"]
            assert key not in server.value
