"""Whole payloads, kept until they expire, and read back by their handles.

Strategy: a handle is 130 random bits in letters and digits. What a store sees is a digest of the handle and of
its owner, so a handle that belongs to somebody else is as unknown as one that never was. Storing never fails a
call: what went wrong is told, and the result goes out without a handle. Reading fails with a code and the next
step.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import islice
from typing import Final

from ..jsontree import Buffer, sniff
from ..outcome import Failure
from ..payload import Payload
from .document import Value, root_of
from .knots import Outline, dumps, loads, unpacked
from .outline import Builder
from .source import Blobs, Compressor, Marks, blobs_of, decompress
from .spelling import Spelling
from .store import DEFAULT_TTL, Damaged, Entry, Gone, Kind, Store, StoreError, new_handle

_log = logging.getLogger("mcp_envelope")

_BATCH: Final = 32
# Positions in an outline have four bytes, and more comes after the payload.
_MOST: Final = 1 << 31


class Stored:
    """A payload that was found: walk in it, or read all of it."""

    def __init__(self, entry: Entry, store: Store) -> None:
        self.entry = entry
        self._store = store

    def root(self, *, opened: bool = True) -> Value:
        source, outline = self._opened()
        root = root_of(source, self.entry.size, outline)
        return root.opened() if opened else root

    def spelled(self) -> Value | Spelling:
        """All of it as text, exactly as it was stored."""
        source, outline = self._opened()
        if outline.text:
            return root_of(source, self.entry.size, outline)
        if outline.root is None:
            return Spelling.of("", source.read(0, self.entry.size))
        return Spelling("", source, 0, self.entry.size)

    def stream(self) -> Iterator[bytes]:
        """The exact bytes that were stored."""
        return Blobs(self._store, self.entry.key, self.entry.size).stream()

    def _opened(self) -> tuple[Blobs, Outline]:
        outline = loads(decompress(self.entry.outline))
        marks = Marks(unpacked(outline.firsts), unpacked(outline.starts)) if outline.firsts else None
        return Blobs(self._store, self.entry.key, self.entry.size, marks), outline


class Vault:
    """A store and the time that payloads are kept in it. `owner` tells callers apart, where there are several."""

    def __init__(self, store: Store, ttl: float = DEFAULT_TTL) -> None:
        self.store = store
        self.ttl = ttl

    def of(self, owner: str | None) -> Keeping:
        """The vault as one caller sees it."""
        return Keeping(self, owner)

    def keep(
        self, handle: str, payload: Payload, tool: str | None = None, owner: str | None = None
    ) -> str | None:
        """Store a payload, whole. What is wrong, in words for people, if that failed."""
        kind, data = _stored_form(payload)
        if len(data) >= _MOST:
            return f"it has {len(data)} bytes, and no more than {_MOST} can be stored"
        builder = Builder(len(data))
        outline = builder.text(data) if kind == "text" else builder.document(data)
        try:
            self.write(handle, kind, len(data), [data, builder.behind], outline, tool, owner)
        except StoreError as error:
            _log.warning("mcp-envelope: a result was not stored: %s", error)
            return str(error)
        return None

    def write(
        self,
        handle: str,
        kind: Kind,
        size: int,
        parts: Iterable[bytes],
        outline: Outline,
        tool: str | None = None,
        owner: str | None = None,
    ) -> None:
        now = time.time()
        key = key_of(handle, owner)
        blobs = blobs_of(parts)
        count = stored = 0
        with self.store.write(key, now + self.ttl) as writing:
            while batch := list(islice(blobs, _BATCH)):
                writing.add(batch)
                count += len(batch)
                stored += sum(map(len, batch))
            entry = Entry(
                key=key,
                handle=handle,
                kind=kind,
                size=size,
                stored=stored,
                blobs=count,
                created=now,
                expires=now + self.ttl,
                tool=tool,
                outline=Compressor().pack(dumps(outline)),
            )
            writing.commit(entry)

    def open(self, handle: str, owner: str | None = None) -> Stored:
        """The payload; `Failure` says with a code why there is none."""
        entry = self.store.entry(key_of(handle, owner))
        if entry is None:
            raise Failure(
                "HANDLE_UNKNOWN",
                f"No stored result has the handle {handle[:60]!r}.",
                "Copy the handle exactly as it was given, or call the tool again.",
            )
        if isinstance(entry, Gone):
            when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(entry.at))
            if entry.fate == "deleted":
                raise Failure(
                    "HANDLE_DELETED",
                    f"The stored result was deleted at {when}.",
                    "Call the tool again if the result is still needed.",
                )
            why = "made room for newer ones" if entry.fate == "evicted" else "expired"
            raise Failure(
                "HANDLE_EXPIRED",
                f"The stored result {why} at {when}.",
                "Call the tool again and read on from the new handle.",
            )
        return Stored(entry, self.store)

    def delete(self, handle: str, owner: str | None = None) -> bool:
        return self.store.delete(key_of(handle, owner))

    def close(self) -> None:
        self.store.close()


class Keeping:
    """What `seal` needs of a vault: payloads kept for one caller."""

    def __init__(self, vault: Vault, owner: str | None) -> None:
        self.vault = vault
        self.owner = owner

    def promise(self) -> tuple[str, float]:
        return new_handle(), time.time() + self.vault.ttl

    def keep(self, handle: str, payload: Payload, tool: str | None) -> str | None:
        return self.vault.keep(handle, payload, tool, self.owner)


def key_of(handle: str, owner: str | None) -> str:
    # The owner has a fixed length, so no two pairs give the same text.
    mark = blake2b((owner or "").encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return blake2b(mark + handle.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def failures(error: StoreError | Damaged) -> Failure:
    """What to answer when the store itself is the trouble."""
    if isinstance(error, Damaged):
        return Failure(
            "HANDLE_DAMAGED",
            f"The stored result cannot be read: {error}.",
            "Call the tool again and use the new handle.",
        )
    # The reason may name a path of the machine; it is for the log.
    _log.warning("mcp-envelope: the vault cannot be read: %s", error)
    return Failure(
        "VAULT_UNAVAILABLE",
        "The place where whole results are kept cannot be reached.",
        "Try again in a moment, or call the tool again with a narrower request.",
    )


def _stored_form(payload: Payload) -> tuple[Kind, bytes]:
    """The bytes that are stored. The paths of the cuts lead into them."""
    if payload.node is not None and payload.blocks is not None:
        return "blocks", _in_one(payload.blocks, b'],"structuredContent":', payload.original(), b"}")
    if payload.node is not None:
        return "json", payload.original()
    if payload.text is not None:
        return ("text" if sniff(payload.text) is None else "json"), payload.text
    return "blocks", _in_one(payload.blocks or (), b"]}")


def _in_one(blocks: Sequence[Buffer], *rest: bytes) -> bytes:
    """Joined in one step: a payload may be as large as memory allows, and copies of it are not free."""
    separated = [part for block in blocks for part in (b",", block)][1:]
    return b"".join([b'{"content":[', *separated, *rest])


__all__ = ["Keeping", "Stored", "Vault", "failures", "key_of", "new_handle"]
