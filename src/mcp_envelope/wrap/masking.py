"""A configuration as it may be shown: no secret in it, every line where it was.

Strategy: what is shown is what has to be seen to judge the change: keys, commands, arguments, URLs. Every other
text becomes `***`, all over the file, because lines around a change are shown too. Commands, arguments and URLs go
through the patterns that find secrets anywhere, and so do comments; what a comment has in quotes is masked. The
lengths of lines change, their number does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ..redaction import Redactor
from ..secrets import SENSITIVE_KEYS
from .edits import Edit, apply
from .entries import VARIABLE
from .tree import Document, Node, Server, servers

MASK: Final = "***"
# The members of an entry that are shown.
_SHOWN: Final = ("command", "args", "url", "httpUrl", "type", "cwd", "env_vars", "bearer_token_env_var")
_OURS: Final = re.compile(rf"[^=]+={VARIABLE}\d+")
_FLAG: Final = re.compile(r"--?([A-Za-z][\w.-]*)")
_QUOTED: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"?|\'[^\'\n]*\'?|(?<==)[^\s"\']+')
_SENSITIVE: Final = re.compile(SENSITIVE_KEYS)


class Masks:
    def __init__(self) -> None:
        self._redactor = Redactor()

    def is_secret(self, text: str) -> bool:
        return bool(self._redactor.redact_text(text)[1])

    def shown(self, document: Document) -> str:
        """The text, line for line, with nothing secret in it."""
        plain: set[int] = set()
        edits: dict[int, Edit] = {}
        for server in servers(document):
            for node, is_plain in self._values(document, server):
                if is_plain:
                    plain.add(node.start)
                else:
                    edits[node.start] = Edit(node.start, node.end, _masked(document.raw(node)))
        for start, end in document.strings:
            if start not in plain:
                edits[start] = Edit(start, end, _masked(document.text[start:end]))
        for start, end in document.comments:
            comment = _QUOTED.sub(MASK, document.text[start:end])
            edits[start] = Edit(start, end, self._redactor.redact_text(comment)[0])
        return apply(document.text, edits.values())

    def _values(self, document: Document, server: Server) -> Iterator[tuple[Node, bool]]:
        """The values of an entry, and whether each may be shown."""
        for name, field in server.node.fields.items():
            value, node = server.value.get(name), field.node
            if name == "args" and isinstance(value, list):
                for word, before, item in zip(value, ["", *value], node.items, strict=False):
                    yield from ((scalar, self._is_plain(word, before)) for scalar in item.scalars())
                continue
            for scalar in node.scalars():
                raw = document.raw(scalar)
                if name in _SHOWN:
                    yield scalar, not node.order and not self.is_secret(raw)
                else:
                    is_text = raw[:1] in ('"', "'")
                    is_value = raw[:1] not in ("{", "[")
                    yield scalar, not (is_text or (is_value and name in ("env", document.syntax.headers)))

    def _is_plain(self, word: object, before: object) -> bool:
        if not isinstance(word, str):
            return False
        if _OURS.fullmatch(word):
            return True
        flag = _FLAG.fullmatch(before) if isinstance(before, str) else None
        if flag and _SENSITIVE.search(flag[1]) and not word.startswith("-"):
            return False
        return not self.is_secret(word)


def _masked(raw: str) -> str:
    """The mask, on as many lines as what it hides."""
    return f'"{MASK}"' + "\n" * raw.count("\n")
