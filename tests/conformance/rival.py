"""FastMCP's own proxy in front of a server, to be compared with.

python -m tests.conformance.rival URL PORT
"""

from __future__ import annotations

import sys

from fastmcp.server import create_proxy

if __name__ == "__main__":
    create_proxy(sys.argv[1], name="rival").run(
        transport="http", host="127.0.0.1", port=int(sys.argv[2]), show_banner=False, log_level="ERROR"
    )
