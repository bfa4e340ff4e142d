"""Where logins are kept: addresses, the keyring, and processes that write at the same time."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcp_envelope.login.challenge import challenge_of
from mcp_envelope.login.store import Challenge, Login, LoginStore, Secrets, canonical, is_safe

from ..proxy import programs
from ..proxy.sites import call
from . import sites
from .sites import Site
from .test_login import log_in, run, status

_ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def site() -> Iterator[Site]:
    with sites.site() as found:
        yield found


@pytest.mark.parametrize(
    ("written", "known"),
    [
        ("HTTPS://Example.COM/mcp", "https://example.com/mcp"),
        ("https://example.com:443/mcp?key=1#x", "https://example.com/mcp"),
        ("https://example.com:8443/mcp", "https://example.com:8443/mcp"),
        ("https://name:word@example.com/", "https://example.com"),
        ("http://[::1]:80/mcp", "http://[::1]/mcp"),
    ],
)
def test_one_address_for_each_server(written: str, known: str) -> None:
    assert canonical(written) == canonical(known) == known


@pytest.mark.parametrize(
    "text", ["", "example.com", "ftp://example.com", "https://", "https://[", "https://a:b"]
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        canonical(text)


@pytest.mark.parametrize(
    ("url", "may"),
    [
        ("https://example.com", True),
        ("http://127.0.0.1:80/mcp", True),
        ("http://127.8.9.1", True),
        ("http://localhost", True),
        ("http://[::1]/", True),
        ("http://example.com", False),
        ("http://127.0.0.1.example.com", False),
        ("http://localhost.example.com", False),
        ("http://10.0.0.1", False),
        ("ftp://localhost.example.com", False),
    ],
)
def test_where_a_token_may_go(url: str, may: bool) -> None:
    assert is_safe(url) is may


@pytest.mark.parametrize(
    ("status_code", "header", "found"),
    [
        (401, "", Challenge()),
        (401, "Basic realm=x", Challenge()),
        (401, 'Bearer scope="a b"', Challenge("a b")),
        (401, "Bearer scope=a, error=x", Challenge("a")),
        (401, 'Basic realm="Bearer scope=x", bearer SCOPE="a"', Challenge("a")),
        (
            401,
            'Bearer resource_metadata="https://here.example/m?scope=x"',
            Challenge("", "https://here.example/m?scope=x"),
        ),
        (401, 'Bearer resource_metadata="/m"', Challenge("", "https://here.example/m")),
        (401, 'Bearer resource_metadata="https://there.example/m"', Challenge()),
        (401, 'Bearer resource_metadata="http://here.example/m"', Challenge()),
        (401, 'Bearer scope="a\\"b"', Challenge()),
        (401, 'Bearer scope="' + "a" * 3000 + '"', Challenge()),
        (403, 'Bearer error="insufficient_scope", scope="w"', Challenge("w", "", True)),
        (403, 'Bearer error="invalid_token"', None),
        (403, "", None),
        (404, "Bearer", None),
    ],
)
def test_what_a_refusal_asks_for(status_code: int, header: str, found: Challenge | None) -> None:
    assert challenge_of("https://here.example/mcp", status_code, header) == found


# -- the keyring ----------------------------------------------------------------------------------------------


def _keyring(folder: Path, **more: str) -> dict[str, str]:
    return {
        "PYTHON_KEYRING_BACKEND": "tests.login.keyring_backend.InFile",
        "PYTHONPATH": os.pathsep.join([str(_ROOT / "src"), str(_ROOT)]),
        "KEYRING_FILE": str(folder / "keyring.json"),
        **more,
    }


def test_secrets_go_into_the_keyring(site: Site, tmp_path: Path) -> None:
    more = _keyring(tmp_path)
    assert log_in(tmp_path, site.url, env=more)[0] == 0
    assert status(tmp_path, **more)[0]["kept"] == "keyring"
    [kept] = (tmp_path / "mcp-envelope" / "logins").glob("*.json")
    assert not [given for given in site.provider.given if given in kept.read_text()]
    site.provider.expire()
    with programs.bridge(tmp_path, site.url, **more) as talking:
        assert "Hello, you!" in json.dumps(talking.ask(call("hello", 1, True, name="you")))
    assert site.provider.refreshes == 1
    assert site.provider.given[-1] in (tmp_path / "keyring.json").read_text()
    assert run(tmp_path, "logout", site.url, **more).returncode == 0
    assert json.loads((tmp_path / "keyring.json").read_text()) == {}


def test_what_is_too_long_for_the_keyring_goes_into_the_file(site: Site, tmp_path: Path) -> None:
    more = _keyring(tmp_path, KEYRING_MOST="20")
    assert log_in(tmp_path, site.url, env=more)[0] == 0
    assert status(tmp_path, **more)[0]["kept"] == "file"


def test_a_keyring_that_is_gone_means_a_new_login(site: Site, tmp_path: Path) -> None:
    more = _keyring(tmp_path)
    assert log_in(tmp_path, site.url, env=more)[0] == 0
    assert status(tmp_path)[0]["state"] == "login needed"
    assert log_in(tmp_path, site.url)[0] == 0
    assert status(tmp_path)[0] | {"until": ""} == status(tmp_path)[0] | {
        "until": "",
        "kept": "file",
        "state": "good",
    }


# -- processes ------------------------------------------------------------------------------------------------


def _count(folder: Path, rounds: int) -> None:
    store = LoginStore(folder)
    for _ in range(rounds):
        with store.lock("https://example.com"):
            login = store.load("https://example.com")
            assert login is not None
            number = int(login.secrets.access_token) + 1
            store.save(Login(url="https://example.com", secrets=Secrets(str(number))))


def test_processes_that_write_at_once_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    store = LoginStore(tmp_path)
    store.save(Login(url="https://example.com", secrets=Secrets("0")))
    context = multiprocessing.get_context("spawn")
    running = [context.Process(target=_count, args=(tmp_path, 50)) for _ in range(3)]
    for process in running:
        process.start()
    for process in running:
        process.join(60)
    found = store.load("https://example.com")
    assert found is not None
    assert found.secrets.access_token == "150"
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".lock"]
