"""What each profile of each dialect costs per response, in o200k tokens: `python -m benchmarks.profiles`.

The same small result is sealed in every dialect and profile; the cost is what the text that the model reads
has beyond the bare payload. The table in docs/contracts.md is the output of this script.
"""

from __future__ import annotations

import json
from typing import Any

from mcp_envelope import Failure, describe_call, seal
from mcp_envelope.budget import meter_named as meter
from mcp_envelope.dialects import NAMES
from mcp_envelope.jsontext.document import encode
from mcp_envelope.outcome import collect_remarks

PAYLOAD: dict[str, Any] = {
    "risk_level": "high",
    "vulnerabilities": [{"id": "CWE-89", "line": 12}],
    "files": 3,
}
REQUEST = "8b3e5f6c0a2f4ed4a3fb9e0b2f8f8d3a"


def text_of(outcome: Any, dialect: str, profile: Any) -> str:
    with collect_remarks():
        describe_call(tier="pro", tool_version="3.3.0", capabilities=("envelope-v1",))
        sealed = seal(
            outcome,
            dialect=dialect,
            profile=profile,
            tool="security_scan",
            # Minimal is what a client sees that names no request of its own.
            request_id=None if profile == "minimal" else REQUEST,
            duration_ms=27,
        )
    if sealed.structured is not None:
        return sealed.structured.decode()
    return str(json.loads(sealed.content)[0]["text"])


def main() -> None:
    count = meter("exact").count
    bare = count(encode(PAYLOAD))
    failure = Failure("NOT_FOUND", "File not found: missing.py", "Check the name.")
    print(f"Tokens per response (o200k). The bare payload has {bare}.\n")
    print("| dialect | profile | success | on top of the payload | failure |")
    print("|---|---|--:|--:|--:|")
    for dialect in NAMES:
        costs = {}
        for profile in ("minimal", "standard", "debug"):
            success = count(text_of(PAYLOAD, dialect, profile).encode())
            costs[profile] = success
            failed = count(text_of(failure, dialect, profile).encode())
            print(f"| {dialect} | {profile} | {success} | {success - bare} | {failed} |")
    saved = count(text_of(PAYLOAD, "scalpel", "debug").encode()) - count(
        text_of(PAYLOAD, "scalpel", "minimal").encode()
    )
    print(f"\nscalpel, minimal instead of debug: {saved} tokens saved per response.")


if __name__ == "__main__":
    main()
