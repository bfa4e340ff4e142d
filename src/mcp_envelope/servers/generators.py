"""Tools that yield their items: as many are held as the budget can show, and the rest goes to the vault.

Strategy: while the items could still fit, they are kept as they are, and the library makes of them what it
makes of any list. Once they can't, a tool that is declared stoppable is stopped. Any other runs to its end, as
its author expects, but its items go straight into the vault, so memory holds only what will be shown. Nothing
that can be read only once is read twice: the library gets what was read.
"""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

from ..envelope import not_stored
from ..jsontext.document import Buffer, Far, Member, Node, abridged, assembled, parse
from ..payload import Payload, new_handle
from ..vault.store import StoreError
from ..vault.vault import ListStream
from .values import holds_iterator

if TYPE_CHECKING:
    from .calls import Converter, Run

_log = logging.getLogger("mcp_envelope")


class _Gathering:
    def __init__(self, run: Run, converter: Converter) -> None:
        self._run = run
        self._converter = converter
        self._most = run.most_bytes
        # The items themselves, until there are too many of them.
        self._values: list[Any] | None = []
        self._head: list[bytes] = []
        self._size = 2
        self._total = 0
        self._stream: ListStream | None = None
        self._handle: str | None = None
        self._problem: str | None = None
        self.has_enough = False
        self._masking = run.gateway.masking(run.call)

    def add(self, value: Any) -> None:
        written = self._converter.item_to_json(value)
        if self._values is not None and holds_iterator(value, self._most):
            value = json.loads(written)
        # Secrets go before anything is measured or stored.
        written = self._run.gateway.masked(self._run.call, written, self._masking)
        self._total += 1
        is_over = self._size > self._most
        self._size += len(written) + 1
        if is_over:
            self._store(written)
            return
        self._head.append(written)
        if self._values is not None:
            self._values.append(value)
        if self._size > self._most:
            self._values = None
            self.has_enough = self._run.call.declared.stoppable

    def _store(self, written: bytes) -> None:
        try:
            if self._total == len(self._head) + 1:
                self._open()
            if self._stream is not None:
                self._stream.add(written)
        except StoreError as error:
            self._give_up(error)

    def _open(self) -> None:
        """Begin to store, at the first item that has no place in what is shown."""
        call = self._run.call
        vault = self._run.gateway.vault if call.dialect.names_handles else None
        if vault is None:
            return
        self._handle = new_handle()
        member = "result" if self._is_member else None
        self._stream = ListStream(vault, self._handle, call.tool, call.owner, member)
        for written in self._head:
            self._stream.add(written)

    def _give_up(self, error: StoreError) -> None:
        _log.warning("mcp-envelope: a result was not stored: %s", error)
        self._problem, self._handle = str(error), None
        self.abandon()

    def abandon(self) -> None:
        if self._stream is not None:
            self._stream.abandon()
            self._stream = None

    @property
    def _is_member(self) -> bool:
        return self._converter.wraps and self._run.call.is_native

    def done(self) -> Any:
        run, converter = self._run, self._converter
        if self._values is not None:
            return run.take(converter.from_items(self._values), converter)
        if self.has_enough and run.call.remarks is not None:
            run.call.remarks.warnings.append(
                f"The tool was stopped after {self._total} items, because no more can be shown: there may be more."
            )
        if self._total == len(self._head):
            written = b"[%b]" % b",".join(self._head)
            document = b'{"result":%b}' % written if self._is_member else written
            payload = Payload(node=parse(document), source=document)
            return converter.to_result(run.seal(payload, masking=self._masking), run.call)
        if self._stream is not None:
            try:
                self._stream.finish()
            except StoreError as error:
                self._give_up(error)
        # The reader need not know the folders of this machine; the log has them.
        warnings = [] if self._problem is None else [not_stored(self._problem)]
        payload = Payload(node=self._beginning(), partial=True)
        sealed = run.seal(payload, handle=self._handle, store=False, warnings=warnings, masking=self._masking)
        return converter.to_result(sealed, run.call)

    def _beginning(self) -> Node:
        node = abridged(b"[]", self._size, self._total, items=[*self._head])
        if not self._is_member:
            return node
        far = cast(Buffer, Far(self._size))
        outer = assembled([Member("result", b'"result"', far)])
        outer._children[0] = node
        return outer


def gather(run: Run, items: Iterator[Any], converter: Converter) -> Any:
    gathering = _Gathering(run, converter)
    try:
        for item in items:
            gathering.add(item)
            if gathering.has_enough:
                break
    except BaseException:
        gathering.abandon()
        raise
    finally:
        if inspect.isgenerator(items):
            items.close()
    return gathering.done()


async def gather_async(run: Run, items: AsyncGenerator[Any, Any], converter: Converter) -> Any:
    gathering = _Gathering(run, converter)
    async with aclosing(items):
        try:
            async for item in items:
                gathering.add(item)
                if gathering.has_enough:
                    break
        except BaseException:
            gathering.abandon()
            raise
    return gathering.done()
