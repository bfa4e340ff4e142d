"""Redaction in the proxy: secrets stay behind, files come through, and nobody gets what is not theirs."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from benchmarks.secret_formats import FORMATS

from ..servers.talkers import CLIENTS, Place, Talker
from .harness import NOTICE, Talk, call, environment, frame, proxied, result, texts, tool, typed
from .real import node

EXAMPLES = {each.title: each.example() for each in FORMATS}
TOKEN = EXAMPLES["GitHub personal"][0]
PLACEHOLDER = re.compile(r"\[redacted:[a-z0-9-]+:[a-z2-7]{6,}\]")


def shown(talk: Talk, text: str, identifier: int = 7) -> Any:
    return talk.called("log", {"content": texts(text)}, identifier=identifier)


def test_a_masked_value_goes_back_to_its_server(tmp_path: Path) -> None:
    talk = Talk(tmp_path, REDACT="tokens")
    said = shown(talk, f"a {TOKEN} b {TOKEN}")
    note, masked = (block["text"] for block in said["content"])
    assert TOKEN not in json.dumps(said)
    first, second = PLACEHOLDER.findall(masked)
    assert first == second
    assert masked == f"a {first} b {first}"
    assert "2 secrets are masked (2 github-token)" in note
    arguments = {"text": f"whole\n{masked}\nfile", "list": [{"x": first}], "n": 1.0}
    _, [onward] = talk.send(call(8, "write", arguments))
    expected = json.loads(json.dumps(arguments).replace(first, TOKEN))
    assert json.loads(onward)["params"]["arguments"] == expected
    assert b'"n":1.0' in onward.replace(b" ", b"")
    # Another process beside the same vault, such as a replica.
    again = Talk(tmp_path, REDACT="tokens")
    assert first in shown(again, TOKEN)["content"][-1]["text"]
    _, [onward] = Talk(tmp_path, REDACT="off").send(call(9, "write", {"a": first}))
    assert TOKEN.encode() in onward


def test_a_secret_that_is_in_both_lanes_is_counted_once(tmp_path: Path) -> None:
    """As a server has it that reads files: the text, and a structure with the same text in a member."""
    both = {"content": texts(f"key: {TOKEN}\n"), "structuredContent": {"content": f"key: {TOKEN}\n"}}
    talk = Talk(tmp_path, REDACT="tokens")
    talk.listed(tool("log"))
    said = talk.called("log", both)
    assert "Warning: 1 secret is masked (1 github-token)." in said["content"][0]["text"]
    [warning] = said["structuredContent"]["_envelope"]["warnings"]
    assert warning.startswith("1 secret is masked (1 github-token).")


@pytest.mark.parametrize("text", ["[REDACTED:JWT:AAAAAA]", "[redacted:jwt:aaaaaa ]"])
def test_a_placeholder_that_was_changed_is_not_written(tmp_path: Path, text: str) -> None:
    [refused], onward = Talk(tmp_path, REDACT="tokens").send(call(7, "write", {"text": text}))
    assert onward == []
    assert b"MASK_UNKNOWN" in refused
    sent = call(7, "write", {"text": text})
    assert Talk(tmp_path, REDACT="off").send(sent) == ([], [sent])


@pytest.mark.parametrize("dialect", ["native", "ctxo", "transcend", "gel", "scalpel"])
def test_an_unknown_placeholder_is_refused(tmp_path: Path, dialect: str) -> None:
    talk = Talk(tmp_path, 2000, REDACT="tokens", DIALECT=dialect)
    [refused], onward = talk.send(call(7, "write", {"text": "x [redacted:github-token:aaaaaa] y"}))
    assert onward == []
    told = json.loads(refused)
    assert told["id"] == 7
    assert "The masked value [redacted:github-token:aaaaaa] is unknown here" in refused.decode()
    code = {"native": "MASK_UNKNOWN", "transcend": "MASK_UNKNOWN", "scalpel": "invalid_argument"}.get(
        dialect, ""
    )
    assert code in refused.decode()
    if dialect == "native":
        assert told["result"]["isError"]
    # Nothing waits for an answer, and the next call is a call.
    assert not talk.wire.expects_answers
    assert talk.send(call(8, "write", {"text": "x"}))[1]


def test_off_changes_nothing(tmp_path: Path) -> None:
    talk = Talk(tmp_path)
    asked = call(7, "write", {"text": f"[redacted:github-token:aaaaaa] {TOKEN}"})
    assert talk.send(asked) == ([], [asked])
    answer = result(7, content=texts(TOKEN))
    assert talk.reply(answer) == ([answer], [])
    observed = Talk(tmp_path, observe=True, REDACT="tokens")
    assert observed.send(asked) == ([], [asked])
    assert observed.reply(answer) == ([answer], [])


def test_another_server_and_another_caller_get_nothing(tmp_path: Path) -> None:
    talk = Talk(tmp_path, REDACT="tokens")
    [mark] = PLACEHOLDER.findall(shown(talk, TOKEN)["content"][-1]["text"])
    asked = call(8, "write", {"text": mark})
    for owner in ("Bearer other", ""):
        back, onward = talk.wire.from_client(asked, owner or "x")
        assert onward == []
        assert b"MASK_UNKNOWN" in back[0]
    other = Talk(tmp_path, REDACT="tokens")
    other.gateway.identity = "another server"
    back, onward = other.send(asked)
    assert onward == []
    assert b"MASK_UNKNOWN" in back[0]
    assert TOKEN.encode() not in back[0]


def test_without_a_vault_the_notice_says_that_nothing_comes_back(tmp_path: Path) -> None:
    talk = Talk(tmp_path, REDACT="tokens", vault="none")
    said = shown(talk, TOKEN)
    note, masked = (block["text"] for block in said["content"])
    assert masked == "[redacted:github-token]"
    assert "cannot be restored" in note
    back, onward = talk.send(call(8, "write", {"text": "[redacted:github-token]"}))
    assert onward == []
    assert b"MASK_UNKNOWN" in back[0]


def test_pages_show_what_the_result_showed(tmp_path: Path) -> None:
    talk = Talk(tmp_path, 1000, REDACT="tokens")
    text = "".join(f"line {number} {TOKEN if number % 100 == 0 else ''}\n" for number in range(3000))
    said = shown(talk, text)
    handle, path = said["_meta"][NOTICE]["handle"], said["_meta"][NOTICE]["dropped"][0]["path"]
    parts, offset = [], 0
    while True:
        page = talk.read(handle, path=path, offset=offset, tokenBudget=10_000)
        parts.append(page["content"][-1]["text"])
        cuts = page.get("_meta", {}).get(NOTICE, {}).get("dropped")
        if not cuts:
            break
        offset = cuts[0]["offset"]
    whole = "".join(parts)
    [mark] = set(PLACEHOLDER.findall(whole))
    assert whole == text.replace(TOKEN, mark)
    _, [onward] = talk.send(call(99, "write", {"text": whole}))
    assert json.loads(onward)["params"]["arguments"]["text"] == text


STRICT = {
    "enum": {"enum": ["keyword", TOKEN]},
    "pattern": {"type": "string", "pattern": "^gh[a-z]_"},
    "maxLength": {"type": "string", "maxLength": 40, "minLength": 40},
}


@pytest.mark.parametrize("kind", STRICT)
def test_a_schema_that_the_mask_would_break(tmp_path: Path, kind: str) -> None:
    schema = {"type": "object", "properties": {"token": STRICT[kind]}, "required": ["token"]}
    talk = Talk(tmp_path, 2000, REDACT="keys")
    talk.listed(tool("log", schema))
    said = talk.called("log", typed({"token": TOKEN}))
    assert said["isError"]
    assert "structuredContent" not in said
    assert TOKEN not in json.dumps(said)
    assert said["_meta"][NOTICE]["error"]["code"] == "RESULT_REDACTED"
    assert PLACEHOLDER.search(json.dumps(said["content"]))
    plain = talk.called("log", typed({"token": "keyword"}), identifier=9)
    assert plain["structuredContent"] == {"token": "keyword"}


def test_errors_are_masked_and_come_back(tmp_path: Path) -> None:
    talk = Talk(tmp_path, REDACT="tokens")
    talk.send(call(7, "log"))
    [said], _ = talk.reply(frame({"id": 7, "error": {"code": 1, "message": f"denied for {TOKEN}"}}))
    [mark] = PLACEHOLDER.findall(said.decode())
    _, [onward] = talk.send(call(8, "log", {"a": mark}))
    assert TOKEN.encode() in onward


# -- files, through the real server -------------------------------------------------------------------------

ORDINARY = {
    "compose.yaml": "services:\n  db:\n    image: postgres:16\n    environment:\n"
    '      POSTGRES_PASSWORD: postgres\n      POSTGRES_USER: "app"\n',
    "settings.py": 'import os\n\nSECRET_KEY = os.environ["SECRET_KEY"]\nPASSWORD_HASHERS = ["argon2"]\n'
    'token = None\nAUTH_TOKEN_HEADER = "X-Auth-Token"\n',
    "de.json": '{\n  "login": {"password": "Passwort", "token": "Schlüssel", "secret": "Geheimnis"}\n}\n',
    "test_login.py": 'def test_login(client):\n    assert client.login(password="correct-horse").token == "abc"\n',
    "README.md": "# App\n\n    export API_KEY=<your key>\n    curl -H 'Authorization: Bearer $TOKEN' $URL\n",
    "tokens.ts": 'export enum TokenKind {\n  Password = "password",\n  NextToken = "next_token",\n}\n',
    "page.json": '{"paginationToken": "AAMA-EFRSURBSGg0bE1iSnBOZ0s4", "lock_token": "9f8e7d6c5b4a39281706"}\r\n',
}
SECRETIVE = {
    ".env": "".join(
        f"{EXAMPLES[title][0]}\n"
        for title in ("dotenv password", "dotenv secret", "Datadog", "PostgreSQL URL")
    ),
    "key.json": EXAMPLES["GCP service account"][0] + "\n",
    "id_rsa": EXAMPLES["OpenSSH key"][0] + "\n",
    "config.yaml": f"token: {TOKEN}\npassword: hunter2\nagain: {TOKEN}\nünïcode: 'ja'\n",
    ".netrc": EXAMPLES["netrc"][0] + "\n",
    "kubeconfig": EXAMPLES["kubeconfig"][0],
    "placeholders.md": "see [redacted:github-token:k3f9aa] and [redacted:jwt]\n",
    "docker.json": EXAMPLES["Docker auth"][0] + "\n",
}


@pytest.mark.parametrize("level", ["tokens", "keys"])
@pytest.mark.parametrize("client", ["mcp-legacy", "fastmcp"])
def test_read_append_and_write_back(tmp_path: Path, level: str, client: str) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    files = {**ORDINARY, **SECRETIVE}
    for name, text in files.items():
        (folder / name).write_bytes(text.encode())
    server = node("server-filesystem", str(folder))
    command = tuple(proxied(*server, options=("--redact", level)))
    place = Place(command=command, env=environment(tmp_path), cwd=str(tmp_path))
    seen: dict[str, str] = {}

    async def edit(proxied: Talker) -> None:
        for name in files:
            path = str(folder / name)
            got = await proxied.call("read_text_file", {"path": path})
            seen[name] = got["structuredContent"]["content"]
            assert got["content"][-1]["text"] == seen[name]
            written = await proxied.call(
                "write_file", {"path": path, "content": seen[name] + "one more line\n"}
            )
            assert not written.get("isError"), written
        path = str(folder / "config.yaml")
        edits = [{"oldText": "again: ", "newText": "again: 2 "}]
        edited = await proxied.call("edit_file", {"path": path, "edits": edits})
        assert TOKEN not in json.dumps(edited)
        refused = await proxied.call(
            "write_file", {"path": path, "content": "[redacted:github-token:zzzzzz]"}
        )
        assert refused["isError"]

    async def main() -> None:
        async with asyncio.timeout(60), CLIENTS[client](place) as talker:
            await edit(talker)

    asyncio.run(main())
    for name, text in files.items():
        expected = text.replace("again: ", "again: 2 ") if name == "config.yaml" else text
        assert (folder / name).read_bytes().decode() == expected + "one more line\n", name
        if name in ORDINARY:
            assert seen[name] == text
    assert all(TOKEN not in text for text in seen.values())
    if level == "keys":
        hidden = ("hunter2", EXAMPLES["netrc"][1], EXAMPLES["Datadog"][1], EXAMPLES["Docker auth"][1])
        assert not [secret for secret in hidden if any(secret in text for text in seen.values())]
