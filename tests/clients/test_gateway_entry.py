"""Several entries become one that starts the gateway, and come back byte for byte."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_envelope.clients import config_file
from mcp_envelope.clients.config_file import ConfigFile
from mcp_envelope.clients.gateway_entry import gather, scatter
from mcp_envelope.clients.server_entry import Launch
from mcp_envelope.clients.wrapping import WrapOptions, WrapPlan

_KEPT = "/there/mcp.json.mcp-envelope-backup"

PLAIN = """\
{
  // mine
  "theme": "dark", /* stays */
  "mcpServers": {
    "git": {"command": "uvx", "args": ["mcp-server-git"]}, // first
    "files": {
      "command": "npx",
      "env": {"KEY": "caf\\u00e9"}
    },
    "wiki": {"type": "http", "url": "https://example.com/mcp"}
  },
  "last": [1.0, 1e5]
}
"""
INLINE = '{"mcpServers": {"a": {"command": "a"}, "b": {"command": "b", "args": []}}, "x": 1}'
TABS = """\
{
\t"servers": {
\t\t"a": {
\t\t\t"type": "stdio",
\t\t\t"command": "a"
\t\t}
\t}
}
""".replace("\n", "\r\n")
OPENCODE = (
    '{"mcp": {"a": {"type": "local", "command": ["a", "b"]}, "c": {"type": "local", "command": ["c"]}}}'
)
TOML = """\
# mine
model = "x"

[mcp_servers.git] # first
command = "uvx"
args = ["mcp-server-git"]

# about files
[mcp_servers.files]
command = "npx"

[mcp_servers.files.env]
KEY = "caf\\u00e9"

# stays
[tui]
theme = 'dark'
"""
FILES = {"plain": PLAIN, "inline": INLINE, "tabs": TABS, "opencode": OPENCODE, "toml": TOML}


def _read(text: str) -> ConfigFile:
    return config_file.read(
        text.encode(), "config.toml" if text is TOML or "[mcp_servers" in text else "x.json"
    )


def _gathered(text: str, *servers: str, remote: bool = False, **settings: str) -> WrapPlan:
    launch = Launch(("/bin/mcp-envelope",))
    options = WrapOptions(launch, None, {f"--{name}": each for name, each in settings.items()}, remote)
    return gather(_read(text), options, _KEPT, lambda name: not servers or name in servers, lambda _: False)


def _servers(text: str) -> dict[str, Any]:
    return {server.name: server.value for server in _read(text).servers()}


@pytest.mark.parametrize("name", FILES)
def test_there_and_back(name: str) -> None:
    before = FILES[name]
    plan = _gathered(before, remote=True)
    assert list(_servers(plan.text)) == ["mcp-envelope"]
    back = scatter(_read(plan.text), _read(before))
    assert back.text == before
    assert back.changed == plan.changed == list(_servers(before))


@pytest.mark.parametrize("name", FILES)
def test_there_and_back_in_a_file_that_has_changed(name: str) -> None:
    before = FILES[name]
    plan = _gathered(before, remote=True)
    more = ("[tui]", "[other]\nnew = true\n\n[tui]") if name == "toml" else ("{", '{"new": true, ')
    changed = plan.text.replace(*more, 1)
    back = _read(scatter(_read(changed), _read(before)).text)
    assert _servers(back.text) == _servers(before)
    assert back.value.get("new") or back.value["other"]["new"]


def test_what_the_entry_says() -> None:
    text = _gathered(PLAIN, tokens="4000").text
    assert _servers(text) == {
        "mcp-envelope": {
            "command": "/bin/mcp-envelope",
            "args": ["gateway", _KEPT, "--servers", "git,files", "--tokens", "4000"],
        },
        "wiki": {"type": "http", "url": "https://example.com/mcp"},
    }
    assert _servers(_gathered(TABS).text)["mcp-envelope"] == {
        "type": "stdio",
        "command": "/bin/mcp-envelope",
        "args": ["gateway", _KEPT],
    }
    assert _servers(_gathered(OPENCODE).text)["mcp-envelope"] == {
        "type": "local",
        "command": ["/bin/mcp-envelope", "gateway", _KEPT],
    }


def test_all_other_bytes_stay() -> None:
    text = _gathered(PLAIN).text
    assert text.startswith(PLAIN[: PLAIN.index('"git"')])
    assert text.endswith(PLAIN[PLAIN.index(',\n    "wiki"') :])
    text = _gathered(TOML).text
    assert text.startswith('# mine\nmodel = "x"\n\n[mcp_servers.mcp-envelope]\n')
    assert text.endswith("\n# stays\n[tui]\ntheme = 'dark'\n")


def test_only_some() -> None:
    plan = _gathered(INLINE, "b")
    assert list(_servers(plan.text)) == ["a", "mcp-envelope"]
    assert scatter(_read(plan.text), _read(INLINE)).text == INLINE


def test_what_only_the_client_can_start_stays() -> None:
    text = (
        '{"mcpServers": {"a": {"command": "a", "env": {"K": "${input:key}"}}, "b": {"command": "${B:-b}"}}}'
    )
    plan = _gathered(text)
    assert plan.skipped == [("a", "needs ${input:key}, which only the client knows")]
    assert list(_servers(plan.text)) == ["a", "mcp-envelope"]


def test_once_is_enough() -> None:
    text = _gathered(INLINE).text
    again = _gathered(text)
    assert (again.already, again.is_change) == (["mcp-envelope"], False)


def test_without_a_backup_nothing_can_be_undone() -> None:
    plan = scatter(_read(_gathered(INLINE).text), None)
    assert not plan.is_change
    assert plan.skipped == [("mcp-envelope", "replaces servers that no backup has")]
