"""What a model gets of a text lane: its texts without their escapes, any other block as JSON."""

from __future__ import annotations

import json
from typing import Any


def shown(content: bytes | list[dict[str, Any]]) -> bytes:
    blocks = json.loads(content) if isinstance(content, bytes) else content
    return "\n".join(
        block["text"]
        if isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)
        else json.dumps(block, ensure_ascii=False, separators=(",", ":"))
        for block in blocks
    ).encode("utf-8", "replace")
