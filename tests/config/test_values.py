"""Times and sizes: what is understood, what is complained about, and that the schema agrees."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from msgspec import UNSET

from mcp_envelope.config import SETTINGS, Settings
from mcp_envelope.config.schema import settings_schema

TIMES = [
    (1, 1),
    (90, 90),
    ("90", 90),
    ("90s", 90),
    ("1.5 h", 5400),
    ("30min", 1800),
    ("2m", 120),
    ("7d", 604_800),
]
TIMES += [("1w", 604_800), ("24H", 86_400), ("86_400", 86_400), (2.0, 2)]
SIZES = [
    ("1GiB", 1 << 30),
    ("1gb", 10**9),
    ("1_500 KB", 1_500_000),
    ("2.5MiB", 2_621_440),
    (1 << 20, 1 << 20),
]
WRONG = [
    "soon",
    "",
    "h",
    "-1h",
    "1 parsec",
    "1h30m",
    "0x10",
    "1e3",
    True,
    None,
    [],
    {},
    float("nan"),
    float("inf"),
    "9" * 70,
]


def read(name: str, value: object) -> tuple[Any, list[str]]:
    said: list[str] = []
    return SETTINGS[name].read(value, said.append), said


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [*[("vault_ttl", *pair) for pair in TIMES], *[("vault_size", *pair) for pair in SIZES]],
)
def test_what_is_understood(name: str, value: object, expected: int) -> None:
    found, said = read(name, value)
    assert (found, said) == (expected, [])
    assert type(found) is int
    if not isinstance(value, float):
        assert jsonschema_rs.is_valid(settings_schema(), {name: value})


@pytest.mark.parametrize("name", ["vault_ttl", "vault_size"])
@pytest.mark.parametrize("value", WRONG, ids=str)
def test_what_is_not(name: str, value: object) -> None:
    found, said = read(name, value)
    assert found is UNSET
    assert len(said) == 1
    assert " such as " in said[0]
    if value == value and not (isinstance(value, str) and len(value) > 60):
        assert not jsonschema_rs.is_valid(settings_schema(), {name: value})


@pytest.mark.parametrize(
    ("name", "value", "used", "told"),
    [
        ("vault_ttl", "0", 1, "'0': too small; 1 is used"),
        ("vault_ttl", -5.0, 1, "-5.0: too small; 1 is used"),
        ("vault_ttl", 10**12, 3650 * 86_400, "too large"),
        ("vault_size", "1", 1 << 20, "'1': too small; 1048576 is used"),
        ("vault_size", "9000TiB", 1 << 50, "too large"),
    ],
)
def test_out_of_range(name: str, value: object, used: int, told: str) -> None:
    found, said = read(name, value)
    assert found == used
    assert told in said[0]


def test_from_the_file_and_the_environment(tmp_path: Path) -> None:
    (tmp_path / "mcp-envelope.toml").write_text(
        'vault = "valkey://host"\nvault_ttl = "2h"\nvault_size = 3_000_000\n[tools.a]\nvault = "none"'
    )
    said: list[str] = []
    environ = {"MCP_ENVELOPE_VAULT_SIZE": "2 GiB"}
    settings = Settings(environ=environ, start=tmp_path, say=said.append)
    policy = settings.policy()
    assert (policy.vault, policy.vault_ttl, policy.vault_size) == ("valkey://host", 7200, 2 << 30)
    assert policy.sources["vault_size"] == "environment MCP_ENVELOPE_VAULT_SIZE"
    assert settings.policy("a").vault == "none"
    assert said == []
    environ["MCP_ENVELOPE_VAULT_SIZE"] = "much"
    assert settings.policy().vault_size == 3_000_000
    assert said == [
        "MCP_ENVELOPE_VAULT_SIZE = 'much': expected a size such as 1GiB"
        " (units: b, kb, mb, gb, tb, kib, mib, gib, tib)"
    ]
    assert settings.unknown_variables() == ()


def test_unless_they_are_set() -> None:
    policy = Settings("/dev/null", {}).policy()
    assert (policy.vault, policy.vault_ttl, policy.vault_size) == (None, 24 * 3600, 1 << 30)
    assert json.loads(json.dumps(settings_schema()))["$defs"]["vault_ttl"]["default"] == 86_400
