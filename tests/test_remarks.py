"""Words from deep inside a call reach its result, and no other's."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

from mcp_envelope import describe_call, fallback, index_age, seal, stale, upgrade, warn
from mcp_envelope.outcome import collect_remarks, current_remarks


def warnings_of(sealed: Any) -> list[str]:
    result = json.loads(sealed.structured)
    return list(result.get("_envelope", {}).get("warnings", []))


def test_words_travel_with_the_result() -> None:
    with collect_remarks():
        warn("first")
        warn("first")
        stale(3)
        stale(0)
        index_age("2 days", "Rebuild it.")
        fallback("The call hierarchy", "a text search")
        said = warnings_of(seal({"a": 1}))
    assert said == [
        "first",
        "3 files changed since the last index; entries from them may be out of date. "
        "Rebuild the index, or read what changed before relying on it.",
        "The index is 2 days old, so newer code is missing from it. Rebuild it.",
        "The call hierarchy came from a text search instead: treat it as approximate. "
        "Check what matters against the source.",
    ]
    assert warnings_of(seal({"a": 1})) == []


def test_what_is_stale_may_have_a_mark() -> None:
    with collect_remarks():
        stale(1, marked="stale: true", advice="")
        [said] = warnings_of(seal({"a": 1}))
    assert said == "1 file changed since the last index; entries from it are marked stale: true."


def test_outside_of_a_call_nobody_is_told() -> None:
    warn("to nobody")
    describe_call(tier="pro")
    upgrade("feature", "pro", "reason")
    assert current_remarks() is None
    assert warnings_of(seal({"a": 1})) == []


def test_calls_side_by_side_keep_their_words_apart() -> None:
    async def call(name: str) -> list[str]:
        with collect_remarks():
            warn(f"{name} begins")
            await asyncio.sleep(0)
            await asyncio.gather(*(asyncio.create_task(helper(name, n)) for n in range(3)))
            await asyncio.to_thread(warn, f"{name} in a thread")
            return warnings_of(seal({"name": name}))

    async def helper(name: str, n: int) -> None:
        await asyncio.sleep(0)
        warn(f"{name} {n}")

    async def everything() -> list[list[str]]:
        return list(await asyncio.gather(*(call(f"call{n}") for n in range(50))))

    for n, said in enumerate(asyncio.run(everything())):
        assert said == [f"call{n} begins", f"call{n} 0", f"call{n} 1", f"call{n} 2", f"call{n} in a thread"]


def test_threads_keep_their_words_apart() -> None:
    results: dict[int, list[str]] = {}

    def call(n: int) -> None:
        with collect_remarks():
            for step in range(20):
                warn(f"{n}.{step}")
            results[n] = warnings_of(seal({"n": n}))

    threads = [threading.Thread(target=call, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(said == [f"{n}.{step}" for step in range(20)] for n, said in results.items())


def test_upgrade_hints_and_identity() -> None:
    with collect_remarks():
        upgrade("cross-file", "enterprise", "it needs the graph")
        describe_call(tier="community", tool_version="1.2.3", capabilities=("a",))
        result = json.loads(seal({"a": 1}, dialect="scalpel", profile="standard").structured or b"")
    assert result["upgrade_hints"] == [
        {"feature": "cross-file", "tier": "enterprise", "reason": "it needs the graph"}
    ]
    assert (result["tier"], result["tool_version"]) == ("community", "1.2.3")
