"""Programs that use the SDK, started in a few milliseconds: a process that has imported it already forks.

Importing the SDK takes half a second of processor time, and many tests want a server that uses it. So
`warm("some.module", "argument")` is a command for such a program. Its process (`warm_start.py`) lends the program
its standard streams, folder and environment, ends as the program does, and takes it along if it is killed.

This is for servers and clients around us and for examples; our own commands are started as people start them.
"""

from __future__ import annotations

import atexit
import marshal
import os
import random
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from functools import cache
from importlib import import_module
from pathlib import Path

_MODULES = (
    "fastmcp.server.server",
    "mcp.client.auth",
    "mcp.server.mcpserver",
    "mcp.server.streamable_http_manager",
    "uvicorn",
)
_START = str(Path(__file__).with_name("warm_start.py"))


def warm(program: str, *arguments: str) -> tuple[str, ...]:
    """The command for a module by its name, or for a script by its whole path."""
    return (sys.executable, "-IS", _START, _forking(), program, *arguments)


@cache
def _forking() -> str:
    """The address of the process that forks for this one."""
    folder = tempfile.mkdtemp()
    address = os.path.join(folder, "socket")
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.warm", address],
        cwd=Path(__file__).resolve().parents[1],
        # FastMCP reads these when it is imported.
        env={**os.environ, "FASTMCP_CHECK_FOR_UPDATES": "off", "FASTMCP_SHOW_SERVER_BANNER": "false"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        process_group=0,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"

    def end() -> None:
        with process:
            shutil.rmtree(folder)

    atexit.register(end)
    return address


def _serve(address: str) -> None:
    """Fork for everyone who connects, until whoever started this process is gone."""
    for module in _MODULES:
        import_module(module)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        print("ready", flush=True)
        while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _run(connection)
            connection.close()


def _run(connection: socket.socket) -> None:
    """Be the program that is asked for."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    size, streams, _, _ = socket.recv_fds(connection, 8, 3)
    with connection.makefile("rb") as reader:
        folder, words, variables = marshal.loads(reader.read(int.from_bytes(size)))
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    sys.argv = words
    random.seed()
    threading.Thread(target=lambda: connection.recv(1) or os._exit(1), daemon=True).start()
    code = 0
    try:
        if os.path.isabs(words[0]):
            runpy.run_path(words[0], run_name="__main__")
        else:
            runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    connection.sendall(bytes([code & 255]))
    os._exit(code)


if __name__ == "__main__":
    _serve(sys.argv[1])
