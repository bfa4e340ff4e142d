"""Whether an instance conforms to a schema, and where it doesn't.

Strategy: a `Schema` is a document made ready once: its graph, the bounds on what checking costs, the compiled
validator and the place of the root. Making one takes far longer than asking it, so `Schema.of` keeps those
used last, found by their encoded text. What would cost too much to check counts as not conforming.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from threading import Lock
from typing import Any, ClassVar

import msgspec

from ..faults import mend_surrogates
from .document import Document, SchemaError, check_depth, check_root, one_level_down
from .effort import Effort
from .graph import Graph
from .place import Place, Places
from .validator import compiled, deepest_error


class Schema:
    """A schema document, checked: where it lets us cut, and whether an instance conforms."""

    _cache: ClassVar[OrderedDict[bytes, Schema]] = OrderedDict()
    _cache_lock: ClassVar[Lock] = Lock()
    _CACHE_SIZE: ClassVar[int] = 128

    def __init__(self, document: Mapping[str, Any] | bool) -> None:
        self.document = document
        read = Document(document)
        try:
            graph = Graph(read)
            self._effort = Effort(graph)
        except (TypeError, ValueError, AttributeError, ArithmeticError) as error:
            # A keyword of the wrong kind: the validator says which one.
            compiled(document)
            raise SchemaError(f"a keyword has a value of the wrong kind ({error})") from None
        self._validator = compiled(document)
        self.root: Place = Places().of([graph.root])

    @classmethod
    def of(cls, document: Mapping[str, Any] | bool) -> Schema:
        """The schema for this document, made once."""
        key = _key_of(document)
        with cls._cache_lock:
            schema = cls._cache.get(key)
            if schema is not None:
                cls._cache.move_to_end(key)
                return schema
        schema = cls(document)
        with cls._cache_lock:
            cls._cache[key] = schema
            if len(cls._cache) > cls._CACHE_SIZE:
                cls._cache.popitem(last=False)
        return schema

    def is_valid(self, instance_json: bytes) -> bool:
        """Whether the instance conforms; no, too, if it isn't JSON or would cost too much to check."""
        try:
            instance = _decode(instance_json)
        except (ValueError, RecursionError):
            return False
        return self._is_affordable(instance, instance_json) and self._validator.is_valid(instance)

    def first_error(self, instance_json: bytes) -> tuple[str, str] | None:
        """Where an instance fails, as a JSON pointer, and why; None if it conforms."""
        try:
            instance = _decode(instance_json)
        except RecursionError:
            return "", "nested too deeply to be checked"
        except ValueError as error:
            return "", f"not JSON: {error}"
        if not self._is_affordable(instance, instance_json):
            return "", "too costly to check: the schema multiplies at this depth"
        if self._validator.is_valid(instance):
            return None
        if not self._effort.allows_errors(_depth(instance)):
            return "", "does not conform to the schema, which is too entangled to say where"
        return deepest_error(self._validator, instance) or ("", "does not conform to the schema")

    def _is_affordable(self, instance: Any, instance_json: bytes) -> bool:
        # There can't be more levels than brackets, and these are quickly counted.
        brackets = instance_json.count(b"{") + instance_json.count(b"[")
        return self._effort.allows(brackets) or self._effort.allows(_depth(instance))


def _key_of(document: Mapping[str, Any] | bool) -> bytes:
    """The document's text, the same for any order of its members."""
    check_root(document)
    try:
        return msgspec.json.encode(document, order="deterministic")
    except (TypeError, ValueError, RecursionError) as error:
        # Too deep is the better reason; looking for it costs more than encoding, so only now.
        check_depth(document)
        if isinstance(error, RecursionError):
            raise
        raise SchemaError(f"the schema is not JSON: {error}") from None


def _decode(instance_json: bytes) -> Any:
    try:
        return msgspec.json.decode(instance_json)
    except ValueError:
        # msgspec refuses numbers beyond a double and halves of surrogate pairs; JSON doesn't.
        mended, _ = mend_surrogates(instance_json)
        return json.loads(mended, parse_float=_float, parse_int=_integer, parse_constant=_no_constant)


def _float(text: str) -> float | Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        return float(text)


def _integer(digits: str) -> int | Decimal:
    return int(digits) if len(digits) < 4_000 else Decimal(digits)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _depth(instance: Any) -> int:
    depth = 0
    level = [instance] if isinstance(instance, dict | list) else []
    while level:
        depth += 1
        level = one_level_down(level)
    return depth
