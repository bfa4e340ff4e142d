"""Numbers spelled as whoever sends them will spell them.

Strategy: a Python server gives its library objects, and the library writes them anew, after they were measured. So
what is measured has to be spelled as it will be sent. Our encoder and pydantic agree on everything but one thing:
from 1e16 on the one writes `1e16`, the other, as Python and JavaScript do, `1e+16`. In a list of such numbers that
is up to a third more tokens. They are rare, so looking for them has to cost little: the search begins with a
letter, which makes it a pass in C.
"""

from __future__ import annotations

import re
from typing import Any, Final

from .jsontree import encode

# The letter comes first, the digit before it is looked at afterwards.
_EXPONENT: Final = re.compile(rb"e(?<=[0-9]e)(?=[1-9][0-9]{1,2}(?:[,\]}]|\Z))")


def written(value: Any) -> bytes:
    """Plain data as JSON, spelled as it will be sent."""
    return respelled(encode(value))


def respelled(raw: bytes) -> bytes:
    """What our encoder wrote, as Python's libraries write it."""
    parts: list[bytes] = []
    at = quotes = 0
    for match in _EXPONENT.finditer(raw):
        part = raw[at : match.end()]
        # The same letters in a string are a string: outside of strings the number of quotes is even.
        bare = part.replace(b"\\\\", b"")
        quotes += bare.count(b'"') - bare.count(b'\\"')
        parts += part, b"" if quotes % 2 else b"+"
        at = match.end()
    return b"".join([*parts, raw[at:]]) if parts else raw
