"""Where each client keeps its configuration.

Strategy: a client has files for the project and for the user, per operating system; the project comes first. Only
the environment is read here: whether a file exists is for the caller to find out.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

Scope = Literal["project", "user"]
SCOPES: Final[tuple[Scope, ...]] = ("project", "user")
CLIENTS: Final = (
    "claude-code",
    "claude-desktop",
    "cursor",
    "vscode",
    "codex",
    "gemini",
    "copilot-cli",
    "lm-studio",
    "opencode",
    "windsurf",
    "zed",
)

_PROJECT: Final = {
    "claude-code": ".mcp.json",
    "cursor": ".cursor/mcp.json",
    "vscode": ".vscode/mcp.json",
    "codex": ".codex/config.toml",
    "gemini": ".gemini/settings.json",
    "opencode": "opencode.json",
    "zed": ".zed/settings.json",
}


def locations(
    client: str,
    scope: Scope | None = None,
    *,
    folder: Path | None = None,
    variables: Mapping[str, str] | None = None,
    system: str = sys.platform,
) -> list[Path]:
    """The files that may hold a client's servers; those of the project in `folder` come first."""
    found: list[Path] = []
    if scope != "user" and client in _PROJECT:
        found.append((Path.cwd() if folder is None else folder) / _PROJECT[client])
    if scope != "project":
        found += _user_files(client, os.environ if variables is None else variables, system)
    return list(dict.fromkeys(found))


def _user_files(client: str, variables: Mapping[str, str], system: str) -> list[Path]:
    name = "USERPROFILE" if system == "win32" else "HOME"
    home = Path(variables[name]) if variables.get(name) else Path.home()

    def folder(variable: str, default: Path) -> Path:
        return Path(variables.get(variable) or default)

    # Where desktop programs keep their settings.
    settings = folder("XDG_CONFIG_HOME", home / ".config")
    if system == "darwin":
        settings = home / "Library" / "Application Support"
    elif system == "win32":
        settings = folder("APPDATA", home / "AppData" / "Roaming")
    if client == "claude-code":
        return [folder("CLAUDE_CONFIG_DIR", home) / ".claude.json"]
    if client == "claude-desktop":
        found = [settings]
        if system == "win32":
            # The program from the Store sees only its own copy of the folder.
            packages = folder("LOCALAPPDATA", home / "AppData" / "Local") / "Packages"
            found = [*sorted(packages.glob("Claude_*/LocalCache/Roaming")), settings]
        return [each / "Claude" / "claude_desktop_config.json" for each in found]
    if client == "vscode":
        programs = ("Code", "Code - Insiders", "VSCodium")
        return [settings / program / "User" / "mcp.json" for program in programs]
    if client == "codex":
        return [folder("CODEX_HOME", home / ".codex") / "config.toml"]
    if client == "copilot-cli":
        return [folder("COPILOT_HOME", home / ".copilot") / "mcp-config.json"]
    if client == "lm-studio":
        return [home / ".lmstudio" / "mcp.json"]
    if client == "opencode":
        place = folder("XDG_CONFIG_HOME", home / ".config") / "opencode"
        return [place / "opencode.json", place / "opencode.jsonc"]
    if client == "windsurf":
        return [home / ".codeium" / "windsurf" / "mcp_config.json"]
    if client == "zed":
        base = settings / "Zed" if system == "win32" else folder("XDG_CONFIG_HOME", home / ".config") / "zed"
        return [base / "settings.json"]
    return [home / _PROJECT[client]]  # Cursor and Gemini use the same path in both
