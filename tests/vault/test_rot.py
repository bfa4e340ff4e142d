"""What a disk made of a payload is never taken for what was written."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mcp_envelope.outcome import Failure
from mcp_envelope.payload import new_handle, read_payload
from mcp_envelope.vault.layout import compressor
from mcp_envelope.vault.read_tool import read, resource
from mcp_envelope.vault.sqlite import SQLiteStore
from mcp_envelope.vault.store import Damaged
from mcp_envelope.vault.vault import Vault

_OUTLINE = "id % 1048576 = 1048575"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SQLiteStore]:
    store = SQLiteStore(tmp_path / "vault.db")
    yield store
    store.close()


def _rotting() -> dict[str, Any]:
    """Something of everything that an index has a way for."""
    return {
        "items": [{"id": n, "body": f"{n} " * (9000 if n % 50 == 0 else 3)} for n in range(400)],
        "map": {f"key{n}": n for n in range(9000)},
        "held": json.dumps({"rows": [f"row {n} é" for n in range(9000)]}, indent=1),
    }


_ASKED: list[dict[str, Any]] = [
    {},
    {"path": "/items", "offset": 200},
    {"path": "/items/50/body", "offset": 20_000},
    {"path": "/map/key4500"},
    {"path": "/held/rows", "offset": 8000},
    {"query": "length(items[?id > `390`])"},
    {"grep": "row 8999 "},
]


def test_every_single_bit_counts(store: SQLiteStore) -> None:
    """Whatever bit of a blob or an index is another: an answer is right, or it says that it is damaged."""
    vault = Vault(store)
    handle = new_handle()
    vault.keep(handle, read_payload(_rotting()))
    right = [read(vault, {"handle": handle, **asked}).to_json() for asked in _ASKED]
    connection = store._database.connection()
    blobs = connection.execute("SELECT id, data FROM blobs ORDER BY id").fetchall()
    chance = random.Random(7)
    flips = [(*blobs[-1], bit) for bit in range(160)]  # the header of the index, and what follows it
    flips += [(*blobs[0], bit) for bit in range(0, 160, 3)]
    for number, data in blobs:
        flips += [(number, data, chance.randrange(8 * len(data))) for _ in range(12)]
    noticed = 0
    for number, data, bit in flips:
        rotten = bytearray(data)
        rotten[bit // 8] ^= 1 << bit % 8
        connection.execute("UPDATE blobs SET data = ? WHERE id = ?", (bytes(rotten), number))
        for asked, answer in zip(_ASKED, right, strict=True):
            sealed = read(vault, {"handle": handle, **asked})
            if sealed.problem is None:
                assert sealed.to_json() == answer, (number, bit, asked)
            else:
                assert sealed.problem.code == "HANDLE_DAMAGED", (number, bit, asked)
                noticed += 1
        connection.execute("UPDATE blobs SET data = ? WHERE id = ?", (data, number))
    assert noticed > len(flips)


def test_an_index_of_another_shape_is_damage(store: SQLiteStore) -> None:
    vault = Vault(store)
    handle = new_handle()
    vault.keep(handle, read_payload(_rotting()))
    for index in (b"", b"\xc1", msgspec.msgpack.encode(["what", "is", "this"])):
        store._database.connection().execute(
            f"UPDATE blobs SET data = ? WHERE {_OUTLINE}", (compressor()(index),)
        )
        sealed = read(vault, {"handle": handle})
        assert sealed.problem is not None
        assert sealed.problem.code == "HANDLE_DAMAGED"


def test_a_blob_that_is_sound_and_too_short(store: SQLiteStore) -> None:
    """As if somebody had put another one in its place."""
    vault = Vault(store)
    handle = new_handle()
    vault.keep(handle, read_payload("many words " * 20_000, "text"))
    connection = store._database.connection()
    (last,) = connection.execute(f"SELECT max(id) FROM blobs WHERE NOT {_OUTLINE}").fetchone()
    connection.execute("UPDATE blobs SET data = ? WHERE id = ?", (compressor()(b"short"), last))
    with pytest.raises(Damaged, match="shorter than it was"):
        list(vault.open(handle).stream())
    problem = read(vault, {"handle": handle, "offset": 219_000}).problem
    assert problem is not None
    assert problem.code == "HANDLE_DAMAGED"


def test_a_resource_that_is_damaged(store: SQLiteStore) -> None:
    vault = Vault(store)
    handle = new_handle()
    vault.keep(handle, read_payload(_rotting()))
    store._database.connection().execute(f"UPDATE blobs SET data = zeroblob(9) WHERE {_OUTLINE}")
    with pytest.raises(Failure, match="cannot be read"):
        resource(vault, f"envelope://{handle}/map")


def test_an_entry_that_is_damaged(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a server may have it: the entry itself is not what was written."""

    def damaged(key: str) -> None:
        raise Damaged("The entry is not what was written.")

    monkeypatch.setattr(store, "entry", damaged)
    sealed = read(Vault(store), {"handle": new_handle()})
    assert sealed.problem is not None
    assert sealed.problem.code == "HANDLE_DAMAGED"
