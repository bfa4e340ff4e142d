"""The proxy put in front of the servers in a client's configuration, and taken away again."""
