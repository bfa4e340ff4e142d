"""No secret is shown, whatever the file looks like."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings

from mcp_envelope.wrap import planning
from mcp_envelope.wrap.masking import Masks
from mcp_envelope.wrap.tree import servers

from ..conftest import examples
from . import texts

MASKS = Masks()

JSON = """\
{
  // was "SECRET", or key=SECRET
  "primaryApiKey": "SECRET",
  "mcpServers": {
    "a": {
      "command": "npx",
      "args": ["-y", "server", "--api-key", "SECRET", "--db", "postgres://me:SECRET@host/x", "--token=SECRET1"],
      "env": {"A": "SECRET", "B": 12345678, "C": {"D": "SECRET"}}, /* 'SECRET' */
      "autoApprove": ["SECRET"]
    },
    "b": {"url": "https://me:SECRET@host/", "headers": {"X": "SECRET"}, "disabled": true},
    "c": {"command": {"odd": "SECRET"}, "args": [["SECRET"], {"x": "SECRET"}]}
  },
  "tail": ["SECRET"]
}
"""
TOML = """\
# token = "SECRET"
key = '''
SECRET
SECRET'''
[mcp_servers.a]
command = "npx"
args = ["server", "--password", "SECRET", # 'SECRET'
]
env = { A = "SECRET", B = 12345678 }
[mcp_servers.b]
url = "https://x"
[mcp_servers.b.http_headers]
X = "SECRET"
"""


@pytest.mark.parametrize(("text", "kind"), [(JSON, "json"), (TOML, "toml")])
def test_secrets_are_masked(text: str, kind: str) -> None:
    shown = MASKS.shown(planning.read(text.encode(), f"x.{kind}"))
    assert "SECRET" not in shown
    assert "12345678" not in shown
    assert shown.count("\n") == text.count("\n")
    assert '"npx"' in shown
    assert '"server"' in shown
    if kind == "json":
        assert '"disabled": true' in shown


def test_our_own_words_are_shown() -> None:
    text = """{"servers": {"a": {"command": "mcp-envelope", "args":
        ["proxy", "--header-env", "X-Api-Key=MCP_ENVELOPE_HEADER_1", "--url", "https://x/mcp"]}}}"""
    assert MASKS.shown(planning.read(text.encode(), "x.json")) == text


@pytest.mark.parametrize("kind", ["json", "toml"])
@given(random=texts.texts())
@settings(max_examples=examples(60))
def test_no_value_of_env_or_headers_is_shown(kind: str, random: Random) -> None:
    found = texts.entries(random, is_toml=kind == "toml")
    for entry in found.values():
        for key in ("env", "headers", "http_headers"):
            if key in entry:
                entry[key] = {name: f"hunter{number}" for number, name in enumerate(entry[key])}
    writer = texts.Toml(random) if kind == "toml" else texts.Jsonc(random)
    document = planning.read(writer.file(found).encode(), f"x.{kind}")
    shown = MASKS.shown(document)
    assert "hunter" not in shown
    assert "\\u0068\\u0075" not in shown
    assert shown.count("\n") == document.text.count("\n")
    assert len(servers(document)) >= 1
