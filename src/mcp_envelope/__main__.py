"""`python -m mcp_envelope` is the command `mcp-envelope`."""

import sys

from .cli.main import main

if __name__ == "__main__":
    sys.exit(main())
