"""The adapters with the real libraries: what the model of a real agent is shown, and the code in docs/hosts.md."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from lab import server
from lab.cases import CASES, Observation, marks, observe
from lab.model import Call, Script

from mcp_envelope.budget import Budget

from . import environment
from .agents import ROOT, fixture_server, run

pytestmark = pytest.mark.process
HERE = Path(__file__).parent
PAGE = (ROOT / "docs" / "hosts.md").read_text()
FRAMEWORKS = ("langchain", "openai_agents", "pydantic_ai")
# LangChain can't send links to this vendor's models, nor Pydantic AI archives; both fail at sounds.
SEEN = tuple(case for case in CASES if case.name not in ("link", "audio", "archive"))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_what_a_model_is_shown(framework: str, tmp_path: Path) -> None:
    found: list[Observation] = []
    program = (str(ROOT / "lab" / "agents" / f"with_{framework}.py"), *fixture_server())
    run(program, observe(found, read_on=True, cases=SEEN), server.TOOLS, tmp_path, LAB_ENVELOPE="1")
    by_name = {each.case.name: each for each in found}
    assert list(by_name) == [case.name for case in SEEN]
    budget = Budget.of()
    for name, each in by_name.items():
        # As an error, Pydantic AI's client for this vendor writes the text as JSON, with escapes.
        text = (
            json.loads(each.seen.text)["error"] if each.seen.text.startswith('{"error":') else each.seen.text
        )
        assert budget.holds(text.encode()), name
        whole = server.result(each.case.tool, each.case.size)
        if each.page is not None:
            assert marks(each.page.text) - marks(each.seen.text), name
        elif not each.seen.pictures:
            # Nothing was cut: one of the lanes, byte for byte.
            dumped = json.dumps(whole.structured_content, separators=(",", ":"))
            assert each.seen.text in (dumped, getattr(whole.content[0], "text", "")), name
    cut = {name for name, each in by_name.items() if each.page is not None}
    assert cut == {case.name for case in SEEN if case.size >= 40_000 and "picture" not in case.name}
    for name in ("picture, 100 KB", "picture, 300 KB", "picture beside structure", "embedded picture"):
        (picture,) = by_name[name].seen.pictures
        assert (picture.mime, picture.width, picture.height) == ("image/png", 1280, 800)
    assert len(marks(by_name["picture beside structure"].seen.text)) == 5


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_facts(framework: str, tmp_path: Path) -> None:
    """What no model sees, such as artifacts and schemas, is asserted inside of the environment."""
    done = subprocess.run(
        [str(environment.python()), str(HERE / "facts" / f"of_{framework}.py"), str(tmp_path), *fixture_server()],
        env={"PYTHONPATH": str(ROOT / "src"), "HOME": str(tmp_path), "OPENAI_API_KEY": "sk-invented"},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.endswith("all hold\n")


def examples() -> dict[str, str]:
    """The Python examples of the page, each by the module that it imports."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    named = {re.search(r"mcp_envelope\.hosts\.(\w+)", block): block for block in blocks}
    return {match[1]: block for match, block in named.items() if match}


def test_the_page_has_an_example_for_each() -> None:
    assert sorted(examples()) == sorted(FRAMEWORKS)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    (folder / "notes.txt").write_text("".join(f"line {number}\n" for number in range(20_000)))
    identity = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.org")
    for command in (("init", "-q"), ("add", "."), (*identity, "commit", "-q", "-m", "Notes")):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_example_on_the_page_runs(framework: str, repository: Path, tmp_path: Path) -> None:
    seen: list[str] = []

    def script() -> Script:
        first = yield Call("git_show", {"repo_path": str(repository), "revision": "HEAD"})
        seen.append(first.text)
        handle = re.search(r'handle="(\w+)"', first.text)
        assert handle is not None, first.text[:500]
        page = yield Call("envelope_read", {"handle": handle[1], "grep": "line 19999$"})
        seen.append(page.text)

    file = tmp_path / "example.py"
    file.write_text(examples()[framework])
    run((str(file),), script(), ("git_show",), tmp_path)
    first, page = seen
    assert Budget.of(tokens=4000).holds(first.encode())
    assert "line 19999" in page
