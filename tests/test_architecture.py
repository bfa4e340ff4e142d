"""Imports point one way, and docs/design.md names every module.

`LAYERS` is the house from the top down. A module imports from its own row's package and from rows below it,
imports for type checking included. The longest name that fits a module counts.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "mcp_envelope"
LAYERS: tuple[tuple[str, ...], ...] = (
    ("__init__", "__main__"),
    ("cli", "testing"),
    ("ui", "demo", "hosts", "login"),
    ("proxy", "servers", "check"),
    ("gateway",),
    ("vault", "clients", "tracing"),
    ("envelope",),
    ("config",),
    ("reply_meta",),
    ("vault.store",),  # the protocol of a store and its defaults, which are settings
    ("dialects",),
    ("lanes", "redaction"),
    ("outcome", "payload"),
    ("fit", "errors"),
    ("schema", "scrubbing"),
    ("jsontext", "budget", "codes", "secrets", "anchors", "state_files", "lint"),
    ("spelling", "extras"),
)
LEVEL = {name: level for level, names in enumerate(reversed(LAYERS)) for name in names}

# These stand alone. Edits of configuration files need positions in JSON, and what they show must hide secrets.
ALONE = {"lint": set[str](), "clients": {"budget", "jsontext", "redaction", "secrets"}}

# What speaks to others belongs above the gateway. A store may live on another machine.
OUTSIDE = {
    "anyio", "asyncio", "fastmcp", "h11", "http", "httptools", "httpx2", "keyring", "mcp", "mcp_types", "pydantic",
    "pydantic_core", "requests", "select", "selectors", "socket", "socketserver", "ssl", "starlette", "subprocess",
    "urllib.request", "urllib3", "uvicorn", "uvloop", "valkey", "websockets",
}  # fmt: skip
STORE = "vault.valkey"


def modules() -> dict[str, Path]:
    """Every module by its name within the package: `proxy.frames`; `proxy` is the package itself."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def place(module: str) -> str | None:
    """The entry of LAYERS for a module."""
    parts = module.split(".")
    names = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((name for name in names if name in LEVEL), None)


def imported(module: str) -> Iterator[str]:
    """The full names of all that a module imports, wherever in it that stands."""
    package = ["mcp_envelope", *MODULES[module].relative_to(SOURCE).parts[:-1]]
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def own(name: str) -> str | None:
    """The module of ours that an imported name belongs to; None for libraries, and for the version."""
    first, _, rest = name.partition(".")
    if first != "mcp_envelope" or rest == "__version__":
        return None
    parts = rest.split(".")
    names = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((each for each in names if each in MODULES), "__init__")


def test_every_module_has_its_layer() -> None:
    assert [module for module in MODULES if place(module) is None] == []


def test_imports_point_down() -> None:
    wrong = []
    for module in MODULES:
        here = place(module)
        for name in imported(module):
            target = own(name)
            there = place(target) if target else None
            if here and there and there != here and LEVEL[there] >= LEVEL[here]:
                wrong.append(f"{module} imports {target}")
    assert wrong == []


@pytest.mark.parametrize("room", ALONE)
def test_what_stands_alone(room: str) -> None:
    wrong = [
        f"{module} imports {target}"
        for module in MODULES
        if place(module) == room
        for target in map(own, imported(module))
        if target and place(target) not in {room, *ALONE[room]}
    ]
    assert wrong == []


def test_a_class_has_a_name_of_its_own() -> None:
    defined = Counter(
        node.name for module in MODULES for node in ast.walk(tree(module)) if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in defined.items() if count > 1] == []


def test_nothing_below_the_gateway_speaks_to_others() -> None:
    wrong = [
        f"{module} imports {name}"
        for module in MODULES
        if LEVEL[place(module) or "cli"] < LEVEL["gateway"] and not module.startswith(STORE)
        for name in imported(module)
        if {name.partition(".")[0], ".".join(name.split(".")[:2])} & OUTSIDE
    ]
    assert wrong == []


def test_the_design_page_names_every_module() -> None:
    page = (ROOT / "docs" / "design.md").read_text()
    code = " ".join(re.findall(r"```.*?```|`[^`\n]+`", page, re.DOTALL))
    words = set(re.findall(r"\w+", code))
    assert [module for module in MODULES if module.split(".")[-1] not in words] == []
    files = set(re.findall(r"\b(\w+)\.py\b", code))
    assert files <= {path.stem for path in ROOT.rglob("*.py")}
