"""What is known of MCP clients (`known`), and the proxy in their configuration files: `wrap` and `unwrap`."""
