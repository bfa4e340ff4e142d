"""The change of a file as a unified diff, with no secret in it.

Strategy: lines are compared as they are and shown masked: keys, commands, arguments and URLs are needed to judge a
change, every other string becomes `***`, all over the file, because the lines around a change are shown too.
Commands, arguments, URLs and comments go through the redaction of results. The number of lines never changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final, NamedTuple

from ..jsontext.scanner import ValueSpan
from ..redaction import Masking, Redactor
from ..secrets import TELLING
from .config_file import ConfigFile, Edit, ServerEntry
from .server_entry import VARIABLE

MASK: Final = "***"
# The members of an entry that are shown.
_SHOWN: Final = (
    "command",
    "cmd",
    "args",
    "url",
    "httpUrl",
    "serverUrl",
    "type",
    "cwd",
    "env_vars",
    "bearer_token_env_var",
)
# What the member with the server's variables is called.
_VARIABLES: Final = ("env", "envs", "environment")
_OURS: Final = re.compile(rf"[^=]+={VARIABLE}\d+")
_FLAG: Final = re.compile(r"--?([A-Za-z][\w.-]*)")
_QUOTED: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"?|\'[^\'\n]*\'?|(?<==)[^\s"\']+')


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
        if old.lines[-1] == new.lines[-1] == "":
            # The last line ends with a line break; no empty one follows it.
            old, new = (Side(side.lines[:-1], side.shown[:-1]) for side in (old, new))
    for hunk in SequenceMatcher(None, old.lines, new.lines).get_grouped_opcodes():
        (_, start, _, new_start, _), (_, _, end, _, new_end) = hunk[0], hunk[-1]
        yield f"@@ -{_range(start, end)} +{_range(new_start, new_end)} @@"
        for kind, start, end, new_start, new_end in hunk:
            yield from (f"{' ' if kind == 'equal' else '-'}{line}" for line in old.shown[start:end])
            if kind != "equal":
                yield from (f"+{line}" for line in new.shown[new_start:new_end])


def _range(start: int, end: int) -> str:
    return f"{start + 1 if end > start else start},{end - start}"


class DiffMask:
    """What may be shown of a file: nothing that the engine takes for a secret, or that has the name of one."""

    def __init__(self) -> None:
        named = rf"{TELLING.pattern.removesuffix('$')}['\"]?\s*[:=]\s*(?P<secret>\S+)"
        self._redactor = Redactor("keys", {"named": named, "login": "://[^\\s/@]*:(?P<secret>[^\\s/@]+)@"})

    def is_secret(self, text: str) -> bool:
        return self._redacted(text) != text

    def _redacted(self, text: str) -> str:
        return self._redactor.redact_text(text, Masking())

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
            edits[start] = Edit(start, end, self._redacted(comment))
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
                    yield scalar, not (is_text or (is_value and name in (*_VARIABLES, file.syntax.headers)))

    def _is_plain(self, word: object, before: object) -> bool:
        if not isinstance(word, str):
            return False
        if _OURS.fullmatch(word):
            return True
        flag = _FLAG.fullmatch(before) if isinstance(before, str) else None
        if flag and TELLING.search(flag[1]) and not word.startswith("-"):
            return False
        return not self.is_secret(word)


def _masked(raw: str) -> str:
    """The mask, on as many lines as what it hides."""
    return f'"{MASK}"' + "\n" * raw.count("\n")
