"""The change of a file as a unified diff, with no secret in it.

Strategy: a wrapped file differs from the old one in small places far apart, and the file may be long and full of
equal lines. So both are walked side by side; where they part, the nearest place is searched where they are the
same again. That costs what the changes cost, not the square of the file. Lines are compared as they are and shown
masked: keys, commands, arguments and URLs are needed to judge a change, every other string becomes `***`, all over
the file, because the lines around a change are shown too. Commands, arguments, URLs and comments go through the
caller's redaction. The number of lines never changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final, Literal, NamedTuple

from ..jsontext.scanner import ValueSpan
from .config_file import ConfigFile, Edit, ServerEntry
from .server_entry import VARIABLE

# This many equal lines make two texts the same again.
_SAME: Final = 2
# A change of more lines than this is shown as one with all that follows.
_FARTHEST: Final = 400

MASK: Final = "***"
# The members of an entry that are shown.
_SHOWN: Final = ("command", "args", "url", "httpUrl", "type", "cwd", "env_vars", "bearer_token_env_var")
_OURS: Final = re.compile(rf"[^=]+={VARIABLE}\d+")
_FLAG: Final = re.compile(r"--?([A-Za-z][\w.-]*)")
_QUOTED: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"?|\'[^\'\n]*\'?|(?<==)[^\s"\']+')
_Change = tuple[Literal["replace", "delete", "insert", "equal"], int, int, int, int]


class Side(NamedTuple):
    """A text's lines, and the same lines as they may be shown."""

    lines: Sequence[str]
    shown: Sequence[str]

    @classmethod
    def of(cls, text: str, shown: str) -> Side:
        return cls(text.split("\n"), [line.removesuffix("\r") for line in shown.split("\n")])


def unified(old: Side, new: Side, name: str) -> Iterator[str]:
    """The lines of the diff; none if there is no change."""
    if old.lines != new.lines:
        yield from (f"--- {name}", f"+++ {name}")
    for hunk in _Grouping(_changes(old.lines, new.lines)).get_grouped_opcodes():
        (_, start, _, new_start, _), (_, _, end, _, new_end) = hunk[0], hunk[-1]
        yield f"@@ -{_range(start, end)} +{_range(new_start, new_end)} @@"
        for kind, start, end, new_start, new_end in hunk:
            yield from (f"{' ' if kind == 'equal' else '-'}{line}" for line in old.shown[start:end])
            if kind != "equal":
                yield from (f"+{line}" for line in new.shown[new_start:new_end])


class _Grouping(SequenceMatcher[str]):
    """Only the grouping into hunks is difflib's."""

    def __init__(self, changes: Iterable[_Change]) -> None:
        super().__init__()
        self._changes = list(changes)

    def get_opcodes(self) -> list[_Change]:
        return self._changes


def _changes(old: Sequence[str], new: Sequence[str]) -> Iterator[_Change]:
    here = there = 0
    while here < len(old) or there < len(new):
        start, new_start = here, there
        while here < len(old) and there < len(new) and old[here] == new[there]:
            here, there = here + 1, there + 1
        if here > start:
            yield "equal", start, here, new_start, there
        else:
            gone, come = _differing(old, here, new, there)
            here, there = here + gone, there + come
            yield "replace", start, here, new_start, there


def _differing(old: Sequence[str], here: int, new: Sequence[str], there: int) -> tuple[int, int]:
    """For how many lines of each the two differ."""
    for distance in range(1, _FARTHEST):
        for gone in range(distance + 1):
            come = distance - gone
            if here + gone > len(old) or there + come > len(new):
                continue
            following = old[here + gone : here + gone + _SAME]
            if following == new[there + come : there + come + _SAME]:
                return gone, come
    return len(old) - here, len(new) - there


def _range(start: int, end: int) -> str:
    return f"{start + 1 if end > start else start},{end - start}"


class Masks:
    """What may be shown of a file. `redact` masks secrets in a text, `is_sensitive` knows the names of secrets."""

    def __init__(self, redact: Callable[[str], str], is_sensitive: Callable[[str], object]) -> None:
        self._redact = redact
        self._is_sensitive = is_sensitive

    def is_secret(self, text: str) -> bool:
        return self._redact(text) != text

    def shown(self, file: ConfigFile) -> str:
        """The text, line for line, with nothing secret in it."""
        plain: set[int] = set()
        edits: dict[int, Edit] = {}
        for server in file.servers():
            for node, is_plain in self._values(file, server):
                if is_plain:
                    plain.add(node.start)
                else:
                    edits[node.start] = Edit(node.start, node.end, _masked(file.raw(node)))
        for start, end in file.strings:
            if start not in plain:
                edits[start] = Edit(start, end, _masked(file.text[start:end]))
        for start, end in file.comments:
            comment = _QUOTED.sub(MASK, file.text[start:end])
            edits[start] = Edit(start, end, self._redact(comment))
        return file.edited(edits.values())

    def _values(self, file: ConfigFile, server: ServerEntry) -> Iterator[tuple[ValueSpan, bool]]:
        """The values of an entry, and whether each may be shown."""
        for name, member in server.node.fields.items():
            value, node = server.value.get(name), member.value
            if name == "args" and isinstance(value, list):
                for word, before, item in zip(value, ["", *value], node.items, strict=False):
                    yield from ((scalar, self._is_plain(word, before)) for scalar in item.scalars())
                continue
            for scalar in node.scalars():
                raw = file.raw(scalar)
                if name in _SHOWN:
                    yield scalar, not node.members and not self.is_secret(raw)
                else:
                    is_text = raw[:1] in ('"', "'")
                    is_value = raw[:1] not in ("{", "[")
                    yield scalar, not (is_text or (is_value and name in ("env", file.syntax.headers)))

    def _is_plain(self, word: object, before: object) -> bool:
        if not isinstance(word, str):
            return False
        if _OURS.fullmatch(word):
            return True
        flag = _FLAG.fullmatch(before) if isinstance(before, str) else None
        if flag and self._is_sensitive(flag[1]) and not word.startswith("-"):
            return False
        return not self.is_secret(word)


def _masked(raw: str) -> str:
    """The mask, on as many lines as what it hides."""
    return f'"{MASK}"' + "\n" * raw.count("\n")
