"""Tasks, the extension `io.modelcontextprotocol/tasks`, as far as the scenarios of the suite look at it.

Strategy: nothing runs in the background. What a task will come to is known when it starts; what it shows is a
question of the clock, of what was asked and not yet answered, and of whether it was cancelled.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import HEADER_MISMATCH, INVALID_PARAMS, RequestParams
from pydantic import ConfigDict, Field

from .wire import Context, Json, declared, missing

EXTENSION: Final = "io.modelcontextprotocol/tasks"


def negotiated(context: Context) -> bool:
    return EXTENSION in declared(context).get("extensions", {})


def require(context: Context) -> None:
    if not negotiated(context):
        raise missing("This needs the tasks extension.", extensions={EXTENSION: {}})


@dataclass
class Task:
    outcome: Json
    due: float
    asking: Json
    identifier: str = field(default_factory=lambda: str(uuid.uuid4()))
    created: datetime = field(default_factory=lambda: datetime.now(UTC))
    cancelled: bool = False

    @property
    def status(self) -> str:
        if self.cancelled:
            return "cancelled"
        if self.asking:
            return "input_required"
        if time.monotonic() < self.due:
            return "working"
        return "failed" if "error" in self.outcome else "completed"

    def shown(self) -> Json:
        stamp = self.created.isoformat().replace("+00:00", "Z")
        return {
            "taskId": self.identifier,
            "status": self.status,
            "createdAt": stamp,
            "lastUpdatedAt": stamp,
            "ttlMs": 300_000,
            "pollIntervalMs": 100,
        }

    def detailed(self) -> Json:
        match self.status:
            case "input_required":
                return {**self.shown(), "inputRequests": self.asking}
            case "completed" | "failed":
                return {**self.shown(), **self.outcome}
        return self.shown()


class _Params(RequestParams):
    model_config = ConfigDict(extra="ignore")
    task_id: str = Field(alias="taskId")
    input_responses: dict[str, Any] = Field(default_factory=dict, alias="inputResponses")


class Tasks:
    def __init__(self) -> None:
        self._tasks: dict[str, Task] = {}

    def start(self, outcome: Json, seconds: float = 0.0, asking: Json | None = None) -> Json:
        task = Task(outcome, time.monotonic() + seconds, asking or {})
        self._tasks[task.identifier] = task
        return {"resultType": "task", **task.shown()}

    def serve(self, server: Server[Any]) -> None:
        server.extensions[EXTENSION] = {}
        server.add_request_handler("tasks/get", _Params, self._get)
        server.add_request_handler("tasks/update", _Params, self._update)
        server.add_request_handler("tasks/cancel", _Params, self._cancel)

    async def _get(self, context: Context, params: _Params) -> Json:
        return self._find(context, params).detailed()

    async def _update(self, context: Context, params: _Params) -> Json:
        task = self._find(context, params)
        for key in params.input_responses:
            task.asking.pop(key, None)
        return {}

    async def _cancel(self, context: Context, params: _Params) -> Json:
        task = self._find(context, params)
        if task.status in ("working", "input_required"):
            task.cancelled = True
        return {}

    def _find(self, context: Context, params: _Params) -> Task:
        require(context)
        if context.request is not None and context.request.headers.get("mcp-name") != params.task_id:
            raise MCPError(HEADER_MISMATCH, "The header Mcp-Name is not the task's id.")
        task = self._tasks.get(params.task_id)
        if task is None:
            raise MCPError(INVALID_PARAMS, "There is no such task.")
        return task


TASKS: Final = Tasks()
