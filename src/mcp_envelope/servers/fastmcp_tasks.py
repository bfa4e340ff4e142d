"""Results of FastMCP's background tasks: a worker ran the tool, and the client asks for what came of it.

Strategy: a worker may be another process without an envelope, so what it leaves behind is whole. It is sealed where
the client is told of it, under a run of its own: looking the tool up on the way makes it known to the run.
What was told once is told again, so that asking twice stores nothing twice.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import mcp_types
from fastmcp.server.middleware import CallNext, MiddlewareContext

from ..front import Call, Front, payload_of
from ..payload import read_result
from ..tracing import current_span
from .fastmcp_tools import SEALED, Wrapping, client_of, owner_of
from .running import Run

if TYPE_CHECKING:
    from collections.abc import Hashable

TASK: Final = "tasks/get"
# So many tasks are remembered.
_REMEMBERED: Final = 256


class Tasks:
    def __init__(self, front: Front, wrapping: Wrapping) -> None:
        self._front = front
        self._wrapping = wrapping
        # The budgets that calls asked for, and results as they were told.
        self._requested: OrderedDict[Hashable, object] = OrderedDict()
        self._told: OrderedDict[Hashable, dict[str, Any]] = OrderedDict()

    def began(self, result: object, requested: object) -> None:
        """A call was answered with what is no result; perhaps a task, which gets the call's budget."""
        identifier = getattr(result, "task_id", None)
        if identifier is not None and requested is not None:
            _keep(self._requested, identifier, requested)

    async def ask(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        inside = context.fastmcp_context
        request = inside.request_context if inside is not None else None
        if inside is not None:
            self._wrapping.join(inside.fastmcp)
        client, owner = client_of(request), owner_of(request)
        call = Call(
            tool="",
            policy=self._front.policy("", None, client),
            client=client,
            owner=owner,
            request_id=None if request is None else str(request.request_id),
            span=current_span(),
        )
        identifier = _identifier(context.message)
        run = Run(self._front, call, self._requested.get(identifier))
        with run:
            task = await call_next(context)
            raw = task.get("result") if isinstance(task, Mapping) else getattr(task, "result", None)
            if not isinstance(raw, Mapping) or "content" not in raw:
                return task
            key = identifier, owner, run.call.policy.budget
            shown = self._told.get(key)
            if shown is not None:
                run.discard()
            else:
                shown = await _shown(raw, run)
                if shown is None:
                    return task
                _keep(self._told, key, shown)
            await run.still_wanted()
        if isinstance(task, Mapping):
            return {**task, "result": shown}
        return task.model_copy(update={"result": shown})


async def _shown(raw: Mapping[str, Any], run: Run) -> dict[str, Any] | None:
    """A result in its envelope; None if it can go out as it is."""
    meta = dict(raw.get("_meta") or {})
    if meta.pop(SEALED, False):
        # An outcome, which was sealed when the library turned to it.
        return {**raw, "_meta": meta} if meta else {name: raw[name] for name in raw if name != "_meta"}
    result = mcp_types.CallToolResult.model_validate(raw)
    lanes = run.fits(result)
    if lanes is None:
        return None
    payload = payload_of(read_result(*lanes), run.call)
    sealed = await run.seal_aside(payload, is_error=True if result.is_error else None)
    shown = sealed.to_result()
    meta |= shown.get("_meta") or {}
    return {**shown, "_meta": meta} if meta else shown


def _identifier(message: Any) -> str:
    params = getattr(message, "params", message)
    if isinstance(params, Mapping):
        return str(params.get("taskId", ""))
    return str(getattr(params, "task_id", ""))


def _keep(kept: OrderedDict[Hashable, Any], key: Hashable, value: Any) -> None:
    kept[key] = value
    if len(kept) > _REMEMBERED:
        kept.popitem(last=False)
