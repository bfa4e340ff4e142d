"""Payloads to fit: the answer of an order service at any size, and shapes that are awkward in other ways.

Everything comes from one seed. A large payload is decoded from JSON, so each record is an object of its own,
as in a real server, and nothing is left over in memory from making it.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import msgspec

from mcp_envelope import widen

TOKENS = 2_000
HANDLE = "b3Jk0vWqS5mXn2Zt8LrYcA"
RECORDS = {"3 KB": 9, "33 KB": 100, "330 KB": 1_000, "3.3 MB": 10_000, "23 MB": 70_000, "200 MB": 600_000}

_CHUNK = 1_000
_FIRST = ["Ada", "Grace", "Alan", "Edsger", "Barbara", "Donald", "Radia", "Ken", "Margaret"]
_LAST = ["Lovelace", "Hopper", "Turing", "Dijkstra", "Liskov", "Knuth", "Perlman", "Hamilton"]
_STREETS = ["Mill Lane", "High Street", "Station Road", "Church Walk", "Long Acre", "Rue du Bac"]
_CITIES = ["London", "Zürich", "Lyon", "Porto", "Kraków", "Oslo", "Ghent", "Turin"]
_STATUS = ["open", "paid", "shipped", "returned"]
_WORDS = ["please", "leave", "parcel", "with", "the", "neighbour", "call", "before", "noon", "gift", "wrap"]

_NUMBER = {"type": "number"}
_STRING = {"type": "string"}


def _closed(**properties: Any) -> dict[str, Any]:
    """An object schema that requires each property and allows no other."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


_ORDER_SCHEMA = _closed(
    id=_STRING,
    createdAt={"type": "string", "format": "date-time"},
    status={"enum": _STATUS},
    customer=_closed(name=_STRING, email=_STRING, vip={"type": "boolean"}),
    lines={
        "type": "array",
        "minItems": 1,
        "items": _closed(sku=_STRING, quantity={"type": "integer"}, price=_NUMBER),
    },
    address=_closed(street=_STRING, city=_STRING, geo=_closed(lat=_NUMBER, lon=_NUMBER)),
    note={"type": ["string", "null"]},
)
STRICT = _closed(
    orders={"type": "array", "items": {"$ref": "#/$defs/order"}},
    page=_closed(number={"type": "integer"}, size={"type": "integer"}),
    total={"type": "integer"},
)
STRICT["$defs"] = {"order": _ORDER_SCHEMA}
# What a client is told: the server's schema and the one optional property that sealing may add.
ADVERTISED = widen(STRICT).schema


def _order(r: random.Random, index: int) -> dict[str, Any]:
    first, last = r.choice(_FIRST), r.choice(_LAST)
    return {
        "id": f"ORD-0000-{index:04}",
        "createdAt": f"2026-{r.randint(1, 12):02}-{r.randint(1, 28):02}T{r.randint(0, 23):02}:30:00Z",
        "status": r.choice(_STATUS),
        "customer": {
            "name": f"{first} {last}",
            "email": f"{first}.{last}{r.randrange(99)}@example.com".lower(),
            "vip": r.random() < 0.2,
        },
        "lines": [
            {
                "sku": f"{r.choice('ABCDEF')}{r.randrange(10_000):04}",
                "quantity": r.randint(1, 9),
                "price": round(r.uniform(1, 900), 2),
            }
            for _ in range(r.choice((1, 1, 2)))
        ],
        "address": {
            "street": f"{r.randint(1, 200)} {r.choice(_STREETS)}",
            "city": r.choice(_CITIES),
            "geo": {"lat": round(r.uniform(35, 60), 4), "lon": round(r.uniform(-9, 20), 4)},
        },
        "note": " ".join(r.choices(_WORDS, k=r.randint(3, 7))) if r.random() < 0.5 else None,
    }


@cache
def _chunk(seed: int) -> bytes:
    """A thousand records, without brackets around them."""
    r = random.Random(seed)
    return msgspec.json.encode([_order(r, index) for index in range(_CHUNK)])[1:-1]


def records_json(count: int, seed: int = 7) -> bytes:
    chunks = [
        _chunk(seed).replace(b"ORD-0000", b"ORD-%04d" % number) for number in range(-(-count // _CHUNK))
    ]
    body = b"[%b]" % b",".join(chunks)
    if count % _CHUNK:
        body = msgspec.json.encode(msgspec.json.decode(body)[:count])
    return body


def orders_json(count: int) -> bytes:
    page = b'"page":{"number":1,"size":%d},"total":%d' % (count, count)
    return b'{"orders":%b,%b}' % (records_json(count), page)


def orders(count: int) -> Any:
    return msgspec.json.decode(orders_json(count))


@dataclass
class Sample:
    """A payload as a tool returns it, the same value as Python objects, and what `seal` is told of it."""

    payload: Any
    value: Any
    options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, value: Any, **options: Any) -> "Sample":
        return cls(value, value, options)


def _of_orders(count: int) -> Sample:
    return Sample.of(orders(count), schema=ADVERTISED)


def _bytes_of_orders(count: int) -> Sample:
    return Sample(orders_json(count), orders(count), {"schema": ADVERTISED})


def _indented(count: int) -> Sample:
    return Sample(msgspec.json.format(orders_json(count), indent=2), orders(count), {"schema": ADVERTISED})


def three_lists(count: int) -> Any:
    """Three lists of unlike records at unlike depths, each of them far too large."""
    full = msgspec.json.decode(records_json(count, seed=11))
    return {
        "orders": full,
        "report": {"customers": [order["customer"] for order in full]},
        "places": [[order["address"]["city"], order["address"]["geo"]["lat"]] for order in full],
    }


def _text(size: int) -> str:
    line = " ".join(_WORDS) + "\n"
    return line * (size // len(line))


# Each shape, by the name that the table gives it.
SHAPES: dict[str, Callable[[], Sample]] = {
    "10 million small integers": lambda: Sample.of({"values": [*range(1_000)] * 10_000}),
    "map of 100,000 keys, the root": lambda: Sample.of(_map(100_000)),
    "map of 100,000 keys, one level down": lambda: Sample.of({"byId": _map(100_000), "total": 100_000}),
    "one string of 20 MB": lambda: Sample.of({"log": _text(20_000_000), "lines": 1}),
    "text of 20 MB": lambda: Sample.of(_text(20_000_000)),
    "JSON of 23 MB inside a string": lambda: Sample.of({"body": orders_json(70_000).decode(), "status": 200}),
    "text that is JSON, 23 MB": lambda: Sample(orders_json(70_000).decode(), orders(70_000)),
    "data.result.items of 23 MB": lambda: Sample.of(
        {"data": {"result": {"items": msgspec.json.decode(records_json(70_000))}}}
    ),
    "bare list of 23 MB": lambda: Sample.of(msgspec.json.decode(records_json(70_000))),
    "three lists, 31 MB": lambda: Sample.of(three_lists(70_000)),
    "bytes in, compact, 330 KB": lambda: _bytes_of_orders(1_000),
    "bytes in, compact, 23 MB": lambda: _bytes_of_orders(70_000),
    "bytes in, indented, 330 KB as compact": lambda: _indented(1_000),
    "bytes in, indented, 23 MB as compact": lambda: _indented(70_000),
    "330 KB, meter chars4": lambda: Sample.of(orders(1_000), schema=ADVERTISED, meter="chars4"),
    "330 KB, meter exact": lambda: Sample.of(orders(1_000), schema=ADVERTISED, meter="exact"),
    "330 KB, 8,000 bytes": lambda: Sample.of(orders(1_000), schema=ADVERTISED, tokens=None, max_bytes=8_000),
    "330 KB, no schema": lambda: Sample.of(orders(1_000)),
    "330 KB, ten times the budget": lambda: Sample.of(orders(1_000), schema=ADVERTISED, tokens=20_000),
}


def _map(keys: int) -> dict[str, Any]:
    return {f"host-{index:06}": {"up": True, "load": index % 97 / 10} for index in range(keys)}


def sample(name: str) -> Sample:
    """By the name of a shape, or of a size: `23 MB` (Python objects) or `23 MB bytes`."""
    if name in SHAPES:
        return SHAPES[name]()
    size, is_bytes = name.removesuffix(" bytes"), name.endswith(" bytes")
    return _bytes_of_orders(RECORDS[size]) if is_bytes else _of_orders(RECORDS[size])
