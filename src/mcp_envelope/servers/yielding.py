"""Tools that yield their items: as many are taken as the budget can hold, and the rest goes to the vault.

Strategy: while the items could still fit they are kept as they are, and the library makes of them what it makes
of any list. As soon as they cannot, a tool that says it is stoppable is stopped. Another one runs to its end, as
its author expects, but its items go straight into the vault: in memory is only what will be shown. What can be read
only once is not read twice: the library gets what was read.
"""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

from ..envelope import not_stored
from ..jsontree import Buffer, Far, Member, Node, abridged, assembled, parse
from ..payload import Payload
from ..vault.store import StoreError
from ..vault.streams import ListStream
from ..vault.vault import new_handle
from .once import holds_iterator

if TYPE_CHECKING:
    from ..policy import Policy
    from .library import Library
    from .running import Run

_log = logging.getLogger("mcp_envelope")


class _Gathering:
    def __init__(self, run: Run, library: Library) -> None:
        self._run = run
        self._library = library
        self._most = run.most
        self._mask = _mask(run.call.policy)
        self._values: list[Any] | None = []
        self._head: list[bytes] = []
        self._size = 2
        self._total = 0
        self._stream: ListStream | None = None
        self._handle = ""
        self._problem: str | None = None
        self._is_lost = False
        self.enough = False

    def add(self, value: Any) -> None:
        written = self._library.item_to_json(value)
        if self._values is not None and holds_iterator(value, self._most):
            value = json.loads(written)
        written = self._mask(written)
        self._total += 1
        over = self._size > self._most
        self._size += len(written) + 1
        if not over:
            self._head.append(written)
            if self._values is not None:
                self._values.append(value)
            if self._size > self._most:
                self._values = None
                if self._run.call.declared.stoppable:
                    self.enough = True
            return
        if self._stream is None and self._problem is None and not self._is_lost:
            self._open()
        if self._stream is not None:
            try:
                self._stream.add(written)
            except StoreError as error:
                self._give_up(error)

    def _open(self) -> None:
        """The first item that has no place: from here on everything is stored."""
        call = self._run.call
        # The dialect ctxo has no words for where the rest is.
        vault = None if call.policy.dialect == "ctxo" else self._run.front.vault
        if vault is None:
            self._is_lost = True
            return
        self._handle = new_handle()
        member = "result" if self._is_member else None
        try:
            self._stream = ListStream(vault, self._handle, call.tool, call.owner, member)
            for written in self._head:
                self._stream.add(written)
        except StoreError as error:
            self._give_up(error)

    def _give_up(self, error: StoreError) -> None:
        _log.warning("mcp-envelope: a result was not stored: %s", error)
        self._problem = str(error)
        self.abandon()

    def abandon(self) -> None:
        if self._stream is not None:
            self._stream.abandon()
            self._stream = None

    @property
    def _is_member(self) -> bool:
        return self._library.wraps and self._run.call.is_native

    def done(self) -> Any:
        run = self._run
        if self._values is not None:
            return run.finish(self._library.yielded(self._values), self._library)
        if self.enough:
            run.context.warnings.append(
                f"The tool was stopped after {self._total} items, because no more can be shown: there may be more."
            )
        if self._total == len(self._head):
            written = b"[%b]" % b",".join(self._head)
            document = b'{"result":%b}' % written if self._is_member else written
            return self._library.of(run.seal(Payload(node=parse(document), source=document)), run.call)
        if self._stream is not None:
            try:
                self._stream.finish()
            except StoreError as error:
                self._give_up(error)
        # Whoever reads the result need not know the folders of this machine; the log has them.
        warnings = [] if self._problem is None else [not_stored(self._problem)]
        handle = self._handle if self._problem is None and not self._is_lost else None
        sealed = run.seal(
            Payload(node=self._beginning(), partial=True), handle=handle, vault=None, warnings=warnings
        )
        return self._library.of(sealed, run.call)

    def _beginning(self) -> Node:
        node = abridged(b"[]", self._size, self._total, items=[*self._head])
        if not self._is_member:
            return node
        far = cast(Buffer, Far(self._size))
        outer = assembled([Member("result", b'"result"', far)])
        outer._children[0] = node
        return outer


def _mask(policy: Policy) -> Callable[[bytes], bytes]:
    """Secrets go before anything is measured or stored."""
    if not policy.redact:
        return lambda written: written
    from .. import treatment

    using = treatment.redactor(tuple(policy.redact_patterns.items()))
    return lambda written: using.redact_json(written)[0]


def gather(run: Run, items: Iterator[Any], library: Library) -> Any:
    gathering = _Gathering(run, library)
    try:
        for item in items:
            gathering.add(item)
            if gathering.enough:
                break
    except BaseException:
        gathering.abandon()
        raise
    finally:
        if inspect.isgenerator(items):
            items.close()
    return gathering.done()


async def gather_async(run: Run, items: AsyncGenerator[Any, Any], library: Library) -> Any:
    gathering = _Gathering(run, library)
    async with aclosing(items):
        try:
            async for item in items:
                gathering.add(item)
                if gathering.enough:
                    break
        except BaseException:
            gathering.abandon()
            raise
    return gathering.done()
