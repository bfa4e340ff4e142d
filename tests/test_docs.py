"""What the documents show is run as it stands there."""

from __future__ import annotations

import gc
import re
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in ("", "docs/", "examples/")
    for path in ROOT.glob(f"{folder}*.md")
)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_python_examples_run(document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # What servers store by themselves goes into the folder too.
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    names: dict[str, object] = {}
    for example in EXAMPLES.findall((ROOT / document).read_text()):
        exec(compile(example, document, "exec"), names)
    with warnings.catch_warnings():
        # Servers in examples are never stopped, so nobody closes their vaults.
        warnings.simplefilter("ignore", ResourceWarning)
        names.clear()
        gc.collect()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document: str) -> None:
    path = ROOT / document
    for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
        assert (path.parent / target).exists(), f"{document} links to {target}"


@pytest.mark.parametrize("document", ["docs/security.md", "docs/reliability.md"])
def test_tests_that_are_named_exist(document: str) -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / document).read_text()))
    sources = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert named
    assert named <= set(re.findall(r"def (test_\w+)\(", sources))
