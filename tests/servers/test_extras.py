"""Without the library of an adapter, its import says what to install."""

from __future__ import annotations

import subprocess
import sys

import pytest

# As if the modules were not installed.
BLOCKED = """
import sys

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
    code = BLOCKED.format(blocked=blocked, module="sdk")
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    name, _, words = run.stdout.partition(" | ")
    assert name.partition(".")[0] in {*blocked, "mcp_types"}
    assert words.strip() == (
        'The official SDK, from version 2 on, is needed here, and is not installed: pip install "mcp-envelope[sdk]"'
    )


@pytest.mark.parametrize("blocked", [["fastmcp", "mcp", "mcp_types"], ["fastmcp"]])
def test_fastmcp_is_asked_for(blocked: list[str]) -> None:
    code = BLOCKED.format(blocked=blocked, module="fastmcp")
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.partition(" | ")[2].strip() == (
        'FastMCP, from version 4 on, is needed here, and is not installed: pip install "mcp-envelope[fastmcp]"'
    )


def test_plain_use_needs_none_of_them() -> None:
    modules = ["mcp", "mcp_types", "anyio", "pydantic", "pydantic_core", "typing_extensions"]
    code = BLOCKED.format(blocked=modules, module="sdk")
    code += (
        "import mcp_envelope\nprint(mcp_envelope.seal(mcp_envelope.Reply({'a': 1e22})).to_json().decode())\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert '"structuredContent":{"a":1e+22}' in run.stdout
