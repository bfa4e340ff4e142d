"""Widening a schema by one optional property, `_envelope`, or wrapping it when that can't be done.

Strategy: follow everything that applies to the root value itself (`$ref`, `allOf`, `anyOf`, `if` …) and
rewrite only those subschemas that would notice one more property. Each rewriting rule is exact: for an object
without `_envelope` the old and the new subschema agree, and adding `_envelope` changes nothing. Exact rules
compose, so `not`, `if` and `oneOf` need no special care. A definition that must change is copied under a new
name, so that its other users keep the original; and where something refers back to the root, the original
root is kept as a definition for it. What has no exact rule is wrapped: `{"result": …, "_envelope": …}`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from .document import DEFINITIONS, Body, Document, SchemaError, pointer_of
from .references import map_keyword, map_references, mentions, unresolved
from .validator import compiled, may_match
from .wrapping import ENVELOPE_KEY, ENVELOPE_PATTERN, envelope_schema, wrap

# What applies to the same value, by the shape of the keyword's value.
_SAME_ONE: Final = ("if", "then", "else", "not")
_SAME_MANY: Final = ("allOf", "anyOf", "oneOf")
_SAME_NAMED: Final = ("dependentSchemas", "dependencies")
_OBJECT_KEYWORDS: Final = (
    "additionalProperties",
    "maxProperties",
    "minProperties",
    "patternProperties",
    "properties",
    "propertyNames",
    "required",
    "unevaluatedProperties",
)
# What names a subschema; a copy must not claim the same name.
_IDENTITY: Final = ("$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary")
# What stays at the root of an old draft that has `$ref` there: everything else was ignored and must stay so.
_ANNOTATIONS: Final = ("$schema", "$id", "$comment", "title", "description", "default", "examples")


@dataclass(frozen=True)
class Widened:
    schema: dict[str, Any]
    wrapped: bool
    reason: str


class _Unwidenable(Exception):
    """The reason why the root must be wrapped."""


def widen(document: Mapping[str, Any] | bool) -> Widened:
    """The schema with one more optional property at its root, or wrapped in an object that has it."""
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
        # A keyword of the wrong kind: the validator says which one.
        compiled(document)
        raise SchemaError(f"a keyword has a value of the wrong kind ({error})") from None


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
        self._originals: dict[int, str] = {}  # originals of what is rewritten where it stands
        self._unmade: list[tuple[Body, str, bool]] = []
        self._inline: set[int] = set()

    def root(self) -> Body:
        root = self._document.root
        same_value = self._same_value()
        if id(root) not in self._objects(same_value):
            raise _Unwidenable("The root is not certainly an object.")
        for body in same_value:
            self._refuse_if_hopeless(body)
        self._changing = _those_that_lead_to(same_value, self._same_spot, self._notices)
        # The parts of the root that are rewritten where they stand; references to them must not see that.
        waiting = [root]
        while waiting:
            body = waiting.pop()
            self._inline.add(id(body))
            waiting.extend(
                part
                for part in self._written_inside(body)
                if id(part) in self._changing and id(part) not in self._inline
            )
            if "$dynamicAnchor" in body:
                raise _Unwidenable("The root is the target of dynamic references.")
        if mentions(root, "$recursiveRef"):
            raise _Unwidenable("The schema uses recursive references.")
        widened = self._root_body(root)
        while self._unmade:
            body, name, as_original = self._unmade.pop()
            copy = self._plain(body) if as_original else self._rewritten(body)
            without = _IDENTITY + DEFINITIONS
            self._definitions[name] = {key: part for key, part in copy.items() if key not in without}
            if any(mentions(self._definitions[name], keyword) for keyword in _IDENTITY[1:]):
                raise _Unwidenable("The root depends on a schema that holds named parts.")
        if self._definitions:
            widened[self._container] = {**widened.get(self._container, {}), **self._definitions}
        if not unresolved(Document(widened)) <= unresolved(self._document):
            raise _Unwidenable("A reference points into the part that would change.")
        return widened

    def _root_body(self, root: Body) -> Body:
        if self._document.is_overridden(root):
            kept = {k: self._cloned(k, v) for k, v in root.items() if k in _ANNOTATIONS + DEFINITIONS}
            widened = {**kept, "allOf": [{"$ref": self._same_reference(root, "$ref")}]}
        else:
            widened = self._rewritten(root)
        widened["type"] = "object"
        if widened.get("properties", {}).keys() - {ENVELOPE_KEY}:
            widened["properties"] = {**widened["properties"], ENVELOPE_KEY: envelope_schema()}
        else:
            # A map stays one for clients that make a class of whatever has properties.
            widened.pop("properties", None)
            patterns = widened.get("patternProperties", {})
            widened["patternProperties"] = {**patterns, ENVELOPE_PATTERN: envelope_schema()}
        return widened

    # -- what applies to the root value -----------------------------------------------------------------

    def _same_value(self) -> list[Body]:
        """Every subschema that can apply to the root value; refuses what can't be followed."""
        found: dict[int, Body] = {}
        waiting = [self._document.root]
        while waiting:
            body = waiting.pop()
            if id(body) in found:
                continue
            found[id(body)] = body
            if "$dynamicRef" in body or "$recursiveRef" in body:
                raise _Unwidenable("The root depends on a dynamic reference.")
            if body is not self._document.root and "$id" in body and not self._document.is_overridden(body):
                raise _Unwidenable("The root depends on a schema with an identity of its own.")
            waiting.extend(self._same_spot(body))
        return list(found.values())

    def _same_spot(self, body: Body) -> Iterator[Body]:
        yield from self._written_inside(body)
        target = self._target(body)
        if isinstance(target, dict):
            yield target

    def _written_inside(self, body: Body) -> Iterator[Body]:
        if self._document.is_overridden(body):
            return
        parts: list[Any] = [body.get(keyword) for keyword in _SAME_ONE]
        for keyword in _SAME_MANY:
            parts += body.get(keyword) or ()
        for keyword in _SAME_NAMED:
            parts += (body.get(keyword) or {}).values()
        yield from (part for part in parts if isinstance(part, dict))

    def _target(self, body: Body) -> Body | bool | None:
        reference = body.get("$ref")
        if not isinstance(reference, str):
            return None
        base = self._document.base_of(body)
        target = self._document.resolve(reference, base)
        if target is None:
            raise _Unwidenable("The root refers to a schema outside of this document.")
        if isinstance(target, dict) and self._document.base_of(target) != self._document.root_base:
            raise _Unwidenable("The root depends on a schema with an identity of its own.")
        return target

    def _objects(self, same_value: list[Body]) -> set[int]:
        """Those that only objects satisfy; what speaks of properties and names no type counts as one."""
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
            raise _Unwidenable(f"The schema already speaks of {ENVELOPE_KEY}.")

    # -- rewriting --------------------------------------------------------------------------------------

    def _notices(self, body: Body) -> bool:
        """Whether this subschema by itself would tell an object with `_envelope` from one without."""
        if self._document.is_overridden(body):
            return False
        closed = any(
            body.get(keyword, True) not in (True, {})
            for keyword in ("additionalProperties", "unevaluatedProperties", "propertyNames")
        )
        counted = "maxProperties" in body or body.get("minProperties", 0) > 0
        return closed or counted or any(self._catching(body))

    def _catching(self, body: Body) -> Iterator[str]:
        for pattern, part in (body.get("patternProperties") or {}).items():
            if part not in (True, {}) and may_match(pattern, ENVELOPE_KEY):
                yield pattern

    def _widened(self, body: Body | bool) -> Any:
        if isinstance(body, dict) and id(body) in self._changing:
            return self._rewritten(body)
        return self._plain(body)

    def _rewritten(self, body: Body) -> Body:
        """The same for objects without `_envelope`, and blind to whether there is one."""
        new: Body = {}
        for keyword, value in body.items():
            if keyword == "$ref" and isinstance(value, str):
                new[keyword] = self._same_reference(body, keyword)
            elif self._document.is_overridden(body):
                new[keyword] = self._cloned(keyword, value)
            elif keyword in _SAME_ONE and isinstance(value, dict | bool):
                new[keyword] = self._widened(value)
            elif keyword in _SAME_MANY:
                new[keyword] = [self._widened(part) for part in value]
            elif keyword in _SAME_NAMED:
                new[keyword] = {
                    key: self._widened(part) if isinstance(part, dict | bool) else part
                    for key, part in value.items()
                }
            else:
                new[keyword] = self._cloned(keyword, value, body)
        if not self._document.is_overridden(body):
            self._let_through(body, new)
        return new

    def _let_through(self, body: Body, new: Body) -> None:
        catching = list(self._catching(body))
        if catching:
            new["patternProperties"] = {
                # Other keys match as before, wherever in them the pattern would.
                f"^(?!{ENVELOPE_KEY}$)[\\s\\S]*(?:{pattern})" if pattern in catching else pattern: part
                for pattern, part in new["patternProperties"].items()
            }
        closers = ("additionalProperties", "unevaluatedProperties")
        if any(body.get(keyword, True) not in (True, {}) for keyword in closers):
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

    def _same_reference(self, body: Body, keyword: str) -> str:
        """Where a reference that applies to the root value leads once that value may have `_envelope`."""
        reference: str = body[keyword]
        target = self._target(body)
        if not isinstance(target, dict) or id(target) not in self._changing:
            return self._reference(body, reference)
        if target is self._document.root:
            return "#"
        if id(target) not in self._copies:
            name = self._copies[id(target)] = self._new_name(f"{_last_name(reference)}WithEnvelope")
            self._unmade.append((target, name, False))
        return "#" + pointer_of((self._container, self._copies[id(target)]))

    def _reference(self, body: Body, reference: str) -> str:
        """The same reference, or one to the kept original if its target is rewritten where it stands."""
        target = self._document.resolve(reference, self._document.base_of(body))
        if not isinstance(target, dict) or id(target) not in self._inline:
            return reference
        if id(target) not in self._originals:
            name = self._originals[id(target)] = self._new_name(f"{_last_name(reference)}WithoutEnvelope")
            self._unmade.append((target, name, True))
        address = reference.partition("#")[0]
        return f"{address}#" + pointer_of((self._container, self._originals[id(target)]))

    def _new_name(self, wanted: str) -> str:
        name, number = wanted, 2
        while name in self._names:
            name, number = f"{wanted}{number}", number + 1
        self._names.add(name)
        return name

    def _plain(self, body: Body | bool) -> Any:
        return map_references(body, self._reference_of)

    def _cloned(self, keyword: str, value: Any, body: Body | None = None) -> Any:
        return map_keyword(keyword, value, self._reference_of, body)

    def _reference_of(self, body: Body, keyword: str) -> str:
        if keyword == "$dynamicRef":
            return str(body[keyword])
        return self._reference(body, body[keyword])


def _those_that_lead_to(
    bodies: list[Body], inside: Callable[[Body], Iterator[Body]], wanted: Callable[[Body], bool]
) -> set[int]:
    users: dict[int, list[Body]] = {}
    for body in bodies:
        for part in inside(body):
            users.setdefault(id(part), []).append(body)
    found: set[int] = set()
    waiting = [body for body in bodies if wanted(body)]
    while waiting:
        body = waiting.pop()
        if id(body) not in found:
            found.add(id(body))
            waiting.extend(users.get(id(body), ()))
    return found


def _last_name(reference: str) -> str:
    name = reference.rpartition("/")[2].rpartition("#")[2]
    return name if name.isidentifier() else "Root" if not name else "Schema"
