"""Which value holds, and where it came from."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_envelope.config import SETTINGS, Settings
from mcp_envelope.config.settings import Environment

from ..conftest import examples

# From the weakest to the strongest, with the way its source is told.
LAYERS = {
    "response": "file .code-scalpel/response_config.json:",
    "file": "file mcp-envelope.toml:",
    "base": "profile base (mcp-envelope.toml:",
    "profile": "profile mine (mcp-envelope.toml:",
    "response tool": "tool search (.code-scalpel/response_config.json:",
    "pattern": "tool s* (mcp-envelope.toml:",
    "tool": "tool search (mcp-envelope.toml:",
    "environment": "environment MCP_ENVELOPE_",
}
VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "tokens": st.integers(200, 9000),
    "bytes": st.integers(600, 90_000),
    "max_tokens": st.integers(9000, 90_000),
    "hint": st.text("abc ", min_size=1, max_size=5).filter(str.strip),
    "tier": st.sampled_from(["community", "pro", "enterprise"]),
    "redact": st.sampled_from(["off", "tokens", "keys", "custom"]),
    "meter": st.sampled_from(["chars4", "estimate"]),
    "capabilities": st.lists(st.text("abc", min_size=1, max_size=3), unique=True, min_size=1, max_size=3),
    "include_only": st.lists(st.text("abc", min_size=1, max_size=3), unique=True, min_size=1, max_size=3),
    "lists": st.dictionaries(st.sampled_from(["a", "/b/c", "d"]), st.just(["-x"]) | st.just([]), min_size=1),
}
IN_RESPONSE = ("include_only",)


@st.composite
def layers(draw: st.DrawFn) -> dict[str, dict[str, Any]]:
    given: dict[str, dict[str, Any]] = {}
    for layer in LAYERS:
        names = [name for name in VALUES if layer != "response tool" or name in IN_RESPONSE]
        chosen = (
            [] if layer == "response" else draw(st.lists(st.sampled_from(names), unique=True, max_size=5))
        )
        if "tokens" in chosen and "bytes" in chosen:
            chosen.remove(draw(st.sampled_from(["tokens", "bytes"])))
        given[layer] = {name: draw(VALUES[name]) for name in chosen}
    return given


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(entry)}" for key, entry in value.items()) + "}"
    return json.dumps(value)


def write(folder: Path, given: Mapping[str, Mapping[str, Any]], dialect: str) -> dict[str, str]:
    tables = {
        "file": "",
        "base": "[profiles.base]",
        "profile": '[profiles.mine]\nbase = "base"',
        "pattern": '[tools."s*"]',
        "tool": "[tools.search]",
    }
    lines = ['profile = "mine"', f'dialect = "{dialect}"']
    for layer, header in tables.items():
        lines += [header, *(f"{name} = {toml(value)}" for name, value in given[layer].items())]
    (folder / "mcp-envelope.toml").write_text("\n".join(lines))
    (folder / ".code-scalpel").mkdir(exist_ok=True)
    response = {"tool_overrides": {"search": given["response tool"]}}
    (folder / ".code-scalpel" / "response_config.json").write_text(json.dumps(response))
    return {
        SETTINGS[name].variable: value if isinstance(value, str) else json.dumps(value)
        for name, value in given["environment"].items()
    }


@settings(max_examples=examples(100))
@given(layers(), st.none() | st.integers(200, 9000), st.sampled_from(["native", "scalpel", "gel"]))
def test_the_strongest_layer_that_sets_a_value_wins(
    tmp_path_factory: pytest.TempPathFactory,
    given: dict[str, dict[str, Any]],
    asked: int | None,
    dialect: str,
) -> None:
    folder = tmp_path_factory.mktemp("layers")
    environ = write(folder, given, dialect)
    if dialect != "scalpel":
        given["response tool"] = {}
    said: list[str] = []
    arguments = {} if asked is None else {"tokenBudget": asked}
    policy = Settings(environ=environ, start=folder, say=said.append).policy("search", arguments)
    expected: dict[str, tuple[Any, str]] = {}
    merged: dict[str, list[str]] = {}
    for layer, source in LAYERS.items():
        for name, value in given[layer].items():
            told = source + name.upper() if layer == "environment" else source
            for rival in {"tokens": ["bytes"], "bytes": ["tokens"]}.get(name, []):
                expected.pop(rival, None)
            if name == "lists":
                before = expected.get(name, ({}, ""))[0]
                both = {**before, **{key: tuple(keys) for key, keys in value.items()}}
                expected[name] = ({key: keys for key, keys in both.items() if keys}, told)
                merged.setdefault(name, []).append(told)
            else:
                expected[name] = (tuple(value) if isinstance(value, list) else value, told)
    if asked is not None:
        expected.pop("bytes", None)
        expected["tokens"] = (asked, "call")
        # The ceiling may be lower than what was configured at first, but never than what is asked for here.
        expected.setdefault("max_tokens", (policy.max_tokens, "built-in"))
    for name in VALUES:
        value, source = expected.get(name, (SETTINGS[name].default, "built-in"))
        assert getattr(policy, name) == value, name
        sources = policy.sources[name].split(", ") if name in merged else [policy.sources[name]]
        for told, wanted in zip(sources, merged.get(name, [source]), strict=True):
            assert told.startswith(wanted)
            line = told.removeprefix(wanted).rstrip(")")
            assert line.isdigit() if wanted.endswith(":") else line == ""
    assert policy.profile == "mine"
    assert policy.detail == "minimal"
    assert said == [] == list(policy.problems)


def policy_of(folder: Path, text: str = "", tool: str | None = None, **environ: str) -> Any:
    (folder / "mcp-envelope.toml").write_text(text)
    return Settings(environ=environ, start=folder, say=lambda problem: None).policy(tool)


# -- profiles -----------------------------------------------------------------------------------------------


def test_the_profile_is_chosen_by_the_strongest(tmp_path: Path) -> None:
    text = 'profile = "standard"\n[tools.a]\nprofile = "own"\n[profiles.own]\nbase = "debug"\nhint = "h"'
    assert policy_of(tmp_path, text).profile == "standard"
    own = policy_of(tmp_path, text, "a")
    assert (own.profile, own.detail, own.hint) == ("own", "debug", "h")
    assert own.sources["hint"] == "profile own (mcp-envelope.toml:6)"
    assert own.sources["profile"] == "tool a (mcp-envelope.toml:3)"
    minimal = policy_of(tmp_path, text, "a", MCP_ENVELOPE_PROFILE="minimal")
    assert (minimal.profile, minimal.detail, minimal.hint) == ("minimal", "minimal", "")


def test_an_unknown_profile_in_the_environment_is_no_profile(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, 'profile = "debug"', MCP_ENVELOPE_PROFILE="standrd")
    assert policy.profile == "debug"
    assert policy.problems == ("MCP_ENVELOPE_PROFILE: there is no profile 'standrd', did you mean standard?",)


def test_a_profile_that_is_based_on_itself(tmp_path: Path) -> None:
    text = 'profile = "p"\n[profiles.p]\nbase = "q"\nhint = "p"\n[profiles.q]\nbase = "p"\ntier = "pro"'
    policy = policy_of(tmp_path, text)
    assert (policy.hint, policy.tier, policy.detail) == ("p", "pro", "minimal")
    assert policy.problems == ("mcp-envelope.toml, line 6, column 1: p is based on itself; minimal is used",)


# -- the dialects' own --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "expected"),
    [("16384", 16384), (" 500 ", 500), ("1", 1), ("007", 7), ("", None), ("9" * 30, 10**9)]
    + [(wrong, None) for wrong in ("16k", "0", "-5", "1e4", "16384.0", "1_000", "٣", "abc", "+5")],
)
def test_ctxo_response_limit(tmp_path: Path, limit: str, expected: int | None) -> None:
    policy = policy_of(tmp_path, 'dialect = "ctxo"', CTXO_RESPONSE_LIMIT=limit)
    assert policy.bytes == expected
    assert policy.allowance.limit == expected or (expected is None and policy.allowance.limit == 8192)
    assert bool(policy.problems) == (expected is None and limit != "")
    assert policy.sources["bytes"] == ("environment CTXO_RESPONSE_LIMIT" if expected else "built-in")


def test_ctxo_response_limit_among_others(tmp_path: Path) -> None:
    ctxo = 'dialect = "ctxo"\nbytes = 4000\n[tools.a]\nbytes = 5000'
    assert policy_of(tmp_path, ctxo, "a", CTXO_RESPONSE_LIMIT="600").bytes == 600
    assert policy_of(tmp_path, ctxo, CTXO_RESPONSE_LIMIT="x").bytes == 4000
    ours = policy_of(tmp_path, ctxo, CTXO_RESPONSE_LIMIT="600", MCP_ENVELOPE_TOKENS="700")
    assert (ours.bytes, ours.tokens) == (None, 700)
    other = policy_of(tmp_path, "bytes = 4000", CTXO_RESPONSE_LIMIT="nonsense")
    assert (other.bytes, other.problems) == (4000, ())


@pytest.mark.parametrize("info", ["DEBUG", "debug", " Debug "])
def test_scalpel_info_is_over_everything(tmp_path: Path, info: str) -> None:
    text = 'dialect = "scalpel"\n[tools.a]\nprofile = "minimal"\n[profiles.debug]\nhint = "d"'
    policy = policy_of(tmp_path, text, "a", SCALPEL_MCP_INFO=info, MCP_ENVELOPE_PROFILE="standard")
    assert (policy.profile, policy.detail, policy.hint) == ("debug", "debug", "d")
    assert policy.sources["profile"] == "environment SCALPEL_MCP_INFO"
    assert policy_of(tmp_path, "", SCALPEL_MCP_INFO=info).profile == "minimal"
    assert policy_of(tmp_path, text, "a", SCALPEL_MCP_INFO="INFO").profile == "minimal"


def test_the_published_response_config(tmp_path: Path) -> None:
    from .test_documentation import PUBLISHED

    (tmp_path / ".code-scalpel").mkdir()
    (tmp_path / ".code-scalpel" / "response_config.json").write_text(PUBLISHED)
    said: list[str] = []
    environ = {"MCP_ENVELOPE_DIALECT": "scalpel"}
    inner = tmp_path / "deep" / "er"
    inner.mkdir(parents=True)
    loaded = Settings(environ=environ, start=inner, say=said.append)
    policy = loaded.policy("analyze_code")
    assert policy.include_only == ("functions", "classes", "complexity")
    assert policy.sources["include_only"] == "tool analyze_code (../../.code-scalpel/response_config.json:7)"
    assert policy.sources["profile"] == "file ../../.code-scalpel/response_config.json:3"
    assert loaded.policy("other").include_only == ()
    assert said == []


def test_the_two_files_of_scalpel(tmp_path: Path) -> None:
    (tmp_path / ".code-scalpel").mkdir()
    (tmp_path / ".code-scalpel" / "response_config.json").write_text(
        '{"global": {"profile": "debug"}, "tool_overrides": {"a": {"profile": "own", "exclude_fields": ["x"]},'
        ' "b": {"profile": "ownn"}}}'
    )
    text = 'dialect = "scalpel"\n[profiles.own]\nhint = "o"\nexclude_fields = ["y"]\n'
    assert policy_of(tmp_path, text).profile == "debug"
    assert policy_of(tmp_path, 'profile = "standard"\n' + text).profile == "standard"
    policy = policy_of(tmp_path, text, "a")
    assert (policy.profile, policy.hint, policy.exclude_fields) == ("own", "o", ("x",))
    assert policy_of(tmp_path, text + '[tools."*"]\nexclude_fields = ["z"]', "a").exclude_fields == ("z",)
    assert policy_of(tmp_path, text.replace("scalpel", "native"), "a").profile == "minimal"
    said: list[str] = []
    loaded = Settings(environ={}, start=tmp_path, say=said.append)
    assert said == []  # nobody has spoken scalpel yet
    assert loaded.policy("b").profile == "minimal"
    assert loaded.problems() == ()
    (tmp_path / "mcp-envelope.toml").write_text(text)
    loaded = Settings(environ={}, start=tmp_path, say=said.append)
    assert loaded.policy("b").profile == "debug"
    loaded.policy("c")
    assert said == [
        ".code-scalpel/response_config.json, line 1, column 109: there is no profile 'ownn', did you mean own?"
    ]
    assert loaded.problems("scalpel") == tuple(said)


def test_a_profile_chosen_by_a_dialect_does_not_change_the_dialect(tmp_path: Path) -> None:
    text = 'dialect = "scalpel"\n[profiles.debug]\ndialect = "gel"\nhint = "h"'
    policy = policy_of(tmp_path, text, SCALPEL_MCP_INFO="DEBUG")
    assert (policy.dialect, policy.hint, policy.problems) == ("scalpel", "h", ())
    assert policy.sources["dialect"] == "file mcp-envelope.toml:1"


# -- the environment ----------------------------------------------------------------------------------------


def test_every_kind_in_the_environment(tmp_path: Path) -> None:
    policy = policy_of(
        tmp_path,
        MCP_ENVELOPE_TOKENS="4_000",
        MCP_ENVELOPE_REDACT="keys",
        MCP_ENVELOPE_INCLUDE_ONLY="a, b,,a",
        MCP_ENVELOPE_EXCLUDE_FIELDS='["c,d"]',
        MCP_ENVELOPE_LISTS='{"items": ["-score", "name"]}',
        MCP_ENVELOPE_WORKSPACE="packages/core",
        MCP_ENVELOPE_HINT="",
    )
    assert (policy.tokens, policy.redact, policy.include_only) == (4000, "keys", ("a", "b"))
    assert policy.exclude_fields == ("c,d",)
    assert policy.lists == {"items": ("-score", "name")}
    assert policy.workspace == {"root": "packages/core"}
    assert policy.sources["hint"] == "built-in"
    assert policy.problems == ()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("TOKENS", "many", "MCP_ENVELOPE_TOKENS = 'many': expected a whole number"),
        ("TOKENS", "16k", "'16k': expected a whole number"),
        ("TOKENS", "9" * 5000, "expected a whole number"),
        ("TOKENS", "5", "MCP_ENVELOPE_TOKENS = 5: too small; 100 is used"),
        ("REDACT", "maybe", "'maybe': expected one of off, tokens, keys, custom"),
        ("LISTS", "items", "'items': expected a table"),
        ("LISTS", '{"a": 3}', "MCP_ENVELOPE_LISTS.a = 3: expected a list"),
        ("INCLUDE_ONLY", "[1", "'[1': expected a list"),
        ("DIALECT", "cxto", "did you mean ctxo?"),
        ("HINT", "\udcff", ": not valid UTF-8"),
        ("INCLUDE_ONLY", "a,\udcff", ": not valid UTF-8"),
        ("WORKSPACE", "\udcff", "MCP_ENVELOPE_WORKSPACE: not valid UTF-8"),
    ],
)
def test_wrong_variables(tmp_path: Path, name: str, value: str, said: str) -> None:
    policy = policy_of(tmp_path, **{f"MCP_ENVELOPE_{name}": value})
    assert said in policy.problems[0]


def test_both_budgets_in_the_environment(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, MCP_ENVELOPE_TOKENS="500", MCP_ENVELOPE_BYTES="900")
    assert (policy.tokens, policy.bytes) == (500, None)
    assert policy.problems == ("MCP_ENVELOPE_BYTES: bytes is ignored, because tokens is set as well",)


def test_the_real_environment_is_read_in_every_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MCP_ENVELOPE_TOKENS", raising=False)
    loaded = Settings(start=tmp_path)
    assert loaded.policy("a").tokens is None
    monkeypatch.setenv("MCP_ENVELOPE_TOKENS", "777")
    assert loaded.policy("a").tokens == 777
    monkeypatch.delenv("MCP_ENVELOPE_TOKENS")
    assert loaded.policy("a").tokens is None


def test_the_short_cut_sees_what_the_front_door_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.setenv("MCP_ENVELOPE_HINT", "grüß")
    fast, slow = Environment(), Environment(dict(os.environ))
    assert fast.texts(fast.snapshot()) == slow.texts(slow.snapshot())
    assert fast.texts(fast.snapshot())["MCP_ENVELOPE_HINT"] == "grüß"


def test_a_variable_that_names_no_setting(tmp_path: Path) -> None:
    said: list[str] = []
    Settings(environ={"MCP_ENVELOPE_TOKEN": "5", "MCP_ENVELOPE_CONFIG": ""}, start=tmp_path, say=said.append)
    assert said == ["environment: there is no variable MCP_ENVELOPE_TOKEN, did you mean MCP_ENVELOPE_TOKENS?"]


# -- ranges and meters --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "tokens", "said"),
    [
        (
            "tokens = 110",
            128,
            "file mcp-envelope.toml:1: tokens = 110 is less than native can work with; 128 is used",
        ),
        ('tokens = 110\ndialect = "transcend"', 110, None),
        ('tokens = 20000\ndialect = "transcend"', 10_000, "tokens = 20000 is more than transcend allows"),
        (
            "tokens = 9000\nmax_tokens = 3000",
            3000,
            "tokens = 9000 is more than max_tokens allows; 3000 is used",
        ),
        (
            'max_tokens = 20000\ndialect = "transcend"',
            None,
            "max_tokens = 20000 is more than transcend allows",
        ),
        ("max_tokens = 100", None, "max_tokens = 100 is less than native can work with"),
        ('meter = "bytes"', None, "the meter bytes works only with a budget in bytes; exact is used"),
        ('meter = "bytes"\nbytes = 5000', None, None),
        ('meter = "exact"\nbytes = 5000', None, None),
        ("bytes = 5", None, "bytes = 5 is less than native can work with; 512 is used"),
    ],
)
def test_numbers_are_brought_into_the_dialects_range(
    tmp_path: Path, text: str, tokens: int | None, said: str | None
) -> None:
    policy = policy_of(tmp_path, text)
    assert policy.tokens == tokens
    assert policy.budget is not None
    assert policy.warnings == ()  # nothing that a result should tell
    assert said is None if not policy.problems else said is not None and said in policy.problems[0]
    assert policy.allowance.problems == ()


# -- asking -------------------------------------------------------------------------------------------------


def test_a_policy_is_made_once(tmp_path: Path) -> None:
    loaded = Settings(environ={}, start=tmp_path)
    assert loaded.policy("a") is loaded.policy("a")
    assert loaded.policy("a", {"x": 1}) is loaded.policy("a")
    assert loaded.policy("a", {"tokenBudget": 500}) == loaded.policy("a", {"tokenBudget": 500})
    assert loaded.policy("a", {"tokenBudget": 1}).tokens == 128
    assert loaded.policy("a", {"tokenBudget": True}).tokens is None
    for number in range(5000):
        assert loaded.policy(f"tool {number}", {"tokenBudget": 200 + number % 3000}).tokens
    assert len(loaded._policies) <= 2048


def test_problems_go_to_the_log_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "mcp-envelope.toml").write_text("tokns = 5")
    environ = {"CTXO_RESPONSE_LIMIT": "16k", "MCP_ENVELOPE_DIALECT": "ctxo"}
    loaded = Settings(environ=environ, start=tmp_path)
    for tool in ("a", "b", "a"):
        loaded.policy(tool)
    environ["CTXO_RESPONSE_LIMIT"] = "32k"
    loaded.policy("a")
    assert [(each.name, each.levelno, each.message) for each in caplog.records] == [
        ("mcp_envelope", logging.WARNING, message)
        for message in (
            "mcp-envelope.toml, line 1, column 1: there is no setting 'tokns', did you mean tokens?",
            "CTXO_RESPONSE_LIMIT: '16k' is not a positive integer; it is ignored",
            "CTXO_RESPONSE_LIMIT: '32k' is not a positive integer; it is ignored",
        )
    ]
