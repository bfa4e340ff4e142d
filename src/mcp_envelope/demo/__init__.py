"""Real servers behind the proxy, before and after: what `mcp-envelope demo` and `make demo` show."""
