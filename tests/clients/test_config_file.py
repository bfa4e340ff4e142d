"""Edits of a text, each where it belongs."""

from __future__ import annotations

import pytest

from mcp_envelope.clients import config_file, wrapping
from mcp_envelope.clients.config_file import Edit, Overlap, apply
from mcp_envelope.clients.server_entry import Launch
from mcp_envelope.clients.wrapping import WrapOptions


def wrapped(text: str, kind: str) -> str:
    wish = WrapOptions(Launch(("mcp-envelope",)), with_remote=True)
    document = config_file.read(text.encode(), f"x.{kind}")
    return wrapping.wrap(document, wish, lambda name: True, lambda url: False).text


def test_edits_are_made_at_once() -> None:
    assert apply("abc", [Edit(2, 3, "C"), Edit(0, 1, "A"), Edit(1, 1, "-")]) == "A-bC"
    assert apply("abc", []) == "abc"
    with pytest.raises(Overlap):
        apply("abc", [Edit(0, 2, "x"), Edit(1, 3, "y")])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '[mcp_servers.x]\n  command = "a" # why\ncwd = "b"\n',
            '[mcp_servers.x]\n  command = "mcp-envelope" # why\n  args = ["proxy", "--", "a"]\ncwd = "b"\n',
        ),
        (
            "\ufeffmcp_servers.x.command='a'",
            '\ufeffmcp_servers.x.command="mcp-envelope"\nmcp_servers.x.args=["proxy", "--", \'a\']',
        ),
        (
            '[mcp_servers]\nx = {command = "a"}\n',
            '[mcp_servers]\nx = {command = "mcp-envelope", args = ["proxy", "--", "a"]}\n',
        ),
        (
            '[mcp_servers.x]\nurl = "u" # why\n',
            '[mcp_servers.x]\ncommand = "mcp-envelope"\nargs = ["proxy", "--url", "u"] # why\n',
        ),
    ],
)
def test_what_is_put_into_toml_follows_its_neighbours(text: str, expected: str) -> None:
    assert wrapped(text, "toml") == expected


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ('{"command":"a"}', '{"command":"mcp-envelope", "args":["proxy", "--", "a"]}'),
        ('{\n\t"command" : "a"\n}', '{\n\t"command" : "mcp-envelope",\n\t"args" : ["proxy", "--", "a"]\n}'),
        ('{"args": [ ], "command": "a",}', '{"args": [ "proxy", "--", "a" ], "command": "mcp-envelope",}'),
        (
            '{"command": "a", "args": [\n// one\n  "b"]}',
            '{"command": "mcp-envelope", "args": [\n// one\n  "proxy",\n  "--",\n  "a",\n  "b"]}',
        ),
        (
            '{\n  "url": "u", // why\n}',
            '{\n  "command": "mcp-envelope",\n  "args": ["proxy", "--url", "u"], // why\n}',
        ),
    ],
)
def test_what_is_put_into_json_follows_its_neighbours(entry: str, expected: str) -> None:
    assert wrapped(f'{{"servers": {{"x": {entry}}}}}', "json") == f'{{"servers": {{"x": {expected}}}}}'
