"""Counters for Prometheus, in its text form."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ..vault.ledger import LedgerEntry

_HELP: Final = {
    "mcp_envelope_requests_total": "HTTP requests, by method and status.",
    "mcp_envelope_calls_total": "Tool results, by outcome.",
    "mcp_envelope_bytes_before_total": "Bytes of tool results before cutting.",
    "mcp_envelope_bytes_after_total": "Bytes of tool results as sent.",
    "mcp_envelope_tokens_before_total": "Tokens of tool results before cutting; partly estimated.",
    "mcp_envelope_tokens_after_total": "Tokens of tool results as sent.",
    "mcp_envelope_failures_total": "Coded failures, by code.",
    "mcp_envelope_upstream_errors_total": "Requests that the server did not answer.",
}
# These exist from the start, so that the first increment is visible.
_PLAIN: Final = [
    name for name in _HELP if not name.endswith(("requests_total", "calls_total", "failures_total"))
]
_METHODS: Final = ("GET", "POST", "DELETE", "OPTIONS", "HEAD", "PUT", "PATCH")


class Metrics:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter({(name, ""): 0 for name in _PLAIN})
        self.in_flight = 0

    def add(self, name: str, labels: str = "", amount: int = 1) -> None:
        with self._lock:
            self._counts[name, labels] += amount

    def request(self, method: str, status: int) -> None:
        """Count an HTTP request. Its status is 0 if the client left before there was one."""
        named = method if method in _METHODS else "other"
        self.add("mcp_envelope_requests_total", f'method="{named}",status="{status or "none"}"')

    def noted(self, call: LedgerEntry) -> None:
        """Count a tool result."""
        outcome = "failed" if call.code else "cut" if call.cuts else "whole"
        self.add("mcp_envelope_calls_total", f'outcome="{outcome}"')
        self.add("mcp_envelope_bytes_before_total", amount=call.bytes_before)
        self.add("mcp_envelope_bytes_after_total", amount=call.bytes_after)
        divisor = 4 if call.unit == "bytes" else 1
        self.add("mcp_envelope_tokens_before_total", amount=call.before // divisor)
        self.add("mcp_envelope_tokens_after_total", amount=call.after // divisor)
        if call.code:
            self.add("mcp_envelope_failures_total", f'code="{_escaped(call.code)}"')

    def text(self) -> str:
        with self._lock:
            counts = dict(self._counts)
        lines = [
            "# HELP mcp_envelope_requests_in_flight HTTP requests in progress.",
            "# TYPE mcp_envelope_requests_in_flight gauge",
            f"mcp_envelope_requests_in_flight {self.in_flight}",
        ]
        for name, words in _HELP.items():
            lines += [f"# HELP {name} {words}", f"# TYPE {name} counter"]
            found = sorted((labels, count) for (each, labels), count in counts.items() if each == name)
            lines += [f"{name}{f'{{{labels}}}' if labels else ''} {count}" for labels, count in found]
        return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
