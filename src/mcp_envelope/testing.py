"""Property tests that hold any dialect to the promises: it fits, it is valid, nothing is lost, cuts are announced.

Strategy: Hypothesis makes payloads, budgets and outcomes; each is sealed as a server would seal it, with a vault
that remembers what it was given, and the finished result is looked at from outside, knowing nothing of its shape.
The cases are the same in every run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from . import dialects
from .budget import Budget
from .config import Policy
from .dialects import Dialect, registry
from .envelope import Sealed, seal
from .outcome import Failure, Miss
from .payload import Payload, read_payload
from .schema import Schema
from .vault.read_tool import read
from .vault.vault import open_vault

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

_HANDLE: Final = "h4ndleOfTheWholePayload"
_AMPLE: Final = 50_000
_HINT: Final = "Ask for a smaller range."
_MESSAGE: Final = "The index is being rebuilt."
_ROWS: Final = {
    "type": "object",
    "properties": {
        "rows": {"type": "array", "items": {"type": "object"}},
        "total": {"type": "integer"},
        "title": {"type": "string"},
    },
    "required": ["rows", "total"],
}


def check_dialect(kind: type[Dialect] | str, examples: int = 100) -> None:
    """Hold a dialect (its class, its name, or the path of its template) to the promises.

    An AssertionError says which one is broken and shows the smallest case found. Needs Hypothesis.
    """
    try:
        import hypothesis
        from hypothesis import strategies as st
    except ImportError:
        raise ImportError("check_dialect needs Hypothesis: pip install hypothesis") from None
    if not isinstance(kind, str):
        if kind.name not in dialects.NAMES:
            registry.register_dialect(kind)
        kind = kind.name
    spoken = dialects.dialect(kind)
    options = hypothesis.settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    checks: tuple[tuple[Callable[..., None], dict[str, SearchStrategy[Any]]], ...] = (
        (_check_success, {"payload": _payloads(), "budget": _budgets(spoken)}),
        (_check_whole, {"payload": _payloads()}),
        (_check_failure, {"problem": _problems(), "budget": _budgets(spoken)}),
    )
    _check_words(spoken)
    _check_uncuttable(spoken)
    for check, cases in checks:
        hypothesis.given(case=st.fixed_dictionaries(cases))(options(_case(check, spoken)))()
    _check_pages(spoken)


def _case(check: Callable[..., None], spoken: Dialect) -> Callable[..., None]:
    def run(case: dict[str, Any]) -> None:
        check(spoken, **case)

    return run


class _Keeper:
    """A vault that keeps one payload."""

    def __init__(self) -> None:
        self.kept: bytes | None = None

    def promise(self) -> tuple[str, float]:
        return _HANDLE, 2e9

    def keep(self, handle: str, payload: Payload, tool: str | None) -> str | None:
        self.kept = bytes(payload.as_node().raw)
        return None


# -- cases ------------------------------------------------------------------------------------------------------


def _payloads() -> SearchStrategy[dict[str, Any]]:
    from hypothesis import strategies as st

    text = st.text(max_size=60)
    value = st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), text)
    row = st.dictionaries(st.sampled_from(["a", "name", "note", "size", "é"]), value, max_size=5)
    rows = st.builds(lambda row, times: [{"id": n, **row} for n in range(times)], row, st.integers(0, 400))
    return st.builds(
        lambda rows, title: {"rows": rows, "total": len(rows), "title": title}, rows, st.text(max_size=3000)
    )


def _budgets(spoken: Dialect) -> SearchStrategy[Budget]:
    from hypothesis import strategies as st

    least = spoken.limits
    tokens = st.integers(least.least_tokens, 4000).map(lambda most: spoken.budget(most, None, None))
    size = st.integers(max(least.least_bytes, 512), 20_000).map(lambda most: spoken.budget(None, most, None))
    return st.one_of(tokens, size)


def _problems() -> SearchStrategy[Failure | Miss]:
    from hypothesis import strategies as st

    words = st.builds(lambda text, times: text * times, st.text(max_size=40), st.integers(0, 400))
    failure = st.builds(
        lambda message, hint: Failure("NOT_FOUND", _MESSAGE + message, hint, extra=message), words, words
    )
    return st.one_of(failure, st.builds(lambda words: Miss(_HINT + words), words))


# -- promises ---------------------------------------------------------------------------------------------------


def _check_success(spoken: Dialect, payload: dict[str, Any], budget: Budget) -> None:
    keeper, schema = _Keeper(), Schema.of(_ROWS)
    options: dict[str, Any] = {"schema": None if spoken.in_place else schema, "hint": _HINT, "tool": "list"}
    sealed = seal(payload, budget=budget, dialect=spoken.name, vault=keeper, **options)
    _fits(sealed, budget)
    _valid(spoken, sealed)
    _repeatable(sealed, seal(payload, budget=budget, dialect=spoken.name, vault=_Keeper(), **options))
    if not (sealed.cuts or sealed.content_cuts or sealed.problem):
        return
    stored = json.loads(keeper.kept or b"null")
    assert stored == payload, "nothing lost: a result that was cut is stored whole before it leaves"
    shown = sealed.to_json()
    told = _HANDLE if spoken.names_handles else ""
    assert told.encode() in shown, "announced: a result that was cut names the handle of the whole"
    for cut in sealed.content_cuts if not spoken.names_handles else ():
        assert str(cut.total).encode() in shown, f"announced: the result says how many {cut.kind} there are"


def _check_whole(spoken: Dialect, payload: dict[str, Any]) -> None:
    """With room to spare, all of the data is there, byte for byte."""
    budget = spoken.budget(None, _AMPLE * 8, None)
    sealed = seal(
        payload, budget=budget, dialect=spoken.name, schema=None if spoken.in_place else Schema.of(_ROWS)
    )
    if sealed.cuts or sealed.content_cuts:
        return  # it has a limit of its own, which the other checks are about
    lanes = [(sealed.structured or b"").decode(), *_texts(sealed)]
    found = any(_holds(lane, payload) for lane in lanes)
    assert found, "whole: data that fits is shown whole, and is valid JSON"


def _check_failure(spoken: Dialect, problem: Failure | Miss, budget: Budget) -> None:
    sealed = seal(
        problem, budget=budget, dialect=spoken.name, schema=None if spoken.in_place else Schema.of(_ROWS)
    )
    _fits(sealed, budget)
    _valid(spoken, sealed)


def _check_words(spoken: Dialect) -> None:
    """A failure and a miss say what they are about."""
    tokens = min(_AMPLE, spoken.limits.most_tokens or _AMPLE)
    for problem, words in ((Failure("NOT_FOUND", _MESSAGE), _MESSAGE), (Miss(_HINT), _HINT)):
        sealed = seal(problem, tokens=tokens, dialect=spoken.name)
        assert any(words in _unescaped(text) for text in _texts(sealed)), (
            "failures: the message of a failure, and the hint of a miss, are shown where the model reads"
        )


def _check_uncuttable(spoken: Dialect) -> None:
    """A failure in place of data that can't be cut names the handle of the whole."""
    payload = {"rows": [{"id": n} for n in range(2000)], "total": 2000}
    whole = {**_ROWS, "properties": {"rows": {"type": "array", "minItems": 2000}}}
    tokens = spoken.limits.least_tokens + 200
    sealed = seal(payload, tokens=tokens, dialect=spoken.name, vault=_Keeper(), schema=Schema.of(whole))
    if sealed.problem is not None and spoken.names_handles:
        assert _HANDLE.encode() in sealed.to_json(), (
            "announced: a failure in place of data that can't be cut names the handle of the whole"
        )


def _check_pages(spoken: Dialect) -> None:
    """What `envelope_read` returns can be joined: whole items from the offset on, and where the next starts."""
    rows = [{"id": n, "name": f"row {n}"} for n in range(400)]
    with TemporaryDirectory() as folder:
        vault = open_vault(f"{folder}/vault.db")
        assert vault is not None
        handle, _ = vault.of(None).promise()
        assert vault.of(None).keep(handle, read_payload({"rows": rows}), "list") is None
        for tokens in (spoken.limits.least_tokens + 200, 1000):
            policy = Policy(dialect=spoken.name, tokens=tokens)
            sealed = read(vault, {"handle": handle, "path": "/rows", "offset": 100}, policy=policy)
            _fits(sealed, policy.budget or Budget.of())
            lanes = [(sealed.structured or b"").decode(), *_texts(sealed)]
            pages = [found for lane in lanes for found in _lists(lane) if found[:1] == rows[100:101]]
            assert pages, "pages: what was read back is shown"
            told = sealed.to_json()
            for page in pages:
                after = 100 + len(page)
                assert page == rows[100:after], "pages: the items of a page follow each other, and are whole"
                assert after == len(rows) or b"offset=%d" % after in told, (
                    "pages: each says where the next starts"
                )
        vault.close()


def _lists(text: str) -> list[list[Any]]:
    """Return the lists in a JSON text."""
    try:
        waiting = [json.loads(text)]
    except ValueError:
        return []
    found = []
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            found.append(value)
        elif isinstance(value, dict):
            waiting.extend(value.values())
    return found


def _fits(sealed: Sealed, budget: Budget) -> None:
    report = sealed.report
    for lane, used in (("content", report.content_used), ("structuredContent", report.structured_used)):
        assert used is None or used <= budget.limit, (
            f"fits: {lane} has {used} {budget.unit}, and the budget is {budget.limit}"
        )


def _valid(spoken: Dialect, sealed: Sealed) -> None:
    advertised = None if spoken.in_place else spoken.output_schema(_ROWS)
    if advertised is not None and sealed.structured is not None:
        error = Schema.of(advertised).first_error(sealed.structured)
        assert error is None, f"valid: structuredContent breaks the output schema at {error}"
    json.loads(sealed.to_json())


def _repeatable(sealed: Sealed, again: Sealed) -> None:
    assert sealed.to_json() == again.to_json(), "the same payload and budget give the same result"


def _texts(sealed: Sealed) -> list[str]:
    return [block["text"] for block in json.loads(sealed.content) if block.get("type") == "text"]


def _unescaped(text: str) -> str:
    try:
        return json.dumps(json.loads(text), ensure_ascii=False)
    except ValueError:
        return text


def _holds(text: str, payload: Mapping[str, Any]) -> bool:
    """Whether a JSON text has the payload in it, as itself or as a member, perhaps with others beside its own."""
    try:
        waiting = [json.loads(text)]
    except ValueError:
        return False
    while waiting:
        found = waiting.pop()
        if isinstance(found, dict):
            if all(found.get(key, waiting) == value for key, value in payload.items()):
                return True
            waiting.extend(found.values())
        elif isinstance(found, list):
            waiting.extend(found)
    return False
