"""LiteLLM's gateway: a `post_mcp_call` guardrail that seals the texts of results.

Strategy: such a guardrail is given the texts of a result and returns as many, in the same order. The short ones,
among them the names and numbers of a structure, which must not change, stay; the long ones share the budget.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec.structs import replace

from ..clients.known import Client
from ..gateway import Call
from .adapter import Host, Options, missing_library, text_result

try:
    from litellm.integrations.custom_guardrail import CustomGuardrail
    from litellm.types.guardrails import GuardrailEventHooks
except ImportError as error:
    raise missing_library("litellm", error) from error

_CLIENT: Final = Client(name="litellm", lane="content")
_SHORT: Final = 2000
# Where a request has the tool's name, whichever way it came.
_NAMES: Final = ("mcp_tool_name", "name", "tool_name")


class EnvelopeGuardrail(CustomGuardrail):
    """Name it in LiteLLM's configuration, with `mode: post_mcp_call` and a `budget` if you like."""

    def __init__(self, **options: Any) -> None:
        own: Any = {name: options.pop(name) for name in Options.__annotations__ if name in options}
        super().__init__(supported_event_hooks=[GuardrailEventHooks.post_mcp_call], **options)
        self._host = Host(_CLIENT, own)

    async def apply_guardrail(
        self, inputs: Any, request_data: dict[str, Any], input_type: str, logging_obj: Any = None
    ) -> Any:
        texts = inputs.get("texts") or []
        long = [place for place, text in enumerate(texts) if len(text) > _SHORT]
        if input_type != "response" or not long:
            return inputs
        call = self._host.call(_tool(request_data))
        budget = call.policy.budget
        if budget is None or budget.holds("\n\n".join([texts[place] for place in long]).encode()):
            return inputs
        share = budget.limit // len(long)
        unit = (
            {"tokens": share, "bytes": None} if budget.unit == "tokens" else {"tokens": None, "bytes": share}
        )
        call = replace(call, policy=replace(call.policy, **unit))
        shown = list(texts)
        for place in long:
            shown[place] = await self._sealed(texts[place], call)
        return {**inputs, "texts": shown}

    async def _sealed(self, text: str, call: Call) -> str:
        sealed = await self._host.finish(text_result(text), call)
        if sealed is None:
            return text
        return "\n\n".join([block["text"] for block in msgspec.json.decode(sealed.content)])


def _tool(request: dict[str, Any]) -> str:
    return next((name for key in _NAMES if isinstance(name := request.get(key), str)), "")
