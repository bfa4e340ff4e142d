"""A file that was only found may lower budgets and nothing else, until the user accepts it."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mcp_envelope.cli import files
from mcp_envelope.cli.main import main
from mcp_envelope.clients.known import Client
from mcp_envelope.config import Policy, Settings
from mcp_envelope.config.trust import Accepted
from mcp_envelope.gateway import Gateway

EVERYTHING = """\
dialect = "gel"
tokens = 2000
hint = "do as I say"
redact = "off"
vault = "x.db"
profile = "mine"
[redact_patterns]
a = "b"
[profiles.mine]
tokens = 50_000
[tools.small]
tokens = 500
hint = "here, too"
[tools.large]
tokens = 20_000
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "project").mkdir()
    return tmp_path / "project" / "mcp-envelope.toml"


def found(file: Path, said: list[str], environ: dict[str, str] | None = None) -> Settings:
    return Settings(
        environ=environ or {}, start=file.parent, trust_found=False, interval=0.0, say=said.append
    )


def policy(settings: Settings, tool: str = "any", client: Client | None = None) -> Policy:
    gateway = Gateway(settings, vault="none", ledger=False)
    return gateway.policy(tool) if client is None else gateway.policy(tool, client=client)


def test_only_budgets_count_and_only_lower_ones(file: Path) -> None:
    file.write_text(EVERYTHING)
    said: list[str] = []
    settings = found(file, said)
    general = policy(settings)
    assert (general.tokens, general.sources["tokens"]) == (2000, "file mcp-envelope.toml:2")
    plain = ("dialect", "hint", "redact", "vault", "profile", "redact_patterns")
    assert {name: getattr(general, name) for name in plain} == {
        name: getattr(Policy(), name) for name in plain
    }
    assert (policy(settings, "small").tokens, policy(settings, "small").hint) == (500, "")
    # Of a tool's budget that is too large, nothing is left: the one at the top applies.
    assert policy(settings, "large").tokens == 2000
    ignored, large = said
    assert ignored.startswith(
        "mcp-envelope.toml: ignored: dialect, hint, redact, vault, profile, redact_patterns, "
    )
    assert "profiles.mine, tools.small.hint; " in ignored
    assert "line 15, column 1: tokens = 20000 is ignored: it may not exceed 8000 tokens; " in large
    assert all(each.endswith(f"To accept it: mcp-envelope trust {file}") for each in said)


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("tokens = 9000", "8000 tokens"),
        ("bytes = 4096", "4096 bytes"),
        ("bytes = 16_384", "8000 tokens"),
        ("max_tokens = 500", "500 tokens"),
        ("max_tokens = 50_000", "8000 tokens"),
    ],
)
def test_which_budget_is_lower(file: Path, text: str, limit: str) -> None:
    file.write_text(text)
    settled = policy(found(file, [])).allowance
    assert f"{settled.limit} {settled.unit}" == limit
    assert settled.ceiling <= 10_000


def test_a_client_with_a_small_limit_keeps_it(file: Path) -> None:
    file.write_text("tokens = 6000")
    assert policy(found(file, []), client=Client(tokens=4000)).tokens == 4000
    assert policy(found(file, []), client=Client(tokens=20_000)).tokens == 6000


def test_what_the_user_sets_is_stronger(file: Path) -> None:
    file.write_text("tokens = 2000")
    said: list[str] = []
    assert policy(found(file, said, {"MCP_ENVELOPE_TOKENS": "3000"})).tokens == 3000
    assert said == []


def test_an_accepted_file_counts_until_it_changes(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("tokens = 20_000\nhint = 'a'\n")
    said: list[str] = []
    settings = found(file, said)
    assert (policy(settings).hint, len(said)) == ("", 2)
    assert main(["trust", str(file)]) == 0
    assert (policy(settings).hint, policy(settings).tokens) == ("a", 20_000)
    assert main(["trust", "--list"]) == 0
    assert capsys.readouterr().out == f"accepted\t{file}\n"
    file.write_text("tokens = 20_000\nhint = 'b'\n")
    assert policy(settings).hint == ""
    assert len(said) == 4  # a version of its own
    assert main(["trust", "--list"]) == 0
    assert capsys.readouterr().out == f"changed\t{file}\n"
    assert main(["trust", "--remove", str(file)]) == 0
    assert main(["trust", "--remove", str(file)]) == 3
    assert main(["trust", str(file.parent / "none.toml")]) == 3
    assert main(["trust"]) == 2
    assert stat.S_IMODE(Accepted().path.stat().st_mode) == 0o600


def test_a_damaged_list_accepts_nothing(file: Path) -> None:
    file.write_text("hint = 'a'")
    accepted = Accepted()
    accepted.add(str(file), file.read_bytes())
    assert accepted.holds(str(file), file.read_bytes())
    accepted.path.write_text("[")
    assert not Accepted().holds(str(file), file.read_bytes())


def test_the_users_own_a_named_one_and_a_servers_have_full_effect(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text("hint = 'a'")
    named = Settings(file, {}, trust_found=False)
    assert policy(named).hint == "a"
    assert policy(found(file, [], {"MCP_ENVELOPE_CONFIG": str(file)})).hint == "a"
    assert policy(Settings(environ={}, start=file.parent)).hint == "a"
    monkeypatch.setenv("HOME", str(file.parent))
    assert policy(found(file, [])).hint == "a"


def test_two_at_once_lose_no_entry(file: Path) -> None:
    """Each reads the list, adds its own file and writes it back."""
    names = [str(file.with_name(f"{number}.toml")) for number in range(40)]

    def accept(name: str) -> None:
        Accepted().add(name, b"tokens = 500")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(accept, names))
    assert set(Accepted().files()) == set(names)
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda name: Accepted().remove(name), names[:20]))
    assert set(Accepted().files()) == set(names[20:])


def test_what_is_accepted_is_what_was_checked(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is read once: nobody can change it between the check and the digest."""
    file.write_text("tokens = 500")
    read = files.read_bytes

    def reads_once(path: str) -> bytes:
        data = read(path)
        file.write_text('hint = "do as I say"')
        return data

    monkeypatch.setattr(files, "read_bytes", reads_once)
    assert main(["trust", str(file)]) == 0
    assert Accepted().holds(str(file), b"tokens = 500")
    assert not Accepted().holds(str(file), file.read_bytes())


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names here")
@pytest.mark.parametrize(
    "said", [["trust"], ["proxy", "--config"], ["config", "--config"]], ids=lambda said: said[0]
)
def test_a_pipe_is_no_settings_file(
    said: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    after = ["--", "true"] if said[0] == "proxy" else []
    assert main([*said, str(tmp_path / "pipe"), *after]) == 3
    assert "it is not an ordinary file" in capsys.readouterr().err
