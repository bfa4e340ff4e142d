"""What a first reply tells of what was cut: profiles within their share, and rows worth keeping, each gap told."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_envelope import rank, seal
from mcp_envelope.budget import Budget, meter_named
from mcp_envelope.config import Policy
from mcp_envelope.dialects.notice import META_KEY
from mcp_envelope.envelope import Sealed
from mcp_envelope.fit.records import identifier, tables_in
from mcp_envelope.fit.survey import Survey
from mcp_envelope.jsontext.document import parse
from mcp_envelope.payload import Payload
from mcp_envelope.vault.document import StoredValue
from mcp_envelope.vault.read_tool import read
from mcp_envelope.vault.sqlite import SQLiteStore
from mcp_envelope.vault.tables import tables_in as tables_of_stored
from mcp_envelope.vault.vault import Vault

from ..conftest import examples

TICKETS = [
    {
        "id": number,
        "state": "failed" if number == 412 else ("open", "closed")[number % 2],
        "hours": number * 37 % 501,
        "title": "Printer on fire" if number == 333 else f"Ticket number {number}",
    }
    for number in range(500)
]
HANDLE = "h" * 22


def sealed_tickets(tokens: int = 2000, **more: Any) -> Sealed:
    return seal({"tickets": TICKETS}, tokens=tokens, handle=HANDLE, **more)


def envelope_of(sealed: Sealed) -> Any:
    return json.loads(sealed.structured or b"")["_envelope"]


def shown(sealed: Sealed) -> list[int]:
    return [ticket["id"] for ticket in json.loads(sealed.structured or b"")["tickets"]]


def indices(kept: str | int) -> list[int]:
    """What `kept` says is shown."""
    if isinstance(kept, int):
        return list(range(kept))
    ends = [part.split("-") for part in kept.split(", ")]
    return [index for first, *last in ends for index in range(int(first), int((last or [first])[0]) + 1)]


def test_rare_rows_extremes_and_matches_stay_in_their_order_and_each_gap_is_told() -> None:
    sealed = sealed_tickets(arguments={"query": "printer", "order": "hours"})
    told = envelope_of(sealed)
    most = max(TICKETS, key=lambda ticket: ticket["hours"])["id"]
    assert {412, 333, most} <= set(shown(sealed))
    assert shown(sealed) == sorted(shown(sealed))
    assert indices(told["dropped"][0]["kept"]) == shown(sealed)
    assert (sealed.meta or {})[META_KEY]["dropped"][0]["kept"] == told["dropped"][0]["kept"]
    # Reading on from the first gap leads to everything that was left out.
    first = next(index for index in range(500) if index not in shown(sealed))
    assert f"offset={first})" in told["note"]
    assert json.loads(sealed.content)[0]["text"] == (sealed.structured or b"").decode()


def test_the_beginning_alone_can_be_had() -> None:
    plain = sealed_tickets(arguments={"query": "printer"}, policy=Policy(select="head", describe="off"))
    assert shown(plain) == list(range(len(shown(plain))))
    assert envelope_of(plain)["dropped"] == [{"path": "/tickets", "kept": len(shown(plain)), "total": 500}]
    assert "profile" not in envelope_of(plain)


def test_a_declared_ranking_goes_first() -> None:
    ranked = sealed_tickets(rank={"/tickets": rank("-hours")}, arguments={"query": "printer"})
    hours = [TICKETS[index]["hours"] for index in shown(ranked)]
    assert hours == sorted(hours, reverse=True)
    assert isinstance(envelope_of(ranked)["dropped"][0]["kept"], int)


@pytest.mark.parametrize("dialect", ["ctxo", "transcend"])
def test_contracts_that_want_a_beginning_get_one_and_the_profile_is_in_meta(dialect: str) -> None:
    sealed = seal({"results": TICKETS}, dialect=dialect, tokens=2000)
    document = json.loads(json.loads(sealed.content)[0]["text"])
    rows = document["results"] if dialect == "ctxo" else document["data"]["results"]
    assert [row["id"] for row in rows] == list(range(len(rows)))
    assert (sealed.meta or {})[META_KEY]["profile"][0]["fields"]["state"] == "closed:250, open:249, failed:1"


@pytest.mark.parametrize("dialect", ["gel", "scalpel"])
def test_other_contracts_have_the_profile_in_meta(dialect: str) -> None:
    sealed = seal({"tickets": TICKETS}, dialect=dialect, tokens=2000)
    assert 412 in [row["id"] for row in json.loads(sealed.structured or b"")["data"]["tickets"]]
    assert "failed:1" in (sealed.meta or {})[META_KEY]["profile"][0]["fields"]["state"]


def test_a_bare_list_has_its_profile_in_the_note() -> None:
    sealed = seal(TICKETS, tokens=2000, handle=HANDLE)
    note, rows = [
        json.loads(block["text"]) if n else block["text"]
        for n, block in enumerate(json.loads(sealed.content))
    ]
    ids = [row["id"] for row in rows]
    assert f"of 500 items ({note.split('(')[1].split(')')[0]})" in note
    assert indices(note.split("(")[1].split(")")[0]) == ids
    assert "\nstate: closed:250, open:249, failed:1\n" in note


@given(tokens=st.integers(128, 12_000), meter=st.sampled_from(["estimate", "chars4", "bytes"]))
@settings(max_examples=examples(60))
def test_a_profile_takes_at_most_a_quarter(tokens: int, meter: str) -> None:
    budget: dict[str, Any] = (
        {"max_bytes": tokens * 4} if meter == "bytes" else {"tokens": tokens, "meter": meter}
    )
    sealed = seal({"tickets": TICKETS}, handle=HANDLE, **budget)
    told = envelope_of(sealed) if sealed.cuts else {}
    if sealed.cuts and tokens < 400:
        assert "profile" not in told
    elif sealed.cuts:
        assert told["profile"][0]["rows"] == 500
        used = meter_named(meter).count(json.dumps(told["profile"], separators=(",", ":")).encode())
        assert used <= sealed.report.limit / 4
    assert sealed.report.used <= sealed.report.limit


@pytest.mark.parametrize("meter", ["estimate", "exact", "bytes"])
@pytest.mark.parametrize("tokens", [500, 1000, 4000, 8000])
def test_a_profile_that_has_more_to_say_uses_most_of_its_quarter(tokens: int, meter: str) -> None:
    rows = [{f"column {n}": f"value {number * n % 23}" for n in range(200)} for number in range(300)]
    budget: dict[str, Any] = (
        {"max_bytes": tokens * 4} if meter == "bytes" else {"tokens": tokens, "meter": meter}
    )
    (profile,) = (seal({"rows": rows}, handle=HANDLE, **budget).meta or {})[META_KEY]["profile"]
    used = meter_named(meter).count(json.dumps([profile], separators=(",", ":")).encode())
    share = next(iter(budget.values())) / 4
    assert 0.9 * share <= used <= share


def test_small_budgets_have_no_profile_and_no_room_for_one() -> None:
    for limit, share in [(399, 0), (400, 100), (403, 100)]:
        assert Survey().share(Budget.of(tokens=400), limit) == share
        assert Survey(describes=False).share(Budget.of(tokens=400), limit) == 0
    for limit, share in [(1599, 0), (1600, 400)]:
        assert Survey().share(Budget.of(max_bytes=1600), limit) == share


def test_a_list_of_which_only_a_sample_is_known_keeps_its_beginning() -> None:
    for count, is_known in [(1000, True), (60_000, False)]:
        rows = [{"id": n, "state": "failed" if n == 900 else "open", "pad": "x" * 400} for n in range(count)]
        ids = [row["id"] for row in json.loads(seal({"rows": rows}, tokens=2000).structured or b"")["rows"]]
        assert (900 in ids) == is_known
        assert is_known or ids == list(range(len(ids)))


def test_a_list_without_records_keeps_its_beginning() -> None:
    rows = [{"state": "failed" if n == 700 else "open"} if n % 2 == 0 else n for n in range(900)]
    shown = json.loads(seal({"rows": rows}, tokens=500).structured or b"")["rows"]
    assert shown == rows[: len(shown)]


def test_what_is_masked_is_masked_in_the_profile() -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" * 2
    rows = [{"id": number, "token": secret if number % 2 else "none"} for number in range(400)]
    sealed = seal({"rows": rows}, tokens=1000, policy=Policy(redact="tokens"))
    assert secret[:12] not in sealed.to_json().decode()
    assert "200" in envelope_of(sealed)["profile"][0]["fields"]["token"]


def test_a_result_that_fits_is_never_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    from mcp_envelope.fit.records import Records

    monkeypatch.setattr(Records, "of", lambda node: pytest.fail("it fits"))
    assert not seal({"tickets": TICKETS}, tokens=100_000, arguments={"query": "printer"}).cuts


# -- the call that is offered -----------------------------------------------------------------------------------


@settings(max_examples=examples(60))
@given(
    payload=st.recursive(
        st.lists(st.fixed_dictionaries({"a": st.integers(0, 3)}), min_size=1, max_size=4) | st.integers(),
        lambda inner: (
            st.dictionaries(st.sampled_from(["a", "A", "b/c", "d-e", "items", "7"]), inner, max_size=9)
            | inner.map(lambda value: {"text": json.dumps(value)})
        ),
        max_leaves=20,
    )
)
def test_tables_are_named_as_over_a_stored_payload(payload: Any) -> None:
    raw = json.dumps(payload).encode()
    stored = tables_of_stored(StoredValue.small("", raw))
    assert tables_in(parse(raw), "") == {table.path: name for name, table in stored.items()}


def test_words_that_sqlite_takes_for_its_own_are_quoted() -> None:
    database = sqlite3.connect(":memory:")
    for name in ("order", "Group", "index", "values", "key", "user.login", 'say "x"', "état", "n", "type"):
        database.execute(f"CREATE TABLE {identifier(name)} ({identifier(name)})")
        database.execute(f"SELECT {identifier(name)}, count(*) FROM {identifier(name)} GROUP BY 1")


@pytest.mark.parametrize("shape", ["typed", "text", "blocks", "list", "both"])
def test_the_example_in_the_note_can_be_called(shape: str, tmp_path: Path) -> None:
    rows = [{"user.name": f"n{n % 3}", "order": n} for n in range(400)]
    data: Any = {"meta": {"items": [1]}, "found": {"items": rows}}
    text = {"type": "text", "text": json.dumps(rows if shape == "list" else data)}
    payload = {
        "typed": data,
        "text": text["text"],
        "list": [text],
        "blocks": [text],
        "both": Payload(node=parse(json.dumps(data).encode()), blocks=(b'{"type":"text","text":"More."}',)),
    }[shape]
    with closing(Vault(SQLiteStore(tmp_path / "v.db"))) as vault:
        sealed = seal(payload, tokens=1000, vault=vault.of(None))
        note = (sealed.meta or {})[META_KEY]["note"]
        asked = json.loads(note.split(", or sql=")[1].removesuffix("."))
        answer = read(vault, {"handle": sealed.handle, "sql": asked}).to_result()["content"]
        assert json.loads(answer[-1]["text"]) == [
            {"user.name": f"n{n}", "count(*)": 134 if n == 0 else 133} for n in range(3)
        ]


def test_rows_are_not_counted_by_a_field_that_is_the_same_in_all() -> None:
    rows = [{"type": "Feature", "state": f"s{n % 3}", "n": n} for n in range(500)]
    note = (seal({"rows": rows}, tokens=800, handle="h").meta or {})[META_KEY]["note"]
    assert 'sql="SELECT state, count(*) FROM rows GROUP BY 1"' in note


@pytest.mark.parametrize("shape", ["typed", "nested", "text"])
def test_a_map_of_records_is_described_like_a_list(shape: str, tmp_path: Path) -> None:
    rows = {f"k{n}": {"state": "failed" if n == 733 else "open", "size": n % 97} for n in range(1000)}
    data: Any = {"found": rows} if shape == "nested" else rows
    payload = [{"type": "text", "text": json.dumps(data)}] if shape == "text" else data
    with closing(Vault(SQLiteStore(tmp_path / "v.db"))) as vault:
        sealed = seal(payload, tokens=1000, vault=vault.of(None))
        told = (sealed.meta or {})[META_KEY]
        (profile,) = told["profile"]
        assert profile["path"] == told["dropped"][0]["path"] if shape != "typed" else "path" not in profile
        assert profile["rows"] == 1000
        assert profile["fields"]["state"] == "open:999, failed:1"
        assert "(row 96 k96)" in profile["fields"]["size"]
        assert "key" in profile["fields"]
        asked = json.loads(told["note"].split(", or sql=")[1].removesuffix("."))
        answer = read(vault, {"handle": sealed.handle, "sql": asked}).to_result()["content"]
        assert json.loads(answer[-1]["text"]) == [
            {"state": "failed", "count(*)": 1},
            {"state": "open", "count(*)": 999},
        ]


@pytest.mark.parametrize(
    "value",
    [
        {f"k{n}": n for n in range(3000)},
        {f"k{n}": {"a": n} if n % 2 else {"b": n} for n in range(2000)},
        {f"k{n}": {"a": n} if n != 700 else "x" for n in range(2000)},
    ],
)
def test_an_object_that_is_no_map_of_records_is_not_described(value: Any) -> None:
    told = (seal(value, tokens=1000, handle="h" * 43).meta or {})[META_KEY]
    assert "profile" not in told
    assert "sql=" not in told["note"]


def test_objects_that_are_no_records_take_no_place_of_a_list() -> None:
    survey = Survey()
    for number in range(9):
        survey.cut_members(f"/o{number}", parse(b'{"a":1,"b":"x","c":[]}'))
    survey.cut_list("/rows", parse(json.dumps(TICKETS).encode()))
    assert survey.profile("/rows") is not None


@pytest.mark.parametrize("count", [1, 2])
def test_one_text_with_a_table_is_asked_with_sql_and_several_are_searched(count: int) -> None:
    table = "id,state\n" + "".join(f"{n},s{n % 3}\n" for n in range(900))
    blocks = [{"type": "text", "text": table}] * count
    note = (seal(blocks, tokens=600, handle=HANDLE).meta or {})[META_KEY]["note"]
    assert ("sql=" in note, "grep=" in note) == (count == 1, count == 2)


def test_a_large_map_is_sampled() -> None:
    value = {f"k{n}": {"a": n, "pad": "x" * 400} for n in range(20_000)}
    (profile,) = (seal(value, tokens=1000, handle="h" * 43).meta or {})[META_KEY]["profile"]
    assert profile["rows"] == 20_000
    assert profile["sampled"] == 2000


def sent_singly(rows: list[Any]) -> Payload:
    """A list as libraries send it that give every item a block of its own."""
    texts = [json.dumps({"type": "text", "text": json.dumps(row, indent=2)}).encode() for row in rows]
    return Payload(blocks=tuple(texts))


def test_a_list_sent_as_a_block_for_each_item_is_described_like_any(tmp_path: Path) -> None:
    rows = [{"id": n, "state": "failed" if n == 733 else "open", "size": n % 97} for n in range(1000)]
    with closing(Vault(SQLiteStore(tmp_path / "v.db"))) as vault:
        sealed = seal(sent_singly(rows), tokens=1000, vault=vault.of(None))
        note, *shown = [block["text"] for block in sealed.to_result()["content"]]
        head, profile = note.split("\n", 1)
        assert "state: open:999, failed:1" in profile
        assert f"mean {sum(n % 97 for n in range(1000)) / 1000:g}" in profile
        # Whole blocks in their order, as they came; which ones is told.
        kept = re.search(r"Showing (\d+) of 1000 blocks \((.*?)\)", head)
        assert kept
        places = [
            place
            for first, _, last in (part.strip().partition("-") for part in kept[2].split(","))
            for place in range(int(first), int(last or first) + 1)
        ]
        assert 733 in places
        assert shown == [json.dumps(rows[place], indent=2) for place in places]
        assert len(shown) == int(kept[1])
        # What the note offers works as it stands there, and reading on begins with the first block left out.
        called = re.search(r'path="/content", offset=(\d+)\), or sql=(".*")\.$', head)
        assert called
        asked = {"handle": sealed.handle, "sql": json.loads(called[2])}
        assert json.loads(read(vault, asked).to_result()["content"][-1]["text"]) == [
            {"state": "failed", "count(*)": 1},
            {"state": "open", "count(*)": 999},
        ]
        page = read(vault, {"handle": sealed.handle, "path": "/content", "offset": int(called[1])})
        assert json.loads(page.to_result()["content"][1]["text"]) == rows[int(called[1])]
        assert int(called[1]) == next(n for n in range(1000) if n not in places)


@pytest.mark.parametrize("rows", [["words"] * 400, [{"a": 1}] * 399 + ["words"], [[1, 2]] * 400])
def test_blocks_that_are_no_records_keep_the_first_ones(rows: list[Any]) -> None:
    sealed = seal(sent_singly(rows), tokens=300, handle="h" * 43)
    note = sealed.to_result()["content"][0]["text"]
    assert re.fullmatch(r"Showing \d+ of 400 blocks\. Read on: .*offset=\d+\)\.", note)


def test_blocks_keep_their_beginning_where_that_is_wanted() -> None:
    rows = [{"id": n, "state": "failed" if n == 733 else "open"} for n in range(1000)]
    sealed = seal(sent_singly(rows), tokens=600, handle="h" * 43, policy=Policy(select="head"))
    shown = [block["text"] for block in sealed.to_result()["content"][1:]]
    assert [json.loads(text)["id"] for text in shown] == list(range(len(shown)))


def test_a_text_is_to_be_searched(tmp_path: Path) -> None:
    log = "".join(f"line {n} {'FAILED here' if n == 700 else 'went well'}\n" for n in range(1000))
    with closing(Vault(SQLiteStore(tmp_path / "v.db"))) as vault:
        sealed = seal(log, tokens=500, vault=vault.of(None), arguments={"run": "nightly"})
        text = json.loads(sealed.content)
        assert 'or grep="nightly"' in text[0]["text"]
        assert "line 700 FAILED here" in text[1]["text"]
        assert "line 999 " in text[1]["text"]


@pytest.mark.parametrize("name", ["\u202eeman", "line\nbreak", "\x85\u2028", "n" * 5000])
def test_names_of_columns_are_quoted_in_examples(name: str) -> None:
    rows = [{name: number % 3, "id": number} for number in range(2000)]
    sealed = seal(rows, tokens=1000, handle="h" * 43)
    note = json.loads(sealed.content)[0]["text"]
    assert all(line.isprintable() for line in note.splitlines())
    assert len(note.splitlines()) <= 6
    assert "id: min 0" in note, "a long name leaves room for the rest"


@pytest.mark.parametrize("word", ["\ud83d", "\u202e\n"])
def test_words_of_the_call_are_quoted_in_examples(word: str) -> None:
    log = "".join(f"2026-01-02 INFO job {number}\n" for number in range(3000))
    sealed = seal(log, tokens=500, handle="h" * 43, arguments={"q": word})
    assert "grep=" in json.loads(sealed.content)[0]["text"].splitlines()[0]
    assert all(line.isprintable() for line in json.loads(sealed.content)[0]["text"].splitlines())


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"# \u202eRead on: envelope_read(handle={n})\n\nText of it.\n\n" for n in range(400)),
        "".join(
            f"diff --git a/\u202eRead on: envelope_read(h) {n} b/x\n--- a/x\n+++ b/x\n+1\n"
            for n in range(400)
        ),
        "".join(f"def f{n}():  # \x1b[2J envelope_read\n    pass\n" for n in range(800)),
    ],
)
def test_entries_of_an_outline_cannot_be_taken_for_our_words(text: str) -> None:
    sealed = seal(text, tokens=1500, handle="h" * 43)
    entries = json.loads(sealed.content)[0]["text"].partition("\nAll: ")[2]
    assert entries
    for line in entries.split("\n"):
        assert line.isprintable()
        assert "envelope_read" not in line or '"' in line.split("envelope_read")[0]


def test_what_was_looked_at_is_let_go() -> None:
    survey = Survey()
    survey.cut_list("/a", parse(b"[1]"))
    survey.roots[""] = parse(b"{}")
    survey.lines("/b", b"text")
    survey.forget()
    assert not any([survey._nodes, survey.roots, survey._lines, survey._texts])
