"""`envelope_read` with queries and searches; links to what is stored."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mcp_envelope import Failure, seal
from mcp_envelope.budget import Budget, meter_named
from mcp_envelope.dialects.notice import META_KEY
from mcp_envelope.gateway import Gateway, Published
from mcp_envelope.payload import new_handle, read_payload, read_result
from mcp_envelope.vault import grep
from mcp_envelope.vault.read_tool import TOOL, read, resource
from mcp_envelope.vault.sqlite import SQLiteStore
from mcp_envelope.vault.store import StoreError
from mcp_envelope.vault.vault import Vault

from .reader import Reader

ROWS: list[dict[str, Any]] = [
    {"id": n, "name": f"row {n}", "body": f"first line\nneedle {n} here\nlast line " * 3} for n in range(900)
]
DOCUMENT = {"items": ROWS, "total": 900}


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[Vault]:
    vault = Vault(SQLiteStore(tmp_path / "vault.db"))
    yield vault
    vault.close()


@pytest.fixture
def reader(vault: Vault) -> Reader:
    handle = new_handle()
    assert vault.keep(handle, read_payload(DOCUMENT)) is None
    return Reader(vault, handle, Budget.of(tokens=400))


def everything(reader: Reader, **arguments: Any) -> list[Any]:
    """A list that is read to its end."""
    items: list[Any] = []
    while True:
        blocks, cuts = reader.call(**arguments, offset=len(items))
        items += json.loads(blocks[-1]["text"])
        if not cuts:
            return items
        assert cuts[0]["offset"] == len(items)
        note = blocks[0]["text"]
        assert f"offset={len(items)})" in note
        for name in ("query", "grep"):
            if name in arguments:
                assert f"{name}={json.dumps(arguments[name])}" in note


def test_a_query_is_continued(reader: Reader) -> None:
    assert everything(reader, query="items[?id > `100`].name") == [
        row["name"] for row in ROWS if row["id"] > 100
    ]


def test_a_note_counts_all_matches_or_says_that_it_does_not(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = reader.call(grep="needle")[0][0]["text"]
    assert note.startswith("Items 0 to ")
    assert " of 2700. Read on:" in note
    monkeypatch.setattr(grep, "_COUNTED", 1000)
    (note, _), (cut,) = reader.call(grep="needle")
    said = re.search(r" of at least (\d+)\. Read on:", note["text"])
    assert said
    assert cut["total"] == int(said[1]) < 2700
    assert cut["atLeast"] is True


def test_a_query_that_gives_one_value(reader: Reader) -> None:
    assert reader.call(query="length(items)")[0][-1]["text"] == "900"
    assert reader.call(query="items[7].name")[0][-1]["text"] == "row 7"
    assert reader.call(query="nothing")[0][-1]["text"] == "null"


def test_the_first_block_of_a_page_is_no_json_but_an_object(vault: Vault) -> None:
    # Gemini CLI takes a first block that is JSON for the structure, and refuses any but an object.
    handle = new_handle()
    texts = [{"type": "text", "text": text} for text in ("[1,2]", "17", " true\n", '"a"', "words", '{"a":1}')]
    assert vault.keep(handle, read_result([json.dumps(text).encode() for text in texts], None)) is None
    reader = Reader(vault, handle, Budget.of(tokens=400))
    for number, text in enumerate(texts):
        for path in (f"/content/{number}", f"/content/{number}/text"):
            for exact in (False, True) if path.endswith("text") else (False,):
                shown = reader.call(path=path, exact=exact)[0]
                assert [block["text"] for block in shown][-1].strip() == text["text"].strip()
                try:
                    first = json.loads(shown[0]["text"])
                except ValueError:
                    continue
                assert isinstance(first, dict), (path, exact)


def test_path_and_offset_lead_into_what_a_query_gives(reader: Reader) -> None:
    wanted = ROWS[7]["body"]
    assert isinstance(wanted, str)
    blocks, _ = reader.call(query="items[5:9]", path="/2/body", offset=11)
    assert wanted[11:].startswith(blocks[0]["text"])
    # Something in it that is too large for a page is told with a path that works.
    large = {"items": [{"text": "word " * 5000}]}
    handle = new_handle()
    reader.vault.keep(handle, read_payload(large))
    other = Reader(reader.vault, handle, reader.budget)
    blocks, cuts = other.call(query="items[*]")
    assert cuts[0]["path"] == "/0/text"
    rest = other.call(query="items[*]", path="/0/text", offset=cuts[0]["offset"])[0][-1]["text"]
    assert ("word " * 5000)[cuts[0]["offset"] :].startswith(rest)


def test_a_search_is_continued_and_leads_to_pages(reader: Reader) -> None:
    found = everything(reader, grep=r"^needle 8\d\d here$")
    assert len(found) == 3 * 100
    for match in found[::37]:
        page = reader.call(path=match["path"], offset=match["offset"])[0][-1]["text"]
        assert page.startswith(match["text"])


def test_a_search_below_a_path_with_context(reader: Reader) -> None:
    blocks, _ = reader.call(grep="needle", path="/items/3", context=1)
    (first, *_) = json.loads(blocks[-1]["text"])
    assert first["path"] == "/items/3/body"
    assert first["before"] == ["first line"]
    assert first["after"][0].startswith("last line")


def test_a_match_with_much_around_it_fits_and_names_no_path_that_leads_nowhere(vault: Vault) -> None:
    handle = new_handle()
    lines = "\n".join([f"{n} " + "much text " * 60 for n in range(200)])
    assert vault.keep(handle, read_payload(lines, "text")) is None
    reader = Reader(vault, handle, Budget.of(tokens=128))
    blocks, cuts = reader.call(grep="^100 ", context=20)
    (match,) = json.loads(blocks[-1]["text"])
    assert match["offset"] == lines.index("100 ")
    assert cuts == []


@pytest.mark.parametrize(
    ("arguments", "code", "position"),
    [
        ({"query": "items[?id >"}, "BAD_QUERY", 11),
        ({"query": "items[?"}, "BAD_QUERY", 7),
        ({"grep": "a(b"}, "BAD_QUERY", 1),
        ({"grep": "[z-a]"}, "BAD_QUERY", 1),
        ({"query": "|".join(["[@,@]"] * 200)}, "QUERY_TOO_COSTLY", None),
        ({"grep": "x" * 5000}, "BAD_QUERY", None),
    ],
)
def test_mistakes_are_told_with_their_place(reader: Reader, arguments: Any, code: str, position: Any) -> None:
    sealed = read(reader.vault, {"handle": reader.handle, **arguments}, budget=Budget.of())
    assert sealed.problem is not None
    assert sealed.problem.code == code
    assert sealed.problem.hint
    if position is not None:
        assert sealed.problem.details is not None
        assert sealed.problem.details["position"] == position


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        ({"path": "/a/b/c"}, "There is nothing at '/a/b/c'.", "The keys at /a/b are d."),
        ({"path": "/a/b/d/e"}, "There is nothing at '/a/b/d/e'.", "There is a number at /a/b/d."),
        ({"path": "/home/me"}, "There is nothing at '/home/me'.", "The keys at the top are a, items."),
        ({"path": "/\ud83d"}, "There is nothing at '/\\ud83d'.", "The keys at the top are a, items."),
        (
            {"query": "let $x = items in $x"},
            "let  <-- HERE $x = items in $x",
            "Fix it at the position given.",
        ),
    ],
)
def test_what_the_caller_said_is_said_back(
    vault: Vault, arguments: dict[str, Any], message: str, hint: str
) -> None:
    handle = new_handle()
    vault.keep(handle, read_payload({"a": {"b": {"d": 1}}, "items": [1]}))
    problem = read(vault, {"handle": handle, **arguments}).problem
    assert problem is not None
    assert message in problem.message
    assert problem.hint == hint


def test_a_query_of_a_text_has_no_position(vault: Vault) -> None:
    handle = new_handle()
    vault.keep(handle, read_payload("plain words", "text"))
    problem = read(vault, {"handle": handle, "query": "a"}).problem
    assert problem is not None
    assert problem.code == "BAD_QUERY"
    assert problem.hint == "Search it with grep, or read pages."
    assert not problem.details


@pytest.mark.parametrize(
    "trouble",
    [
        "valkey://db.example:6379 cannot be reached: Error 111 connecting to db.example:6379.",
        "Error -2 connecting to db.example:6379. Name or service not known.",
    ],
)
def test_the_address_of_a_store_is_for_the_log(
    vault: Vault, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    def fails(*_: object) -> None:
        raise StoreError(trouble)

    monkeypatch.setattr(vault.store, "write", fails)
    said = seal({"items": list(range(9000))}, tokens=300, vault=vault.of(None)).to_json()
    assert b"was not stored" in said
    assert b"db.example" not in said


def test_what_the_tool_says_of_itself() -> None:
    assert TOOL["annotations"]["readOnlyHint"]
    assert TOOL["_meta"] == {"anthropic/alwaysLoad": True}
    assert TOOL["annotations"]["idempotentHint"]


def test_the_tool_costs_a_model_at_most_150_tokens_and_a_budget_argument_12() -> None:
    def tokens(entry: dict[str, Any]) -> int:
        shown = {name: entry[name] for name in ("name", "description", "inputSchema")}
        return meter_named("exact").count(json.dumps(shown, separators=(",", ":")).encode())

    # Clients put up to 14 tokens around it (docs/clients.md).
    assert tokens(Gateway().read_tool()) <= 136
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tool = {"name": "weather", "description": "The weather in a city.", "inputSchema": schema}
    assert 0 < tokens(Gateway().listed(tool, Published())) - tokens(tool) <= 12


# -- images and the like ------------------------------------------------------------------------------------


def _image(size: int) -> dict[str, Any]:
    return {"type": "image", "data": base64.b64encode(os.urandom(size)).decode(), "mimeType": "image/png"}


def test_an_image_over_the_budget_is_stored_and_linked_to(vault: Vault) -> None:
    blocks = [{"type": "text", "text": "a picture"}, _image(50_000)]
    sealed = seal(blocks, tokens=400, vault=vault.of(None), links=True)
    note, *shown = json.loads(sealed.content)
    assert "/content/1" in note["text"]
    assert shown[0] == blocks[0]
    assert "image/png left out" in shown[1]["text"]
    link = shown[2]
    assert link["type"] == "resource_link"
    assert link["mimeType"] == "image/png"
    assert sealed.report.content_used <= 400
    (contents,) = json.loads(resource(vault, link["uri"]))["contents"]
    assert contents == {"uri": link["uri"], "mimeType": "image/png", "blob": blocks[1]["data"]}
    # By pages, too, to the last byte.
    assert sealed.handle is not None
    reader = Reader(vault, sealed.handle, Budget.of(tokens=2000))
    data = blocks[1]["data"]
    assert reader.text("/content/1/data", 0, len(data), exact=True) == data


@pytest.mark.parametrize("inside", [False, True])
def test_base64_is_no_text_to_a_query(vault: Vault, inside: bool) -> None:
    data = base64.b64encode(os.urandom(50_000)).decode()
    sound = {"type": "audio", "data": data, "mimeType": "audio/wav"}
    archive = {"type": "resource", "resource": {"uri": "file:///a.zip", "blob": data}}
    blocks = [{"type": "text", "text": "words"}, archive if inside else sound]
    handle = new_handle()
    assert vault.keep(handle, read_result([json.dumps(block).encode() for block in blocks], None)) is None
    reader = Reader(vault, handle, Budget.of(tokens=2000))
    way, steps = ("/resource/blob", ".resource.blob") if inside else ("/data", ".data")
    for query in ("content", "content[1]", f"content[1]{steps}", f"{{a: content[1]{steps}}}"):
        shown, cuts = reader.call(query=query)
        assert data[:60] not in json.dumps(shown)
        assert f"[{len(data) + 2} bytes of base64, see /content/1]" in shown[-1]["text"]
        assert not cuts
    assert reader.call(query=f"length(content[1]{steps})")[0][-1]["text"] == str(len(data))
    for path in ("/content/1", f"/content/1{way}"):
        refused = read(vault, {"handle": handle, "path": path, "lines": "1-2"})
        assert refused.problem is not None
        assert refused.problem.message == f"There is no text at {path}."
    assert reader.text(f"/content/1{way}", 0, len(data), exact=True) == data


def test_without_safe_links_there_is_the_note_alone(vault: Vault) -> None:
    sealed = seal([_image(50_000)], tokens=400, vault=vault.of(None))
    kinds = [block["type"] for block in json.loads(sealed.content)]
    assert kinds == ["text", "text"]
    assert sealed.handle is not None
    sealed = seal([_image(50_000)], tokens=400, links=True)
    assert "resource_link" not in sealed.content.decode()


@pytest.mark.parametrize(
    ("uri", "code"),
    [
        ("envelope://nobody/content/0", "HANDLE_UNKNOWN"),
        ("envelope://HANDLE/content/9", "BAD_PATH"),
        ("envelope://HANDLE", "TOO_LARGE"),
    ],
)
def test_a_link_that_leads_nowhere(vault: Vault, uri: str, code: str) -> None:
    handle = new_handle()
    vault.keep(handle, read_payload([_image(7_000_000)]))
    with pytest.raises(Failure) as failure:
        resource(vault, uri.replace("HANDLE", handle))
    assert failure.value.problem.code == code


def test_a_link_of_somebody_else_is_unknown(vault: Vault) -> None:
    handle = new_handle()
    vault.keep(handle, read_payload([_image(100)]), owner="alice")
    assert json.loads(resource(vault, f"envelope://{handle}/content/0", "alice"))["contents"]
    with pytest.raises(Failure) as failure:
        resource(vault, f"envelope://{handle}/content/0", "bob")
    assert failure.value.problem.code == "HANDLE_UNKNOWN"


# -- results with two lanes ---------------------------------------------------------------------------------


def test_a_result_with_two_lanes_is_stored_whole(vault: Vault) -> None:
    content = [b'{"type":"text","text":"%b"}' % (b"other words " * 3000)]
    structured = json.dumps({"rows": list(range(5000))}).encode()
    sealed = seal(read_result(content, structured), tokens=400, vault=vault.of(None))
    assert sealed.meta is not None
    handle = sealed.meta[META_KEY]["handle"]
    (in_text,) = sealed.content_cuts
    (in_structure,) = sealed.structured_cuts
    assert (in_text.path, in_structure.path) == ("/content/0/text", "/structuredContent/rows")
    reader = Reader(vault, handle, Budget.of(tokens=2000))
    assert reader.text(in_text.path) == "other words " * 3000
    assert reader.value(in_structure.path, list(range(5000))) == list(range(5000))
    # Whoever leaves out the lane's name gets there, too.
    assert json.loads(reader.call(path="/rows", offset=4990)[0][-1]["text"]) == list(range(4990, 5000))


@pytest.mark.parametrize(
    ("texts", "structured"),
    [
        (['{"rows": [1, 2]}'], {"rows": [1, 2]}),
        (["[1, 2]"], {"result": [1, 2]}),
        (["1", "2"], {"result": [1, 2]}),
        (["one", "two"], {"result": ["one", "two"]}),
        (['{\n "a": 1.0\n}'], {"a": 1.0}),
        (['"caf\\u00e9"'], "café"),
        (['"caf\\u00e9"'], {"result": "café"}),
        ([], {"a": 1}),
    ],
)
def test_texts_that_repeat_the_structure_are_not_kept_twice(texts: list[str], structured: Any) -> None:
    content = [json.dumps({"type": "text", "text": text}).encode() for text in texts]
    assert read_result(content, json.dumps(structured).encode()).blocks is None


@pytest.mark.parametrize(
    ("texts", "structured"),
    [
        (["[1, 3]"], {"result": [1, 2]}),
        (["1", "2", "3"], {"result": [1, 2]}),
        (["2", "1"], {"result": [1, 2]}),
        (["a summary that is rather long"], {"rows": [1, 2]}),
        # The same, but a text should be cut as a text.
        (["just words"], {"result": "just words"}),
    ],
)
def test_texts_that_say_something_else_are_kept(texts: list[str], structured: Any) -> None:
    content = [json.dumps({"type": "text", "text": text}).encode() for text in texts]
    assert read_result(content, json.dumps(structured).encode()).blocks is not None


def test_a_text_that_the_structure_repeats_is_cut_as_a_text(vault: Vault) -> None:
    text = 'a line with "quotes"\n' * 2000
    block = json.dumps({"type": "text", "text": text}).encode()
    sealed = seal(
        read_result([block], json.dumps({"content": text}).encode()), tokens=400, vault=vault.of(None)
    )
    shown = json.loads(sealed.content)
    assert text.startswith(shown[1]["text"].split("…")[0])
    assert {cut.path for cut in sealed.content_cuts} == {"/content/0/text"}
    assert sealed.handle is not None
    assert Reader(vault, sealed.handle, Budget.of(tokens=2000)).text("/content/0/text") == text


@pytest.mark.parametrize("dialect", ["ctxo", "transcend", "scalpel"])
def test_a_text_beside_the_structure_is_not_lost_in_other_dialects(vault: Vault, dialect: str) -> None:
    block = json.dumps({"type": "text", "text": "words of its own " * 500}).encode()
    result = read_result([block], b'{"n":1}')
    sealed = seal(result, dialect=dialect, vault=vault.of(None))
    # What the model reads names it: the document where it has warnings, otherwise a block behind it.
    told = "".join(each["text"] for each in json.loads(sealed.content)).replace("\\", "")
    assert f"({len(block)} bytes)" in told
    handle = told.split('handle="')[1].split('"')[0]
    assert handle == sealed.handle
    assert Reader(vault, handle, Budget.of()).text("/content/0/text") == "words of its own " * 500
    # Without a vault it is at least named.
    assert b"not kept" in seal(result, dialect=dialect).content


def test_gel_shows_a_text_beside_the_structure_and_links_to_all_of_it(vault: Vault) -> None:
    block = json.dumps({"type": "text", "text": "words of its own " * 500}).encode()
    sealed = seal(read_result([block], b'{"n":1}'), dialect="gel", vault=vault.of(None))
    _, text, link = json.loads(sealed.content)
    assert text["text"].startswith("words of its own words")
    handle = link["uri"].removeprefix("envelope://")
    assert Reader(vault, handle, Budget.of()).text("/content/0/text") == "words of its own " * 500


@pytest.mark.parametrize("dialect", ["ctxo", "scalpel"])
def test_warnings_are_in_the_meta_where_a_contract_has_no_place_for_them(dialect: str) -> None:
    sealed = seal({"n": 1}, dialect=dialect, warnings=["3 files are stale"])
    assert sealed.to_result()["_meta"][META_KEY] == {"warnings": ["3 files are stale"]}


@pytest.mark.parametrize(("asked", "hint"), [("$.items[0].name", "/items/0/name"), ("items", "/items")])
def test_a_path_in_another_language_is_told_in_ours(reader: Reader, asked: str, hint: str) -> None:
    sealed = read(reader.vault, {"handle": f" {reader.handle} ", "path": asked})
    assert sealed.problem is not None
    assert sealed.problem.hint.endswith(f"{hint}.")
    assert json.loads(
        read(reader.vault, {"handle": reader.handle, "path": "/items", "offset": "899"}).content
    )


def test_a_ranked_list_has_no_place_to_go_on_from(vault: Vault) -> None:
    from mcp_envelope import rank

    rows = {"rows": [{"n": n, "score": n % 97} for n in range(900)]}
    sealed = seal(rows, tokens=300, rank={"/rows": rank("-score")}, vault=vault.of(None))
    assert b"All items in original order: envelope_read(handle, path=" in (sealed.structured or b"")
