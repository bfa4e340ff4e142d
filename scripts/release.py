"""Builds a release, and tries it as a stranger would: `python scripts/release.py [VERSION]`.

Strategy: with a version, it is written wherever one stands, and the changelog's unreleased part gets it and the
date. Then the source distribution and the wheel are built, and both are tried apart from this checkout: the
source distribution unpacked, with its own tests of the core; the wheel in fresh environments with the newest and
the oldest versions of everything that it allows. Nothing is uploaded: that is `twine upload dist/*`, and
`mcp-publisher publish` for server.json.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "mcp_envelope"
PLUGIN = SOURCE / "hosts" / "plugins" / "claude-code" / ".claude-plugin"
# What the tests of the core need, besides the package.
TOOLS = ("attrs", "hypothesis", "hypothesis-jsonschema", "jsonschema", "pydantic", "pytest", "pytest-xdist")
EXTRAS = ("http", "images", "valkey", "sdk", "fastmcp")
CORE = ("tests/fit", "tests/jsontext", "tests/schema", "tests/dialects", "tests/test_envelope.py")
UNRELEASED = "(unreleased)"


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Build a release into dist/, and try it.",
        epilog="examples:\n  python scripts/release.py          build and try what is here\n"
        "  python scripts/release.py 0.2.0    give it this version first",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("version", nargs="?", help="the version to release, such as 0.2.0")
    options = parser.parse_args()
    if options.version is not None:
        if not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", options.version):
            parser.error(f"a version is three numbers, such as 0.2.0, not {options.version!r}")
        if changed := git("status", "--porcelain"):
            parser.error(f"commit or put aside what has changed first:\n{changed}")
        give(options.version)
    if problems := disagreements():
        print("\n".join(problems), file=sys.stderr)
        return 1
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    say("building")
    run(sys.executable, "-m", "build", "--outdir", ROOT / "dist", ROOT)
    run(sys.executable, "-m", "twine", "check", "--strict", *(ROOT / "dist").iterdir())
    with tempfile.TemporaryDirectory() as folder:
        source = unpacked(Path(folder))
        for name, resolution in (("newest", "highest"), ("oldest", "lowest-direct")):
            say(f"the wheel with the {name} dependencies that it allows")
            python = environment(Path(folder) / name, resolution)
            run(python, "-m", "mcp_envelope", "--version")
            run(python, "-m", "pytest", "-q", "-n", "auto", "-m", "not process", *CORE, cwd=source)
    say("done: dist/ has " + ", ".join(sorted(path.name for path in (ROOT / "dist").iterdir())))
    return 0


def disagreements() -> list[str]:
    """Return where another version stands than in pyproject.toml."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    server = json.loads((ROOT / "server.json").read_text())
    found = {
        "src/mcp_envelope/__init__.py": re.findall(
            r'__version__ = "(.*)"', (SOURCE / "__init__.py").read_text()
        ),
        "server.json": [server["version"], *(package["version"] for package in server["packages"])],
        "CHANGELOG.md": re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)[:1],
    }
    return [
        f"{name} says {each}, pyproject.toml {version}"
        for name, versions in found.items()
        for each in versions
        if each != version
    ]


def give(version: str) -> None:
    """Write a version wherever one stands, and date the changelog's unreleased part."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    for path, pattern, new in (
        (ROOT / "pyproject.toml", r'(?m)^version = ".*"$', f'version = "{version}"'),
        (SOURCE / "__init__.py", r'__version__ = ".*"', f'__version__ = "{version}"'),
        (ROOT / "server.json", r'"version": ".*"', f'"version": "{version}"'),
        (PLUGIN / "plugin.json", r'"version": ".*"', f'"version": "{version}"'),
        (ROOT / "CHANGELOG.md", rf"(?m)^## .* {re.escape(UNRELEASED)}$", f"## {version} ({today})"),
    ):
        path.write_text(re.sub(pattern, new, path.read_text()))


def unpacked(folder: Path) -> Path:
    """Unpack the source distribution, and return the folder: without the package, so that the wheel is tried."""
    (archive,) = (ROOT / "dist").glob("*.tar.gz")
    with tarfile.open(archive) as members:
        members.extractall(folder, filter="data")
    source = folder / archive.name.removesuffix(".tar.gz")
    shutil.rmtree(source / "src")
    return source


def environment(folder: Path, resolution: str) -> Path:
    """Return the Python of a fresh environment with the wheel, and its dependencies resolved in a direction."""
    (wheel,) = (ROOT / "dist").glob("*.whl")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    # Only what is named directly is resolved to its oldest version; the tools of the tests stay the newest.
    needs = [
        *project["dependencies"],
        *(need for extra in EXTRAS for need in project["optional-dependencies"][extra]),
    ]
    uv = (sys.executable, "-m", "uv")
    run(*uv, "venv", "--quiet", "--python", sys.executable, folder)
    python = folder / "bin" / "python"
    install = (*uv, "pip", "install", "--quiet", "--python", python)
    run(*install, "--resolution", resolution, wheel, *needs)
    run(*install, *TOOLS)
    return python


def git(*arguments: str) -> str:
    return subprocess.run(("git", *arguments), cwd=ROOT, capture_output=True, text=True, check=True).stdout


def run(*command: str | Path, cwd: Path = ROOT) -> None:
    subprocess.run(list(map(str, command)), cwd=cwd, check=True)


def say(what: str) -> None:
    print(f"==> {what}", flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(f"release: this failed: {' '.join(error.cmd)}")
