"""Stored results as resources: `envelope://HANDLE`, or `envelope://HANDLE/content/2` for a part of one.

Strategy: what a link points to comes back exactly and in one piece: a blob as its data, text as text. Resources
have no budget, so there is a limit on their size, and what is larger is read in pages instead.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ..jsontree import encode
from ..outcome import Failure
from .document import BadPath, Value
from .store import Damaged, StoreError
from .vault import Vault, failures

SCHEME: Final = "envelope://"
_MOST: Final = 8 << 20


class _Block(msgspec.Struct, rename={"mime_type": "mimeType"}):
    type: str = ""
    data: str | None = None
    text: str | None = None
    mime_type: str | None = None
    resource: Any = None


def resource(vault: Vault | None, uri: str, owner: str | None = None) -> bytes:
    """The result of `resources/read`, as JSON; `Failure` says why there is none."""
    handle, slash, path = uri.removeprefix(SCHEME).partition("/")
    if vault is None:
        raise Failure("HANDLE_UNKNOWN", "Nothing is stored here: there is no vault.", "Call the tool again.")
    try:
        stored = vault.open(handle, owner)
        value = stored.root().find(slash + path)
        if value.size > _MOST:
            raise Failure(
                "TOO_LARGE",
                f"The resource has {value.size} bytes, and at most {_MOST} are sent at once.",
                "Read it in pages with envelope_read.",
            )
        contents = {"uri": uri, **_contents(value)}
    except (StoreError, Damaged) as error:
        raise failures(error) from None
    except BadPath as error:
        raise Failure("BAD_PATH", f"There is nothing at {path[:200]!r}.", f"{error.there}.") from None
    return encode({"contents": [contents], "ttlMs": 0, "cacheScope": "private"})


def _contents(value: Value) -> dict[str, Any]:
    raw = value.raw()
    if value.kind == "object":
        try:
            block = msgspec.json.decode(raw, type=_Block)
        except (msgspec.MsgspecError, RecursionError):
            block = _Block()
        if block.type in ("image", "audio") and block.data is not None:
            return {"mimeType": block.mime_type or "application/octet-stream", "blob": block.data}
        if block.type == "resource" and isinstance(block.resource, dict):
            return {key: item for key, item in block.resource.items() if key in ("mimeType", "text", "blob")}
        if block.type == "text" and block.text is not None:
            return {"mimeType": "text/plain", "text": block.text}
    if value.kind == "string":
        return {"mimeType": "text/plain", "text": msgspec.json.decode(raw, type=str)}
    kind = "text/plain" if value.kind == "text" else "application/json"
    return {"mimeType": kind, "text": raw.decode()}
