"""Without the library of an adapter, its import says what to install."""

from __future__ import annotations

import subprocess
import sys

import pytest

# As if the modules were not installed, and their packages neither or in another version.
BLOCKED = """
import importlib.metadata
import sys

def version(name):
    if {found!r}:
        return {found!r}
    raise importlib.metadata.PackageNotFoundError(name)

importlib.metadata.version = version

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
try:
    import mcp_envelope.servers.{module}
except ImportError as error:
    print(error.name, "|", error)
"""


@pytest.mark.parametrize("blocked", [["mcp", "mcp_types", "anyio", "pydantic"], ["mcp"], ["pydantic"]])
def test_the_sdk_is_asked_for(blocked: list[str]) -> None:
    code = BLOCKED.format(blocked=blocked, module="sdk", found="")
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    name, _, words = run.stdout.partition(" | ")
    assert name.partition(".")[0] in {*blocked, "mcp_types"}
    assert words.strip() == (
        "The official SDK (mcp) 2.2 or newer is needed here (it is not installed): "
        'pip install -U "mcp-envelope[sdk]"'
    )


@pytest.mark.parametrize("blocked", [["fastmcp", "mcp", "mcp_types"], ["fastmcp"]])
def test_fastmcp_is_asked_for(blocked: list[str]) -> None:
    code = BLOCKED.format(blocked=blocked, module="fastmcp", found="")
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.partition(" | ")[2].strip() == (
        'FastMCP 4.1 or newer is needed here (it is not installed): pip install -U "mcp-envelope[fastmcp]"'
    )


@pytest.mark.parametrize(
    ("module", "found", "words"),
    [
        ("fastmcp", "3.4.10", "FastMCP 4.1 or newer is needed here (found 3.4.10, needs 4.1): "),
        ("sdk", "1.30.0", "The official SDK (mcp) 2.2 or newer is needed here (found 1.30.0, needs 2.2): "),
        ("fastmcp", "4.0.11", "FastMCP 4.1 or newer is needed here (found 4.0.11, needs 4.1): "),
        ("sdk", "2.3.0", "The official SDK (mcp) 2.2 or newer is needed here (found 2.3.0, but it can't be "),
    ],
)
def test_what_was_found_is_said(module: str, found: str, words: str) -> None:
    # Version 1 of the SDK, on which FastMCP 3 is built, has no such module.
    code = BLOCKED.format(blocked=["mcp_types"], module=module, found=found)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.partition(" | ")[2].startswith(words)


def test_plain_use_needs_none_of_them() -> None:
    modules = ["mcp", "mcp_types", "anyio", "pydantic", "pydantic_core", "typing_extensions"]
    code = BLOCKED.format(blocked=modules, module="sdk", found="")
    code += (
        "import mcp_envelope\nprint(mcp_envelope.seal(mcp_envelope.Reply({'a': 1e22})).to_json().decode())\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert '"structuredContent":{"a":1e+22}' in run.stdout
