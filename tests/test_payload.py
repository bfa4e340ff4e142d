"""When the text of a result only repeats its structure, and when it says something else."""

from __future__ import annotations

import json

import pytest

from mcp_envelope.payload import read_result

PADDING = ',"more":"' + "x" * 40 + '"'


def document(value: str) -> str:
    return f'{{"a": {value}{PADDING}}}'


def repeats(text: str, structured: str) -> bool:
    block = json.dumps({"type": "text", "text": text}).encode()
    return read_result([block], structured.encode()).blocks is None


@pytest.mark.parametrize(
    ("written", "held"),
    [
        ("1", "true"),
        ("0", "false"),
        ("1", "1.0"),
        ("0.0", "-0.0"),
        ("0.1000000000000000000001", "0.1"),
        ("12345678901234567890123", "12345678901234567890124"),
        ("1e400", "1e401"),
        ('{"b":1,"b":2}', '{"b":2}'),
        ('"1"', "1"),
        ("null", "false"),
    ],
)
def test_a_text_that_says_something_else_is_kept(written: str, held: str) -> None:
    for one, other in ((written, held), (held, written)):
        assert not repeats(document(one), document(other))


@pytest.mark.parametrize(
    ("written", "held"),
    [
        ("1", "1"),
        ("1.0", "1.00"),
        ("1e+16", "1e16"),
        ("10.0", "1.0e1"),
        ('"\\u00e9"', '"é"'),
        ('{"b":1,"c":2}', '{ "c": 2, "b": 1 }'),
        ('{"b":1,"b":2}', '{"b":1, "b":2}'),
        ("1e99999999999999999999", "1e99999999999999999999"),
    ],
)
def test_a_text_that_is_only_spelled_differently_repeats_the_structure(written: str, held: str) -> None:
    assert repeats(document(written), document(held))


def test_a_text_repeats_the_only_member_of_a_structure() -> None:
    assert repeats("[1, 2]", '{"result": [1,2]}')
    assert not repeats("[1, 2]", '{"result": [1,2], "more": 3}')
