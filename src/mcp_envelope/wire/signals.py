"""What happens to the processes: signals that go on to the server, and the server's end.

Strategy: signals are heard from before the server is started, so that none ends the proxy alone. They wait in a
pipe and go on from a thread of its own, whatever the main thread is doing. A server that ends takes the proxy
along, even if something that it started still holds its output, and after a signal even if the client reads no
more.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Final

from .guard import signal_group

_ENDING: Final = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")
_PASSED_ON: Final = (*_ENDING, "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGCONT")
# How long what a server left behind may still say something, or take to be written, after its end, in seconds.
_GRACE: Final = 1.0


class Signals:
    def __init__(self) -> None:
        self._numbers = [getattr(signal, name) for name in _PASSED_ON if hasattr(signal, name)]
        self._leaves = False
        if os.name == "posix":
            self._caught, wakes = os.pipe()
            os.set_blocking(wakes, False)
            signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
            for number in self._numbers:
                signal.signal(number, self._heard)

    def _heard(self, number: int, _frame: object) -> None:
        """Mostly nothing: the number is on its way already."""
        if self._leaves:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def go_to(self, process: subprocess.Popen[bytes]) -> None:
        if os.name == "posix":
            threading.Thread(target=self._pass_on, args=(process,), daemon=True).start()
            return
        for number in self._numbers:
            signal.signal(number, lambda caught, _frame: signal_group(process.pid, caught))

    def _pass_on(self, process: subprocess.Popen[bytes]) -> None:
        while heard := os.read(self._caught, 64):
            for number in heard:
                signal_group(process.pid, number)
                if not self._leaves:
                    threading.Thread(target=self._follow, args=(process, number), daemon=True).start()

    def _follow(self, process: subprocess.Popen[bytes], number: int) -> None:
        """Should the server end of it, the proxy does, unless it comes to its own end in a moment.

        It may be writing to somebody who does not read.
        """
        code = process.wait()
        if code != -number and signal.Signals(number).name not in _ENDING:
            return
        time.sleep(_GRACE)
        main = threading.main_thread().ident
        if code != -number or main is None:
            os._exit(code if code >= 0 else 128 - code)
        self._leaves = True
        # That interrupts the writing, and only the main thread may die of it.
        signal.pthread_kill(main, number)


def until_ended(process: subprocess.Popen[bytes]) -> Callable[[int, int], bytes]:
    """Reads like `os.read`, but comes to an end with the process, whoever else holds the pipe."""
    if not hasattr(select, "poll"):
        return os.read
    ended, ends = os.pipe()

    def wait() -> None:
        process.wait()
        os.close(ends)

    threading.Thread(target=wait, daemon=True).start()
    poll = select.poll()
    poll.register(ended)
    is_over = False

    def read(descriptor: int, size: int) -> bytes:
        nonlocal is_over
        poll.register(descriptor, select.POLLIN)
        if not is_over:
            is_over = descriptor not in dict(poll.poll())
            if is_over:
                poll.unregister(ended)
        return os.read(descriptor, size) if not is_over or poll.poll(_GRACE * 1000) else b""

    return read
