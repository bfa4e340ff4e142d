"""YAML and the positions of everything in it, in the same tree as JSON and TOML.

PyYAML decides what a text means, and its nodes know where they are. They tell everything but where a collection in
block style ends: that is where its last part does. Aliases are understood as long as they stand for little; what an
alias holds is where its anchor is.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

import yaml

from .scanner import MemberSpan, Span, Unparsable, ValueSpan

_COMMENT: Final = re.compile(r"#[^\r\n]*")
# Aliases of aliases stand for more values than any machine has room for.
_MAX_VALUES: Final = 100_000


class NotYAML(Unparsable):
    def __init__(self, reason: str, place: str = "") -> None:
        super().__init__("YAML", reason, place)


class _Loader(yaml.SafeLoader):
    """Floats stay text: a nan would not be equal to itself."""


_Loader.add_constructor("tag:yaml.org,2002:float", lambda loader, node: node.value)


class YamlScan(NamedTuple):
    """What a YAML text means, and the positions of its parts, its comments and its strings (values, not keys)."""

    meaning: Any
    root: ValueSpan
    comments: list[Span]
    strings: list[Span]


def parse(text: str) -> Any:
    """Return what the text means. Raises NotYAML."""
    return scan(text).meaning


def scan(text: str) -> YamlScan:
    """Parse a text and find positions. Raises NotYAML."""
    loader = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return YamlScan(None, ValueSpan(0, 0), [], [])
        if _values(node, {}) > _MAX_VALUES:
            raise NotYAML("its aliases stand for too much")
        meaning = loader.construct_document(node)
        comments = list(_comments(text))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        found = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise NotYAML(error.problem or "it cannot be parsed", found) from None
    except yaml.YAMLError as error:
        raise NotYAML(str(error).partition("\n")[0]) from None
    except RecursionError:
        raise NotYAML("nested too deeply") from None
    except (ValueError, TypeError) as error:  # a date such as 2026-99-99, a key that is a list
        raise error if isinstance(error, NotYAML) else NotYAML(str(error)) from None
    finally:
        if loader is not None:
            loader.dispose()
    tree = _Tree()
    return YamlScan(meaning, tree.value(node), comments, sorted(tree.strings))


def _values(node: yaml.Node, known: dict[int, int]) -> int:
    """How many values a node stands for, aliases followed. A node inside itself stands for infinitely many."""
    if id(node) not in known:
        known[id(node)] = _MAX_VALUES + 1
        parts = (
            [part for pair in node.value for part in pair]
            if isinstance(node, yaml.MappingNode)
            else node.value
        )
        inside = 0 if isinstance(node, yaml.ScalarNode) else sum(_values(part, known) for part in parts)
        known[id(node)] = 1 + inside
    return known[id(node)]


def _comments(text: str) -> list[Span]:
    """The spans of the comments, which stand between tokens."""
    found: list[Span] = []
    end = 0
    for token in yaml.scan(text, Loader=yaml.SafeLoader):
        gap = _COMMENT.finditer(text, end, token.start_mark.index)
        found += [match.span() for match in gap]
        end = max(end, token.end_mark.index)
    return found


class _Tree:
    """The nodes of PyYAML as spans."""

    def __init__(self) -> None:
        self.strings: set[Span] = set()

    def value(self, node: yaml.Node) -> ValueSpan:
        start, end = node.start_mark.index, node.end_mark.index
        if isinstance(node, yaml.SequenceNode):
            items = [self.value(item) for item in node.value]
            return ValueSpan(start, end if node.flow_style or not items else items[-1].end, items)
        if isinstance(node, yaml.MappingNode):
            members = [self._member(key, value, bool(node.flow_style)) for key, value in node.value]
            last = end if node.flow_style or not members else members[-1].value.end
            return ValueSpan(start, last, members=members)
        if node.tag == "tag:yaml.org,2002:str":
            self.strings.add((start, end))
        return ValueSpan(start, end)

    def _member(self, key: yaml.Node, value: yaml.Node, inline: bool) -> MemberSpan:
        start, end = key.start_mark.index, key.end_mark.index
        return MemberSpan(str(key.value), [(start, end)], self.value(value), start, inline)
