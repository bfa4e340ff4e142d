"""Instances of a given schema: hypothesis-jsonschema, patched for current releases of Hypothesis."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import hypothesis_jsonschema
from hypothesis.internal.conjecture import utils as cu
from hypothesis_jsonschema import from_schema

__all__ = ["from_schema"]


class _Many(cu.many):
    """hypothesis-jsonschema 0.23 still asks for `more()`, which later releases of Hypothesis replaced."""

    _steps: Iterator[None] | None = None

    def more(self) -> bool:
        if self._steps is None:
            self._steps = iter(self.__enter__())
        for _ in self._steps:
            return True
        self.__exit__(None)
        return False


if not hasattr(cu.many, "more"):
    vars(hypothesis_jsonschema._from_schema)["cu"] = SimpleNamespace(many=_Many)
