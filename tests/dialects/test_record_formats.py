"""Records in a cut text as rows or as CSV: more of them fit, none is changed, and the original is stored."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_envelope import rank, seal
from mcp_envelope.budget import Budget, meter_named
from mcp_envelope.config import Settings
from mcp_envelope.config.policy import Policy
from mcp_envelope.envelope import Sealed
from mcp_envelope.fit.record_formats import FORMS, RecordTable
from mcp_envelope.jsontext.document import unescaped
from mcp_envelope.vault.read_tool import read
from mcp_envelope.vault.vault import open_vault
from tests.conftest import examples
from tests.strategies import scalars, words

TICKETS: list[dict[str, Any]] = [
    {"id": number, "state": "open", "title": f'Ticket "{number}", new', "owner": None}
    for number in range(600)
]
TICKETS[410]["state"] = "failed"
HANDLE = "b3Jk0vWqS5mXn2Zt8LrYcA"


def sealed(payload: Any, form: str, **options: Any) -> Sealed:
    options = {"tokens": 1000, "handle": HANDLE, "read_as": "text", **options}
    return seal(payload, policy=Policy(table=form), **options)


def texts(result: Sealed) -> list[str]:
    return [block["text"] for block in json.loads(result.content)]


def indices(result: Sealed) -> list[int]:
    """The items that the notice says are shown."""
    cut = result.content_cuts[0]
    if not cut.rows:
        return list(range(cut.kept))
    ends = [part.split("-") for part in cut.rows.split(", ")]
    return [number for each in ends for number in range(int(each[0]), int(each[-1]) + 1)]


def read_rows(text: str) -> list[dict[str, Any]]:
    header, *rows = json.loads(text)
    return [dict(zip(header, row, strict=True)) for row in rows]


def as_csv(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def read_csv(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


@pytest.mark.parametrize("tokens", [250, 400, 1000, 3000])
def test_more_rows_are_shown_as_they_were_and_in_their_order(tokens: int) -> None:
    payload = json.dumps(TICKETS)
    plain = sealed(payload, "json", tokens=tokens)
    for form in ("rows", "csv"):
        result = sealed(payload, form, tokens=tokens)
        [cut] = result.content_cuts
        note, text = texts(result)
        assert result.report.content_used <= tokens
        assert (cut.form, cut.total) == (form, 600)
        assert cut.kept > plain.content_cuts[0].kept
        shown = [TICKETS[index] for index in indices(result)]
        assert TICKETS[410] in shown
        assert len(shown) == cut.kept
        if form == "rows":
            assert read_rows(text) == shown
        else:
            assert read_csv(text) == [
                [*TICKETS[0]],
                *([as_csv(each) for each in row.values()] for row in shown),
            ]
        if tokens > 400:
            said = f"rows as {'CSV of ' if form == 'csv' else ''}[id, state, title, owner]"
            assert note.startswith(f"Showing {cut.kept} of 600 items ({cut.rows}), {said}. Read on: ")
            assert "state: open:599, failed:1" in note
        else:
            assert form in note.lower()


def test_the_shortest_notice_says_the_form_too() -> None:
    numbers = json.dumps([{"number": number, "square": number**2} for number in range(300)])
    for form, said in (("rows", "Items as rows."), ("csv", "Items as CSV.")):
        result = sealed(numbers, form, tokens=128, hint="Ask for less. " * 90, warnings=["Late. " * 90] * 2)
        assert texts(result)[0].startswith(f"Cut to fit. Read on with envelope_read. {said}\n")
        assert len(texts(result)[1]) > 100


def test_the_next_row_would_not_fit() -> None:
    long = [{"id": number, "text": "word " * 30} for number in range(300)]
    for form in ("rows", "csv"):
        result = sealed(json.dumps(long), form, tokens=2000)
        # A row takes about thirty tokens.
        assert result.report.content_used > 1950


def test_records_that_are_mostly_keys_fill_the_budget_too() -> None:
    records = [{f"{'key' * 40} {column}": number for column in "abc"} for number in range(3000)]
    result = sealed(json.dumps(records), "rows", tokens=2000)
    assert result.report.content_used > 1900
    assert result.content_cuts[0].kept > 150


def test_auto_takes_the_better_form_if_it_is_worth_it() -> None:
    payload = json.dumps(TICKETS)
    kept = {form: sealed(payload, form).content_cuts[0].kept for form in FORMS}
    assert kept["auto"] == max(kept["rows"], kept["csv"]) >= 1.2 * kept["json"]
    prose = json.dumps([{"text": "word " * 40} for _ in range(300)])
    assert sealed(prose, "auto").to_json() == sealed(prose, "json").to_json()


def test_a_list_in_an_object_and_in_a_block() -> None:
    document = json.dumps({"total": 600, "tickets": TICKETS, "next": None}, indent=1)
    block = [{"type": "text", "text": document, "annotations": {"priority": 1}}]
    for payload, read_as in ((document, "text"), (block, "blocks")):
        result = sealed(payload, "rows", read_as=read_as)
        found = json.loads(texts(result)[-1])
        note = found.pop("_envelope")["note"] if read_as == "text" else texts(result)[0]
        assert "rows as [id, state, title, owner]" in note
        assert list(found) == ["total", "tickets", "next"]
        assert read_rows(json.dumps(found["tickets"])) == [TICKETS[index] for index in indices(result)]
        last = json.loads(result.content)[-1]
        assert last.get("annotations") == (None if read_as == "text" else {"priority": 1})
        table = json.loads(texts(sealed(payload, "csv", read_as=read_as))[-1])["tickets"]
        assert read_csv(table)[1] == ["0", "open", 'Ticket "0", new', ""]


def test_a_ranked_list_keeps_its_order() -> None:
    result = sealed(TICKETS, "rows", read_as="auto", rank={"": rank("-id")})
    numbers = [row["id"] for row in read_rows(texts(result)[1])]
    assert numbers == list(range(599, 599 - len(numbers), -1))


@pytest.mark.parametrize("form", ["rows", "csv", "auto"])
@pytest.mark.parametrize(
    "payload",
    [
        json.dumps(TICKETS[:5]),
        json.dumps([{**ticket, "tags": ["a"]} for ticket in TICKETS]),
        json.dumps([ticket if ticket["id"] % 2 else {"id": 1} for ticket in TICKETS]),
        json.dumps(list(range(5000))),
        json.dumps({"a": TICKETS, "b": TICKETS}),
        json.dumps([{} for _ in range(5000)]),
        "a line of text\n" * 2000,
    ],
    ids=["it fits", "nested", "not alike", "no records", "two lists", "no fields", "a text"],
)
def test_anything_else_stays_as_it_is(payload: str, form: str) -> None:
    assert sealed(payload, form).to_json() == sealed(payload, "json").to_json()


def test_what_a_schema_binds_stays_json() -> None:
    schema = {"type": "object", "properties": {"result": {"type": "array"}}, "required": ["result"]}
    for options in ({"schema": schema, "wrap": True}, {"is_error": True}, {"dialect": "ctxo"}):
        made = [sealed(TICKETS, form, read_as="auto", **options).to_json() for form in ("json", "rows")]
        assert made[0] == made[1]
    # A text that a tool sent although it has a schema.
    payload = json.dumps(TICKETS)
    assert (
        sealed(payload, "rows", schema=schema).to_json() == sealed(payload, "json", schema=schema).to_json()
    )
    typed = {"tickets": TICKETS}
    assert sealed(typed, "rows", read_as="auto").to_json() == sealed(typed, "json", read_as="auto").to_json()


@pytest.mark.parametrize("form", ["rows", "csv"])
@pytest.mark.parametrize("count", [54, 600])
def test_the_original_is_stored(form: str, count: int, tmp_path: Path) -> None:
    vault = open_vault(str(tmp_path / "vault.db"), ttl=100, cap=1 << 30)
    assert vault is not None
    payload = json.dumps(TICKETS[:count], indent=2)
    result = sealed(payload, form, handle=None, vault=vault.of(None))
    note, text = texts(result)
    if count == 54:
        # All of them fit this way: nothing is missing, but the text is not the tool's.
        assert result.content_cuts == ()
        assert note.startswith("Warning: All 54 items, rows as ")
        assert len(read_rows(text) if form == "rows" else read_csv(text)[1:]) == 54
    assert result.handle is not None
    assert result.handle in note
    assert b"".join(vault.open(result.handle).stream()).decode() == payload
    first = result.content_cuts[0].offset if result.content_cuts else 0
    page = read(vault, {"handle": result.handle, "offset": first}, budget=Budget(1000, meter_named("exact")))
    assert json.loads(texts(page)[-1])[0] == TICKETS[first]
    vault.close()


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(words, min_size=1, max_size=4, unique=True),
    st.lists(st.lists(scalars, min_size=4, max_size=4), min_size=1, max_size=5),
    st.integers(20, 300),
    st.integers(128, 1500),
    st.booleans(),
)
def test_never_fewer_rows_and_never_over(
    keys: list[str], seeds: list[list[Any]], count: int, tokens: int, is_ascii: bool
) -> None:
    records = [dict(zip(keys, seeds[number % len(seeds)], strict=False)) for number in range(count)]
    payload = json.dumps(records, ensure_ascii=is_ascii)
    plain = sealed(payload, "json", tokens=tokens)
    for form in ("rows", "csv", "auto"):
        result = sealed(payload, form, tokens=tokens)
        assert result.report.content_used <= tokens
        if not plain.content_cuts:
            assert result.to_json() == plain.to_json()
            continue
        if result.content_cuts and not result.content_cuts[0].form:
            assert result.to_json() == plain.to_json()
            continue
        spelled = texts(result)[1]
        shown = [records[index] for index in indices(result)] if result.content_cuts else records
        assert len(shown) > plain.content_cuts[0].kept
        try:
            found = read_rows(spelled)
        except (ValueError, TypeError):
            assert form != "rows"
            read = read_csv(spelled)
            assert len(read) == len(shown) + 1
        else:
            assert found == shown


@given(st.lists(st.lists(scalars, min_size=2, max_size=2), min_size=1, max_size=5))
def test_csv_says_which_values_are_texts(values: list[list[Any]]) -> None:
    items = [msgspec.Raw(json.dumps({"a": first, "b": other}).encode()) for first, other in values]
    header, *lines = RecordTable(items, range(len(items)), 1 << 20).lines("csv")
    assert header == b"a,b"
    for line, row in zip(lines, values, strict=True):
        assert read_csv(line.decode()) == [
            ["" if value is None else value if isinstance(value, str) else json.dumps(value) for value in row]
        ]
    texts_alike = [b'"1"', b'"true"', b'"null"', b'""', b'" a"', b'"-1e5"']
    items = [msgspec.Raw(b'{"a":%b}' % text) for text in (*texts_alike, b"null", b'"plain text"')]
    lines = RecordTable(items, range(len(items)), 1 << 20).lines("csv")[1:]
    assert lines == [*(b'"%b"' % unescaped(text) for text in texts_alike), b"null", b"plain text"]


def test_it_can_be_set_for_a_tool(tmp_path: Path) -> None:
    (tmp_path / "mcp-envelope.toml").write_text('[tools."list_*"]\ntable = "csv"\n')
    said: list[str] = []
    found = Settings(environ={}, start=tmp_path, say=said.append)
    assert [found.policy(tool).table for tool in ("list_tickets", "other")] == ["csv", "json"]
    assert said == []
