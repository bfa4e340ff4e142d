"""Runs a command between a client and itself, and records what passes: `tap.py FILE COMMAND ...`."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import IO


def main() -> int:
    record, *command = sys.argv[1:]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    with open(record, "ab", buffering=0) as file:

        def copy(source: IO[bytes], target: IO[bytes]) -> None:
            for line in source:
                file.write(line)
                try:
                    target.write(line)
                    target.flush()
                except BrokenPipeError:
                    return
            target.close()

        threading.Thread(target=copy, args=(sys.stdin.buffer, process.stdin), daemon=True).start()
        copy(process.stdout, sys.stdout.buffer)
        return process.wait()


if __name__ == "__main__":
    sys.exit(main())
