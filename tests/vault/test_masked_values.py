"""Masked values: kept for one server and caller, under ids that say nothing, for as long as payloads."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcp_envelope.outcome import Failure
from mcp_envelope.vault.masked_values import MaskedValues
from mcp_envelope.vault.read_tool import read
from mcp_envelope.vault.vault import Vault, open_vault

SECRET = "q8Zr2Lw9Vt4Xk7Bn1Hm5"


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[Vault]:
    opened = open_vault(str(tmp_path / "vault.db"))
    assert opened is not None
    yield opened
    opened.close()


def identifier(placeholder: str | None) -> str:
    found = re.fullmatch(r"\[redacted:jwt:([a-z2-7]{6,})\]", placeholder or "")
    assert found
    return found[1]


def test_the_same_value_has_the_same_placeholder_in_every_process(vault: Vault, tmp_path: Path) -> None:
    first = MaskedValues(vault, "server", "caller").placeholder("jwt", SECRET)
    other = open_vault(str(tmp_path / "vault.db"))
    assert other is not None
    second = MaskedValues(other, "server", "caller")
    assert second.placeholder("jwt", SECRET) == first
    assert second.placeholder("jwt", SECRET + "x") != first
    assert second.original(identifier(first)) == SECRET
    other.close()


@pytest.mark.parametrize("server", ["server", "another"])
@pytest.mark.parametrize("owner", ["caller", "somebody", None])
def test_nobody_else_knows_it(vault: Vault, server: str, owner: str | None) -> None:
    first = MaskedValues(vault, "server", "caller").placeholder("jwt", SECRET)
    masks = MaskedValues(vault, server, owner)
    is_same = (server, owner) == ("server", "caller")
    assert masks.original(identifier(first)) == (SECRET if is_same else None)
    assert (masks.placeholder("jwt", SECRET) == first) is is_same


def test_no_placeholder_can_be_read(vault: Vault) -> None:
    """An id is not a handle, whoever asks."""
    for owner in (None, "caller"):
        found = identifier(MaskedValues(vault, "server", owner).placeholder("jwt", SECRET))
        sealed = read(vault, {"handle": found}, owner=owner)
        assert sealed.problem is not None
        assert sealed.problem.code == "HANDLE_UNKNOWN"
        assert SECRET not in sealed.to_json().decode()


def test_values_that_share_the_beginning_of_their_digest(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_envelope.vault.masked_values._SHORTEST", 1)
    masks = MaskedValues(vault, "server", None)
    values = [f"value {number}" for number in range(200)]
    marks = {value: masks.placeholder("jwt", value) or "" for value in values}
    assert len(set(marks.values())) == len(values)
    for value, mark in marks.items():
        assert masks.original(mark[len("[redacted:jwt:") : -1]) == value


def test_a_value_that_is_masked_again_lives_on(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    masks = MaskedValues(vault, "server", None)
    first = masks.placeholder("jwt", SECRET)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 0.9 * vault.ttl)
    assert masks.placeholder("jwt", SECRET) == first
    monkeypatch.setattr(time, "time", lambda: now + 1.8 * vault.ttl)
    assert masks.original(identifier(first)) == SECRET
    monkeypatch.setattr(time, "time", lambda: now + 2.1 * vault.ttl)
    assert masks.original(identifier(first)) is None
    # The record of what expired is no hindrance.
    vault.store.sweep()
    assert masks.original(identifier(masks.placeholder("jwt", SECRET))) == SECRET


def test_after_a_purge_values_are_kept_anew(vault: Vault) -> None:
    found = MaskedValues(vault, "server", None).placeholder("jwt", SECRET)
    vault.store.purge()
    masks = MaskedValues(vault, "server", None)
    assert masks.original(identifier(found)) is None
    assert masks.original(identifier(masks.placeholder("jwt", SECRET))) == SECRET
    assert vault.store.stats().entries == 2


def test_without_a_store_there_is_no_placeholder(tmp_path: Path) -> None:
    (tmp_path / "vault.db").write_text("somebody else's file, which is no database at all")
    broken = open_vault(str(tmp_path / "vault.db"))
    assert broken is not None
    masks = MaskedValues(broken, "server", None)
    assert masks.placeholder("jwt", SECRET) is None
    with pytest.raises(Failure, match="cannot be reached"):
        masks.original("abcdef")
