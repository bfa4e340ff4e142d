"""The vault's tables: what storing costs beside a plain write, what a page costs, and how a needle is found."""

import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec
from benchmarks.report import Table, progress
from benchmarks.samples import orders

from mcp_envelope.budget import Budget
from mcp_envelope.dialects.notice import META_KEY
from mcp_envelope.payload import new_handle, read_payload
from mcp_envelope.vault.read_tool import read
from mcp_envelope.vault.sqlite import SQLiteStore
from mcp_envelope.vault.store import Store
from mcp_envelope.vault.vault import Vault

_PAGE = Budget.of(tokens=2_000)
_RECORD = 330


def vault(quick: bool) -> list[Table]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stores: dict[str, Store] = {"SQLite": SQLiteStore(folder / "vault.db", cap=8 << 30)}
        with suppress(ImportError):
            stores["Valkey"] = stack.enter_context(_valkey(folder))
        return [
            _storing(stores, folder, quick),
            _paging(stores, "23 MB" if quick else "230 MB"),
            _needle(stores["SQLite"], 10_000 if quick else 100_000),
            _queries(stores["SQLite"], "23 MB" if quick else "115 MB"),
            _sql(stores["SQLite"]),
        ]


@contextmanager
def _valkey(folder: Path) -> Iterator[Store]:
    from tests.vault.valkey_server import running_server

    from mcp_envelope.vault.valkey import ValkeyStore

    with running_server(folder) as server:
        store = ValkeyStore(server.url, cap=8 << 30)
        yield store
        store.close()


def _payload(size: int) -> bytes:
    return msgspec.json.encode(orders(size // _RECORD))


def _best(call: Callable[[], Any], rounds: int) -> float:
    """Time on the wall, since a store waits for its disk or its server; the best round counts."""
    times = []
    for _ in range(rounds):
        start = perf_counter()
        call()
        times.append(perf_counter() - start)
    return min(times)


def _storing(stores: dict[str, Store], folder: Path, quick: bool) -> Table:
    table = Table(
        name="vault",
        title="Storing a result, beside a plain write of the same bytes",
        columns={"ms": "{:.2f}", "MB/s": "{:.0f}", "× write": "{:.1f}", "stored MB": "{:.2f}"},
        note="Time on the wall, best of the rounds. A plain write is one write and one flush of a file, without\n"
        "compression, an index, or a promise that it is there whole or not at all.",
    )
    for label, size in (("2.4 MB", 2_400_000), ("23 MB", 23_000_000)):
        progress(f"storing {label}")
        data = _payload(size)
        payload = read_payload(data)
        rounds = 5 if quick else 20
        file = folder / "plain"

        def write(file: Path = file, data: bytes = data) -> None:
            with open(file, "wb") as out:
                out.write(data)
                out.flush()
                os.fdatasync(out.fileno())

        plain = _best(write, rounds)
        table.add(f"{label}: plain write", 1000 * plain, len(data) / plain / 1e6, 1.0, len(data) / 1e6)
        for name, store in stores.items():
            keeper = Vault(store)
            took = _best(lambda keeper=keeper, payload=payload: keeper.keep(new_handle(), payload), rounds)  # type: ignore[misc]
            entry = next(store.entries())
            table.add(
                f"{label}: {name}", 1000 * took, len(data) / took / 1e6, took / plain, entry.stored / 1e6
            )
            if label == "2.4 MB" and name == "SQLite":
                table.check("storing 2.4 MB adds", 1000 * took, "≤", 15, "ms")
            store.purge()
    return table


def _paging(stores: dict[str, Store], large: str) -> Table:
    table = Table(
        name="pages",
        title=f"The same page of 2,000 tokens, from 230 KB and from {large}",
        columns={"230 KB, ms": "{:.3f}", f"{large}, ms": "{:.3f}", "×": "{:.2f}", "pages/s": "{:.0f}"},
        note="Reading a page: the entry, its index, the blobs, fitting and counting.",
    )
    sizes = {"230 KB": 230_000, large: int(large.split()[0]) * 1_000_000}
    payloads = {}
    for label, size in sizes.items():
        progress(f"storing {label} to read pages from")
        payloads[label] = read_payload(_payload(size))
    for name, store in stores.items():
        keeper = Vault(store)
        handles = {label: new_handle() for label in sizes}
        for label, payload in payloads.items():
            problem = keeper.keep(handles[label], payload)
            assert problem is None, problem
        worst = 0.0
        for what, arguments in (
            ("in the middle of a list", {"path": "/orders", "offset": 300}),
            ("of one item", {"path": "/orders/300"}),
            ("of the top", {}),
        ):
            # Turn and turn about, so that what disturbs one disturbs both.
            times: dict[str, list[float]] = {label: [] for label in sizes}
            for _ in range(60):
                for label, handle in handles.items():
                    start = perf_counter()
                    read(keeper, {"handle": handle, **arguments}, budget=_PAGE)
                    times[label].append(perf_counter() - start)
            small, big = (sorted(taken)[len(taken) // 4] for taken in times.values())
            table.add(f"{name}: {what}", 1000 * small, 1000 * big, big / small, 1 / big)
            worst = max(worst, big / small)
        table.check(f"a page of {large}, {name}", worst, "≤", 1.5, "× the page of 230 KB")
        store.purge()
    return table


def _needle(store: Store, records: int) -> Table:
    """To reach one record of many: calls and tokens, by three ways."""
    progress(f"looking for needles among {records:,} records")
    keeper = Vault(store)
    data = orders(records)
    handle = new_handle()
    problem = keeper.keep(handle, read_payload(msgspec.json.encode(data)))
    assert problem is None, problem
    chosen = random.Random(5).sample(range(records), 20)

    def call(**arguments: Any) -> tuple[str, list[dict[str, Any]], int]:
        sealed = read(keeper, {"handle": handle, **arguments}, budget=_PAGE)
        result = sealed.to_result()
        cuts = result.get("_meta", {}).get(META_KEY, {}).get("dropped", [])
        return result["content"][-1]["text"], cuts, sealed.report.used

    # One walk from the beginning tells what it takes to get to any record by paging.
    ends: list[tuple[int, int, int]] = []
    offset = calls = tokens = 0
    while offset < records:
        _, cuts, used = call(path="/orders", offset=offset)
        calls, tokens = calls + 1, tokens + used
        offset = cuts[0]["offset"] if cuts else records
        ends.append((offset, calls, tokens))
    ways: dict[str, list[tuple[int, int]]] = {"paging": [], "grep": [], "query": []}
    seconds = dict.fromkeys(ways, 0.0)
    for index in chosen:
        wanted = data["orders"][index]["id"]
        ways["paging"].append(next((calls, tokens) for end, calls, tokens in ends if end > index))
        start = perf_counter()
        found, _, used = call(grep=f"^{wanted}$")
        path = msgspec.json.decode(found)[0]["path"].rpartition("/")[0]
        shown, _, more = call(path=path)
        assert msgspec.json.decode(shown)["id"] == wanted
        ways["grep"].append((2, used + more))
        seconds["grep"] += perf_counter() - start
        start = perf_counter()
        shown, _, used = call(query=f"orders[?id == '{wanted}']")
        assert msgspec.json.decode(shown)[0]["id"] == wanted
        ways["query"].append((1, used))
        seconds["query"] += perf_counter() - start
    table = Table(
        name="needle",
        title=f"To reach one of {records:,} records, with answers of 2,000 tokens",
        columns={"calls": "{:,.0f}", "tokens": "{:,.0f}", "ms": "{:,.0f}"},
        note="The mean of 20 records chosen at random. Paging goes from the beginning until the record is there.",
    )
    for way, taken in ways.items():
        mean_calls = sum(calls for calls, _ in taken) / len(taken)
        mean_tokens = sum(tokens for _, tokens in taken) / len(taken)
        spent = 1000 * seconds[way] / len(taken) if seconds[way] else None
        table.add(way, mean_calls, mean_tokens, spent)
    store.purge()
    return table


# One query in a process of its own: on the stored payload, or with the library on all of it, decoded.
_QUERY = """
import sys
from time import process_time
import jmespath, msgspec
from mcp_envelope.vault import query
from mcp_envelope.vault.sqlite import SQLiteStore
from mcp_envelope.vault.vault import Vault

def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))

way, place, handle, expression = sys.argv[1:]
stored = Vault(SQLiteStore(place)).open(handle)
before, start = peak(), process_time()
if way == "lazy":
    # Whatever else the machine is doing: time is measured here, not limited.
    found = query.run(stored.root(), expression, query.SearchLimits(seconds=600))
else:
    whole = msgspec.json.decode(b"".join(stored.stream()))
    found = msgspec.json.encode(jmespath.search(expression, whole))
print(1000 * (process_time() - start), (peak() - before) / 1000, len(found))
"""


def _queries(store: Store, size: str) -> Table:
    """What it buys to evaluate JMESPath without loading the payload."""
    keeper, handle = Vault(store), new_handle()
    data = _payload(int(size.split()[0]) * 1_000_000)
    problem = keeper.keep(handle, read_payload(data))
    assert problem is None, problem
    last = msgspec.json.decode(data)["orders"][-1]["id"]
    table = Table(
        name="queries",
        title=f"JMESPath over {size}: on the stored payload, and by the library on all of it",
        columns={"ms": "{:,.0f}", "decoded, ms": "{:,.0f}", "MB": "{:,.0f}", "decoded, MB": "{:,.0f}"},
        note="Processor time and growth of the resident set, each in a process of its own.",
    )
    for expression in (
        "length(orders)",
        "orders[100].id",
        f"orders[?id == '{last}']",
        "orders[?status == 'open'] | length(@)",
        "max_by(orders, &createdAt).id",
    ):
        progress(f"query {expression}")
        row: list[list[float]] = []
        for way in ("lazy", "decoded"):
            command = [sys.executable, "-c", _QUERY, way, store.place, handle, expression]
            row.append([float(word) for word in subprocess.check_output(command).split()])
        (lazy_ms, lazy_mb, lazy_size), (whole_ms, whole_mb, whole_size) = row
        assert lazy_size == whole_size, expression
        table.add(expression, lazy_ms, whole_ms, lazy_mb, whole_mb)
    store.purge()
    return table


# The first question about a result loads its table, and the second finds it there. Each run has a new process, so
# that nothing is warm but the imports.
_FIRST_AND_SECOND = """
import json, sys
from time import process_time
import msgspec
from mcp_envelope.vault import sql
from mcp_envelope.vault.sqlite import SQLiteStore
from mcp_envelope.vault.vault import Vault

def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))

place, handle, question = sys.argv[1:]
vault = Vault(SQLiteStore(place))
stored = vault.open(handle)
times = []
before = peak()
for _ in range(2):
    start = process_time()
    sql.run(vault, stored, question)
    times.append(process_time() - start)
grown = (peak() - before) / 1000
data = b"".join(stored.stream())
for _ in range(3):
    start = process_time()
    msgspec.json.decode(data)
    times.append(process_time() - start)
print(json.dumps([min(times[2:]), *times[:2], grown]))
"""


def _sql(store: Store) -> Table:
    """What a question costs beside decoding the JSON once."""
    progress("questions in SQL over 23 MB")
    keeper, handle = Vault(store), new_handle()
    problem = keeper.keep(handle, read_payload(_payload(23_000_000)))
    assert problem is None, problem
    table = Table(
        name="sql",
        title="SQL over 23 MB: the first question, which loads the table, and the second",
        columns={
            "decode, ms": "{:,.0f}",
            "first, ms": "{:,.0f}",
            "×": "{:.2f}",
            "second, ms": "{:,.1f}",
            "MB": "{:,.0f}",
        },
        note="Processor time, best of five processes. × is the first question beside one decoding of the JSON by\n"
        "msgspec. MB is the growth of the resident set with both questions.",
    )
    for question in (
        'SELECT status, count(*), avg("address.geo.lat") FROM orders GROUP BY 1',
        'SELECT median("address.geo.lat"), mode("customer.name") FROM orders',
        "SELECT id FROM orders ORDER BY createdAt DESC LIMIT 3",
    ):
        command = [sys.executable, "-c", _FIRST_AND_SECOND, store.place, handle, question]
        runs = [msgspec.json.decode(subprocess.check_output(command), type=list[float]) for _ in range(5)]
        decoding, first, second, grown = (min(run[index] for run in runs) for index in range(4))
        table.add(question, 1000 * decoding, 1000 * first, first / decoding, 1000 * second, grown)
        if not table.checks:
            table.check("the first question in SQL, 23 MB", first / decoding, "≤", 4, "× one decode")
            table.check("the second", second / first, "≤", 0.2, "× the first")
    store.purge()
    return table
