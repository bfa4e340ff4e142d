"""What the page asks for: calls from the ledger, stored payloads as trees, lanes as clients would show them.

Strategy: nothing is recorded for the page. The ledger has the sizes of each call and a digest of its handle; the
vault has the payload. The lanes are made again from that payload by the same function that made them for the
client, so they can be shown for any other client, dialect or budget, too. Only the words of the call, which nobody
keeps, have no part in the choice of rows. The page belongs to the owner of the machine, who sees the results of
every caller.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, get_args

import msgspec

from ..budget import Budget
from ..clients.known import client as known_client
from ..clients.known import table
from ..config import SETTINGS, Settings
from ..dialects import registry
from ..fit.documents import Cut
from ..gateway import Call, Gateway
from ..outcome import Failure
from ..payload import Payload, read_payload, read_result
from ..vault.document import StoredValue
from ..vault.ledger import By, Ledger, LedgerEntry, digest
from ..vault.read_tool import find, read
from ..vault.store import Damaged, Entry, StoreError
from ..vault.vault import Stored, Vault, store_failure

_CALLS: Final = 200
_CHILDREN: Final = 100
_LONGEST_TEXT: Final = 300
# The beginning of a list or an object that is no larger than this, in characters.
_PREVIEW: Final = 90
_PREVIEWED: Final = 16 << 10
# Larger payloads are read in parts, but not sealed again: that needs all of them in memory.
_LARGEST: Final = 64 << 20
_READ_TOKENS: Final = 12_000


class OwnersVault(Vault):
    """The vault as the owner of the machine sees it: with the results of every caller."""

    def open(self, handle: str, owner: str | None = None) -> Stored:
        key = next((entry.key for entry in self.store.entries() if entry.handle == handle), None)
        entry = None if key is None else self.store.entry(key)
        return Stored(entry, self.store) if isinstance(entry, Entry) else super().open(handle, owner)


class Inspector:
    def __init__(self, vault: Vault | None, ledger: Ledger, settings: Settings) -> None:
        self._vault = None if vault is None else OwnersVault(vault.store, vault.ttl)
        self._ledger = ledger
        self._settings = settings

    # -- calls ------------------------------------------------------------------------------------------------

    def calls(self, before: int | None = None) -> list[dict[str, Any]]:
        """The last calls, newest first, or those before one of them."""
        return self._shown(self._ledger.numbered(_CALLS, before=before or 1 << 62))

    def newer(self, after: int) -> list[dict[str, Any]]:
        """Calls that came in since, oldest first."""
        return self._shown(self._ledger.numbered(_CALLS, after=after))[::-1]

    def _shown(self, calls: list[tuple[int, LedgerEntry]]) -> list[dict[str, Any]]:
        handles: dict[str, str] = {}
        if self._vault is not None and any(call.stored for _, call in calls):
            handles = {digest(entry.handle): entry.handle for entry in self._vault.store.entries()}
        return [
            {"number": number, "handle": handles.get(call.result, ""), **msgspec.to_builtins(call)}
            for number, call in calls
        ]

    def totals(self, by: str) -> list[dict[str, Any]]:
        """What was saved, by something or in all."""
        if by not in get_args(By):
            raise Failure("BAD_ARGS", f"Sums are by one of {', '.join(get_args(By))}.")
        return [total.as_json() for total in self._ledger.totals(by)]  # type: ignore[arg-type]

    # -- a stored result --------------------------------------------------------------------------------------

    def tree(self, handle: str, path: str, offset: int) -> dict[str, Any]:
        """A value and some of its children, which may be lists and objects themselves."""
        value = find(self._stored(handle).root(), path)
        children = [*_children(value, offset)]
        more = offset + len(children)
        return {
            **_described(value),
            "children": children,
            "more": more if more < value.total and children else None,
        }

    def lanes(self, handle: str, client: str, dialect: str, tokens: int | None) -> dict[str, Any]:
        """The lanes of the result as a client would get them."""
        stored = self._stored(handle)
        if stored.entry.size > _LARGEST:
            raise Failure(
                "TOO_LARGE", f"It has {stored.entry.size} bytes, and at most {_LARGEST} are sealed again."
            )
        asking, tool = known_client(client), stored.entry.tool or ""
        gateway = Gateway(self._settings, vault="none", ledger=False, dialect=dialect or None)
        call = Call(tool=tool, policy=gateway.policy(tool, tokens, asking), client=asking)
        sealed = gateway.seal(_payload(stored), call, store=False, handle=handle)
        return {
            "shows": asking.lane,
            "content": msgspec.json.decode(sealed.content),
            "structured": None if sealed.structured is None else sealed.structured.decode(),
            "contentCuts": list(map(_cut, sealed.content_cuts)),
            "structuredCuts": list(map(_cut, sealed.structured_cuts)),
            "used": sealed.report.used,
            "limit": sealed.report.limit,
            "unit": sealed.report.unit,
            "whole": sealed.report.total,
            "isError": sealed.is_error,
        }

    def read(self, handle: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """What `envelope_read` answers to a model that asks the same."""
        result = read(self._vault, {**arguments, "handle": handle}, budget=Budget.of(tokens=_READ_TOKENS))
        return result.to_result()

    def _stored(self, handle: str) -> Stored:
        if self._vault is None:
            raise Failure("HANDLE_UNKNOWN", "There is no vault.")
        return self._vault.open(handle)

    # -- the rest ---------------------------------------------------------------------------------------------

    def about(self) -> dict[str, Any]:
        """What stays the same while the page is open."""
        clients = sorted({entry.names[0] for entry in table().values()})
        return {
            "vault": None if self._vault is None else self._vault.store.place,
            "ledger": self._ledger.place,
            "clients": clients,
            "dialects": list(registry.names()),
            "by": list(get_args(By)),
        }

    def settings(self, tool: str) -> dict[str, Any]:
        """The settings in force for a tool, and where each of them came from."""
        policy, wrong, notes = self._settings.report(tool or None)
        hidden = {"vault"}  # its address may have a password
        return {
            "file": self._settings.file,
            "settings": [
                {"name": name, "source": policy.sources[name]}
                | ({"value": policy.in_force(name)} if name not in hidden else {"value": "…"})
                for name in SETTINGS
            ],
            "problems": [*wrong, *notes],
        }


def answer_to(error: Exception) -> dict[str, str]:
    """What the page shows of a failure: a code, a message, what to do."""
    if isinstance(error, StoreError | Damaged):
        error = store_failure(error)
    assert isinstance(error, Failure)
    problem = error.problem
    return {"code": problem.code, "message": problem.message, "hint": problem.hint}


def _children(value: StoredValue, offset: int) -> Iterator[dict[str, Any]]:
    if value.kind not in ("array", "object"):
        return
    for at, child in enumerate(value.children(offset)):
        if at == _CHILDREN:
            return
        inner = value.value_of(child)
        name = child.ordinal if child.member is None else child.member.key
        yield {**_described(inner.opened()), "path": inner.path, "name": name, "index": child.ordinal}


def _described(value: StoredValue) -> dict[str, Any]:
    """A value without its children: its beginning, unless it is a large list or object."""
    described: dict[str, Any] = {
        "path": value.path,
        "kind": value.kind,
        "size": value.size,
        "total": value.total,
    }
    if value.kind in ("string", "text"):
        described["text"] = value.text(0, _LONGEST_TEXT)[:_LONGEST_TEXT]
    elif value.kind in ("array", "object"):
        if value.size <= _PREVIEWED:
            text = value.raw().decode("utf-8", "replace")
            described["preview"] = text if len(text) <= _PREVIEW else f"{text[: _PREVIEW - 1]}…"
    else:
        described["text"] = value.raw()[:_LONGEST_TEXT].decode("utf-8", "replace")
    return described


def _payload(stored: Stored) -> Payload:
    data = b"".join(stored.stream())
    if stored.entry.kind != "blocks":
        return read_payload(data, "json" if stored.entry.kind == "json" else "text")
    result = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    blocks = msgspec.json.decode(result["content"], type=list[msgspec.Raw])
    structured = result.get("structuredContent")
    return read_result(list(map(bytes, blocks)), None if structured is None else bytes(structured))


def _cut(cut: Cut) -> dict[str, Any]:
    return {
        "path": cut.path,
        "kind": cut.kind,
        "kept": cut.kept,
        "total": cut.total,
        "offset": cut.offset,
        "rows": cut.rows,
    }
