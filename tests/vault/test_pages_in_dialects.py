"""`envelope_read` answers in the dialect that is spoken; its pages are still parts of the original."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from mcp_envelope.dialects.notice import READ_TOOL

from ..proxy.harness import NOTICE, Talk, call, count, frame, texts, tool, typed

DIALECTS = ("ctxo", "transcend", "gel", "scalpel", "examples/paged_dialect.toml")
ROWS = {"rows": [{"id": n, "name": f'"row" \u00e9 {n}'} for n in range(300)], "size": 300}
NEXT = re.compile(r'envelope_read\(handle="\w+"[^)]*, offset=(\d+)\)')
ROOT = Path(__file__).parents[2]


def talk_in(dialect: str, folder: Path, tokens: int = 400) -> Talk:
    name = str(ROOT / dialect) if dialect.endswith(".toml") else dialect
    talk = Talk(folder, tokens, DIALECT=name)
    talk.listed(tool("look"))
    return talk


def stored(talk: Talk, result: Any) -> str:
    shown = json.dumps(talk.called("look", result))
    found = re.search(r"(?<![A-Za-z0-9])[A-Za-z0-9]{22}(?![A-Za-z0-9])", shown)
    assert found is not None, shown
    return found[0]


def document(result: Any) -> Any:
    """The envelope, which both lanes hold."""
    structured = result.get("structuredContent")
    return json.loads(result["content"][0]["text"]) if structured is None else structured


def data(result: Any) -> Any:
    shown = document(result)
    return next(shown[name] for name in ("results", "result", "data") if name in shown)


def following(result: Any) -> int | None:
    """The offset that the model is told to read on with."""
    shown = {
        name: value for name, value in document(result).items() if name not in ("data", "results", "result")
    }
    after = "" if "meta" in shown else "\n".join(block.get("text", "") for block in result["content"][1:])
    found = NEXT.findall(json.dumps(shown).replace("\\", "") + after)
    return int(found[0]) if found else None


def joined(talk: Talk, handle: str, **asked: Any) -> list[Any]:
    parts: list[Any] = []
    offset = 0
    while True:
        page = talk.read(handle, offset=offset, **asked)
        assert not page.get("isError"), page
        for lane in (page["content"], page.get("structuredContent")):
            assert lane is None or "ok" in document(page) or count(lane) <= talk.tokens
        parts.append(data(page))
        after = following(page)
        if after is None:
            assert "dropped" not in page.get("_meta", {}).get(NOTICE, {})
            return parts
        assert after > offset
        offset = after


@pytest.mark.parametrize("dialect", DIALECTS)
def test_pages_joined_are_the_list(dialect: str, tmp_path: Path) -> None:
    talk = talk_in(dialect, tmp_path)
    handle = stored(talk, typed(ROWS))
    pages = joined(talk, handle, path="/rows")
    assert len(pages) > 2
    assert [row for page in pages for row in page] == ROWS["rows"]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("exact", [False, True])
def test_pages_joined_are_the_text(dialect: str, exact: bool, tmp_path: Path) -> None:
    talk = talk_in(dialect, tmp_path)
    words = "".join(f'line {n}: "quoted" \\ \u00e9\u6f22\n' for n in range(400))
    value = {"results": [1], "text": words}
    handle = stored(talk, typed(value))
    assert "".join(joined(talk, handle, path="/text", exact=exact)) == words
    # What is exact is the stored bytes of any value.
    whole = "".join(joined(talk, handle, exact=True))
    assert json.loads(whole) == value


@pytest.mark.parametrize("dialect", DIALECTS)
def test_pages_joined_are_the_object(dialect: str, tmp_path: Path) -> None:
    talk = talk_in(dialect, tmp_path)
    value = {f"key {n}": {"truncated": False, "_meta": n} for n in range(300)}
    handle = stored(talk, typed({"by_key": value, "results": []}))
    found: dict[str, Any] = {}
    for page in joined(talk, handle, path="/by_key"):
        assert not page.keys() & found.keys()
        found |= page
    # Not even a flag that says that nothing is missing is corrected.
    assert found == value


def test_the_shape_is_that_of_every_other_result(tmp_path: Path) -> None:
    def shape(dialect: str) -> list[str]:
        talk = talk_in(dialect, tmp_path)
        return list(document(talk.read(stored(talk, typed(ROWS)), path="/rows", offset=100)))

    assert shape("ctxo") == ["results", "_meta"]
    assert shape("transcend") == ["ok", "data", "tokenBudget", "truncated", "dropped", "warnings"]
    assert shape("gel") == ["meta", "data"]
    assert shape("scalpel") == ["data"]


def test_what_each_says_of_a_page(tmp_path: Path) -> None:
    talk = talk_in("ctxo", tmp_path)
    handle = stored(talk, typed(ROWS))
    meta = document(talk.read(handle, path="/rows", offset=100))["_meta"]
    assert list(meta) == ["totalItems", "returnedItems", "truncated", "totalBytes", "hint"]
    assert meta["totalItems"] == 300
    assert meta["totalBytes"] == len(frame(ROWS["rows"]))
    assert f"offset={100 + meta['returnedItems']}" in meta["hint"]
    last = document(talk.read(handle, path="/rows", offset=295))["_meta"]
    assert (last["returnedItems"], last["truncated"]) == (5, False)
    talk = talk_in("transcend", tmp_path)
    page = document(talk.read(stored(talk, typed(ROWS)), path="/rows", offset=100))
    # What was on earlier pages was not dropped.
    assert page["dropped"]["count"] == 200 - len(page["data"])
    talk = talk_in("gel", tmp_path)
    page = document(talk.read(stored(talk, typed(ROWS)), path="/rows", offset=100))
    assert page["meta"]["truncated"]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_item_larger_than_a_page_hides_nothing_behind_it(dialect: str, tmp_path: Path) -> None:
    talk = talk_in(dialect, tmp_path)
    value = {"results": [{"n": 0}, {"n": 1, "text": "word " * 4000}, {"n": 2}, {"n": 3}]}
    handle = stored(talk, typed(value))
    pages = joined(talk, handle, path="/results")
    assert [item["n"] for page in pages for item in page] == [0, 1, 2, 3]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_queries_and_searches_are_continued(dialect: str, tmp_path: Path) -> None:
    talk = talk_in(dialect, tmp_path)
    handle = stored(talk, typed(ROWS))
    page = talk.read(handle, query="rows[].id")
    assert data(page) == list(range(len(data(page))))
    said = json.dumps(page)
    assert ("offset=" in said) == (len(data(page)) < 300)
    assert ("query=" in said) == ("offset=" in said)
    [match] = data(talk.read(handle, grep="\u00e9 299$"))
    assert match["path"] == "/rows/299/name"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_image_comes_back_as_an_image(dialect: str, tmp_path: Path) -> None:
    talk = talk_in(dialect, tmp_path)
    png = base64.b64encode(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x20\0\0\0\x20" + b"x" * 3000).decode()
    image = {"type": "image", "data": png, "mimeType": "image/png"}
    handle = stored(talk, {"content": [*texts("long " * 2000), image]})
    assert image in talk.read(handle, path="/content/1")["content"]
    listed = data(talk.read(handle, path="/content", offset=1))
    assert listed == [{"type": "image", "mimeType": "image/png", "path": "/content/1"}]


@pytest.mark.parametrize(
    ("dialect", "shown"),
    [
        ("ctxo", {"error": True}),
        ("transcend", {"ok": False}),
        ("gel", {"meta": {"status": "error"}}),
        ("scalpel", {"error": {"error_code": "invalid_argument"}}),
    ],
)
def test_failures_are_those_of_the_dialect(dialect: str, shown: dict[str, Any], tmp_path: Path) -> None:
    talk = talk_in(dialect, tmp_path)
    found = talk.read(stored(talk, typed(ROWS)), path="/nowhere")
    [(name, value)] = shown.items()
    said = document(found)[name]
    assert said == value or value.items() <= said.items()
    # The next step is said in words, where the contract has no place for it.
    assert "The keys at the top are rows, size" in json.dumps(found["content"])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_pages_conform_to_what_is_listed(dialect: str, tmp_path: Path) -> None:
    talk = talk_in(dialect, tmp_path)
    [entry] = [each for each in talk.listed(tool("look"), identifier="again") if each["name"] == READ_TOOL]
    handle = stored(talk, typed(ROWS))
    for asked in (
        {"path": "/rows"},
        {"path": "/rows", "exact": True},
        {"path": "/nowhere"},
        {"path": "/size"},
    ):
        found = talk.read(handle, **asked)
        if (schema := entry.get("outputSchema")) is not None:
            jsonschema_rs.validate(schema, found["structuredContent"])
    name = "token_budget" if dialect == "scalpel" else "tokenBudget"
    assert name in entry["inputSchema"]["properties"]
    small = talk.read(handle, path="/rows", **{name: 200})
    assert len(data(small)) < len(data(talk.read(handle, path="/rows")))


def test_a_budget_out_of_range_is_said(tmp_path: Path) -> None:
    talk = talk_in("transcend", tmp_path)
    page = document(talk.read(stored(talk, typed(ROWS)), path="/size", tokenBudget=3))
    assert page["tokenBudget"]["requested"] == 100
    assert "raised to 100" in page["warnings"][0]


def test_a_clients_request_id_is_echoed(tmp_path: Path) -> None:
    talk = talk_in("scalpel", tmp_path)
    handle = stored(talk, typed(ROWS))
    [answer], _ = talk.send(
        call(1, READ_TOOL, {"handle": handle, "path": "/size"}, _meta={"request_id": "8b3e"})
    )
    assert json.loads(answer)["result"]["structuredContent"] == {"request_id": "8b3e", "data": 300}
