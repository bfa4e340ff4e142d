"""A process that outlives the proxy by a moment, should the proxy be killed, and ends what it left behind.

Strategy: it is forked before anything is loaded, in a session of its own, and waits at the end of a pipe. The proxy
says which process group to watch, and says when all is well. If the pipe closes without that, the proxy is no
more: the group gets a moment to end by itself, since its input has ended, and is then told, and then made to.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import Final

_DONE: Final = b"done\n"
_STEP: Final = 0.05
# How long the group is given after each step, in steps.
_GRACE: Final = 20


class Guard:
    def __init__(self) -> None:
        self._told: int | None = None
        if os.name != "posix":
            return
        listening, self._told = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._told)
            _stand_guard(listening)
        os.close(listening)

    def watch(self, group: int) -> None:
        if self._told is not None:
            os.write(self._told, b"%d\n" % group)

    def dismiss(self) -> None:
        if self._told is not None:
            with suppress(OSError):
                os.write(self._told, _DONE)
            os.close(self._told)
            self._told = None
            with suppress(ChildProcessError):
                os.waitpid(self._pid, 0)


def signal_group(group: int, number: int) -> bool:
    """Whether there was anybody to signal."""
    try:
        if os.name == "posix":
            os.killpg(group, number)
        else:
            os.kill(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _stand_guard(listening: int) -> None:
    """Wait until the proxy says that all is well, or is no more."""
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        # Whatever was handed to the server is not ours to hold on to.
        os.closerange(3, listening)
        os.closerange(listening + 1, os.sysconf("SC_OPEN_MAX"))
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nowhere, descriptor)
        heard = b""
        while part := os.read(listening, 64):
            heard += part
        if heard.endswith(_DONE) or not heard:
            return
        for step in (0, signal.SIGTERM, signal.SIGKILL):
            if not signal_group(int(heard), step):
                return
            for _ in range(_GRACE):
                time.sleep(_STEP)
                if not signal_group(int(heard), 0):
                    return
    finally:
        os._exit(0)
