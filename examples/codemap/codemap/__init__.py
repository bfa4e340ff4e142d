"""A small code-intelligence MCP server: a map of a repository, and a language server where one is installed."""

__version__ = "0.1.0"
