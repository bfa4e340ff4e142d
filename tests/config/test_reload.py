"""Real files that change under a running program.

Strategy: the interval is zero, so every call looks. The files are written in the ways in which people and
programs write them; what is in between may be any of the states before and after, and nothing else.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from mcp_envelope.config import Settings
from mcp_envelope.config.files import read_bytes

FILE = "mcp-envelope.toml"


class Program:
    def __init__(self, folder: Path, path: str | None = None, **environ: str) -> None:
        self.folder = folder
        self.said: list[str] = []
        self.environ = environ
        self.settings = Settings(path, environ, folder, interval=0, say=self.said.append)

    @property
    def hint(self) -> str:
        return self.settings.policy("a").hint

    def write(self, text: str, name: str = FILE) -> None:
        (self.folder / name).write_text(text)

    def heard(self) -> list[str]:
        self.hint  # noqa: B018  (a look)
        said, self.said[:] = list(self.said), []
        return said


@pytest.fixture
def program(tmp_path: Path) -> Program:
    (tmp_path / FILE).write_text('hint = "one"')
    return Program(tmp_path)


def test_a_change_is_seen(program: Program) -> None:
    assert program.hint == "one"
    for words in ("two", "six", "ten"):  # of the same size, within the grain of the clock
        program.write(f'hint = "{words}"')
        assert program.hint == words
    assert program.heard() == []


def test_a_change_within_the_grain_of_the_clock_is_seen(program: Program, tmp_path: Path) -> None:
    times = (tmp_path / FILE).stat()
    program.write('hint = "two"')
    os.utime(tmp_path / FILE, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert (tmp_path / FILE).stat().st_ino == times.st_ino
    assert program.hint == "two"


def test_atomic_replacement(program: Program, tmp_path: Path) -> None:
    (tmp_path / "new").write_text('hint = "new"')
    os.utime(tmp_path / "new", ns=(0, (tmp_path / FILE).stat().st_mtime_ns))
    os.replace(tmp_path / "new", tmp_path / FILE)
    assert program.hint == "new"


def test_an_old_file_is_seen_too(program: Program, tmp_path: Path) -> None:
    """A restored copy has an older time, which counts for nothing."""
    program.write('hint = "old copy"')
    os.utime(tmp_path / FILE, (1, 1))
    assert program.hint == "old copy"


def test_a_file_that_does_not_change_is_not_parsed(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert program.hint == "one"
    monkeypatch.setattr("mcp_envelope.config.files._Reader", lambda *given: pytest.fail("it was parsed"))
    os.utime(tmp_path / FILE, (1, 1))
    assert program.hint == "one"


def test_a_broken_file_keeps_the_last_good_one(program: Program) -> None:
    program.write('hint = "one"\ntokens = = 3')
    assert program.hint == "one"
    said = program.heard()
    assert said == [
        f"{FILE}, line 2, column 10: not TOML: invalid value; its last good version stays in force"
    ]
    assert program.heard() == []
    program.write('hint = "one"\ntokens = = 4 # still')
    assert program.heard() == []  # the same complaint
    program.write('hint = "two"')
    assert (program.hint, program.heard()) == ("two", [])
    program.write('hint = "one"\ntokens = = 3')
    assert program.heard() == said  # mended in between, so it is said again
    assert program.hint == "two"
    program.write('hint = "two"')
    assert (program.hint, program.settings.problems()) == ("two", ())


def test_a_wrong_setting_is_said_once_until_it_is_mended(program: Program) -> None:
    program.write("tokns = 5")
    wrong = [f"{FILE}, line 1, column 1: there is no setting 'tokns', did you mean tokens?"]
    assert program.heard() == wrong
    program.write("tokns = 5 # again")
    assert program.heard() == []
    program.write("tokens = 500")
    assert program.heard() == []
    program.write("tokns = 5")
    assert program.heard() == wrong


def test_broken_at_the_start(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("hint = ")
    program = Program(tmp_path)
    assert program.hint == ""
    assert program.heard() == [
        f"{FILE}, line 1, column 8: not TOML: invalid value; none of its settings apply"
    ]
    program.write('hint = "one"')
    assert program.hint == "one"


def test_a_partial_write(program: Program, tmp_path: Path) -> None:
    with open(tmp_path / FILE, "w") as file:  # emptied, as `>` does
        assert program.hint == "one"
        file.write('hint = "tw')
        file.flush()
        assert program.hint == "one"
        file.write('o"')
        file.flush()
        assert program.hint == "two"


def test_a_file_that_stays_empty_says_nothing(program: Program, tmp_path: Path) -> None:
    program.write("")
    assert program.hint == program.hint == "one"  # perhaps it is being written
    os.utime(tmp_path / FILE, (1, 1))
    assert program.hint == ""
    assert program.heard() == []


def test_deletion_and_return(program: Program, tmp_path: Path) -> None:
    (tmp_path / FILE).unlink()
    assert program.hint == ""
    assert program.heard() == [f"{FILE} is gone; the built-in settings apply"]
    assert program.heard() == []
    program.write('hint = "back"')
    assert program.hint == "back"
    (tmp_path / FILE).unlink()
    assert program.heard() == [f"{FILE} is gone; the built-in settings apply"]


def test_a_broken_file_that_is_deleted_leaves_nothing(program: Program, tmp_path: Path) -> None:
    program.write("broken")
    assert program.hint == "one"
    (tmp_path / FILE).unlink()
    assert program.hint == ""
    assert program.settings.problems() == ()


def test_reading_fails_for_a_while(program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: str) -> bytes:
        raise PermissionError(13, "Permission denied")

    program.write('hint = "two"')
    os.utime(tmp_path / FILE, (1, 1))
    with monkeypatch.context() as patch:
        patch.setattr("mcp_envelope.config.files.read_bytes", fail)
        assert program.hint == "one"
    assert program.hint == "two"
    assert program.heard() == [f"cannot read {FILE}: permission denied; its last good version stays in force"]


@pytest.mark.parametrize("data", [b"hint = '\xff'", b"#" * 1_000_001])
def test_files_that_cannot_be_read(program: Program, tmp_path: Path, data: bytes) -> None:
    (tmp_path / FILE).write_bytes(data)
    [said] = program.heard()
    assert said.startswith(
        (f"{FILE}, line 1, column 9: not UTF-8 (byte 0xff)", f"cannot read {FILE}: it is larger")
    )
    assert program.hint == "one"


def test_what_editors_put_first(program: Program, tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b'\xef\xbb\xbfhint = "bom"\r\n')
    assert (program.hint, program.heard()) == ("bom", [])


# -- which file ---------------------------------------------------------------------------------------------


def test_the_nearest_file(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[tool.mcp-envelope]\nhint = "far"')
    other = '[project]\nname = "mcp-envelope"\n[tool.mcp-envelope-plugin]\nhint = "another\'s"'
    (tmp_path / "a" / "pyproject.toml").write_text(other)
    program = Program(inner)
    assert (program.hint, program.settings.file) == ("far", "../../pyproject.toml")
    program.write('hint = "near"')
    assert (program.hint, program.settings.file) == ("near", FILE)
    program.write('[tool.mcp-envelope]\nhint = "not this"', "pyproject.toml")
    assert program.hint == "near"
    (inner / FILE).unlink()
    assert program.hint == "not this"
    assert program.heard() == [f"{FILE} is gone; pyproject.toml applies"]
    program.write("[tool.mcp-envelope]\nhint = ", "pyproject.toml")
    assert program.hint == "not this"
    [said] = program.heard()
    assert said.startswith("pyproject.toml, line 2, column 8: not TOML")
    program.write("[project]\n", "pyproject.toml")
    assert program.hint == "far"


def test_a_broken_neighbour_is_not_our_business(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "mcp-envelope"\nbroken = ')
    program = Program(tmp_path)
    assert (program.hint, program.heard()) == ("", [])
    (tmp_path / FILE).mkdir()
    assert (program.hint, program.heard()) == ("", [])


def test_a_named_file(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('hint = "nearest"')
    named = tmp_path / "other.toml"
    program = Program(tmp_path, str(named))
    assert program.hint == ""
    assert program.heard() == [f"cannot read {named}: no such file; the built-in settings apply"]
    named.write_text('hint = "named"')
    assert (program.hint, program.settings.file) == ("named", str(named))
    named.unlink()
    assert program.heard() == [f"{named} is gone; the built-in settings apply"]
    assert "it is a folder" in Program(tmp_path, str(tmp_path)).heard()[0]


def test_a_file_named_by_the_environment(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('hint = "nearest"')
    (tmp_path / "other.toml").write_text('hint = "other"')
    program = Program(tmp_path)
    assert program.hint == "nearest"
    program.environ["MCP_ENVELOPE_CONFIG"] = str(tmp_path / "other.toml")
    assert program.hint == "other"
    program.environ["MCP_ENVELOPE_CONFIG"] = os.devnull
    assert (program.hint, program.heard()) == ("", [])
    del program.environ["MCP_ENVELOPE_CONFIG"]
    assert (program.hint, program.heard()) == ("nearest", [])


def test_the_current_folder_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    assert Settings(environ={}).policy("a").tokens is None


def test_the_response_config_is_reloaded_too(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('dialect = "scalpel"')
    program = Program(tmp_path)
    folder = tmp_path / ".code-scalpel"
    folder.mkdir()
    assert program.settings.policy("a").profile == "minimal"
    (folder / "response_config.json").write_text('{"global": {"profile": "debug"}}')
    assert program.settings.policy("a").profile == "debug"
    (folder / "response_config.json").write_text('{"global": {"profile": "standard"}')
    assert program.settings.policy("a").profile == "debug"
    [said] = program.heard()
    assert said.startswith(
        ".code-scalpel/response_config.json, line 1, column 35: not JSON: expecting ',' delimiter"
    )
    (folder / "response_config.json").unlink()
    assert program.settings.policy("a").profile == "minimal"
    assert program.heard() == [".code-scalpel/response_config.json is gone; its settings no longer apply"]


def test_between_two_looks_nothing_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('hint = "one"')
    settings = Settings(environ={}, start=tmp_path, interval=3600)
    (tmp_path / FILE).write_text('hint = "two"')
    assert settings.policy("a").hint == "one"
    settings._due = time.monotonic()
    assert settings.policy("a").hint == "two"


# -- threads ------------------------------------------------------------------------------------------------


def test_threads_see_whole_states_only(tmp_path: Path) -> None:
    """Two settings are written together, so they are seen together, whoever looks and whenever."""
    path, fresh = tmp_path / FILE, tmp_path / "fresh"
    path.write_text('hint = "0"\ntool_version = "0"')
    said: list[str] = []
    settings = Settings(environ={}, start=tmp_path, interval=0, say=said.append)
    wrong: list[object] = []
    stop = threading.Event()

    def ask(tool: str) -> None:
        try:
            last = 0
            while not stop.is_set():
                policy = settings.policy(tool, {"tokenBudget": 500})
                if policy.hint != policy.tool_version or int(policy.hint) < last or policy.tokens != 500:
                    wrong.append((policy.hint, policy.tool_version, last))
                last = int(policy.hint)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=ask, args=(f"tool {number % 3}",)) for number in range(3)]
    for thread in threads:
        thread.start()
    for number in range(1, 30):
        if number % 5 == 0:
            path.write_text(f'hint = "{number}')  # broken: the last good one stays
        else:
            fresh.write_text(f'hint = "{number}"\ntool_version = "{number}"')
            os.replace(fresh, path)
        time.sleep(0.002)
    path.write_text('hint = "999"\ntool_version = "999"')
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert settings.policy("tool 0").hint == "999"
    assert all("not TOML" in each for each in said)


def test_reading_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * 1_000_001)
    with pytest.raises(ValueError, match="larger"):
        read_bytes(str(tmp_path / "large"))
    (tmp_path / "pyproject.toml").write_text('[tool.mcp-envelope]\nhint = "x"\n' + "#" * 1_000_000)
    assert Settings(environ={}, start=tmp_path).file is None
