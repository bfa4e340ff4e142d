"""The clients, and where each of them keeps its configuration.

Strategy: a client is a list of places for its project and for its user, per operating system. The nearer one comes
first. Nothing is read here but the environment: whether a file exists is for the caller to see.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Literal

Scope = Literal["project", "user"]
SCOPES: Final[tuple[Scope, ...]] = ("project", "user")
CLIENTS: Final = ("claude-code", "claude-desktop", "cursor", "vscode", "codex", "gemini")

_Variables = Mapping[str, str]


def places(
    client: str,
    scope: Scope | None = None,
    *,
    folder: Path | None = None,
    variables: _Variables | None = None,
    system: str = sys.platform,
) -> list[Path]:
    """The files in which a client's servers may be, those of the project in `folder` first."""
    variables = os.environ if variables is None else variables
    home = _home(variables, system)
    found: list[Path] = []
    if scope != "user" and client in _PROJECT:
        found.append((Path.cwd() if folder is None else folder) / _PROJECT[client])
    if scope != "project":
        found += _USER[client](home, variables, system)
    return list(dict.fromkeys(found))


def _home(variables: _Variables, system: str) -> Path:
    name = "USERPROFILE" if system == "win32" else "HOME"
    return Path(variables[name]) if variables.get(name) else Path.home()


def _settings(home: Path, variables: _Variables, system: str) -> Path:
    """Where desktop programs keep their settings."""
    if system == "darwin":
        return home / "Library" / "Application Support"
    if system == "win32":
        return Path(variables.get("APPDATA") or home / "AppData" / "Roaming")
    return Path(variables.get("XDG_CONFIG_HOME") or home / ".config")


def _claude_code(home: Path, variables: _Variables, system: str) -> list[Path]:
    return [Path(variables.get("CLAUDE_CONFIG_DIR") or home) / ".claude.json"]


def _claude_desktop(home: Path, variables: _Variables, system: str) -> list[Path]:
    name = Path("Claude") / "claude_desktop_config.json"
    found = [_settings(home, variables, system) / name]
    if system == "win32":
        # From the Store, the program sees its own copy of the folder, and only that.
        local = Path(variables.get("LOCALAPPDATA") or home / "AppData" / "Local") / "Packages"
        found = [*sorted(local.glob("Claude_*/LocalCache/Roaming")), found[0].parents[1]]
        return [folder / name for folder in found]
    return found


def _cursor(home: Path, variables: _Variables, system: str) -> list[Path]:
    return [home / ".cursor" / "mcp.json"]


def _vscode(home: Path, variables: _Variables, system: str) -> list[Path]:
    settings = _settings(home, variables, system)
    return [settings / program / "User" / "mcp.json" for program in ("Code", "Code - Insiders", "VSCodium")]


def _codex(home: Path, variables: _Variables, system: str) -> list[Path]:
    return [Path(variables.get("CODEX_HOME") or home / ".codex") / "config.toml"]


def _gemini(home: Path, variables: _Variables, system: str) -> list[Path]:
    return [home / ".gemini" / "settings.json"]


_PROJECT: Final = {
    "claude-code": Path(".mcp.json"),
    "cursor": Path(".cursor/mcp.json"),
    "vscode": Path(".vscode/mcp.json"),
    "codex": Path(".codex/config.toml"),
    "gemini": Path(".gemini/settings.json"),
}
_USER: Final[dict[str, Callable[[Path, _Variables, str], list[Path]]]] = {
    "claude-code": _claude_code,
    "claude-desktop": _claude_desktop,
    "cursor": _cursor,
    "vscode": _vscode,
    "codex": _codex,
    "gemini": _gemini,
}
