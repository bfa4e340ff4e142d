"""What the extras bring, and what one lacks here: a module that is not installed, or a library that is too old."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import Final

_HTTP: Final = ("aiohappyeyeballs", "anyio", "httptools", "uvicorn")
# The modules that a command or an adapter imports.
_MODULES: Final = {
    "http": _HTTP,
    "login": (*_HTTP, "keyring", "mcp"),
    "demo": ("mcp",),
    "ui": ("starlette", "uvicorn"),
    "images": ("PIL",),
    "yaml": ("yaml",),
    "valkey": ("valkey",),
    "fastmcp": ("fastmcp", "mcp"),
    "sdk": ("mcp",),
}
# The oldest versions that will do. Libraries of others bring older ones.
OLDEST: Final = {"fastmcp": "4.1", "mcp": "2.2"}
# FastMCP without its own extras.
_SLIM: Final = {"fastmcp": "fastmcp-slim"}


def lacking(extra: str) -> str | None:
    """Return what an extra lacks, or None if all of it is there."""
    for module in _MODULES[extra]:
        if find_spec(module) is None:
            return f"{module} is not installed"
        if old := _too_old(module, installed(module)):
            return f"{module}: {old}"
    return None


def installed(library: str) -> str:
    """Return the version of a library, or nothing if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    for name in (library, _SLIM.get(library)):
        if name is not None:
            try:
                return version(name)
            except PackageNotFoundError:
                continue
    return ""


def state(library: str, error: ImportError) -> str:
    """Return why a library could not be imported."""
    found = installed(library)
    if not found:
        return "it is not installed"
    # If it is new enough, something that it needs is missing or broken.
    return _too_old(library, found) or f"found {found}, but it can't be imported ({error})"


def _too_old(library: str, found: str) -> str:
    needs = OLDEST.get(library, "0")
    return f"found {found}, needs {needs}" if found and _release(found) < _release(needs) else ""


def _release(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)[:2]]
