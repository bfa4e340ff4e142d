"""A diff leads from the old text to the new one, and shows no secret."""

from __future__ import annotations

import re
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_envelope.clients import config_file
from mcp_envelope.clients.diff import DiffMask, Side, unified

from ..conftest import examples
from . import texts

LINES = st.lists(st.sampled_from(["a", "b", "{", "}", ""]), min_size=1, max_size=40)
HUNK = re.compile(r"@@ -(\d+),(\d+) \+(\d+),(\d+) @@")


def diff(old: str, new: str) -> list[str]:
    return list(unified(Side.of(old, old), Side.of(new, new), "f"))


def patched(old: str, lines: list[str]) -> str:
    """The old text with the diff applied; every line of it is checked."""
    source, result = old.split("\n"), []
    done = 0
    for line in lines[2:]:
        if hunk := HUNK.fullmatch(line):
            start = int(hunk[1]) - (int(hunk[2]) > 0)
            result += source[done:start]
            done = start
            assert int(hunk[3]) == len(result) + (int(hunk[4]) > 0)
        elif line[0] == "+":
            result.append(line[1:])
        else:
            assert source[done] == line[1:]
            done += 1
            result += [line[1:]] if line[0] == " " else []
    return "\n".join([*result, *source[done:]])


@given(LINES, LINES)
@settings(max_examples=examples(100))
def test_the_diff_leads_to_the_new_text(old: list[str], new: list[str]) -> None:
    one, other = "\n".join(old), "\n".join(new)
    lines = diff(one, other)
    assert patched(one, lines) == other
    assert bool(lines) == (one != other)


def test_only_the_surroundings_are_shown() -> None:
    old = [str(number) for number in range(100)]
    new = [*old[:50], "new", *old[50:]]
    assert diff("\n".join(old), "\n".join(new))[2:] == [
        *("@@ -48,6 +48,7 @@", " 47", " 48", " 49", "+new", " 50", " 51", " 52"),
    ]


def test_a_long_file_with_many_lines_that_are_alike() -> None:
    old = [f'  "{number}": {{' if number % 2 else "  }," for number in range(40_000)]
    new = list(old)
    for number in range(300, 40_000, 5000):
        new[number] = "changed"
    lines = diff("\n".join(old), "\n".join(new))
    assert sum(line == "+changed" for line in lines) == sum(line == "-  }," for line in lines) == 8


def test_lines_are_compared_as_they_are_and_shown_masked() -> None:
    lines = list(
        unified(Side.of("a\r\nold\r\n", "a\r\n***\r\n"), Side.of("a\r\nnew\r\n", "a\r\n***\r\n"), "f")
    )
    assert lines[3:] == [" a", "-***", "+***"]


def test_one_line_that_is_alike_is_not_enough() -> None:
    lines = diff("{\n}\nc", "x\n}\ny\n{\n}\nc")
    assert lines[3:] == ["+x", "+}", "+y", " {", " }", " c"]


# -- masking ------------------------------------------------------------------------------------------------

MASKS = DiffMask()

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
    shown = MASKS.shown(config_file.read(text.encode(), f"x.{kind}"))
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
    assert MASKS.shown(config_file.read(text.encode(), "x.json")) == text


@pytest.mark.parametrize("kind", ["json", "toml", "yaml"])
@given(random=texts.texts())
@settings(max_examples=examples(30))
def test_no_value_of_env_or_headers_is_shown(kind: str, random: Random) -> None:
    found = texts.entries(random, is_toml=kind == "toml")
    for entry in found.values():
        for key in ("env", "headers", "http_headers"):
            if key in entry:
                entry[key] = {name: f"hunter{number}" for number, name in enumerate(entry[key])}
    document = config_file.read(texts.WRITERS[kind](random).file(found).encode(), f"x.{kind}")
    shown = MASKS.shown(document)
    assert "hunter" not in shown
    assert "\\u0068\\u0075" not in shown
    assert shown.count("\n") == document.text.count("\n")
    assert len(document.servers()) >= 1
