"""`mcp-envelope ui`: a page on this machine that shows calls as they pass, and what was cut in them."""
