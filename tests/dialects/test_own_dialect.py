"""A dialect from outside: as a class, as a template, by its place, by its name, and through every way in."""

from __future__ import annotations

import importlib.metadata
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from mcp_envelope import BudgetRange, Dialect, Failure, Miss, Outcome, register_dialect, seal
from mcp_envelope.config import Settings
from mcp_envelope.config.schema import settings_schema
from mcp_envelope.config.trust import Accepted
from mcp_envelope.dialects import DIALECTS, NAMES, dialect, registry
from mcp_envelope.gateway import Gateway
from mcp_envelope.lanes import Lanes, Plan
from mcp_envelope.payload import Payload
from mcp_envelope.proxy.interceptor import Interceptor
from mcp_envelope.testing import check_dialect
from tests.cli.harness import process
from tests.conftest import examples
from tests.servers.harness import ask, enveloped_server

EXAMPLES = Path(__file__).parents[2] / "examples"
CLASS = f"{EXAMPLES / 'paged_dialect.py'}:Paged"
TEMPLATE = str(EXAMPLES / "paged_dialect.toml")
ROWS = {"rows": [{"id": n, "name": "x" * 30} for n in range(300)]}


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """No test knows the dialects of another."""
    yield
    for name in [name for name in DIALECTS if name not in NAMES]:
        del DIALECTS[name]
    registry._entry_points.cache_clear()


@pytest.mark.parametrize("name", [*NAMES, CLASS, TEMPLATE])
def test_every_dialect_keeps_the_promises(name: str) -> None:
    check_dialect(name, examples=examples(25))


@pytest.mark.parametrize("name", [CLASS, TEMPLATE])
def test_a_dialect_by_its_place(name: str) -> None:
    sealed = seal(ROWS, dialect=name, tokens=400, handle="aB3dE6gH9jK2mN5pQ8sT1v")
    shown = json.loads(sealed.structured or b"")
    assert list(shown) == ["status", "result", "page"]
    assert shown["page"]["shown"] == len(shown["result"]["rows"]) > 0
    assert shown["page"]["of"] == 300
    assert "aB3dE6gH9jK2mN5pQ8sT1v" in shown["page"]["note"]
    assert json.loads(json.loads(sealed.content)[0]["text"]) == shown
    missing = json.loads(seal(Miss("Build the index."), dialect=name).structured or b"")
    assert (missing["status"], missing["advice"]) == ("missing", "Build the index.")
    failure = seal(Failure("TIMEOUT", "Too slow."), dialect=name)
    assert failure.is_error
    assert json.loads(failure.structured or b"")["reason"] == "Too slow."


def test_a_place_is_the_same_however_it_is_spelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("paged_dialect.py", "paged_dialect.toml"):
        text = (EXAMPLES / name).read_text().replace('name = "paged', f'name = "a{Path(name).suffix}')
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    for spec in ("paged_dialect.py:Paged", "paged_dialect.toml"):
        found = {dialect(each).name for each in (spec, f"./{spec}", str(tmp_path / spec))}
        assert len(found) == 1


@pytest.mark.parametrize("library", ["fastmcp", "mcpserver"])
@pytest.mark.parametrize("name", [CLASS, TEMPLATE])
def test_servers_speak_it(library: str, name: str) -> None:
    def rows() -> dict[str, Any]:
        return ROWS

    result = ask(enveloped_server(library, rows, dialect=name), "rows", {"tokenBudget": 400})
    assert list(result.structured_content) == ["status", "result", "page"]
    assert not result.structured_content["page"].get("complete", False)


def test_the_proxy_speaks_it() -> None:
    gateway = Gateway(Settings("/dev/null", {}), vault="none", ledger=False, dialect=CLASS)
    proxy = Interceptor(gateway)
    _ask(proxy, 1, "tools/list")
    schema = {"type": "object", "properties": {"rows": {"type": "array"}}, "required": ["rows"]}
    tool = {"name": "rows", "inputSchema": {"type": "object"}, "outputSchema": schema}
    (listed,) = _answer(proxy, 1, {"tools": [tool]})["tools"][:1]
    assert listed["outputSchema"]["properties"]["result"] == schema
    _ask(proxy, 2, "tools/call", name="rows", arguments={})
    shown = _answer(proxy, 2, {"content": [], "structuredContent": {"rows": [1]}})
    assert shown["structuredContent"] == {"status": "ok", "result": {"rows": [1]}, "page": {"complete": True}}


def _ask(proxy: Interceptor, identifier: int, method: str, **params: Any) -> None:
    frame = {"jsonrpc": "2.0", "id": identifier, "method": method, "params": params}
    proxy.from_client(json.dumps(frame).encode())


def _answer(proxy: Interceptor, identifier: int, result: dict[str, Any]) -> dict[str, Any]:
    answer = proxy.from_server(json.dumps({"jsonrpc": "2.0", "id": identifier, "result": result}).encode())
    shown: dict[str, Any] = json.loads(answer.to_client[0])["result"]
    return shown


def test_the_command_line_speaks_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES)
    payload = tmp_path / "payload.json"
    payload.write_text(json.dumps(ROWS))
    for name in ("paged_dialect.py:Paged", "paged_dialect.toml"):
        outcome = process("seal", str(payload), "--dialect", name, "--tokens", "400", "--vault", "none")
        assert json.loads(outcome.out)["structuredContent"]["page"]["of"] == 300
    wrong = process("seal", str(payload), "--dialect", "paged_dialect.py:Pged")
    assert wrong.code == 2
    assert "has no attribute 'Pged'" in wrong.err
    assert "Traceback" not in wrong.err


class Bare(Dialect):
    name = "bare"
    limits = BudgetRange(tokens=1000, most_tokens=2000)

    def document(self, outcome: Outcome, data: Raw | None, length: int) -> Mapping[str, Any]:
        return {"value": data, "note": self.note(outcome, length)}


def test_registered_by_a_call(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown dialect 'bare'"):
        dialect("bare")
    assert register_dialect(Bare) is Bare
    assert json.loads(seal([1], dialect="bare").structured or b"") == {"value": [1], "note": ""}
    (tmp_path / "mcp-envelope.toml").write_text('dialect = "bare"')
    policy = Settings(environ={}, start=tmp_path).policy()
    assert policy.budget is not None
    assert (policy.dialect, policy.budget.limit, policy.problems) == ("bare", 1000, ())
    assert "bare" in settings_schema()["$defs"]["dialect"]["anyOf"][0]["enum"]
    budget = dialect("bare").budget(5000, None, None)
    assert (budget.limit, budget.warning) == (
        2000,
        "the budget of 5000 tokens was lowered to 2000, the largest",
    )


def test_a_budget_in_bytes_needs_no_word_about_tokens() -> None:
    class InBytes(Bare):
        name = "in-bytes"
        limits = BudgetRange(bytes=700)

    register_dialect(InBytes)
    sealed = seal({"rows": list(range(2000))}, dialect="in-bytes")
    assert (sealed.report.limit, sealed.report.unit) == (700, "bytes")
    with pytest.raises(ValueError, match="not both"):
        BudgetRange(tokens=100, bytes=700)


def test_installed_as_an_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = importlib.metadata.EntryPoint("bare", f"{__name__}:Bare", "mcp_envelope.dialects")
    other = importlib.metadata.EntryPoint("other", f"{__name__}:Bare", "mcp_envelope.dialects")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [entry, other])
    registry._entry_points.cache_clear()
    assert registry.names() == (*NAMES, "bare", "other")
    assert isinstance(dialect("bare"), Bare)
    with pytest.raises(ValueError, match="calls itself 'bare'"):
        dialect("other")


def test_what_cannot_be_a_dialect() -> None:
    class Nameless(Dialect):
        def fit(self, plan: Any) -> Any: ...

    class Taken(Bare):
        name = "gel"

    class Empty(Dialect):
        name = "empty"

    wrong: list[tuple[Any, str]] = [
        (Nameless, "needs a name"),
        (Taken, "another dialect named 'gel'"),
        (Empty, "needs a method document"),
        (int, "not a subclass"),
    ]
    for kind, said in wrong:
        with pytest.raises(ValueError, match=said):
            register_dialect(kind)
    with pytest.raises(ValueError, match="cannot be loaded: ModuleNotFoundError"):
        dialect("no_such_module:Thing")
    with pytest.raises(ValueError, match="cannot be used: No such file"):
        dialect("nowhere.toml")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"success": {"ok": True}}, 'one member must be "\\$data"'),
        ({"success": {"r": "$data"}}, "must be announced"),
        ({"success": {"r": "$data", "n": "$nte"}}, r"there is no fact \$nte, did you mean note"),
        ({"failure": {"ok": False}}, r"use \$message"),
        ({"failure": {"m": "$message"}}, "failure: .* must be announced"),
        ({"meter": "words"}, "meter is one of"),
        ({"tokens": 5, "bytes": 5}, "not both"),
        ({"extra": 1}, "unknown field `extra`"),
    ],
)
def test_wrong_templates(changed: dict[str, Any], said: str, tmp_path: Path) -> None:
    failure = {"m": "$message", "n": "$note"}
    file = {"name": "t", "success": {"r": "$data", "n": "$note"}, "failure": failure, **changed}
    (tmp_path / "t.json").write_text(json.dumps(file))
    with pytest.raises(ValueError, match=said):
        dialect(str(tmp_path / "t.json"))


def test_words_inside_a_text_and_null(tmp_path: Path) -> None:
    file = {
        "name": "wordy",
        "is_structured": False,
        "success": {"r": "$data", "say": "${kept} of ${total}: ${note}", "none": None},
        "failure": {"m": "failed: ${message}", "all": ["$code", 3], "n": "$note?"},
    }
    (tmp_path / "wordy.json").write_text(json.dumps(file))
    sealed = seal(ROWS, dialect=str(tmp_path / "wordy.json"), tokens=300)
    shown = json.loads(json.loads(sealed.content)[0]["text"])
    assert shown["say"].startswith(f"{len(shown['r']['rows'])} of 300: Showing")
    assert sealed.structured is None
    assert shown["none"] is None
    failed = json.loads(json.loads(seal(Failure("TIMEOUT", "slow"), dialect="wordy").content)[0]["text"])
    assert failed == {"m": "failed: slow", "all": ["TIMEOUT", 3]}


# -- settings files ---------------------------------------------------------------------------------------------


def test_a_file_that_was_only_found_runs_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "evil.py").write_text("raise SystemExit('code ran')")
    file = tmp_path / "mcp-envelope.toml"
    file.write_text('dialect = "evil.py:Evil"\n[tools.t]\ndialect = "evil:Evil"')
    said: list[str] = []
    settings = Settings(environ={}, start=tmp_path, say=said.append)
    assert settings.policy("t").dialect == "native"
    assert [line.partition(" is ignored")[0] for line in said] == [
        "mcp-envelope.toml, line 1, column 1: dialect",
        "mcp-envelope.toml, line 3, column 1: dialect",
    ]
    assert "mcp-envelope trust" in said[0]


def test_an_accepted_file_finds_its_dialect_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "own.py").write_text((EXAMPLES / "paged_dialect.py").read_text())
    file = tmp_path / "mcp-envelope.toml"
    file.write_text('dialect = "own.py:Paged"')
    Accepted().add(str(file), file.read_bytes())
    (tmp_path / "deep").mkdir()
    for settings in (Settings(environ={}, start=tmp_path / "deep"), Settings(file, {})):
        policy = settings.policy()
        assert (policy.dialect, policy.problems) == ("paged", ())


def test_a_template_needs_no_acceptance(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(Path(TEMPLATE).read_text())
    (tmp_path / "mcp-envelope.toml").write_text('dialect = "own.toml"')
    assert Settings(environ={}, start=tmp_path).policy().dialect == "paged-template"
    # The proxy trusts a found file with nothing but budgets.
    assert Settings(environ={}, start=tmp_path, trust_found=False).policy().dialect == "native"


def test_a_dialect_that_cannot_be_loaded_is_said_and_native_is_used(tmp_path: Path) -> None:
    policy = Settings("/dev/null", {"MCP_ENVELOPE_DIALECT": "no_such_module:Thing"}).policy()
    assert policy.dialect == "native"
    assert policy.problems == (
        "environment MCP_ENVELOPE_DIALECT: the dialect 'no_such_module:Thing' cannot be loaded: "
        "ModuleNotFoundError: No module named 'no_such_module'; native is used",
    )
    with pytest.raises(ValueError, match="unknown dialect 'x'"):
        Settings("/dev/null", {}).policy(dialect="x")


# -- the kit ----------------------------------------------------------------------------------------------------


class Wordy(Bare):
    name = "wordy"

    def document(self, outcome: Outcome, data: Raw | None, length: int) -> Mapping[str, Any]:
        problem = outcome.error or outcome.miss
        said = (
            "" if problem is None else self.short(problem.message, length) + self.short(problem.hint, length)
        )
        return {"value": data, "said": said, "note": self.note(outcome, length)}


class Silent(Wordy):
    """Says nothing of what it leaves out."""

    name = "silent"

    def note(self, outcome: Outcome, length: int = 0) -> str:
        return ""


class Forgetful(Wordy):
    """A failure in place of data doesn't say where the data is."""

    name = "forgetful"

    def note(self, outcome: Outcome, length: int = 0) -> str:
        return "" if outcome.error else super().note(outcome, length)


class Invalid(Wordy):
    name = "invalid"

    def output_schema(self, data: Mapping[str, Any] | bool | None) -> dict[str, Any]:
        return {"type": "object", "properties": {"note": {"type": "integer"}}}


class Huge(Wordy):
    """Shortens nothing."""

    name = "huge"

    def short(self, text: str | None, length: int) -> str:
        return text or ""


class Impatient(Wordy):
    """Doesn't look whether it was given a page."""

    name = "impatient"

    def fit(self, plan: Plan) -> Lanes:
        return super().fit(replace(plan, payload=Payload(node=plan.payload.as_node())))


@pytest.mark.parametrize(
    ("kind", "promise"),
    [
        (Silent, "announced"),
        (Forgetful, "announced"),
        (Invalid, "valid"),
        (Huge, "fits"),
        (Bare, "failures"),
        (Impatient, "pages"),
    ],
)
def test_the_kit_finds_what_is_broken(kind: type[Dialect], promise: str) -> None:
    with pytest.raises(AssertionError, match=f"^{promise}:"):
        check_dialect(kind, examples=40)


def test_the_kit_finds_nothing_where_nothing_is_broken() -> None:
    check_dialect(Wordy, examples=20)


def test_the_kit_needs_hypothesis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    with pytest.raises(ImportError, match="pip install hypothesis"):
        check_dialect("native")
