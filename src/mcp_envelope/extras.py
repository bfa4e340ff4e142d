"""What the extras bring, and what one lacks here: a module that is not installed, or a library that is too old."""

from __future__ import annotations

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
# The first major versions that will do. Libraries of others bring older ones.
_MAJORS: Final = {"fastmcp": 4, "mcp": 2}
# FastMCP without its own extras.
_SLIM: Final = {"fastmcp": "fastmcp-slim"}


def lacking(extra: str) -> str | None:
    """Return what an extra lacks, or None if all of it is there."""
    for module in _MODULES[extra]:
        if find_spec(module) is None:
            return f"{module} is not installed"
        needs, found = _MAJORS.get(module), installed(module)
        if needs is not None and found and _major(found) < needs:
            return f"{module}: {too_old(found, needs)}"
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


def state(library: str, error: ImportError, needs: int = 0) -> str:
    """Return why a library could not be imported."""
    found = installed(library)
    if not found:
        return "it is not installed"
    if _major(found) < needs:
        return too_old(found, needs)
    # The library is fine, and something that it needs is missing or broken.
    return f"found {found}, but it can't be imported ({error})"


def too_old(found: str, needs: int) -> str:
    return f"found {found}, needs {needs}"


def _major(version: str) -> int:
    return int(version.partition(".")[0])
