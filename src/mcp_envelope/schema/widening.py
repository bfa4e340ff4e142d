"""Widening a schema by one optional property, `_envelope`, or wrapping it where that can't be done.

Strategy: follow everything that applies to the root value itself (`$ref`, `allOf`, `anyOf`, `if` …) and rewrite
only the subschemas that would notice one more property. Each rewriting rule is exact: for an object without
`_envelope` the old and the new subschema agree, and adding `_envelope` changes nothing. Exact rules compose, so
`not`, `if` and `oneOf` need no special care. A definition that must change is copied under a new name, so that
its other users keep the original; and where something refers back to the root, the original root is kept as a
definition. A schema with no exact rule is wrapped: `{"result": …, "_envelope": …}`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from .document import (
    DEFINITIONS,
    MANY,
    NAMED,
    ONE,
    Body,
    Document,
    SchemaError,
    bodies_below,
    copied,
    leading_to,
    map_keyword,
    map_references,
    mentions,
    pointer_of,
    reachable,
    unresolved,
)
from .validator import compiled, may_match

ENVELOPE_KEY: Final = "_envelope"
# The same as a pattern, for a root that is a map.
ENVELOPE_PATTERN: Final = f"^{ENVELOPE_KEY}$"
RESULT_KEY: Final = "result"

_DESCRIPTION: Final = "Present when the result was shortened or failed: what was left out, and how to get it."

# Keywords whose subschemas apply to the same value, by the shape of what they hold.
# How many references and combinations `without_required` follows.
_DEEPEST: Final = 16
_SAME_ONE: Final = ("if", "then", "else", "not")
_SAME_MANY: Final = ("allOf", "anyOf", "oneOf")
_SAME_NAMED: Final = ("dependentSchemas", "dependencies")
_CLOSERS: Final = ("additionalProperties", "unevaluatedProperties")
_OBJECT_KEYWORDS: Final = (
    *("maxProperties", "minProperties", "patternProperties", "properties", "propertyNames", "required"),
    *_CLOSERS,
)
# What names a subschema; a copy must not claim the same name.
_IDENTITY: Final = ("$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary")
# What stays at the root of an old draft that has `$ref` there: the rest was ignored and must stay so.
_ANNOTATIONS: Final = ("$schema", "$id", "$comment", "title", "description", "default", "examples")


@dataclass(frozen=True)
class Widened:
    schema: dict[str, Any]
    wrapped: bool
    reason: str


class _Unwidenable(Exception):
    """Why the root must be wrapped."""


def widen(document: Mapping[str, Any] | bool) -> Widened:
    """Return the schema with one more optional property at its root, or wrapped in an object that has it."""
    read = Document(document)
    if isinstance(document, bool):
        return Widened(wrap(read, document), True, "The schema is a boolean.")
    try:
        return Widened(_Widening(read).root(), False, "")
    except _Unwidenable as reason:
        return Widened(wrap(read, read.root), True, str(reason))
    except SchemaError:
        raise
    except (TypeError, ValueError, AttributeError, ArithmeticError) as error:
        # A keyword of the wrong type: the validator says which one.
        compiled(document)
        raise SchemaError(f"a keyword has a value of the wrong type ({error})") from None


class _Widening:
    def __init__(self, document: Document) -> None:
        self._document = document
        self._is_draft_04 = "draft-04" in str(document.root.get("$schema", ""))
        self._container = "definitions" if document.is_old else "$defs"
        taken = document.root.get(self._container)
        if taken is not None and not isinstance(taken, dict):
            raise _Unwidenable(f"{self._container} is not an object.")
        self._names: set[str] = set(taken or ())
        self._definitions: Body = {}
        self._copies: dict[int, str] = {}  # widened copies of shared definitions, by original
        self._originals: dict[int, str] = {}  # originals of what is rewritten in place
        self._pending: list[tuple[Body, str, bool]] = []  # of both: the original, the name, whether unchanged

    def root(self) -> Body:
        root = self._document.root
        same_value = self._same_value()
        if id(root) not in self._objects(same_value):
            raise _Unwidenable("The root is not certainly an object.")
        for body in same_value:
            self._refuse_if_hopeless(body)
        self._changing = leading_to(self._notices, same_value, self._same_spot)
        # The parts of the root that are rewritten in place; references to them must not notice.
        inline = reachable([root], self._changing_inside)
        if any("$dynamicAnchor" in body for body in inline):
            raise _Unwidenable("The root is the target of dynamic references.")
        self._inline = set(map(id, inline))
        if mentions(root, "$recursiveRef"):
            raise _Unwidenable("The schema uses recursive references.")
        widened = self._root_body(root)
        while self._pending:
            body, name, as_original = self._pending.pop()
            copy = self._plain(body) if as_original else self._rewritten(body)
            self._definitions[name] = {
                key: part for key, part in copy.items() if key not in _IDENTITY + DEFINITIONS
            }
            if any(mentions(self._definitions[name], keyword) for keyword in _IDENTITY[1:]):
                raise _Unwidenable("The root depends on a schema that holds named parts.")
        if self._definitions:
            widened[self._container] = {**widened.get(self._container, {}), **self._definitions}
        if not unresolved(Document(widened)) <= unresolved(self._document):
            raise _Unwidenable("A reference points into the part that would change.")
        return widened

    def _root_body(self, root: Body) -> Body:
        if self._document.is_overridden(root):
            kept = [keyword for keyword in root if keyword in _ANNOTATIONS + DEFINITIONS]
            widened = {keyword: map_keyword(root, keyword, self._reference_of) for keyword in kept}
            widened["allOf"] = [{"$ref": self._same_reference(root, root["$ref"])}]
        else:
            widened = self._rewritten(root)
        widened["type"] = "object"
        if widened.get("properties", {}).keys() - {ENVELOPE_KEY}:
            widened["properties"] = {**widened["properties"], ENVELOPE_KEY: envelope_schema()}
        elif self._changing or root.get("patternProperties") or any(True for _ in self._same_spot(root)):
            # Clients generate a class for anything with `properties`; a map must stay a map. One of any values
            # has room already, and a pattern would cost those who validate one search for each key.
            widened.pop("properties", None)
            patterns = widened.get("patternProperties", {})
            widened["patternProperties"] = {**patterns, ENVELOPE_PATTERN: envelope_schema()}
        return widened

    # -- what applies to the root value -----------------------------------------------------------------

    def _same_value(self) -> list[Body]:
        """Return every subschema that can apply to the root value; refuse what can't be followed."""

        def followed(body: Body) -> Iterator[Body]:
            if "$dynamicRef" in body or "$recursiveRef" in body:
                raise _Unwidenable("The root depends on a dynamic reference.")
            if body is not self._document.root and "$id" in body and not self._document.is_overridden(body):
                raise _Unwidenable("The root depends on a schema with an identity of its own.")
            return self._same_spot(body)

        return reachable([self._document.root], followed)

    def _same_spot(self, body: Body) -> Iterator[Body]:
        yield from self._inside(body)
        target = self._target(body)
        if isinstance(target, dict):
            yield target

    def _inside(self, body: Body) -> Iterator[Body]:
        """Yield the subschemas inside this one that apply to the same value."""
        if self._document.is_overridden(body):
            return
        parts: list[Any] = [body.get(keyword) for keyword in _SAME_ONE]
        for keyword in _SAME_MANY:
            parts += body.get(keyword) or ()
        for keyword in _SAME_NAMED:
            parts += (body.get(keyword) or {}).values()
        yield from (part for part in parts if isinstance(part, dict))

    def _changing_inside(self, body: Body) -> Iterator[Body]:
        return (part for part in self._inside(body) if id(part) in self._changing)

    def _target(self, body: Body) -> Body | bool | None:
        reference = body.get("$ref")
        if not isinstance(reference, str):
            return None
        base = self._document.base_of(body)
        target = self._document.resolve(reference, base)
        if target is None:
            raise _Unwidenable("The root refers to a schema outside this document.")
        if isinstance(target, dict) and self._document.base_of(target) != self._document.root_base:
            raise _Unwidenable("The root depends on a schema with an identity of its own.")
        return target

    def _objects(self, same_value: list[Body]) -> set[int]:
        """Return those that only objects satisfy; one with keywords for objects and no type counts."""
        found: set[int] = set()
        while True:
            before = len(found)
            # Innermost first, so that a long chain of references takes one round.
            for body in reversed(same_value):
                if id(body) not in found and self._is_object(body, found):
                    found.add(id(body))
            if len(found) == before:
                return found

    def _is_object(self, body: Body, known: set[int]) -> bool:
        if id(self._target(body)) in known:
            return True
        if self._document.is_overridden(body):
            return False
        if body.get("type") in ("object", ["object"]):
            return True
        if any(id(part) in known for part in body.get("allOf") or ()):
            return True
        choices = [body[keyword] for keyword in ("anyOf", "oneOf") if body.get(keyword)]
        if any(all(id(part) in known for part in branches) for branches in choices):
            return True
        is_silent = not choices and "type" not in body and "$ref" not in body
        return is_silent and any(keyword in body for keyword in _OBJECT_KEYWORDS)

    def _refuse_if_hopeless(self, body: Body) -> None:
        if self._document.is_overridden(body):
            return
        if "const" in body or "enum" in body:
            raise _Unwidenable("The root allows only listed values.")
        names = [*(body.get("properties") or ()), *(body.get("required") or ())]
        for keyword in ("dependentRequired", "dependentSchemas", "dependencies"):
            for key, value in (body.get(keyword) or {}).items():
                names += [key, *(value if isinstance(value, list | tuple) else ())]
        if ENVELOPE_KEY in names:
            raise _Unwidenable(f"The schema already mentions {ENVELOPE_KEY}.")

    # -- rewriting --------------------------------------------------------------------------------------

    def _notices(self, body: Body) -> bool:
        """Whether this subschema by itself distinguishes an object with `_envelope` from one without."""
        if self._document.is_overridden(body):
            return False
        closed = any(body.get(keyword, True) not in (True, {}) for keyword in (*_CLOSERS, "propertyNames"))
        counted = "maxProperties" in body or body.get("minProperties", 0) > 0
        return closed or counted or any(self._catching(body))

    def _catching(self, body: Body) -> Iterator[str]:
        """Yield the patterns for properties that may match `_envelope`."""
        for pattern, part in (body.get("patternProperties") or {}).items():
            if part not in (True, {}) and may_match(pattern, ENVELOPE_KEY):
                yield pattern

    def _widened(self, body: Body | bool) -> Any:
        if isinstance(body, dict) and id(body) in self._changing:
            return self._rewritten(body)
        return self._plain(body)

    def _rewritten(self, body: Body) -> Body:
        """Return a subschema that is the same for objects without `_envelope`, and ignores `_envelope`."""
        overridden = self._document.is_overridden(body)
        new: Body = {}
        for keyword, value in body.items():
            if keyword == "$ref" and isinstance(value, str):
                new[keyword] = self._same_reference(body, value)
            elif not overridden and keyword in _SAME_ONE and isinstance(value, dict | bool):
                new[keyword] = self._widened(value)
            elif not overridden and keyword in _SAME_MANY:
                new[keyword] = [self._widened(part) for part in value]
            elif not overridden and keyword in _SAME_NAMED:
                new[keyword] = {
                    key: self._widened(part) if isinstance(part, dict | bool) else part
                    for key, part in value.items()
                }
            else:
                new[keyword] = map_keyword(body, keyword, self._reference_of)
        if not overridden:
            self._let_through(body, new)
        return new

    def _let_through(self, body: Body, new: Body) -> None:
        """Open what keeps `_envelope` out of the rewritten subschema, and leave it out of counts."""
        catching = list(self._catching(body))
        if catching:
            new["patternProperties"] = {
                # Other keys match as before, wherever in the key that is.
                f"^(?!{ENVELOPE_KEY}$)[\\s\\S]*(?:{pattern})" if pattern in catching else pattern: part
                for pattern, part in new["patternProperties"].items()
            }
        if any(body.get(keyword, True) not in (True, {}) for keyword in _CLOSERS):
            new["properties"] = {**new.get("properties", {}), ENVELOPE_KEY: {}}
        if body.get("propertyNames", True) not in (True, {}):
            itself = {"enum": [ENVELOPE_KEY]} if self._is_draft_04 else {"const": ENVELOPE_KEY}
            new["propertyNames"] = {"anyOf": [itself, new["propertyNames"]]}
        present = {"required": [ENVELOPE_KEY]}
        counts: list[Body] = []
        if "maxProperties" in body:
            new["maxProperties"] = body["maxProperties"] + 1
            counts.append({"anyOf": [{"maxProperties": body["maxProperties"]}, present]})
        if body.get("minProperties", 0) > 0:
            counts.append({"anyOf": [{"minProperties": body["minProperties"] + 1}, {"not": present}]})
        if counts:
            new["allOf"] = [*new.get("allOf", ()), *counts]

    def _same_reference(self, body: Body, reference: str) -> str:
        """Return where a reference that applies to the root value leads once that may have `_envelope`."""
        target = self._target(body)
        if not isinstance(target, dict) or id(target) not in self._changing:
            return self._reference_of(body, "$ref")
        if target is self._document.root:
            return "#"
        return self._defined(self._copies, target, f"{_last_name(reference)}WithEnvelope", False)

    def _reference_of(self, body: Body, keyword: str) -> str:
        """Return the same reference, or one to the kept original if its target is rewritten in place."""
        reference = str(body[keyword])
        if keyword == "$dynamicRef":
            return reference
        target = self._document.resolve(reference, self._document.base_of(body))
        if not isinstance(target, dict) or id(target) not in self._inline:
            return reference
        name = f"{_last_name(reference)}WithoutEnvelope"
        return reference.partition("#")[0] + self._defined(self._originals, target, name, True)

    def _defined(self, made: dict[int, str], target: Body, name: str, as_original: bool) -> str:
        """Return a reference to the definition made of a subschema, which is named when first needed."""
        if id(target) not in made:
            made[id(target)] = self._new_name(name)
            self._pending.append((target, made[id(target)], as_original))
        return "#" + pointer_of((self._container, made[id(target)]))

    def _new_name(self, wanted: str) -> str:
        name, number = wanted, 2
        while name in self._names:
            name, number = f"{wanted}{number}", number + 1
        self._names.add(name)
        return name

    def _plain(self, body: Body | bool) -> Any:
        return map_references(body, self._reference_of)


def _last_name(reference: str) -> str:
    name = reference.rpartition("/")[2].rpartition("#")[2]
    return name if name.isidentifier() else "Root" if not name else "Schema"


def wrap(document: Document, original: Body | bool) -> Body:
    """Return an object schema with the original below `result`, and room for a notice next to it."""
    above, result, below = _moved_below(document, original, f"/properties/{RESULT_KEY}")
    properties = {RESULT_KEY: result, ENVELOPE_KEY: envelope_schema()}
    return {**above, "type": "object", "properties": properties, "required": [RESULT_KEY], **below}


def embed(
    schema: Mapping[str, Any] | bool,
    key: str,
    *,
    before: Body,
    after: Body,
    required: list[str],
    instead: Body | None = None,
) -> Body:
    """Return an object schema of properties of ours, with the given schema, or `instead`, as one of them."""
    document = Document(schema)
    pointer = f"/properties/{key}/anyOf/0" if instead is not None else f"/properties/{key}"
    above, moved, below = _moved_below(
        document, schema if isinstance(schema, bool) else document.root, pointer
    )
    inner = moved if instead is None else {"anyOf": [moved, instead]}
    properties = {**before, key: inner, **after}
    return {**above, "type": "object", "properties": properties, "required": required, **below}


def map_for_classes(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a widened map for clients that make a type of `additionalProperties` alone, such as FastMCP's.

    They would refuse the notice, or a class for the whole map. What conforms to the schema conforms to this one.
    """
    values = schema.get("additionalProperties")
    if ENVELOPE_PATTERN not in schema.get("patternProperties", {}) or not isinstance(values, Mapping):
        return schema
    return {**schema, "additionalProperties": {"anyOf": [values, {"type": "object"}]}} if values else schema


def without_required(schema: Mapping[str, Any], may_lack: Callable[[str], bool]) -> Mapping[str, Any]:
    """Return an object schema whose top-level properties may be absent, as far as `may_lack` says so."""
    document = Document(schema)

    def visit(body: Any, depth: int) -> Any:
        if not isinstance(body, Mapping) or depth > _DEEPEST:
            return body
        changed = {name: part for name, part in body.items() if name not in ("required", "minProperties")}
        if isinstance(reference := changed.get("$ref"), str):
            target = document.resolve(reference, document.root_base)
            if isinstance(target, dict) and target is not document.root:
                # The definition itself stays as it is: other places may refer to it.
                del changed["$ref"]
                return visit({**target, **changed}, depth + 1)
        if kept := [name for name in body.get("required", ()) if not may_lack(name)]:
            changed["required"] = kept
        for keyword in ("allOf", "anyOf", "oneOf"):
            if isinstance(parts := changed.get(keyword), list):
                # Without what told them apart, several of `oneOf` may match.
                keyword = "anyOf" if changed.pop(keyword) and keyword == "oneOf" else keyword
                changed[keyword] = [visit(part, depth + 1) for part in parts]
        return changed

    relaxed: Mapping[str, Any] = visit(document.root, 0)
    return relaxed


def either(schema: Mapping[str, Any] | bool, other: Body) -> Body:
    """Return an object schema that accepts what either schema accepts."""
    document = Document(schema)
    original = schema if isinstance(schema, bool) else document.root
    above, moved, below = _moved_below(document, original, "/anyOf/0")
    return {**above, "type": "object", "anyOf": [moved, other], **below}


def _moved_below(document: Document, original: Body | bool, pointer: str) -> tuple[Body, Any, Body]:
    """Return what stays above, the original at its new place, and the definitions.

    The definitions move up, so that most references can stay.
    """
    if not isinstance(original, dict):
        return {}, original, {}
    lifted = {*DEFINITIONS, *_other_definitions(document)}
    above = {name: original[name] for name in ("$schema", "$id", "id") if isinstance(original.get(name), str)}
    if mentions(original, "$recursiveRef"):
        # It refers to the root of its resource, so the original has to remain one.
        above.pop("$id", None)
        moved = {"$id": "urn:mcp-envelope:result", **copied(original)}
        moved.pop("$schema", None)
        return above, moved, {}
    moved = map_references(
        original, lambda body, keyword: _redirected(document, body, body[keyword], lifted, pointer)
    )
    below = {name: moved.pop(name) for name in [*moved] if name in lifted}
    return above, {name: part for name, part in moved.items() if name not in above}, below


def envelope_schema() -> Body:
    return {"type": "object", "description": _DESCRIPTION}


def _other_definitions(document: Document) -> Iterator[str]:
    """Yield members of the root that mean nothing to JSON Schema but hold definitions, as `components` may."""
    for body in reachable([document.root], bodies_below):
        reference = body.get("$ref")
        if isinstance(reference, str) and reference.startswith("#/"):
            name = reference.split("/")[1]
            if name in document.root and name not in ONE + MANY + NAMED:
                yield name


def _redirected(document: Document, body: Body, reference: str, lifted: set[str], pointer: str) -> str:
    """Return a reference that leads to the same subschema after the root has moved to `pointer`."""
    address, _, fragment = reference.partition("#")
    base = document.base_of(body)
    if base != document.root_base and not address:
        return reference
    if address and document.resolve(address, base) is not document.root:
        return reference
    is_anchor = fragment and not fragment.startswith("/")
    if is_anchor or not lifted.isdisjoint(fragment.split("/")[1:2]):
        return reference
    return f"{address}#{pointer}{fragment}"
