"""Cuts payloads to a number of bytes: JSON documents, plain text, content blocks, pages."""
