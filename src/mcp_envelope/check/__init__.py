"""A scoreboard for any MCP server: what its results cost clients, and what becomes of them."""
