"""Where each client keeps its configuration.

Strategy: a client has files for the project and for the user, per operating system; the project comes first. Only
the environment is read here, and folders that a client reads whole: whether a file exists is for the caller to find
out.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

Scope = Literal["project", "user"]
SCOPES: Final[tuple[Scope, ...]] = ("project", "user")
_PROJECT: Final = {
    "claude-code": ".mcp.json",
    "cursor": ".cursor/mcp.json",
    "vscode": ".vscode/mcp.json",
    "codex": ".codex/config.toml",
    "gemini": ".gemini/settings.json",
    "opencode": "opencode.json",
    "zed": ".zed/settings.json",
}
# Clients that use all of their files, rather than the first. Continue reads a whole folder.
SPREAD: Final = frozenset({"continue"})
_FOLDER: Final = ".continue/mcpServers"


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
    here = Path.cwd() if folder is None else folder
    if scope != "user" and client in _PROJECT:
        found.append(here / _PROJECT[client])
    if scope != "user" and client == "continue":
        found += _each(here / _FOLDER)
    if scope != "project":
        found += _user_files(os.environ if variables is None else variables, system)[client]
    return list(dict.fromkeys(found))


def _each(folder: Path) -> list[Path]:
    return sorted(path for ending in ("json", "yaml", "yml") for path in folder.glob(f"*.{ending}"))


def _user_files(variables: Mapping[str, str], system: str) -> dict[str, list[Path]]:
    name = "USERPROFILE" if system == "win32" else "HOME"
    home = Path(variables[name]) if variables.get(name) else Path.home()

    def folder(variable: str, default: Path) -> Path:
        return Path(variables.get(variable) or default)

    # Where programs keep their settings, and where desktop programs do.
    config = settings = folder("XDG_CONFIG_HOME", home / ".config")
    stores: list[Path] = []
    zed, goose = config / "zed", config / "goose"
    if system == "darwin":
        settings = home / "Library" / "Application Support"
    elif system == "win32":
        settings = folder("APPDATA", home / "AppData" / "Roaming")
        # The program from the Store sees only its own copy of the folder.
        packages = folder("LOCALAPPDATA", home / "AppData" / "Local") / "Packages"
        stores = sorted(packages.glob("Claude_*/LocalCache/Roaming"))
        zed, goose = settings / "Zed", settings / "Block" / "goose" / "config"
    if Path(root := variables.get("GOOSE_PATH_ROOT", "")).is_absolute():
        goose = Path(root) / "config"
    return {
        "claude-code": [folder("CLAUDE_CONFIG_DIR", home) / ".claude.json"],
        "claude-desktop": [each / "Claude" / "claude_desktop_config.json" for each in (*stores, settings)],
        "continue": [
            *(home / ".continue" / name for name in ("config.yaml", "config.json")),
            *_each(home / _FOLDER),
        ],
        "goose": [goose / "config.yaml"],
        "cursor": [home / ".cursor" / "mcp.json"],
        "vscode": [settings / each / "User" / "mcp.json" for each in ("Code", "Code - Insiders", "VSCodium")],
        "codex": [folder("CODEX_HOME", home / ".codex") / "config.toml"],
        "gemini": [home / ".gemini" / "settings.json"],
        "copilot-cli": [folder("COPILOT_HOME", home / ".copilot") / "mcp-config.json"],
        "lm-studio": [home / ".lmstudio" / "mcp.json"],
        "opencode": [config / "opencode" / each for each in ("opencode.json", "opencode.jsonc")],
        "windsurf": [home / ".codeium" / "windsurf" / "mcp_config.json"],
        "zed": [zed / "settings.json"],
    }


CLIENTS: Final = tuple(_user_files({"HOME": os.sep}, "linux"))
