"""What a tool returns or raises, taken apart."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from mcp_envelope import Failure, Link, Miss, Reply, seal

HINT = " ".join(f"Try word {number}." for number in range(120))


def notice(sealed: Any) -> Any:
    return json.loads(json.loads(sealed.content)[0]["text"])["_envelope"]


def test_an_exception_becomes_a_code() -> None:
    sealed = seal(TimeoutError("no answer from /home/ada/secret/server.py"))
    assert sealed.is_error
    assert notice(sealed)["error"]["code"] == "TIMEOUT"
    assert "/home/ada" not in sealed.to_json().decode()
    surprise = seal(RuntimeError("source = open('/etc/passwd')"))
    assert notice(surprise)["error"]["code"] == "INTERNAL"
    assert notice(surprise)["error"]["details"]["correlationId"]
    assert "passwd" not in surprise.to_json().decode()


@pytest.mark.parametrize("passing", [asyncio.CancelledError(), KeyboardInterrupt(), SystemExit(1)])
def test_what_is_no_failure_passes_through(passing: BaseException) -> None:
    with pytest.raises(type(passing)):
        seal(passing)


def test_a_failure_says_what_its_author_said() -> None:
    failure = Failure("QUOTA_SPENT", "No calls left today.", "Come back tomorrow.", {"left": 0}, plan="free")
    assert str(failure) == "QUOTA_SPENT: No calls left today."
    said = notice(seal(failure))["error"]
    assert said == {
        "code": "QUOTA_SPENT",
        "message": "No calls left today.",
        "hint": "Come back tomorrow.",
        "details": {"left": 0, "plan": "free"},
    }


def test_a_failure_may_have_data() -> None:
    sealed = seal(Failure("TIMEOUT", "Only half was read.", data={"rows": [1, 2]}))
    assert sealed.structured is None
    result = json.loads(json.loads(sealed.content)[0]["text"])
    assert result["rows"] == [1, 2]
    assert result["_envelope"]["error"]["code"] == "TIMEOUT"


def test_a_long_failure_fits() -> None:
    failure = Failure("TIMEOUT", "words " * 5000, "more " * 5000, {"list": list(range(5000))})
    for dialect in ("native", "transcend", "gel"):
        sealed = seal(failure, dialect=dialect, tokens=200)
        assert sealed.report.used <= 200
        assert "TIMEOUT" in sealed.to_json().decode()


@pytest.mark.parametrize("answer", [Miss(HINT), Reply(1, warnings=[HINT]), Failure("NO", "No a", HINT)])
def test_what_an_author_says_at_length_is_shown(answer: Any) -> None:
    assert HINT in json.dumps(seal(answer).to_result())


def test_a_miss_is_a_success() -> None:
    sealed = seal(Miss("Try another name."))
    assert not sealed.is_error
    assert json.loads(sealed.structured or b"") == {"found": False, "hint": "Try another name."}


def test_links() -> None:
    link = Link("docs://1", "one", mime_type="text/plain", size=5)
    sealed = seal(Reply({"a": 1}, texts=["x"], links=[link]), dialect="gel")
    assert json.loads(sealed.content)[-1] == {
        "type": "resource_link",
        "uri": "docs://1",
        "name": "one",
        "mimeType": "text/plain",
        "size": 5,
    }
