"""Whole payloads, kept until they expire, and read back by their handles.

Strategy: a handle is 130 random bits in letters and digits. What a store sees is a digest of the handle and of
its owner, so a handle that belongs to another caller is as unknown as one that never existed. Storing never fails a
call: the result says what went wrong, and goes out without a handle. Reading fails with a code and the next step.

An address is a path, a URL such as sqlite:///PATH or valkey://HOST:PORT, or `none`; without one it is a file in the
user's state folder.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

from ..fit.text import characters
from ..jsontext.document import Buffer, sniff
from ..outcome import Failure
from ..payload import Payload, new_handle
from .document import ExactText, StoredValue, root_of
from .layout import (
    CHUNK,
    BlobWriter,
    Checkpoints,
    Index,
    IndexBuilder,
    Span,
    StoredBytes,
    decompress,
    packed,
    result_parts,
    unpacked,
)
from .store import DEFAULT_CAP, DEFAULT_TTL, Damaged, Entry, Fate, Gone, Kind, Store, StoreError

_log = logging.getLogger("mcp_envelope")

# The address of the file in the user's state folder, and those that mean "store nothing".
DEFAULT_ADDRESS: Final = "default"
NO_VAULT: Final = ("none", "off")
_SERVER_SCHEMES: Final = ("valkey", "valkeys", "redis", "rediss", "unix")

_READ_ANEW: Final = "Call the tool again and read on from the new handle."
_FATES: Final[dict[Fate, tuple[str, str, str]]] = {
    "deleted": ("HANDLE_DELETED", "was deleted", "Call the tool again if the result is still needed."),
    "evicted": ("HANDLE_EXPIRED", "made room for newer ones", _READ_ANEW),
    "expired": ("HANDLE_EXPIRED", "expired", _READ_ANEW),
}
_PUSHED: Final = 1 << 20
# Positions in an index have four bytes, and the appendix comes after the payload.
_MOST: Final = 1 << 31


class Stored:
    """A payload that was found: walk in it, or read all of it."""

    def __init__(self, entry: Entry, store: Store) -> None:
        self.entry = entry
        self._store = store

    def root(self, *, opened: bool = True) -> StoredValue:
        source, index = self._opened()
        root = root_of(source, self.entry.size, index)
        return root.opened() if opened else root

    def as_text(self) -> StoredValue | ExactText:
        """All of it as text, exactly as it was stored."""
        source, index = self._opened()
        if index.text:
            return root_of(source, self.entry.size, index)
        if index.root is None:
            return ExactText.of("", source.read(0, self.entry.size))
        return ExactText("", source, 0, self.entry.size)

    def stream(self) -> Iterator[bytes]:
        """The exact bytes that were stored."""
        return StoredBytes(self._store, self.entry.key, self.entry.size).stream()

    def _opened(self) -> tuple[StoredBytes, Index]:
        index = Index.decoded(decompress(self.entry.index))
        checkpoints = None
        if index.characters:
            checkpoints = Checkpoints(unpacked(index.characters), unpacked(index.starts))
        return StoredBytes(self._store, self.entry.key, self.entry.size, checkpoints), index


class Vault:
    """A store and how long payloads are kept in it. `owner` separates callers, where there are several."""

    def __init__(self, store: Store, ttl: float = DEFAULT_TTL) -> None:
        self.store = store
        self.ttl = ttl

    def of(self, owner: str | None) -> CallerVault:
        """The vault as one caller sees it."""
        return CallerVault(self, owner)

    def keep(
        self, handle: str, payload: Payload, tool: str | None = None, owner: str | None = None
    ) -> str | None:
        """Store a whole payload. Return what is wrong, in words for people, if that failed."""
        kind, parts, index_of = _stored_form(payload)
        size = sum(map(len, parts))
        if size >= _MOST:
            return f"it has {size} bytes, and no more than {_MOST} can be stored"
        builder = IndexBuilder(size)
        index = index_of(builder)
        entry = self.new_entry(handle, tool, owner, kind, size)
        try:
            with self.store.write(entry.key, entry.expires) as writing:
                blobs = BlobWriter(writing)
                for part in parts:
                    view = memoryview(part)
                    for at in range(0, len(view), _PUSHED):
                        blobs.push(view[at : at + _PUSHED])
                blobs.push(builder.appendix)
                blobs.commit(entry, index.encoded())
        except StoreError as error:
            _log.warning("mcp-envelope: a result was not stored: %s", error)
            return str(error)
        return None

    def new_entry(
        self, handle: str, tool: str | None, owner: str | None, kind: Kind = "json", size: int = 0
    ) -> Entry:
        now = time.time()
        key, expires = key_of(handle, owner), now + self.ttl
        return Entry(key=key, handle=handle, kind=kind, size=size, created=now, expires=expires, tool=tool)

    def open(self, handle: str, owner: str | None = None) -> Stored:
        """The payload; `Failure` says with a code why there is none."""
        entry = self.store.entry(key_of(handle, owner))
        if entry is None:
            message = f"No stored result has the handle {handle[:60]!r}."
            hint = "Copy the handle exactly as it was given, or call the tool again."
            raise Failure("HANDLE_UNKNOWN", message, hint)
        if isinstance(entry, Gone):
            code, what, hint = _FATES[entry.fate]
            when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(entry.at))
            raise Failure(code, f"The stored result {what} at {when}.", hint)
        return Stored(entry, self.store)

    def delete(self, handle: str, owner: str | None = None) -> bool:
        return self.store.delete(key_of(handle, owner))

    def close(self) -> None:
        self.store.close()


class CallerVault:
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


def store_failure(error: StoreError | Damaged) -> Failure:
    """What to answer when the store itself fails."""
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
        "The vault, which keeps whole results, cannot be reached.",
        "Try again in a moment, or call the tool again with a narrower request.",
    )


def _stored_form(payload: Payload) -> tuple[Kind, Sequence[Buffer], Callable[[IndexBuilder], Index]]:
    """What is stored, in parts, and what makes its index. The paths of the cuts lead into it."""
    document = payload.text if payload.node is None else payload.original()
    if document is None or (payload.node is not None and payload.blocks is not None):
        blocks = payload.blocks or ()
        return "blocks", result_parts(blocks, document), lambda builder: builder.result(blocks, document)
    if payload.node is None and sniff(document) is None:
        return "text", [document], lambda builder: builder.text(document)
    return "json", [document], lambda builder: builder.document(document)


# -- addresses ----------------------------------------------------------------------------------------------


def open_vault(
    address: str | None = None, *, ttl: float = DEFAULT_TTL, cap: int = DEFAULT_CAP
) -> Vault | None:
    """Return the vault at an address, or None if the address is `none`. ValueError explains a bad address."""
    if address is not None and address.strip().lower() in NO_VAULT:
        return None
    return Vault(_open_store(address, cap), ttl)


def check_address(address: str | None) -> None:
    """Raise ValueError for an address that cannot work, or whose library is not installed. Opens nothing."""
    if not address or "://" not in address:
        return
    try:
        open_vault(address)
    except StoreError as error:
        raise ValueError(str(error)) from None


def _open_store(address: str | None, cap: int) -> Store:
    """Only the library of the store in question is imported."""
    address = None if address == DEFAULT_ADDRESS else address
    scheme, is_url, rest = (address or "").partition("://")
    scheme = scheme.lower()
    if is_url and scheme in _SERVER_SCHEMES:
        from .valkey import ValkeyStore

        return ValkeyStore(address or "", cap=cap)
    if is_url and scheme not in ("sqlite", "file"):
        raise ValueError(
            f"a vault cannot have an address like {scheme}://…; use a file, sqlite:///PATH, valkey://HOST:PORT, "
            "rediss://HOST:PORT, or none"
        )
    from .sqlite import SQLiteStore

    path: str | None = address or None
    if is_url:
        split = urlsplit(f"file://{rest}")
        # sqlite:///relative and sqlite:////absolute, as elsewhere.
        path = unquote(split.path)
        path = path[1:] if scheme == "sqlite" else path
        if split.netloc or not path:
            raise ValueError(
                "a SQLite vault is written sqlite:///PATH, with three slashes (four if absolute)"
            )
    return SQLiteStore(path and os.path.expanduser(path), cap=cap)


# Positions have four bytes, and the appendix comes after the list.
_MOST_STREAMED: Final = (1 << 32) - (1 << 24)


class ListStream:
    """A list that is stored while it comes in, item by item, and is never in memory as a whole.

    `member` names the member of an object that the list is in, if it is in one.
    """

    def __init__(
        self, vault: Vault, handle: str, tool: str | None, owner: str | None, member: str | None = None
    ) -> None:
        self._entry = vault.new_entry(handle, tool, owner)
        self._writing = vault.store.write(self._entry.key, self._entry.expires)
        self._blobs = BlobWriter(self._writing)
        self._member = member
        self._ordinals: list[int] = []
        self._starts: list[int] = []
        # Characters so far, and how many there were at each start.
        self._characters = 0
        self._counted: list[int] = []
        self._children: dict[int, Span] = {}
        self._push(b"[" if member is None else b'{"%b":[' % member.encode())
        self._begin = self._blobs.size - 1
        self.total = 0

    def add(self, item: bytes) -> None:
        """The next item, as JSON without line breaks between its parts."""
        if self.total:
            self._push(b",")
        at = self._blobs.size
        is_large = len(item) > CHUNK
        is_full = not self._starts or at - self._starts[-1] >= CHUNK
        if is_large or is_full or self.total - 1 in self._children:
            self._ordinals.append(self.total)
            self._starts.append(at)
            self._counted.append(self._characters)
        if is_large:
            self._children[self.total] = Span("leaf", at, at + len(item), 0)
        self._push(item)
        self.total += 1

    def finish(self) -> float:
        """Make it visible; return when it will expire."""
        self._push(b"]")
        end = self._blobs.size
        if self._member is not None:
            self._push(b"}")
        size = self._blobs.size
        if size >= _MOST_STREAMED:
            raise StoreError(f"the list has {size} bytes, which is more than can be stored")
        root = Span("array", self._begin, end, self.total)
        builder = IndexBuilder(size)
        builder.add_chunks(root, self._children, self._ordinals, self._starts)
        index = Index()
        if self._characters < size:
            index.characters, index.starts = packed([0, *self._counted]), packed([0, *self._starts])
        self._push(builder.appendix)
        if self._member is not None:
            array, root = root, Span("object", 0, size, 1, packed([0]), packed([1]))
            root.children, root.keys = {0: array}, {self._member: 0}
        index.root = root
        entry = msgspec.structs.replace(self._entry, size=size, created=time.time())
        with self._writing:
            self._blobs.commit(entry, index.encoded())
        return entry.expires

    def abandon(self) -> None:
        self._writing.__exit__()

    def _push(self, data: bytes) -> None:
        self._blobs.push(data)
        self._characters += characters(data)
