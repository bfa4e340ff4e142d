"""The first words of a conversation, which need nothing of ours.

Strategy: `initialize` passes as it is, and so does all that a server says before it is asked anything else. So they
go on at once, while whatever the rest needs is loaded beside. The interceptor hears of them when it is there, and
before anything else. A client that does not begin with `initialize` waits for it.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .interceptor import Interceptor

_HELLO: Final = "initialize"
# No client has that much to say of itself.
_LONGEST: Final = 1 << 16


class Opening:
    """`make` gives the interceptor, `give_up` is called if it cannot."""

    def __init__(self, make: Callable[[], Interceptor], give_up: Callable[[], object]) -> None:
        self._make = make
        self._give_up = give_up
        self._interceptor: Interceptor | None = None
        self._error: BaseException | None = None
        self._loaded = threading.Event()
        self._lock = threading.Lock()
        self._hello: bytes | None = None
        self._heard: list[bytes] = []
        self._over = threading.Event()
        threading.Thread(target=self._load, daemon=True).start()

    def _load(self) -> None:
        # What is loaded stays: looking for garbage in it would only take time.
        gc.disable()
        try:
            self._interceptor = self._make()
        except BaseException as error:
            # Told where the program is run, not here.
            self._error = error
            self._give_up()
        finally:
            gc.enable()
            self._loaded.set()

    def greets(self, line: bytes) -> bool:
        """Whether the first line of a client can go on at once."""
        if len(line) > _LONGEST or not _is_hello(line):
            return False
        self._hello = line
        return True

    def passes(self, line: bytes) -> bool:
        """Whether a line of the server's can go on at once: it was asked nothing else yet."""
        with self._lock:
            if self._over.is_set():
                return False
            if self._hello is not None:
                self._heard.append(line)
            return True

    def end(self) -> Interceptor | None:
        """The interceptor, once it is there and has heard all; from now on everything goes through it.

        To be called before anything else is sent to the server. None if there will be no interceptor.
        """
        self._loaded.wait()
        if self._interceptor is not None:
            with self._lock:
                if self._hello is not None:
                    self._interceptor.from_client(self._hello)
                for line in self._heard:
                    self._interceptor.from_server(line)
                self._heard.clear()
                self._over.set()
        return self._interceptor

    def result(self) -> Interceptor:
        """The interceptor; what went wrong is raised."""
        self._loaded.wait()
        if self._error is not None:
            raise self._error
        assert self._interceptor is not None
        if self._hello is not None:
            self._over.wait()
        return self._interceptor


def _is_hello(line: bytes) -> bool:
    if _HELLO.encode() not in line:
        return False
    import json

    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(message, dict) and message.get("method") == _HELLO
