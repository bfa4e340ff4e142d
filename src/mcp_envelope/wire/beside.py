"""Work that is done beside the conversation, so that nothing waits behind it.

Strategy: a thread for each piece of work, since there are few and they are rare. When too many are under way, who
brings more waits: that is the back-pressure. Work is under way until what it gave is sent, so whoever waits for the
end of all work knows that nothing is lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .asking import Moves
    from .readings import Work

_MOST: Final = 16


class Beside:
    """`send` is called from many threads."""

    def __init__(self, send: Callable[[Moves], None]) -> None:
        self._send = send
        self._changed = threading.Condition()
        self._under_way = 0

    def take(self, work: Work) -> None:
        """Have it done; waits while too much is under way."""
        with self._changed:
            self._changed.wait_for(lambda: self._under_way < _MOST)
            self._under_way += 1
        threading.Thread(target=self._do, args=(work,), daemon=True).start()

    def _do(self, work: Work) -> None:
        try:
            self._send(work())
        finally:
            with self._changed:
                self._under_way -= 1
                self._changed.notify_all()

    def wait(self, patience: float) -> bool:
        """Until nothing is under way; False if something is, and nothing came to its end for so many seconds."""
        with self._changed:
            while self._under_way:
                if not self._changed.wait(patience):
                    return False
        return True
