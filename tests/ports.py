"""Ports for the tests that nobody else on the machine is given meanwhile.

The system hands out the ports of its ephemeral range to every outgoing connection, so a port that was free a moment
ago may belong to a neighbouring test by the time it is used.
"""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager

# Below the ephemeral range of Linux, macOS and Windows.
_RANGE = range(20000, 32000)


def free_port(*, beside: int = 0) -> int:
    """A port that a server may be started on; with `beside`, so is the port that much above it."""
    for port in random.SystemRandom().sample(_RANGE, 200):
        with contextlib.suppress(OSError), socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", port))
            if beside:
                other.bind(("127.0.0.1", port + beside))
            return port
    raise RuntimeError("no free port")


@contextmanager
def refusing_port() -> Iterator[int]:
    """A port that refuses connections: it is taken for the length of the block, and nobody listens on it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]
