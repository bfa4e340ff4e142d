"""When the text of a result only repeats its structure, and when it says something else."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pydantic
import pytest

from mcp_envelope.jsontext.document import parse
from mcp_envelope.payload import Payload, as_document, read_payload, read_result

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


def test_a_text_that_is_no_json_is_kept_beside_the_same_string() -> None:
    assert not repeats("some words", '{"result": "some words"}')
    assert repeats('"some words"', '{"result": "some words"}')


def test_half_a_character_repeats_nothing() -> None:
    block = b'{"type":"text","text":"\\ud83d"}'
    assert read_result([block], b'{"a":"\\ud83d"}').blocks == (block,)


class Event(pydantic.BaseModel):
    type: str
    text: str


@dataclass
class Note:
    type: str
    text: str


def test_only_what_is_clearly_a_block_is_one() -> None:
    def is_content(*items: Any) -> bool:
        return read_payload(list(items)).blocks is not None

    assert is_content({"type": "text", "text": "a"}, Event(type="text", text="b"))
    assert not is_content(Event(type="created", text="a"))
    assert not is_content(Note("text", "a"))
    assert not is_content({"type": "text", "text": 5})
    assert not is_content({"type": "text", "text": "a"}, {"type": "row"})
    assert not is_content()


def test_what_raises_when_it_is_looked_at_is_no_block() -> None:
    class Lazy(dict[str, Any]):
        def get(self, key: str, default: Any = None) -> Any:
            raise RuntimeError(key)

    assert read_payload([Lazy(type="text", text="a")]).node is not None


def test_a_result_with_nothing_in_it_is_no_document() -> None:
    assert as_document(Payload(blocks=())).is_empty
    beside = Payload(node=parse(b"1"), blocks=())
    assert as_document(beside) is beside


def test_a_payload_is_empty_if_it_has_nothing_at_all() -> None:
    assert Payload().is_empty
    for one in ({"a": 1}, "", [{"type": "text", "text": ""}]):
        assert not read_payload(one).is_empty
    assert not Payload(blocks=()).is_empty


def test_a_value_in_a_frame_is_the_whole_payload() -> None:
    raws = (b'{"type":"text","text":"a"}', b'{"type":"text", "text":"b"}')
    assert json.loads(bytes(Payload(blocks=raws).as_node().raw)) == [json.loads(raw) for raw in raws]
    assert bytes(Payload().as_node().raw) == b"null"
    assert bytes(Payload(text=b'say "a"').as_node().raw) == b'"say \\"a\\""'
