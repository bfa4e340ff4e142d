"""The envelope in front of any server."""
