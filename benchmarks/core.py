"""The core's tables: typed results beside the rivals, results that fit, other shapes, quality."""

import json
from typing import Any

import msgspec
from benchmarks.apart import measure
from benchmarks.clock import race
from benchmarks.engines import BEGINNINGS, ENGINES, PLAIN, Call, encode, fastmcp, sealing, shrinkfit
from benchmarks.report import Table, progress
from benchmarks.samples import (
    ADVERTISED,
    HANDLE,
    RECORDS,
    SHAPES,
    TOKENS,
    Sample,
    orders,
    orders_json,
    sample,
    three_lists,
)

from mcp_envelope import Schema, seal
from mcp_envelope.budget import meter_named as meter
from mcp_envelope.config.policy import Policy
from mcp_envelope.fit.record_formats import FORMS

ENCODE = "one msgspec encode"


def typed(
    size: str, seconds: float, most_encodes: float, most_described: float, least_faster: float
) -> Table:
    """A typed result of that size to 2,000 tokens, every engine in turn."""
    progress(f"{size} typed JSON, {len(ENGINES)} engines taking turns")
    of = sample(size)
    sealed = sealing(of)()
    assert sealed.structured is not None
    characters = len(sealed.structured.decode())
    calls = _installed({name: make(of, characters) for name, make in ENGINES.items()})
    calls["seal, bytes in"] = sealing(sample(f"{size} bytes"))
    times = race(calls, seconds)
    table = Table(
        name=size,
        title=f"{size} typed JSON ({RECORDS[size]:,} records, strict output schema) to {TOKENS:,} tokens",
        columns={"ms": "{:.2f}", "× encode": "{:.2f}", "seal is faster": "{:.1f} ×", "tokens": "{:,.0f}"}
        | {"valid": "{}"},
        note=f"Processor time, best of the rounds. The others get {characters:,} characters, as\n"
        "many as seal used. Tokens by the meter exact. Valid: what the model gets conforms to\n"
        "the output schema.",
    )
    for name, call in calls.items():
        text = _text_of(call())
        is_engine = name not in (ENCODE, PLAIN, "seal, bytes in")
        faster = times.ratio(name, "seal") if is_engine and name != "seal" else None
        tokens = meter("exact").count(text) if name != ENCODE else None
        valid = _validity(text) if name != ENCODE else None
        table.add(name, 1000 * times.best(name), times.ratio(name, ENCODE), faster, tokens, valid)
    for name in [name for name in ENGINES if name not in calls]:
        table.add(name, "not installed")
    table.check(f"fit {size}", times.ratio("seal", ENCODE), "≤", most_described, "× one encode")
    table.check(f"fit {size}, beginnings only", times.ratio(PLAIN, ENCODE), "≤", most_encodes, "× one encode")
    if "shrinkfit" in times:
        faster = times.ratio("shrinkfit", PLAIN)
        table.check(f"fit {size}, beginnings only, against shrinkfit", faster, "≥", least_faster, "× faster")
    return table


def memory(size: str, most: float) -> Table:
    table = Table(
        name=f"{size} memory",
        title=f"Peak memory for the same, {size}",
        columns={"MB": "{:.1f}", "× payload": "{:.2f}", "Python's own count": "{:.2f} ×"},
        note="Growth of the resident set during the first call, each in a process of its own. The caller's\n"
        "payload is there before and not counted; “× payload” divides by its size as JSON.",
    )
    asked = [(name, size) for name in ENGINES]
    asked.insert(2, ("seal", f"{size} bytes"))
    for engine, form in asked:
        progress(f"memory: {engine}, {form}")
        found = measure(form, engine, 0, trace=engine in ("seal", ENCODE))
        label = f"{engine}, bytes in" if form.endswith("bytes") else engine
        if found is None:
            table.add(label, "not installed")
            continue
        traced = found.traced / found.size if found.traced else None
        table.add(label, found.peak / 1e6, found.memory, traced)
        if engine == "seal":
            table.check(f"peak memory, {label}", found.memory, "≤", most, "× payload")
    return table


def fits(seconds: float) -> Table:
    """What sealing adds to a result that needs no cut."""
    progress("results that fit")
    table = Table(
        name="fits",
        title="A result that fits: microseconds on top of one encode",
        columns={"encode µs": "{:.1f}", "on top µs": "{:.1f}"},
        note="Processor time, best of the rounds, many calls in each. Nothing is subtracted where the\n"
        "caller encodes nothing: bytes in, and FastMCP's limiter, which gets a result that is built already.",
    )
    two, tiny = orders(6), orders(1)["orders"][0]["customer"]
    raw, made = msgspec.json.encode(two), Schema.of(ADVERTISED)
    ours: dict[str, Call] = {
        "2 KB, default budget, no schema": lambda: seal(two),
        "2 KB, default budget, Schema made once": lambda: seal(two, schema=made),
        "2 KB, default budget, schema as a dict": lambda: seal(two, schema=ADVERTISED),
        "2 KB, 2,000 tokens, no schema": lambda: seal(two, tokens=TOKENS),
        "2 KB, 2,000 tokens, Schema made once": lambda: seal(two, tokens=TOKENS, schema=made),
        "2 KB, 2,000 tokens, schema as a dict": lambda: seal(two, tokens=TOKENS, schema=ADVERTISED),
    }
    others: dict[str, Call | None] = {
        "2 KB, default budget, bytes in": lambda: seal(raw, schema=made),
        "74 bytes, default budget": lambda: seal(tiny),
        "shrinkfit, 2 KB": shrinkfit(Sample.of(two), 32_000),
        "FastMCP limiter, 2 KB": fastmcp(Sample.of(two), 32_000, build=False),
    }
    encodes = {"of 2 KB": encode(Sample.of(two)), "of 74 bytes": encode(Sample.of(tiny))}
    times = race(ours | _installed(others) | encodes, seconds)
    for name in [*ours, *_installed(others)]:
        spent = times.best("of 74 bytes" if name.startswith("74") else "of 2 KB")
        if name.endswith("bytes in") or name.startswith("FastMCP"):
            spent = 0.0
        table.add(name, 1e6 * spent, 1e6 * (times.best(name) - spent))
        if name in ours:
            table.check(f"fits, {name}", 1e6 * (times.best(name) - spent), "≤", 30, "µs")
    return table


def shapes(seconds: float) -> Table:
    table = Table(
        name="shapes",
        title=f"Other shapes to {TOKENS:,} tokens",
        columns={"MB": "{:.2f}", "encode ms": "{:.2f}", "seal ms": "{:.2f}", "× encode": "{:.2f}"}
        | {"memory × payload": "{:.2f}"},
        note="Each in a process of its own, taking turns with one encode of the same value; processor\n"
        "time, best of the rounds. The size is the payload's own if it comes as bytes, else its JSON's.",
    )
    for name in SHAPES:
        progress(f"shape: {name}")
        found = measure(name, "seal", seconds)
        if found is None:
            table.add(name, "failed")
            continue
        # Below a megabyte the resident set says nothing.
        of_payload = found.memory if found.size > 1e6 else None
        table.add(name, found.size / 1e6, 1e3 * found.encode, 1e3 * found.engine, found.ratio, of_payload)
    return table


def quality() -> Table:
    """How much of the budget goes to the payload, and whether lists share it fairly."""
    progress("quality")
    table = Table(
        name="quality",
        title=f"What is kept at {TOKENS:,} tokens, beginnings only",
        columns={"least": "{:.0%}", "structured": "{:.0%}", "content": "{:.0%}"},
        note="1,000 uniform records: the kept records' share of the budget. Three lists: what each list\n"
        "gets of its fair third of the budget. Texts: how much of the text lane\n"
        "is used, with the notice. By the meter that the budget is counted with, in each lane.",
    )
    uniform, lists = orders(1_000), three_lists(1_000)
    for tokens in (2_000, 8_000):
        text = "\n".join(json.dumps(order) for order in uniform["orders"])
        for label, payload in (
            (f"a text of records, {tokens:,} tokens", text),
            (f"JSON as text, {tokens:,} tokens", orders_json(1_000).decode()),
        ):
            used = seal(payload, tokens=tokens, read_as="text").report.content_used / tokens
            table.add(label, used, None, used)
            table.check(label, 100 * used, "≥", 95, "% of the budget")
    for name in ("estimate", "chars4", "exact"):
        shares = _lane_shares(uniform, name, [("orders",)], schema=ADVERTISED)
        label = f"1,000 records, meter {name}"
        table.add(label, min(shares[0]), *shares[0])
        table.check(label, 100 * min(shares[0]), "≥", 90, "% of the budget")
        paths = [("orders",), ("report", "customers"), ("places",)]
        least = []
        for path, share in zip(paths, _lane_shares(lists, name, paths), strict=True):
            thirds = [3 * part for part in share]
            least.append(min(thirds))
            table.add(f"/{'/'.join(path)} of three lists, meter {name}", min(thirds), *thirds)
        table.check(f"the worst of three lists, meter {name}", 100 * min(least), "≥", 60, "% of a third")
    return table


def forms() -> Table:
    """How many uniform records a text without an output schema shows, in each form, and what they cost."""
    progress("forms")
    table = Table(
        name="forms",
        title="1,000 flat records as text, in each form of `table`",
        columns={"records": "{:,.0f}", "× json": "{:.2f}", "tokens": "{:,.0f}", "per record": "{:.1f}"},
        note="Tokens of the whole text lane, with the notice, its profile and the rows that are kept\n"
        "besides the beginning. By the meter exact.",
    )
    records = [
        {
            "id": order["id"],
            "createdAt": order["createdAt"],
            "status": order["status"],
            "customer": order["customer"]["name"],
            "city": order["address"]["city"],
            "price": order["lines"][0]["price"],
            "note": order["note"],
        }
        for order in orders(1_000)["orders"]
    ]
    for tokens in (2_000, 8_000):
        plain = 0
        for form in FORMS:
            policy = Policy(table=form, tokens=tokens, meter="exact")
            sealed = seal(json.dumps(records), policy=policy, handle=HANDLE, read_as="text")
            kept, used = sealed.content_cuts[0].kept, sealed.report.content_used
            plain = plain or kept
            table.add(f"{form}, {tokens:,} tokens", kept, kept / plain, used, used / kept)
    return table


def _lane_shares(
    value: Any, name: str, paths: list[tuple[str, ...]], **options: Any
) -> list[tuple[float, float]]:
    """For each list, its share of the budget in the structured lane and in the content lane."""
    sealed = seal(value, tokens=TOKENS, meter=name, handle=HANDLE, policy=BEGINNINGS, **options)
    assert sealed.structured is not None
    text: str = msgspec.json.decode(sealed.content)[0]["text"]
    shares = []
    for path in paths:
        plain = _at(sealed.structured, path)
        # In the content lane the document stands inside a JSON string, so its quotes are escaped.
        escaped = msgspec.json.encode(_at(text.encode(), path).decode())[1:-1]
        shares.append((meter(name).count(plain) / TOKENS, meter(name).count(escaped) / TOKENS))
    return shares


def _at(document: bytes, path: tuple[str, ...]) -> bytes:
    for step in path:
        document = bytes(msgspec.json.decode(document, type=dict[str, msgspec.Raw])[step])
    return document


def _installed(calls: dict[str, Call | None]) -> dict[str, Call]:
    return {name: call for name, call in calls.items() if call is not None}


def _text_of(result: Any) -> bytes:
    """What the model gets to read of an engine's result."""
    if hasattr(result, "structured"):
        return bytes(result.structured)
    if hasattr(result, "content"):
        return str(result.content[0].text).encode()
    return result if isinstance(result, bytes) else str(result).encode()


def _validity(text: bytes) -> str:
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return "not JSON"
    return "yes" if Schema.of(ADVERTISED).is_valid(text) else "no"
