"""The envelope inside programs that call tools themselves: agent frameworks, gateways, coding agents."""
