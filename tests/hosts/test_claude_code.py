"""The hook for Claude Code: events as version 2.1.327 writes them. `make lab ARGS=--inside` runs the real one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from lab.cases import marks
from lab.server import lines, rows, screenshot

from mcp_envelope import __version__
from mcp_envelope.budget import Budget
from mcp_envelope.config import Settings
from mcp_envelope.gateway import Gateway
from mcp_envelope.hosts import claude_code

from ..cli.harness import COMMAND, Outcome, process, runner

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = Path(claude_code.__file__).parent / "plugins" / "claude-code"
SAVED = (
    "Error: result (199,599 characters) exceeds maximum allowed tokens. Output has been saved to {}.\n"
    "Format: JSON with schema: {{rows: [{{...}}], count: number}}\nUse jq to make structured queries."
)


@pytest.fixture
def gateway(tmp_path: Path) -> Gateway:
    return Gateway(Settings(None, {}, tmp_path), vault=str(tmp_path / "vault.db"), ledger=False)


def event(tool: str, response: Any, folder: Path | str = "", **more: Any) -> bytes:
    told = {
        "session_id": "5b0c", "transcript_path": f"{folder}/5b0c.jsonl" if folder else "", "cwd": "/",
        "permission_mode": "default", "hook_event_name": "PostToolUse", "tool_name": tool, "tool_input": {},
        "tool_response": response, "tool_use_id": "toolu_1", "duration_ms": 12, **more,
    }  # fmt: skip
    return json.dumps(told).encode()


def updated(gateway: Gateway, tool: str, response: Any, folder: Path | str = "") -> Any:
    """What the result becomes; None if it stays as it is."""
    answer = claude_code.answer(event(tool, response, folder), gateway)
    if answer is None:
        return None
    said = json.loads(answer)
    assert list(said) == ["hookSpecificOutput"]
    assert said["hookSpecificOutput"]["hookEventName"] == "PostToolUse"
    return said["hookSpecificOutput"]["updatedToolOutput"]


def compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def saved(folder: Path, name: str, text: str) -> str:
    file = folder / "5b0c" / "tool-results" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return str(file)


def test_a_structure_stays_one_and_is_within_the_limits(gateway: Gateway) -> None:
    whole = {"rows": rows(60_000), "count": 1071}
    shown = updated(gateway, "mcp__lab__typed_rows", compact(whole))
    assert isinstance(shown, str)
    document = json.loads(shown)
    assert document["_envelope"]["truncated"] is True
    assert document["count"] == 1071
    assert len(shown) < 49_500
    assert Budget.of(tokens=10_000).holds(shown.encode())
    assert document["rows"][:3] == whole["rows"][:3]  # type: ignore[index]


@pytest.mark.parametrize(
    "response",
    [
        "",
        "a word",
        compact({"rows": rows(2000)}),
        [],
        [{"type": "text", "text": lines(2000)}],
        [
            {"type": "text", "text": "#00000"},
            {"type": "text", "text": "[Resource link: report] lab://report"},
        ],
        None,
        7,
    ],
)
def test_what_fits_is_not_answered(gateway: Gateway, response: Any) -> None:
    assert updated(gateway, "mcp__lab__tool", response) is None


def test_content_stays_blocks(gateway: Gateway) -> None:
    shown = updated(gateway, "mcp__lab__long_text", [{"type": "text", "text": lines(60_000)}])
    assert {block["type"] for block in shown} == {"text"}
    assert all(set(block) == {"type", "text"} for block in shown)
    assert shown[0]["text"].startswith("Showing ")
    assert sum(len(block["text"]) for block in shown) < 49_500


def test_a_text_that_is_no_structure_stays_text(gateway: Gateway) -> None:
    shown = updated(gateway, "mcp__lab__tool", "{ " + lines(60_000))
    assert {block["type"] for block in shown} == {"text"}


def test_a_picture_stays_beside_a_text_that_is_cut(gateway: Gateway) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": screenshot(90_000)}
    picture = {"type": "image", "source": source}
    where = {"type": "text", "text": "[Image: source: /a/b.png]"}
    assert updated(gateway, "mcp__lab__picture", [picture, where]) is None
    shown = updated(gateway, "mcp__lab__picture", [picture, {"type": "text", "text": lines(60_000)}])
    assert [block for block in shown if block["type"] == "image"] == [picture]
    assert shown[0]["text"].startswith("Showing ") or shown[1]["text"].startswith("Showing ")


def test_a_result_that_was_saved_is_read_from_its_file(gateway: Gateway, tmp_path: Path) -> None:
    whole = {"rows": rows(200_000), "count": 3571}
    path = saved(tmp_path, "mcp-lab-typed_rows-1-a.txt", compact(whole))
    document = json.loads(updated(gateway, "mcp__lab__typed_rows", SAVED.format(path), tmp_path))
    assert document["count"] == 3571
    assert document["_envelope"]["truncated"] is True
    blocks = [{"type": "text", "text": lines(200_000)}]
    path = saved(tmp_path, "mcp-lab-long_text-1-a.txt", compact(blocks))
    shown = updated(gateway, "mcp__lab__long_text", SAVED.format(path), tmp_path)
    assert len(marks("".join(block["text"] for block in shown))) > 500


def test_a_saved_result_that_fits_the_settings_is_shown_whole(tmp_path: Path) -> None:
    roomy = Gateway(Settings(None, {"MCP_ENVELOPE_TOKENS": "20000"}, tmp_path), vault="none", ledger=False)
    text = compact({"words": "word " * 8000})
    path = saved(tmp_path, "mcp-lab-words-1-a.txt", text)
    assert updated(roomy, "mcp__lab__words", SAVED.format(path), tmp_path) == text


@pytest.mark.parametrize(
    "where", ["elsewhere.txt", "5b0c/notes.txt", "5b0c/tool-results/../../elsewhere.txt"]
)
def test_no_other_file_is_read(gateway: Gateway, tmp_path: Path, where: str) -> None:
    """A tool may say what Claude Code says, and name any file."""
    (tmp_path / "5b0c" / "tool-results").mkdir(parents=True)
    for name in ("elsewhere.txt", "5b0c/notes.txt"):
        (tmp_path / name).write_text("secret " * 20_000)
    link = tmp_path / "5b0c" / "tool-results" / "link.txt"
    link.symlink_to(tmp_path / "elsewhere.txt")
    for path in (tmp_path / where, link):
        assert updated(gateway, "mcp__lab__tool", SAVED.format(path), tmp_path) is None
        response = {"stdout": "1\n2", "stderr": "", "persistedOutputPath": str(path)}
        assert updated(gateway, "Bash", response, tmp_path) is None
    # Without a transcript there is no session whose files these could be.
    assert updated(gateway, "mcp__lab__tool", SAVED.format(tmp_path / where)) is None


def test_what_bash_prints_is_cut_and_the_rest_of_the_answer_stays(gateway: Gateway, tmp_path: Path) -> None:
    printed = "\n".join(map(str, range(1, 40_001)))
    path = saved(tmp_path, "b1.txt", printed)
    others = {"stderr": "", "interrupted": False, "isImage": False, "noOutputExpected": False}
    response = {"stdout": printed[:30_000], **others, "persistedOutputPath": path, "persistedOutputSize": 1}
    shown = updated(gateway, "Bash", response, tmp_path)
    text = shown.pop("stdout")
    assert shown == others
    assert f" of {len(printed)} characters" in text
    assert "40000" in text
    assert len(text) < 30_000
    assert updated(gateway, "Bash", {"stdout": "hi", **others}) is None


def test_what_grep_finds_is_within_its_own_limit(gateway: Gateway) -> None:
    found = "\n".join(f"/include/{n}.h:{n}: * a line of it" for n in range(20_000))
    response = {"mode": "content", "numFiles": 0, "filenames": [], "content": found, "numLines": 20_000}
    shown = updated(gateway, "Grep", response)
    assert len(shown["content"]) < 20_000
    assert {**shown, "content": found} == response
    assert updated(gateway, "Grep", {"mode": "files_with_matches", "filenames": ["a"] * 9000}) is None


@pytest.mark.parametrize(
    "tool", ["Read", "Edit", "Write", "Task", "mcp__plugin_mcp-envelope_results__envelope_read"]
)
def test_what_is_left_alone(gateway: Gateway, tool: str) -> None:
    text = lines(200_000)
    for response in (
        {"type": "text", "file": {"content": text}, "stdout": text},
        [{"type": "text", "text": text}],
    ):
        assert updated(gateway, tool, response) is None


def test_a_failure_cannot_be_replaced(gateway: Gateway) -> None:
    told = event("mcp__lab__failure", None, hook_event_name="PostToolUseFailure", error=lines(60_000))
    assert claude_code.answer(told, gateway) is None


def test_settings_of_one_tool_apply_under_its_own_name(tmp_path: Path) -> None:
    file = tmp_path / "mcp-envelope.toml"
    file.write_text("[tools.typed_rows]\ntokens = 300\n[tools.Bash]\ntokens = 200\n")
    strict = Gateway(Settings(file, {}), vault="none", ledger=False)
    shown = updated(strict, "mcp__lab__typed_rows", compact({"rows": rows(20_000)}))
    assert Budget.of(tokens=300).holds(shown.encode())
    shown = updated(strict, "Bash", {"stdout": "\n".join(map(str, range(3000)))})
    assert Budget.of(tokens=200).holds(shown["stdout"].encode())


# -- the command and the plugin -----------------------------------------------------------------------------------


def state(folder: Path) -> Any:
    return {"HOME": str(folder), "XDG_STATE_HOME": str(folder), "MCP_ENVELOPE_VAULT": None}


def run(tmp_path: Path, stdin: bytes, *arguments: str) -> Outcome:
    return process("hook", *(arguments or ("claude-code",)), stdin=stdin, **state(tmp_path))


@pytest.mark.process
def test_the_command_answers_and_stores(tmp_path: Path) -> None:
    said = run(tmp_path, event("mcp__lab__long_text", [{"type": "text", "text": lines(60_000)}]))
    assert (said.code, said.err) == (0, "")
    shown = json.loads(said.out)["hookSpecificOutput"]["updatedToolOutput"]
    handle = shown[0]["text"].partition('handle="')[2].partition('"')[0]
    page = process("read", handle, "--grep", "#01700", **state(tmp_path))
    assert b"#01700" in page.out
    quiet = run(tmp_path, event("mcp__lab__long_text", [{"type": "text", "text": "short"}]))
    assert quiet == Outcome(0, b"", "")


@pytest.mark.process
@pytest.mark.parametrize("stdin", [b"", b"no JSON", b"[]", b'{"tool_name": 1}'])
def test_an_event_that_cannot_be_read_leaves_the_result_alone(tmp_path: Path, stdin: bytes) -> None:
    said = run(tmp_path, stdin)
    # Not 2: with that, Claude Code would tell its model of an error.
    assert said.code == 1
    assert said.out == b""
    assert said.err.startswith("error: the result is left unchanged: ")
    assert said.err.count("\n") == 1


def test_the_plugin_is_where_the_command_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    said = runner("hook", tmp_path, monkeypatch, capsysbinary)("claude-code", "--plugin")
    assert said.out.decode().strip() == str(PLUGIN)
    manifest = json.loads((PLUGIN / ".claude-plugin" / "plugin.json").read_text())
    assert (manifest["name"], manifest["version"]) == ("mcp-envelope", __version__)
    (entry,) = json.loads((PLUGIN / "hooks" / "hooks.json").read_text())["hooks"]["PostToolUse"]
    assert [each["command"] for each in entry["hooks"]] == ["mcp-envelope hook claude-code"]
    (server,) = json.loads((PLUGIN / ".mcp.json").read_text())["mcpServers"].values()
    assert [server["command"], *server["args"]] == ["mcp-envelope", "serve"]
    assert Path(sys.executable).with_name("mcp-envelope").exists()
    assert COMMAND[0] == sys.executable


def test_the_marketplace_has_the_plugin() -> None:
    """`claude plugin validate --strict .` says the same, if the client is there."""
    market = json.loads((ROOT / ".claude-plugin" / "marketplace.json").read_text())
    [offered] = market["plugins"]
    manifest = json.loads((PLUGIN / ".claude-plugin" / "plugin.json").read_text())
    assert (ROOT / offered["source"]).resolve() == PLUGIN
    assert offered["name"] == manifest["name"]
    assert "version" not in offered
    assert f"plugin install {offered['name']} --marketplace" in (ROOT / "docs" / "hosts.md").read_text()
