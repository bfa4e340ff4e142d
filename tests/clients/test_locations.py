"""Where the clients keep their configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_envelope.clients.locations import CLIENTS, Scope, locations

HOME = Path("/home/me")
HERE = Path("/home/me/site")


def found(client: str, system: str, scope: Scope | None = None, **variables: str) -> list[str]:
    given = {"HOME": str(HOME), "USERPROFILE": str(HOME), **variables}
    return [path.as_posix() for path in locations(client, scope, folder=HERE, variables=given, system=system)]


@pytest.mark.parametrize(
    ("client", "system", "expected"),
    [
        ("claude-code", "linux", ["site/.mcp.json", ".claude.json"]),
        ("claude-desktop", "linux", [".config/Claude/claude_desktop_config.json"]),
        ("claude-desktop", "darwin", ["Library/Application Support/Claude/claude_desktop_config.json"]),
        ("claude-desktop", "win32", ["AppData/Roaming/Claude/claude_desktop_config.json"]),
        ("cursor", "darwin", ["site/.cursor/mcp.json", ".cursor/mcp.json"]),
        ("codex", "win32", ["site/.codex/config.toml", ".codex/config.toml"]),
        ("gemini", "linux", ["site/.gemini/settings.json", ".gemini/settings.json"]),
        ("copilot-cli", "linux", [".copilot/mcp-config.json"]),
        ("lm-studio", "darwin", [".lmstudio/mcp.json"]),
        (
            "opencode",
            "darwin",
            ["site/opencode.json", *(f".config/opencode/opencode.json{c}" for c in ("", "c"))],
        ),
        ("goose", "darwin", [".config/goose/config.yaml"]),
        ("goose", "win32", ["AppData/Roaming/Block/goose/config/config.yaml"]),
        ("windsurf", "win32", [".codeium/windsurf/mcp_config.json"]),
        ("zed", "linux", ["site/.zed/settings.json", ".config/zed/settings.json"]),
        ("zed", "win32", ["site/.zed/settings.json", "AppData/Roaming/Zed/settings.json"]),
    ],
)
def test_by_system(client: str, system: str, expected: list[str]) -> None:
    assert found(client, system) == [f"{HOME}/{name}" for name in expected]


def test_vscode_has_several_programs() -> None:
    user = "Library/Application Support/Code/User/mcp.json"
    assert found("vscode", "darwin")[:2] == [f"{HERE}/.vscode/mcp.json", f"{HOME}/{user}"]
    assert found("vscode", "linux", "user")[0] == f"{HOME}/.config/Code/User/mcp.json"


def test_scopes() -> None:
    for client in CLIENTS:
        both = found(client, "linux")
        assert found(client, "linux", "project") + found(client, "linux", "user") == both
    assert found("claude-desktop", "linux", "project") == []


def test_variables() -> None:
    assert found("codex", "linux", "user", CODEX_HOME="/c") == ["/c/config.toml"]
    assert found("claude-code", "linux", "user", CLAUDE_CONFIG_DIR="/c") == ["/c/.claude.json"]
    assert found("goose", "linux", GOOSE_PATH_ROOT="/c") == ["/c/config/config.yaml"]
    assert found("goose", "linux", GOOSE_PATH_ROOT="c") == [f"{HOME}/.config/goose/config.yaml"]
    assert found("claude-desktop", "linux", XDG_CONFIG_HOME="/c") == ["/c/Claude/claude_desktop_config.json"]
    assert found("claude-desktop", "win32", APPDATA="/c") == ["/c/Claude/claude_desktop_config.json"]
    assert found("claude-desktop", "darwin", XDG_CONFIG_HOME="/c")[0].startswith(str(HOME))


def test_the_store_has_a_folder_of_its_own(tmp_path: Path) -> None:
    roaming = tmp_path / "Packages" / "Claude_abc" / "LocalCache" / "Roaming"
    roaming.mkdir(parents=True)
    store, usual = found("claude-desktop", "win32", LOCALAPPDATA=str(tmp_path), APPDATA="/c")
    assert store == (roaming / "Claude" / "claude_desktop_config.json").as_posix()
    assert usual == "/c/Claude/claude_desktop_config.json"


def test_a_project_in_the_home_folder_is_looked_at_once() -> None:
    given = {"HOME": str(HOME)}
    assert len(locations("cursor", folder=HOME, variables=given, system="linux")) == 1
