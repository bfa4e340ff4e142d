"""Positions of keys: every key of a generated file is found where it was written."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_envelope.jsontext.scanner import Path
from mcp_envelope.jsontext.toml_scanner import NotTOML, key_offsets, parse

from ..conftest import examples

KEYS = st.sampled_from(["a", "b-c", "tokens", "1", "search_*", "a.b", "# x", "[x]", 'q"q', "é", "=", "'"])
SCALARS = st.one_of(
    st.integers(-9, 10_000).map(str),
    st.sampled_from(["true", "1979-05-27 07:32:00", "1e3", "'# not = a comment ['", '"a = \\" # ]"', "inf"]),
    st.sampled_from(['"""\na = 1\n[x]\n\\""" b = 2"""', "'''\nb = 2 # '' \n'''", '""""q"""""', "''''q'''''"]),
)
ARRAYS = st.sampled_from(["[]", "[1, 2,]", "[\n  'a', # c = 3\n  [1, ']'],\n]", '["x = 1", {y = 1}]'])
BLANKS = st.sampled_from(["", "\n", "# tokens = 1\n", "  # [tools]\n\n", "\t"])


class Writer:
    """A TOML text, and the offset of every key in it."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.text = ""
        self.found: dict[Path, int] = {}

    def key(self, key: str, path: Path) -> None:
        self.found.setdefault(path, len(self.text))
        bare = key.replace("-", "").replace("_", "").isalnum() and key.isascii()
        if bare and self.draw(st.booleans()):
            self.text += key
        elif "'" not in key and self.draw(st.booleans()):
            self.text += f"'{key}'"
        else:
            self.text += json.dumps(key, ensure_ascii=self.draw(st.booleans()))

    def inline(self, path: Path, depth: int) -> None:
        self.text += "{ "
        for index, key in enumerate(self.draw(st.lists(KEYS, unique=True, max_size=2))):
            self.text += ", " if index else ""
            self.key(key, (*path, key))
            self.text += " = "
            self.value((*path, key), depth - 1)
        self.text += " }"

    def value(self, path: Path, depth: int) -> None:
        if depth and self.draw(st.booleans()):
            self.inline(path, depth)
        else:
            self.text += self.draw(SCALARS | ARRAYS)

    def members(self, path: Path) -> None:
        for key in self.draw(st.lists(KEYS, unique=True, max_size=3)):
            self.text += self.draw(BLANKS)
            steps = [key, *self.draw(st.lists(KEYS, max_size=1))]
            for index in range(len(steps)):
                self.text += self.draw(st.sampled_from([".", " . "])) if index else ""
                self.key(steps[index], (*path, *steps[: index + 1]))
            self.text += self.draw(st.sampled_from(["=", " = ", "\t="]))
            self.value((*path, *steps), 2)
            self.text += self.draw(st.sampled_from(["\n", " # a = 1\n", "\r\n"]))

    def document(self) -> None:
        self.members(())
        top = {path[0] for path in self.found}
        tables = st.lists(
            st.lists(KEYS, min_size=1, max_size=3), max_size=3, unique_by=lambda steps: steps[0]
        )
        for steps in self.draw(tables):
            if steps[0] in top:
                continue
            self.text += self.draw(BLANKS)
            brackets = self.draw(st.sampled_from(["[]", "[]", ("[[", "]]")]))
            self.text += brackets[0]
            for index in range(len(steps)):
                self.text += " . " if index else " "
                self.key(steps[index], tuple(steps[: index + 1]))
            self.text += " " + brackets[1] + "\n"
            self.members(tuple(steps))


@settings(max_examples=examples(100))
@given(st.data())
def test_every_key_is_found_where_it_was_written(data: st.DataObject) -> None:
    writer = Writer(data.draw)
    writer.document()
    text = writer.text.replace("\r\n", "\n")
    tomllib.loads(text)
    found = key_offsets(writer.text)
    assert {path: found.get(path) for path in writer.found} == writer.found


@settings(max_examples=examples(100))
@given(st.text(st.sampled_from("ab=[]{}\"'#.,\n\\ 1"), max_size=40))
def test_nothing_raises(text: str) -> None:
    key_offsets(text)


@pytest.mark.parametrize("text", ["a = " + "[" * 5000, "a = " + "{b = " * 5000])
def test_depth_is_no_crash(text: str) -> None:
    key_offsets(text)


@pytest.mark.parametrize("part", ["a", "a-1", '"a b"', "'.'"])
@pytest.mark.parametrize("dot", [".", " . "])
def test_keys_of_many_parts_are_refused_before_they_take_memory(part: str, dot: str) -> None:
    """A file of a stranger's is only found; 10,000 parts would cost 400 MB."""
    for text in ("x = 1\n{} = 2", "x = 1\n[{}]", "x = 1\n[[{}]]", "x = 1\ny = {{ {} = 1 }}"):
        with pytest.raises(NotTOML, match="more than 64 parts") as refused:
            parse(text.format(dot.join([part] * 10_000)))
        assert refused.value.place.startswith("line 2")
        assert parse(text.format(dot.join([part] * 64)))["x"] == 1


def test_dots_elsewhere_are_no_parts() -> None:
    text = f'# {"." * 200}\nx = \'{". " * 200}\'\ny = """\n{"a word. " * 200}\n"""\n'
    assert len(parse(text)) == 2
