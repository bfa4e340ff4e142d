"""Regression tests: inputs that once broke a promise, found by trying to."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any

import msgspec
import pytest

from mcp_envelope import JSONError, PayloadError, Schema, SchemaError, rank, seal, widen


def text_of(sealed: Any) -> str:
    return str(json.loads(sealed.content)[-1]["text"])


def test_figures_are_never_written_into_the_payload() -> None:
    own = {"_envelope": 1, "used": 600, "x": "y" * 100}
    sealed = seal(own, max_bytes=600, profile="standard")
    assert json.loads(sealed.structured or b"") == own
    sealed = seal({"used": 60012345, "x": 1}, max_bytes=600, profile="standard", tool="t" * 700)
    assert json.loads(sealed.structured or b"")["used"] == 60012345
    blocks = [{"type": "text", "text": "a"}, {"type": "custom", "used": 600}]
    sealed = seal(blocks, read_as="blocks", max_bytes=600, profile="standard")
    assert json.loads(sealed.content)[-1] == blocks[1]


def test_subclasses_of_plain_types_are_what_they_are() -> None:
    class Text(str):
        pass

    class Number(int):
        pass

    class Share(float):
        pass

    class Data(bytes):
        pass

    value = {"a": Text("hello"), "b": Number(5), "c": Share(0.5), "d": Data(b"hi"), "e": [Text("x")]}
    expected = {"a": "hello", "b": 5, "c": 0.5, "d": "aGk=", "e": ["x"]}
    assert json.loads(seal(value).structured or b"") == expected


def test_byte_order_marks_do_not_reach_the_wire() -> None:
    with pytest.raises(JSONError):
        seal(b"\xef\xbb\xbf" * 2 + b'{"a":1}')
    assert json.loads(seal('\ufeff{"a":1}', read_as="json").to_json())["structuredContent"] == {"a": 1}


def test_raw_json_of_others_is_checked() -> None:
    with pytest.raises(JSONError):
        seal({"a": msgspec.Raw(b"garbage")})
    with pytest.raises(JSONError):
        seal([b"xx"], read_as="blocks")
    with pytest.raises(PayloadError, match="content block"):
        seal(b'[1,"a",null]', read_as="blocks")


def test_a_trailing_comma_after_megabytes_is_seen() -> None:
    with pytest.raises(JSONError):
        seal(b"[" + b"1," * 1_000_000 + b" " * 300_000 + b"]", max_bytes=1000)


@pytest.mark.parametrize("space", ["\n", "\t", "\r\n", " " * 9, "\n  \t"])
def test_json_behind_white_space_is_json(space: str) -> None:
    text = space + json.dumps(list(range(3000)))
    for sealed in (seal(text, max_bytes=800), seal([{"type": "text", "text": text}], max_bytes=800)):
        assert json.loads(text_of(sealed))[0] == 0
    inside = json.loads(seal({"result": text}, max_bytes=800).structured or b"")["result"]
    assert json.loads(inside)[0] == 0


def test_short_json_strings_stay_json() -> None:
    names = [f"k{n}" for n in range(20)]
    schema = {"type": "object", "required": names}
    sealed = seal(dict.fromkeys(names, '{"a": 1, "b": 7}'), max_bytes=512, schema=schema)
    if sealed.structured is not None:
        result = json.loads(sealed.structured)
        assert all(isinstance(json.loads(result[name]), dict) for name in names)


def test_json_text_that_cannot_be_cut_stays_json() -> None:
    # Newer Pythons parse hundreds of thousands of levels.
    levels = 2000 if sys.version_info < (3, 12) else 1_000_000
    sealed = seal("[" * levels + "]" * levels, max_bytes=600)
    json.loads(text_of(sealed))
    assert sealed.cuts[0].total == 2 * levels


def test_data_that_only_looks_like_blocks_is_data() -> None:
    for rows in (
        [{"type": "resource", "resource": "cpu"}],
        [{"type": "x", "": 1}],
        [{"type": "text", "text": 5}],
    ):
        assert json.loads(text_of(seal(rows))) == rows


def test_a_text_for_a_wrapped_schema_is_structured() -> None:
    widened = widen({"type": "string"})
    assert json.loads(seal("words", schema=widened).structured or b"") == {"result": "words"}


def test_a_message_is_one_line_however_deep() -> None:
    raw = b'{"a":\n' + b"[" * 3000 + b"]" * 3000 + b"}"
    assert b"\n" not in seal(raw, max_bytes=60_000).to_json()


DEEP = b'{"a":' * 5000 + b"1" + b"}" * 5000


@pytest.mark.parametrize(
    "options", [{}, {"schema": {"type": "object"}}, {"warnings": ["w"], "max_bytes": 100_000}]
)
@pytest.mark.parametrize("dialect", ["native", "ctxo", "transcend", "gel", "scalpel"])
def test_deep_objects_are_answered(options: dict[str, Any], dialect: str) -> None:
    json.dumps(seal(DEEP, dialect=dialect, **{"max_bytes": 600, **options}).is_error)
    json.dumps(seal(DEEP.decode(), dialect=dialect, **{"max_bytes": 600, **options}).is_error)


def test_half_a_pair_beside_white_space() -> None:
    assert seal(b'{"a": "\\ud83d"}').structured == b'{"a": "\\ud83d"}'
    cut = seal(b'{"a": "\\ud83d", "rows": [%b]}' % b", ".join([b"1"] * 4000), max_bytes=600)
    assert json.loads(cut.structured or b"")["a"] == "\ufffd"


def test_numbers_beyond_all_bounds() -> None:
    raw = b'{"a":1e99999999999999999999,"rows":[%b]}' % b",".join([b"1"] * 4000)
    sealed = seal(raw, max_bytes=600, schema={"type": "object"})
    assert b"1e99999999999999999999" in (sealed.structured or b"")
    sealed.to_result()
    seal(b'{"n":%b}' % (b"9" * 5000), max_bytes=20_000).to_result()


def test_half_characters_in_words() -> None:
    sealed = seal({"a": list(range(5000))}, tokens=300, hint="\ud800", warnings=["\udfff"], tool="\ud800")
    sealed.to_json().decode()


@pytest.mark.parametrize("field", ['a"b', "\x01", "\udcff", "", "a\\b"])
def test_odd_names_of_fields_to_rank_by(field: str) -> None:
    rows = (
        {"rows": [{"n": n, field: -n} for n in range(900)]} if field.isascii() else {"rows": list(range(900))}
    )
    if field:
        seal(rows, max_bytes=700, rank={"/rows": rank(field)})


@pytest.mark.parametrize(
    "block",
    [
        {"type": "text", "text": {"a": "x" * 2000}},
        {"type": "resource", "resource": {"uri": "u", "text": {"a": "x" * 2000}}},
        {"type": "text", "text": "x" * 3000, "extra": json.loads("[" * 900 + "]" * 900)},
    ],
)
def test_odd_blocks(block: dict[str, Any]) -> None:
    json.loads(seal([block], read_as="blocks", max_bytes=600).to_json())


def test_a_block_with_a_long_address_does_not_hide_the_next() -> None:
    blocks = [
        {"type": "resource", "resource": {"uri": "u" * 3000, "text": "long"}},
        {"type": "text", "text": "important"},
    ]
    assert "important" in seal(blocks, max_bytes=600).content.decode()


@pytest.mark.parametrize(
    "document",
    [
        {"minItems": float("inf")},
        {"type": [[1]]},
        {"type": {}},
        {"not": {"allOf": 5}},
        {"not": {"enum": 5}},
        {"type": "object", "minProperties": "x"},
        {"type": "object", "maxProperties": "x"},
        {"type": "object", "required": 5},
        {"type": "object", "anyOf": 5},
        {"type": "object", "dependentSchemas": []},
        {"type": "object", "properties": []},
    ],
)
def test_schemas_with_keywords_of_the_wrong_kind(document: Any) -> None:
    with pytest.raises(SchemaError):
        Schema(document)
    with contextlib.suppress(SchemaError):
        widen(document)


class Trap:
    type = "text"

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("trapped")


def test_payloads_that_raise() -> None:
    with pytest.raises(PayloadError):
        seal([Trap()])

    def broken() -> Any:
        yield 1
        raise OSError("gone")

    with pytest.raises(PayloadError, match="OSError"):
        seal({"a": broken()})
    seal([{"type": 10**50}])


def test_json_in_json_in_json() -> None:
    payload = json.dumps(list(range(20_000)))
    for _ in range(15):
        payload = json.dumps([payload])
    sealed = seal(payload, tokens=8000)
    json.loads(text_of(sealed))


def test_a_key_of_a_megabyte() -> None:
    seal({"k" * 1_000_000: {"a": {f"m{i}": "x" * 20 for i in range(20_000)}}}, tokens=8000)


def test_much_left_is_not_left_empty() -> None:
    payload = {"a": 1, "large": {f"k{n}": "words " * 5 for n in range(300)}, "z": 2}
    sealed = seal({**payload, **{f"pad{n}": "x" * 40 for n in range(10)}}, max_bytes=2000)
    assert sealed.report.used > 1200
