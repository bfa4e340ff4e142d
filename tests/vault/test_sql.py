"""SQL over stored payloads: right answers, helpful mistakes, and nothing but reading."""

from __future__ import annotations

import itertools
import json
import re
import statistics
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from mcp_envelope.budget import Budget
from mcp_envelope.payload import Payload, new_handle, read_payload
from mcp_envelope.vault import read_tool, sql, tables
from mcp_envelope.vault.limits import BadQuery, SearchLimits, TooCostly
from mcp_envelope.vault.read_tool import read
from mcp_envelope.vault.vault import Vault, open_vault

_COUNTING = "SELECT 1 UNION ALL SELECT x + 1 FROM c"
STATES = ("open", "closed", "failed")
TICKETS = [
    {
        "id": number,
        "state": STATES[number % 7 % 3],
        "score": number * 1.5,
        "user": {"login": f"u{number % 5}", "team": {"name": "core"}},
        "labels": ["bug", "ui"][: number % 3],
        "created": f"2026-{number % 12 + 1:02}-03T10:30:00Z",
    }
    for number in range(500)
]


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    opened = open_vault(str(tmp_path / "vault.db"))
    assert opened is not None
    return opened


def keep(vault: Vault, payload: Any, owner: str | None = None) -> str:
    handle = new_handle()
    data = payload if isinstance(payload, Payload) else read_payload(payload, "auto")
    assert vault.keep(handle, data, None, owner) is None
    return handle


def ask(vault: Vault, payload: Any, text: str, **limits: Any) -> Any:
    handle = payload if isinstance(payload, str) and len(payload) == 22 else keep(vault, payload)
    return json.loads(sql.run(vault, vault.open(handle), text, limits=SearchLimits(**limits)))


def test_integers_that_sqlite_would_round_stay_what_they_are(vault: Vault) -> None:
    ids = [(1 << 64) - number for number in range(1, 6)]
    handle = keep(vault, {"rows": [{"id": number, "n": at} for at, number in enumerate(ids)]})
    assert ask(vault, handle, "SELECT count(DISTINCT id) AS n FROM rows") == [{"n": 5}]
    assert ask(vault, handle, "SELECT id FROM rows") == [{"id": str(number)} for number in ids]
    assert ask(vault, handle, f"SELECT n FROM rows WHERE id = {ids[2]}") == [{"n": 2}]
    mixed = keep(vault, {"rows": [{"id": number} for number in (5, 1 << 63, -(1 << 63), 7)]})
    assert ask(vault, mixed, "SELECT id FROM rows WHERE id < 6") == [{"id": 5}]


# -- answers ------------------------------------------------------------------------------------------------


def test_questions_have_the_answers_that_python_computes(vault: Vault) -> None:
    handle = keep(vault, {"tickets": TICKETS, "total": len(TICKETS)})
    counted = ask(vault, handle, "SELECT state, count(*) AS n FROM tickets GROUP BY 1")
    assert {row["state"]: row["n"] for row in counted} == {
        state: sum(ticket["state"] == state for ticket in TICKETS) for state in STATES
    }
    scores = [float(str(ticket["score"])) for ticket in TICKETS]
    (row,) = ask(
        vault,
        handle,
        "SELECT median(score) m, quantile(score, 0.25) q, stddev(score) d, mode(state) s, sum(score) t "
        "FROM tickets",
    )
    assert row["m"] == statistics.median(scores)
    assert row["q"] == statistics.quantiles(scores, n=4, method="inclusive")[0]
    assert row["d"] == pytest.approx(statistics.stdev(scores))
    assert row["s"] == statistics.mode([str(ticket["state"]) for ticket in TICKETS])
    assert row["t"] == sum(scores)


def test_nested_objects_are_columns_with_dots_quoted_or_not(vault: Vault) -> None:
    handle = keep(vault, {"tickets": TICKETS})
    wanted = [{"user.login": "u2", "user.team.name": "core"}]
    columns = '"user.login", "user.team.name"'
    assert ask(vault, handle, f"SELECT {columns} FROM tickets WHERE id = 2") == wanted
    assert ask(vault, handle, f"SELECT {columns.replace(chr(34), '')} FROM tickets WHERE id = 2") == wanted


def test_a_map_in_a_record_is_json_and_takes_no_columns_from_the_rest(vault: Vault) -> None:
    """Keys that are data, such as languages, would be a column each, filled in a few rows."""
    rows = [
        {"id": n, "names": {f"l{n % 90}": {"long": f"L{n}"}}, "at": {f"k{n}": n, f"k{n + 1}": n}, "area": n}
        for n in range(600)
    ]
    handle = keep(vault, {"countries": rows})
    assert ask(vault, handle, "SELECT sum(area) s, max(id) m FROM countries") == [{"s": 179700, "m": 599}]
    assert ask(vault, handle, "SELECT at->>'k7' k FROM countries WHERE id = 6") == [{"k": 6}]
    assert ask(vault, handle, "SELECT names->>'$.l5.long' n FROM countries WHERE id = 5") == [{"n": "L5"}]


def test_lists_in_records_are_json(vault: Vault) -> None:
    asked = "SELECT value, count(*) n FROM tickets, json_each(labels) GROUP BY 1 ORDER BY 1"
    answer = ask(vault, {"tickets": TICKETS}, asked)
    labels = [label for ticket in TICKETS for label in list(ticket["labels"])]  # type: ignore[call-overload]
    assert answer == [{"value": label, "n": labels.count(label)} for label in ("bug", "ui")]


def test_rowid_is_the_position_in_the_list(vault: Vault) -> None:
    assert ask(vault, TICKETS, "SELECT rowid, id FROM data WHERE id = 7") == [{"rowid": 7, "id": 7}]


@pytest.mark.parametrize(
    ("part", "value"), [("year", 2026), ("month", 2), ("hour", 10), ("weekday", 2), ("quarter", 1)]
)
def test_parts_of_dates(vault: Vault, part: str, value: int) -> None:
    asked = f"SELECT {part}(created) AS p, date_part('{part}', created) AS q FROM data WHERE id = 1"
    assert ask(vault, TICKETS[:3], asked) == [{"p": value, "q": value}]


def test_tables_in_all_places(vault: Vault) -> None:
    def names(payload: Any) -> dict[str, str]:
        stored = vault.open(keep(vault, payload))
        found = tables.tables_in(stored.root(), blocks=stored.entry.kind == "blocks")
        return {name: ",".join(table.sample()) for name, table in found.items()}

    assert names([[1, "a"], [2, "b"]]) == {"data": "c0,c1"}
    assert names({"deep": {"hits": [1, 2]}}) == {"hits": "value"}
    assert names({"a": {"rows": [{"x": 1}]}, "b": {"rows": [{"y": 1}]}}) == {"rows": "x", "b_rows": "y"}
    assert names({"result": json.dumps({"rows": [{"x": 1}]})}) == {"rows": "x"}
    assert names({f"K{number}": {"n": number} for number in range(20)}) == {"data": "key,n"}
    assert names({"ID": 1}) == {}
    assert names([{"ID": 1, "id": 2, "Id": 3}]) == {"data": "ID,id_2,Id_3"}
    texts = [json.dumps({"n": number}) for number in range(5)]
    blocks = [{"type": "text", "text": text} for text in texts]
    assert names(read_payload(blocks, "blocks")) == {"data": "n"}
    assert names("first\nsecond") == {"lines": "n,text"}
    text = {"type": "text", "text": "first\nsecond"}
    assert names(read_payload([text], "blocks")) == {"lines": "n,text"}
    assert names(read_payload([text, text], "blocks")) == {"lines": "n,text"}
    assert names("name,size\na,1\nb,2\nc,3\n") == {"data": "name,size"}


def test_lines_of_a_text_and_columns_of_csv(vault: Vault) -> None:
    log = "".join(f"line {number} {'ERROR' if number % 100 == 7 else 'ok'}\n" for number in range(1000))
    asked = "SELECT count(*) c, min(n) first FROM lines WHERE text REGEXP 'ERR(OR)?$'"
    assert ask(vault, log, asked) == [{"c": 10, "first": 8}]
    table = "code,size\n" + "".join(f"0{number},{number}.5\n" for number in range(100))
    assert ask(vault, table, "SELECT code, max(size) m FROM data") == [{"code": "099", "m": 99.5}]


def test_large_payloads_come_in_batches_with_new_columns(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_BATCH", 1 << 14)
    monkeypatch.setattr(tables.Table.batches, "__defaults__", (1 << 14, ()))
    rows: list[dict[str, Any]] = [{"n": number, "text": "x" * 50} for number in range(3000)]
    rows[2500] = {"n": 2500, "late": True, "big": 10**30}
    answer = ask(vault, {"rows": rows}, "SELECT count(*) c, sum(n) s, max(late) l, max(big) b FROM rows")
    assert answer == [{"c": 3000, "s": sum(range(3000)), "l": 1, "b": str(10**30)}]


def test_a_column_is_the_same_in_all_batches(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is an object in one batch and a text in another is JSON in all; nulls don't matter."""
    monkeypatch.setattr(tables.Table.batches, "__defaults__", (1 << 14, ()))
    rows: list[dict[str, Any]] = [
        {"n": n, "user": {"login": f"u{n}"}, "team": {"id": n} if n > 2000 else None, "pad": "x" * 40}
        for n in range(3000)
    ]
    rows[2500]["user"] = "ghost"
    handle = keep(vault, {"rows": rows})
    asked = 'SELECT sum(user LIKE \'{"login":%\') c, count(DISTINCT user) d, sum("team.id") t FROM rows'
    assert ask(vault, handle, asked) == [{"c": 2999, "d": 3000, "t": sum(range(2001, 3000))}]
    assert ask(vault, handle, "SELECT user FROM rows WHERE n = 2500") == [{"user": "ghost"}]


def test_a_table_of_another_result_of_the_same_caller(vault: Vault) -> None:
    people = keep(
        vault, {"people": [{"login": f"u{number}", "name": f"N{number}"} for number in range(5)]}, "me"
    )
    tickets = keep(vault, {"tickets": TICKETS}, "me")
    asked = f'SELECT name FROM tickets JOIN "{people}".people p ON p.login = "user.login" WHERE id = 3'
    stored = vault.open(tickets, "me")
    assert json.loads(sql.run(vault, stored, asked, "me")) == [{"name": "N3"}]
    theirs = keep(vault, {"people": [{"login": "u1"}]}, "somebody else")
    sealed = read(vault, {"handle": tickets, "sql": f'SELECT * FROM "{theirs}".people'}, owner="me")
    assert sealed.problem is not None
    assert sealed.problem.code == "HANDLE_UNKNOWN"


def test_ten_other_results_at_most(vault: Vault) -> None:
    handles = [keep(vault, {"rows": [{"n": number}]}) for number in range(12)]
    for count in (10, 11):
        asked = " + ".join(f"(SELECT n FROM {handle}.rows)" for handle in handles[1 : count + 1])
        if count == 10:
            assert list(ask(vault, handles[0], f"SELECT {asked} AS n")[0].values()) == [55]
        else:
            with pytest.raises(BadQuery, match="10 other results"):
                ask(vault, handles[0], f"SELECT {asked} AS n")


def test_a_handle_may_begin_with_a_digit(vault: Vault) -> None:
    other = "1" + new_handle()[1:]
    assert vault.keep(other, read_payload([{"n": 7}], "auto"), None, None) is None
    assert ask(vault, [{"n": 1}], f"SELECT n FROM {other}.data") == [{"n": 7}]
    assert ask(vault, [{"n": 1}], f"SELECT {other}.data.n FROM {other}.data") == [{"n": 7}]


@pytest.mark.parametrize(
    "asked",
    [
        "SELECT organizationMembershipRequests.id FROM organizationMembershipRequests",
        "SELECT requestedByOrganization.id AS id FROM organizationMembershipRequests",
        "SELECT r.requestedByOrganization.id AS id FROM organizationMembershipRequests r",
        "SELECT theRequestsOfAnyOrganization.id FROM organizationMembershipRequests theRequestsOfAnyOrganization",
        "SELECT id FROM organizationMembershipRequests WHERE host = 'internationalization.example'",
        "SELECT id FROM organizationMembershipRequests -- of internationalization.example",
    ],
)
def test_a_long_name_is_no_handle(vault: Vault, asked: str) -> None:
    row = {"id": 7, "host": "internationalization.example", "requestedByOrganization": {"id": 7}}
    assert ask(vault, {"organizationMembershipRequests": [row]}, asked) == [{"id": 7}]


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("sqlite_stat1", "_sqlite_stat1"),
        ("json_each", "_json_each"),
        ("pragma_table_list", "pragma_table_list"),
    ],
)
def test_names_of_tables_that_are_sqlite_s_own(vault: Vault, name: str, table: str) -> None:
    assert ask(vault, {name: [{"a": 1}]}, f"SELECT a FROM {table}") == [{"a": 1}]


def test_names_of_columns_that_sql_cannot_have(vault: Vault) -> None:
    rows = [{"a\0": 1, "a": 2, "": 3, "rowid": 4, 'b"c': 5}]
    assert ask(vault, rows, "SELECT * FROM data") == [{"a␀": 1, "a": 2, "": 3, "rowid": 4, 'b"c': 5}]


def test_bytes_that_are_no_text(vault: Vault) -> None:
    assert ask(vault, [1], "SELECT x'ff' AS b, value FROM data") == [{"b": "/w==", "value": 1}]


def test_many_columns_with_dots_are_put_in_quotes(vault: Vault) -> None:
    """Once for each, so that many of them don't end in Python's own limit."""
    rows = {f"rows{t}": [{f"t{t}": {f"x{n}": n for n in range(400)}}] for t in range(3)}
    asked = ", ".join(f"t{t}.x{n}" for t in range(3) for n in range(400))
    answer = ask(vault, rows, f"SELECT {asked} FROM rows0, rows1, rows2", length=20_000)
    assert len(answer[0]) == 1200


def test_a_result_is_cut_and_continued(vault: Vault) -> None:
    handle = keep(vault, {"tickets": TICKETS})
    rows: list[Any] = []
    while True:
        asked = {
            "handle": handle,
            "sql": "SELECT id, state FROM tickets",
            "offset": len(rows),
            "tokenBudget": 300,
        }
        result = read(vault, asked).to_result()
        pages = [json.loads(block["text"]) for block in result["content"] if block["text"].startswith("[{")]
        rows += pages[0]
        if len(rows) == len(TICKETS):
            break
    assert [row["id"] for row in rows] == list(range(500))


def page_of(vault: Vault, **asked: Any) -> Any:
    result = read(vault, asked).to_result()
    assert not result.get("isError"), result
    text = result["content"][-1]["text"]
    return json.loads(text) if text[0] in "[{" else text


def test_the_result_of_a_query_is_a_table(vault: Vault) -> None:
    handle = keep(vault, {"tickets": TICKETS})
    rows = page_of(
        vault,
        handle=handle,
        query="tickets[?state=='failed'].{who: user.login, score: score}",
        sql="SELECT who, count(*) AS n, max(score) AS m FROM data GROUP BY 1 ORDER BY 1",
    )
    scores: dict[str, list[float]] = {}
    for number in range(500):
        if STATES[number % 7 % 3] == "failed":
            scores.setdefault(f"u{number % 5}", []).append(number * 1.5)
    assert rows == [{"who": who, "n": len(each), "m": max(each)} for who, each in sorted(scores.items())]
    # Several lists in one result are tables by their names, and the payload's own are there under the handle.
    asked = "SELECT (SELECT count(*) FROM ids) a, (SELECT sum(value) FROM ids) b, count(*) c FROM {}.tickets"
    query = "{ids: tickets[?score > `600`].id}"
    ids = [ticket["id"] for ticket in TICKETS if float(str(ticket["score"])) > 600]
    answer = page_of(vault, handle=handle, query=query, sql=asked.format(handle))
    assert answer == [{"a": len(ids), "b": sum(map(int, map(str, ids))), "c": len(TICKETS)}]


def test_the_result_of_a_search_is_a_table_of_all_its_matches(vault: Vault) -> None:
    log = "".join(f"line {n} {'ERROR disk' if n % 3 else 'ok'}\n" for n in range(30_000))
    asked = "SELECT count(*) AS n, min(line) AS first, max(line) AS last FROM data"
    handle = keep(vault, log)
    assert page_of(vault, handle=handle, grep="ERR", sql=asked) == [{"n": 20_000, "first": 2, "last": 30_000}]
    # Of JSON, with the path. That of the call leads into the rows that SQL gives.
    handle = keep(vault, {"a": ["x1", "y", "x2"], "b": ["x3"]})
    of_json = {"handle": handle, "grep": "x", "sql": "SELECT path, text, before FROM data ORDER BY path DESC"}
    found = page_of(vault, **of_json, context=1)
    assert found[0] == {"path": "/b/0", "text": "x3", "before": "[]"}
    assert page_of(vault, **of_json, context=1, path="/2/path") == "/a/0"


def test_a_search_that_finds_too_much_is_no_table(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of its matches would give a wrong count."""
    monkeypatch.setattr(read_tool, "_MOST_MATCHED", 10_000)
    handle = keep(vault, "one line\n" * 5000)
    sealed = read(vault, {"handle": handle, "grep": "line", "sql": "SELECT count(*) FROM data"})
    assert sealed.problem is not None
    assert sealed.problem.code == "QUERY_TOO_COSTLY"


def test_questions_about_two_queries_have_a_table_each(vault: Vault) -> None:
    handle = keep(vault, {"tickets": TICKETS})
    counts = [
        page_of(vault, handle=handle, query=f"tickets[?id < `{most}`]", sql="SELECT count(*) AS n FROM data")
        for most in (7, 9, 7)
    ]
    assert counts == [[{"n": 7}], [{"n": 9}], [{"n": 7}]]


def test_answers_about_a_query_are_continued(vault: Vault) -> None:
    handle = keep(vault, {"tickets": TICKETS})
    asked = {"handle": handle, "query": "tickets[*].{id: id}", "sql": "SELECT id FROM data ORDER BY id DESC"}
    note, page = read(vault, asked, budget=Budget.of(tokens=300)).to_result()["content"]
    count = len(json.loads(page["text"]))
    call = f'query="tickets[*].{{id: id}}", sql="SELECT id FROM data ORDER BY id DESC", offset={count}'
    assert f"envelope_read(handle={json.dumps(handle)}, {call})" in note["text"]
    assert page_of(vault, **asked, offset=count)[0] == {"id": 499 - count}


@pytest.mark.parametrize(
    ("asked", "offered"),
    [
        (
            {"query": "tickets[*].{id: id, state: state}"},
            'query="tickets[*].{id: id, state: state}", sql="SELECT state, count(*) FROM data GROUP BY 1"',
        ),
        ({"query": "tickets[*].id"}, 'query="tickets[*].id", sql="SELECT avg(value) FROM data"'),
        ({"grep": "u[123]"}, 'grep="u[123]", sql="SELECT text, count(*) FROM data GROUP BY 1"'),
        ({"query": f"tickets[*].[id{', id' * 100}]"}, ""),
        ({"query": "tickets[3]"}, ""),
    ],
)
def test_a_page_offers_the_question_about_its_result(
    vault: Vault, asked: dict[str, str], offered: str
) -> None:
    handle = keep(vault, {"tickets": TICKETS, "text": "x" * 9000})
    note = read(vault, {"handle": handle, **asked}, budget=Budget.of(tokens=300)).to_result()["content"][0]
    assert (f", or {offered}." in note["text"]) == bool(offered)
    assert ("sql=" in note["text"]) == bool(offered)
    if offered:
        # What is offered works as it stands there.
        sql_of = re.search(r'sql="(.+)"', offered)
        assert sql_of
        assert page_of(vault, handle=handle, **asked, sql=sql_of[1])


@pytest.mark.parametrize("asked", [{"query": "tickets[?id > `900`]"}, {"grep": "no such thing"}])
def test_a_result_that_is_empty_has_no_table(vault: Vault, asked: dict[str, str]) -> None:
    handle = keep(vault, {"tickets": TICKETS})
    sealed = read(vault, {"handle": handle, "sql": "SELECT count(*) FROM data", **asked})
    assert sealed.problem is not None
    assert sealed.problem.code == "BAD_QUERY"
    assert "nothing" in sealed.problem.message


def test_questions_at_once_don_t_wait_for_each_other(vault: Vault) -> None:
    """SQLite locks a database that is written to while it is read."""
    handle = keep(vault, {"tickets": TICKETS, "other": [{"k": 1}], "third": [{"k": 2}]})
    ask(vault, handle, "SELECT count(*) FROM tickets")
    endless = "SELECT count(*) FROM tickets a, tickets b, tickets c, tickets d"
    with ThreadPoolExecutor(2) as pool:
        long = pool.submit(ask, vault, handle, endless, seconds=2.0)
        while not any(database.reading for database in sql._loaded.values()):
            pass
        for name, value in (("other", 1), ("third", 2)):
            asked = f"SELECT k, (SELECT count(*) FROM tickets) t FROM {name}"
            assert ask(vault, handle, asked) == [{"k": value, "t": 500}]
            assert not long.done()
        with pytest.raises(TooCostly):
            long.result()


def test_columns_through_an_alias_of_the_table(vault: Vault) -> None:
    asked = "SELECT t.user.login AS a, tickets.user.team.name AS b FROM {} WHERE id = 2"
    handle = keep(vault, {"tickets": TICKETS})
    assert ask(vault, handle, asked.format("tickets").replace("t.user.login", "user.login")) == [
        {"a": "u2", "b": "core"}
    ]
    assert ask(vault, handle, asked.format("tickets t").replace("tickets.user", "t.user")) == [
        {"a": "u2", "b": "core"}
    ]


@pytest.mark.parametrize(
    "condition",
    ["id = '7'", "zip = 90210", "urgent = 'true'", "urgent IN ('true')", "'TRUE' = urgent", "part = '0.5'"],
)
def test_a_value_is_found_in_quotes_and_without(vault: Vault, condition: str) -> None:
    rows = [{"id": n, "zip": str(90203 + n), "urgent": n == 7, "part": n / 14} for n in range(20)]
    assert ask(vault, rows, f"SELECT id FROM data WHERE {condition}") == [{"id": 7}]


def test_values_stay_what_they_are(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    """A type of column must not change a value, even where a later one has another type."""
    monkeypatch.setattr(tables.Table.batches, "__defaults__", (1 << 10, ()))
    rows: list[dict[str, Any]] = [
        {"n": n, "code": n, "big": 2**60 + n, "half": n / 2, "pad": "x" * 50} for n in range(200)
    ]
    rows[150]["code"] = "007"
    rows[151]["half"] = 5
    rows[152]["n"] = 0.5
    asked = "SELECT code, big, half / 2 AS h, n FROM data WHERE rowid BETWEEN 150 AND 152"
    assert ask(vault, rows, asked) == [
        {"code": "007", "big": 2**60 + 150, "h": 37.5, "n": 150.0},
        {"code": 151, "big": 2**60 + 151, "h": 2.5, "n": 151.0},
        {"code": 152, "big": 2**60 + 152, "h": 38.0, "n": 0.5},
    ]


def test_dates_in_other_spellings_and_impossible_ones(vault: Vault) -> None:
    rows = [{"at": "2001/02/10 18:20"}, {"at": "2026-13-45"}, {"at": "0000-00-00"}, {"at": "soon"}]
    asked = "SELECT year(at) y, month(at) m, hour(at) h, weekday(at) w FROM data"
    assert ask(vault, rows, asked)[0] == {"y": 2001, "m": 2, "h": 18, "w": 6}
    assert [row["w"] for row in ask(vault, rows, asked)] == [6, None, None, None]


@pytest.mark.parametrize(
    ("asked", "example"),
    [
        ("SELECT sum(price) FROM data", "$0.50"),
        ("SELECT state, AVG ( price ) FROM data GROUP BY 1", "$0.50"),
        ("SELECT total(DISTINCT d.price) FROM data d", "$0.50"),
        ('SELECT avg("cost.net") FROM data', "1,250"),
        ("SELECT avg(cost.net) FROM data", "1,250"),
        ("SELECT avg(data.cost.net) FROM data", "1,250"),
        ("SELECT avg(rate) FROM data", "N/A"),
    ],
)
def test_texts_are_not_added_up_as_zeros(vault: Vault, asked: str, example: str) -> None:
    """SQLite takes a text that is no number for 0, which gives a wrong mean without a word."""
    rows = [
        {"price": f"${n}.50", "state": "x", "cost": {"net": "1,250"}, "rate": n if n % 2 else "N/A"}
        for n in range(20)
    ]
    with pytest.raises(BadQuery, match=re.escape(f"'{example}' is not a number")) as failed:
        ask(vault, rows, asked)
    assert "CAST" in str(failed.value)


def test_texts_that_are_numbers_are_added_up(vault: Vault) -> None:
    rows = [{"size": f"{n}", "part": f" -{n}.5e1", "rate": n if n % 2 else None, "t": "x"} for n in range(20)]
    asked = "SELECT sum(size) s, sum(part) p, avg(rate) r, sum(length(t)) l, sum(t = 'x') x FROM data"
    (row,) = ask(vault, rows, asked)
    assert row == {"s": 190, "p": -sum(n * 10 + 5 for n in range(20)), "r": 10, "l": 20, "x": 20}


@pytest.mark.parametrize(
    "asked",
    [
        "SELECT avg(CAST(replace(price, '$', '') AS REAL)) a FROM data",
        "SELECT avg(price) a FROM (SELECT CAST(replace(price, '$', '') AS REAL) price FROM data)",
        "SELECT avg(rate) + 1.5 a FROM data WHERE rate <> 'N/A'",
        "SELECT avg(rate) + 1.5 a FROM data WHERE typeof(rate) <> 'text' -- not avg(price)",
        "SELECT length('avg(price)') - 8.5 a FROM data LIMIT 1",
    ],
)
def test_what_is_added_up_may_be_chosen_or_made_numbers(vault: Vault, asked: str) -> None:
    rows = [{"price": f"${n}.50", "rate": 0 if n % 2 else "N/A"} for n in range(3)]
    assert ask(vault, rows, asked) == [{"a": 1.5}]


# -- mistakes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("SELECT nope FROM tickets", "no such column: nope"),
        ("SELECT * FROM nope", "no such table: nope"),
        ("SELEKT 1", "syntax error"),
        ('SELECT count(*) FROM tickets WHERE "stat" = 1', "there is no table or column 'stat'"),
        ('SELECT count(*) FROM tickets WHERE state = "open"', "there is no table or column 'open'"),
        ("SELECT median(state) FROM tickets", "median(): takes numbers"),
        ("SELECT regexp_matches(state, '(') FROM tickets", "missing )"),
        ("", "contains no SELECT"),
        ("-- what is there? ", "contains no SELECT"),
    ],
)
def test_a_mistake_says_which_columns_there_are(vault: Vault, text: str, says: str) -> None:
    with pytest.raises(BadQuery) as caught:
        ask(vault, {"tickets": TICKETS}, text)
    assert says in caught.value.message
    assert caught.value.hint == (
        'Tables: tickets(id, state, score, "user.login", "user.team.name", labels, created)'
    )


def test_what_a_mistake_lists_can_be_used_as_it_is_written(vault: Vault) -> None:
    handle = keep(vault, {"index": [{"default": 1, "größe": 2}]})
    with pytest.raises(BadQuery) as error:
        ask(vault, handle, "SELECT nothing FROM 'index'")
    assert error.value.hint == 'Tables: "index"("default", "größe")'
    assert ask(vault, handle, 'SELECT "default" FROM "index"') == [{"default": 1}]


def test_names_that_the_question_makes_itself_may_be_quoted(vault: Vault) -> None:
    asked = 'WITH "by state" AS (SELECT state, count(*) "how many" FROM tickets GROUP BY 1) '
    asked += 'SELECT max("how many") AS "most" FROM "by state" "b" ORDER BY "most"'
    assert ask(vault, {"tickets": TICKETS}, asked)[0]["most"] > 100


@pytest.mark.parametrize(
    "text",
    [
        "DROP TABLE tickets",
        "INSERT INTO tickets VALUES (1)",
        "UPDATE tickets SET id = 1",
        "DELETE FROM tickets",
        "CREATE TEMP TABLE x AS SELECT 1",
        "PRAGMA table_info(tickets)",
        "SELECT * FROM pragma_table_info('tickets')",
        "ATTACH '{file}' AS x",
        "VACUUM INTO '{file}'",
        "SELECT load_extension('x')",
        "SELECT readfile('/etc/hostname')",
        "SELECT writefile('{file}', 'x')",
        "SELECT fts3_tokenizer('simple')",
        "SELECT * FROM dbstat",
        "SELECT 1; DROP TABLE tickets",
        "REINDEX",
        "ROLLBACK",
        "SELECT json_patch(labels, labels) FROM tickets",
    ],
)
def test_only_reading_is_possible(vault: Vault, tmp_path: Path, text: str) -> None:
    handle = keep(vault, {"tickets": TICKETS})
    file = tmp_path / "made"
    with pytest.raises(BadQuery):
        ask(vault, handle, text.format(file=file))
    assert not file.exists()
    assert ask(vault, handle, "SELECT count(*) n FROM tickets") == [{"n": 500}]


@pytest.mark.parametrize(
    "text",
    [
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c",
        "SELECT count(*) FROM tickets a, tickets b, tickets c, tickets d",
        "SELECT hex(zeroblob(1000000000))",
        "SELECT a.* FROM tickets a, tickets b",
        f"SELECT {', '.join(['zeroblob(30000000)'] * 40)}",
        f"WITH big AS (SELECT hex(zeroblob(15000000)) s) SELECT {', '.join('s' * 100)} FROM big",
        "SELECT mode(hex(zeroblob(100000)) || a.id) FROM tickets a, tickets b",
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT median(x) FROM c",
        "SELECT sum(length(randomblob(10000000))) FROM tickets a, tickets b",
        "SELECT count(DISTINCT hex(zeroblob(10000000)) || a.id) FROM tickets a, tickets b",
    ],
)
def test_what_costs_too_much_is_stopped(vault: Vault, text: str) -> None:
    with pytest.raises(TooCostly):
        ask(vault, {"tickets": TICKETS}, text, seconds=1.0)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT instr(zeroblob(16000000), zeroblob(8000000) || x'01')",
        "SELECT length(replace(hex(zeroblob(4000000)), '00', '1'))",
        "SELECT printf('%.*c', 2000000000, 'x')",
        "SELECT printf('%2000000000d', 1)",
        "SELECT trim(hex(zeroblob(4000000)), hex(zeroblob(4000000)))",
        "SELECT hex(zeroblob(8000)) LIKE hex(zeroblob(8000))",
        f"SELECT hex(zeroblob(8000000)) LIKE '%{'0' * 990}1%'",
        f"SELECT hex(zeroblob(8000000)) GLOB '*{'0' * 990}1*'",
        f"WITH RECURSIVE c(x) AS ({_COUNTING} LIMIT 2000000) SELECT stddev(x * 0.1) FROM c",
    ],
)
def test_no_function_takes_forever(vault: Vault, text: str) -> None:
    """Nothing interrupts a function, so each has to end by itself: the test would hang."""
    with suppress(BadQuery, TooCostly):
        ask(vault, {"tickets": TICKETS[:1]}, text)


def test_printf_is_the_usual_one(vault: Vault) -> None:
    asked = "SELECT printf('%.2f|%5d|%s', 1.236, 7, 'x') p, instr('abc', 'c') i, replace('aXa', 'X', 'b') r"
    assert ask(vault, [1], asked) == [{"p": "1.24|    7|x", "i": 3, "r": "aba"}]


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ("printf('%s|%d|%.1f', note, note, note)", "|0|0.0"),
        ("replace('abc', 'b', note)", None),
        ("replace('abc', note, 'x')", None),
        ("trim('None', note)", None),
        ("instr('None', note)", None),
        ("regexp_matches('None', note)", None),
    ],
)
def test_a_null_is_no_text_in_functions(vault: Vault, asked: str, answer: Any) -> None:
    assert ask(vault, [{"note": None}], f"SELECT {asked} a FROM data") == [{"a": answer}]


def test_values_of_csv_keep_their_line_breaks_and_an_empty_line_is_no_row(vault: Vault) -> None:
    lines = [f"{number},note {number}" for number in range(30)]
    text = "\n".join(["id,note", *lines, '30,"two\nlines"', "", "31,last", "", ""])
    assert ask(vault, text, "SELECT count(*) n, max(id) m FROM data") == [{"n": 32, "m": 31}]
    assert ask(vault, text, "SELECT id FROM data WHERE note = 'two' || char(10) || 'lines'") == [{"id": 30}]


def test_what_is_no_longer_used_is_closed(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "_MOST_KEPT", 2)
    handles = [keep(vault, {"rows": [{"n": number}]}) for number in range(5)]
    for _ in range(2):
        for number, handle in enumerate(handles):
            assert ask(vault, handle, "SELECT n FROM rows") == [{"n": number}]
    assert len(sql._loaded) <= 2


def test_after_a_load_that_was_stopped_the_next_question_is_answered(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a journal SQLite can't take rows back once there are more than it caches."""
    rows = [{"n": n, f"text{n // 10_000}": f"{n} {'x' * 100}"} for n in range(40_000)]
    handle = keep(vault, {"rows": rows, "more": [{"n": 1}]})
    batches = tables.Table.batches

    def stopped(table: tables.Table, unopened: Any) -> Any:
        yield from itertools.islice(batches(table, 1 << 18, unopened), 15)
        raise TooCostly("stopped")

    with monkeypatch.context() as patched:
        patched.setattr(tables.Table, "batches", stopped)
        with pytest.raises(TooCostly):
            ask(vault, handle, "SELECT count(*) FROM rows")
    for _ in range(2):
        asked = "SELECT (SELECT count(*) FROM rows) t, (SELECT n FROM more) n"
        assert ask(vault, handle, asked) == [{"t": 40_000, "n": 1}]


def test_a_table_that_is_too_large_is_refused(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "_LARGEST", 1000)
    with pytest.raises(TooCostly, match="the table tickets"):
        ask(vault, {"tickets": TICKETS}, "SELECT 1 FROM tickets")
