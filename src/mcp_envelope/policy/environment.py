"""The environment: `MCP_ENVELOPE_*`, and the variables that two of the published contracts brought along.

Strategy: the variables are looked at in every call, for that is what the contracts promise, so looking has
to cost next to nothing. A snapshot is a tuple of their raw values; only one that was not seen before is
decoded and read. A variable that is empty counts as not set.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from .kinds import UNSET
from .layers import EMPTY, Given, Layer, without_rivals
from .names import nearest, shown
from .table import PREFIX, SETTINGS

CONFIG: Final = PREFIX + "CONFIG"
CTXO_LIMIT: Final = "CTXO_RESPONSE_LIMIT"
SCALPEL_INFO: Final = "SCALPEL_MCP_INFO"
_POSITIVE: Final = re.compile(r"0*[1-9][0-9]*", re.ASCII)

Snapshot = tuple[object, ...]


class Read(NamedTuple):
    """What a snapshot says. `own` is per dialect: the layers below and above our own variables."""

    layer: Layer
    own: Mapping[str, tuple[Layer, Layer]]
    problems: tuple[str, ...]
    own_problems: Mapping[str, tuple[str, ...]]
    config: str | None


class Environment:
    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = os.environ if environ is None else environ
        self._names = (*(setting.variable for setting in SETTINGS.values()), CTXO_LIMIT, SCALPEL_INFO, CONFIG)
        self._get: Callable[[Any], object] = self._environ.get
        self._keys: tuple[Any, ...] = self._names
        # os.environ encodes, decodes and catches an exception at each get: 20 of them take longer than all
        # the rest of a call. Below it lies a plain dictionary, which it keeps up to date.
        raw, encode = getattr(self._environ, "_data", None), getattr(self._environ, "encodekey", None)
        if isinstance(raw, dict) and encode is not None:
            self._get, self._keys = raw.get, tuple(map(encode, self._names))

    def snapshot(self) -> Snapshot:
        return tuple(map(self._get, self._keys))

    def read(self, snapshot: Snapshot) -> Read:
        texts = {name: _text(raw) for name, raw in zip(self._names, snapshot, strict=True)}
        problems: list[str] = []
        layer: dict[str, Given] = {}
        for name, setting in SETTINGS.items():
            if not (text := texts[setting.variable]):
                continue

            def report(message: str, *inside: str, variable: str = setting.variable) -> None:
                problems.append(f"{'.'.join((variable, *inside))}: {message}")

            value = setting.kind.read(setting.kind.parse(text), report)
            if value is not UNSET:
                layer[name] = Given(value, f"environment {setting.variable}", setting.variable)
        layer, both = without_rivals(layer)
        for kept, gone in both:
            kept, gone = SETTINGS[kept].variable, SETTINGS[gone].variable
            problems.append(f"{kept} and {gone} are both set; {kept} is used")
        ctxo, ctxo_problems = _ctxo(texts[CTXO_LIMIT])
        own = {"ctxo": (ctxo, EMPTY), "scalpel": (EMPTY, _scalpel(texts[SCALPEL_INFO]))}
        return Read(layer, own, tuple(problems), {"ctxo": ctxo_problems}, texts[CONFIG] or None)

    def strangers(self) -> tuple[str, ...]:
        """A complaint for each variable with our prefix that names no setting."""
        return tuple(
            f"environment: there is no variable {name}{nearest(name, self._names)}"
            for name in sorted(self._environ)
            if name.startswith(PREFIX) and name not in self._names
        )


def _text(raw: object) -> str:
    if raw is None:
        return ""
    return os.fsdecode(raw) if isinstance(raw, bytes) else str(raw)


def _ctxo(text: str) -> tuple[Layer, tuple[str, ...]]:
    """The original reads `16k` as 16. What is not a positive integer says nothing here."""
    text = text.strip()
    if not text:
        return EMPTY, ()
    if not _POSITIVE.fullmatch(text):
        return EMPTY, (f"{CTXO_LIMIT}: {shown(text)} is not a positive integer; it is ignored",)
    digits = text.lstrip("0")
    most = SETTINGS["bytes"].kind.read(int(digits[:18]), lambda message: None)
    return {"bytes": Given(most, f"environment {CTXO_LIMIT}", CTXO_LIMIT)}, ()


def _scalpel(text: str) -> Layer:
    if text.strip().upper() != "DEBUG":
        return EMPTY
    return {"profile": Given("debug", f"environment {SCALPEL_INFO}", SCALPEL_INFO)}
