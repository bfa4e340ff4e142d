"""Logins at servers over HTTP: OAuth 2.1 for people and machines, and the tokens that come of it."""
