"""The envelope inside a Python server."""
