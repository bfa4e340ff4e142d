"""JMESPath over a stored payload of any size: the library's parser, interpreter and functions, within limits.

Strategy: the library's interpreter works on decoded JSON. This one also takes a `StoredValue`, which is still in
the store. Keys and indexes of a stored value are looked up in its index; a projection, a filter, a slice and `[]`
go over its children one by one, and keep what they select; `length`, `keys` and `type` decode nothing. Whatever
needs all of a value at once gets it, if it is of moderate size: the tree marks those places with a `decoded` node.
So a filter over 200 MB needs the memory of a record and of what it finds. Every step is counted, and every function
says what it will cost before it runs.

The answers are the library's, with two differences. A step into a string that holds JSON goes on inside:
`result.rows[0]` works whether `result` is an object or one written into a string. And where the library fails on
a number and a string, `<` is null and `contains` is false. An error that depends on the payload (an argument of
the wrong type) is reported only if the evaluation gets that far.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

import msgspec
from jmespath.exceptions import (  # type: ignore[import-untyped]
    EmptyExpressionError,
    JMESPathTypeError,
    LexerError,
    ParseError,
)
from jmespath.functions import TYPES_MAP, Functions, signature  # type: ignore[import-untyped]
from jmespath.parser import Parser  # type: ignore[import-untyped]
from jmespath.visitor import Options, TreeInterpreter  # type: ignore[import-untyped]

from ..jsontext.document import encode
from ..spelling import closest
from .document import StoredValue, decode_json
from .limits import BadQuery, CostGuard, SearchLimits, TooCostly, printable

__all__ = ["LIMITS", "BadQuery", "SearchLimits", "TooCostly", "run"]

# A node of the library's tree: its type, its children, mostly a value; and `at`, its position, which is ours.
Node = dict[str, Any]

LIMITS: Final = SearchLimits()
NOT_JSON: Final = "the payload is text, or too deep to be read as JSON; grep searches text, query does not"
_EXAMPLE: Final = "items[?status=='failed'].{id: id, name: name}"
_ADVICE: Final = (
    "Start from the list that you need and filter it first, as in items[?status=='failed'].id, "
    "or give a path."
)
_DEEPEST: Final = 64
# What a reference, an entry of a dictionary and an empty container take in memory, about.
_POINTER: Final = 8
_ENTRY: Final = 100
_OBJECT: Final = 56
_SIZES: Final[dict[type, int]] = {str: 1, list: _POINTER, dict: _ENTRY}
# Characters compared or copied, and bytes of JSON decoded, in the time of one step.
_CHARACTERS: Final = 64
_BYTES: Final = 16
# How often sorting compares an item, about.
_ROUNDS: Final = 24


def run(root: StoredValue, expression: str, limits: SearchLimits = LIMITS) -> bytes:
    """Return what the expression selects, as JSON: `null` if there is nothing."""
    if root.kind == "text":
        raise BadQuery(NOT_JSON, expression, 0)
    tree = _parse(expression, limits.length)
    interpreter = _Interpreter(expression, limits)
    try:
        return interpreter.written(interpreter.visit(tree, _not_null(root)))
    except RecursionError:
        raise TooCostly(f"stopped, because values are nested too deeply. {_ADVICE}") from None


# -- the expression -----------------------------------------------------------------------------------------

_OPENING: Final = ("lbracket", "lbrace", "lparen", "filter")
_CLOSING: Final = ("rbracket", "rbrace", "rparen")
# Chains that the library nests to the left; here they are one node. The first three mean the same.
_SEQUENCES: Final = ("subexpression", "index_expression", "pipe")
_CHAINS: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(_SEQUENCES, _SEQUENCES),
    "or_expression": ("or_expression",),
    "and_expression": ("and_expression",),
}
# Nodes whose children have to be decoded.
_NEEDS_DECODED: Final = ("multi_select_list", "key_val_pair", "expref")
_SPELLING: Final = {
    "$": "a path begins with a key and has no `$`; `@` is the current value",
    "=": "equality is written `==`",
    "/": "a key with special characters goes in double quotes, and steps are separated by `.`",
    "#": "a key with special characters goes in double quotes",
}


def _parse(expression: str, longest: int) -> Node:
    """Return the tree of the expression; raise `BadQuery` if it cannot work on any payload."""
    parser = _QueryParser(expression)
    if len(expression) > longest:
        what = f"the expression has {len(expression):,} characters, and the limit is {longest:,}"
        raise parser.bad(longest, what)
    try:
        with warnings.catch_warnings():
            # `literal` without quotes is an old spelling that works.
            warnings.simplefilter("ignore", PendingDeprecationWarning)
            # `parse` would keep 512 trees for the whole process; an attacker could make that a lot of memory.
            tree = parser._do_parse(expression).parsed
        for token in parser._tokens:
            encode(token["value"])
        return parser.checked(tree)
    except EmptyExpressionError:
        raise parser.bad(0, "the expression is empty") from None
    except LexerError as error:
        at = error.lexer_position
        what = printable(str(error.message).partition("\n")[0])[:60]
        advice = _SPELLING.get(expression[at : at + 1])
        raise parser.bad(at, f"{what}; {advice}" if advice else what) from None
    except ParseError as error:
        raise parser.misread(error) from None
    except UnicodeEncodeError:
        raise parser.bad(token["start"], "half of a surrogate pair is not a character") from None
    except RecursionError:
        raise parser.too_deep() from None


class _QueryParser(Parser):  # type: ignore[misc]
    """The library's parser. It notes where functions, `&` and slices are, and checks what can be checked now."""

    def __init__(self, expression: str) -> None:
        super().__init__()
        self._expression_text = expression
        self._tokens: list[Node] = []

    def bad(self, position: int, what: str) -> BadQuery:
        return BadQuery(what, self._expression_text, position, _EXAMPLE)

    def misread(self, error: Any) -> BadQuery:
        position, end = error.lex_position, len(self._expression_text)
        kind = (error.token_type or "").lower()
        token = printable(str(error.token_value or ""))[:40]
        if kind == "" or position >= end:
            return self.bad(end, "the expression ends too early")
        if kind == "number":
            return self.bad(position, f"a number that is not an index goes in backticks, `{token}`")
        if "Quoted identifier" in error.msg:
            return self.bad(self._lookahead_token(-1)["start"], "a function's name is written without quotes")
        if "function name" in error.msg:
            return self.bad(position, f"{token!r} cannot be called")
        if kind in _CLOSING or kind in ("comma", "dot", "colon"):
            return self.bad(position, f"something is missing before {token!r}")
        return self.bad(position, f"unexpected {token!r}")

    def too_deep(self) -> BadQuery:
        """Points to where the expression is nested deepest, by its brackets and prefixes."""
        if not self._tokens:
            return self.bad(self._expression_text.find("`"), "a literal is nested too deeply")
        depth = prefixes = most = position = 0
        for token in self._tokens:
            kind = token["type"]
            prefixes = prefixes + 1 if kind in ("not", "expref") else 0
            depth += (kind in _OPENING) - (kind in _CLOSING)
            if depth + prefixes > most:
                most, position = depth + prefixes, token["start"]
        return self.bad(position, f"the expression is nested more than {_DEEPEST} levels deep")

    def _parse_slice_expression(self) -> Node:
        at = self._lookahead_token(-1)["start"]
        node: Node = super()._parse_slice_expression()
        if node["children"][2] == 0:
            raise self.bad(at, "the step of a slice cannot be 0")
        return node

    def _token_nud_expref(self, token: Node) -> Node:
        return {**super()._token_nud_expref(token), "at": token["start"]}

    def _token_led_lparen(self, left: Node) -> Node:
        at = self._lookahead_token(-2)["start"]
        node: Node = {**super()._token_led_lparen(left), "at": at}
        name, count = node["value"], len(node["children"])
        if name not in _Functions.FUNCTION_TABLE:
            near = closest(name[:40], _Functions.FUNCTION_TABLE, cutoff=0.6)
            known = ", ".join(_Functions.FUNCTION_TABLE)
            advice = f"did you mean {near}()?" if near else f"there are {known}"
            raise self.bad(at, f"there is no function {printable(name)[:40]}(); {advice}")
        wanted = _Functions.FUNCTION_TABLE[name]["signature"]
        variadic = wanted[-1].get("variadic", False)
        if count < len(wanted) or (count > len(wanted) and not variadic):
            takes = f"{'at least ' * variadic}{len(wanted)} argument{'s' * (len(wanted) > 1)}"
            raise self.bad(at, f"{name}() takes {takes}, not {count}")
        for index, child in enumerate(node["children"]):
            child["may_refer"] = "expref" in wanted[min(index, len(wanted) - 1)]["types"]
            if child["may_refer"] and child["type"] != "expref":
                what = f"argument {index + 1} of {name}() is an expression after `&`, such as &name"
                raise self.bad(at, what)
        return node

    def checked(self, node: Node, depth: int = 0) -> Node:
        """The tree with chains as one node each, and with `decoded` nodes where values have to be."""
        kind, children = node["type"], node["children"]
        if depth > _DEEPEST:
            raise self.too_deep()
        if kind == "slice":
            return node
        if kind == "expref" and not node.get("may_refer"):
            raise self.bad(node["at"], "`&` belongs before an argument of sort_by, max_by, min_by or map")
        if kind in _CHAINS:
            first, children = node, []
            while first["type"] in _CHAINS[kind]:
                children[:0] = first["children"][1:]
                first = first["children"][0]
            children.insert(0, first)
        children = [self.checked(child, depth + 1) for child in children]
        if kind in _NEEDS_DECODED:
            children = [{"type": "decoded", "children": [child]} for child in children]
        return {**node, "type": "pipe" if kind in _SEQUENCES else kind, "children": children}


# -- JSON ---------------------------------------------------------------------------------------------------

_HOLDS_JSON: Final = re.compile(r"[ \t\r\n]*[\[{]")


class _Number(float):
    """A number with a point or an exponent, which is written as it was read."""

    __slots__ = ("written",)
    written: str

    def __new__(cls, text: str) -> _Number:
        number = super().__new__(cls, text)
        number.written = text
        return number


# The library recognizes types by the names of their classes.
_Number.__name__ = "float"


def _write_number(value: Any) -> msgspec.Raw:
    return msgspec.Raw(value.written.encode())


_DECODER: Final = msgspec.json.Decoder(float_hook=_Number)
_ENCODE: Final = msgspec.json.Encoder(enc_hook=_write_number).encode


def _footprint(raw: bytes) -> int:
    """About how much memory a value takes once it is decoded, judging by how many parts it has."""
    # One wide character makes every character of its string wide.
    text = len(raw) if raw.isascii() and b"\\u" not in raw else 4 * len(raw)
    return text + 32 * raw.count(b",") + 64 * raw.count(b"[") + 200 * raw.count(b"{")


def _not_null(value: StoredValue | None) -> StoredValue | None:
    return None if value is None or value.kind == "null" else value


# -- functions ----------------------------------------------------------------------------------------------


class _Functions(Functions):  # type: ignore[misc]
    """The library's functions. What each will cost is counted before it runs.

    Lists can hold the same long string a million times over, so what counts is not how much memory the arguments
    take but how much there is to look at.
    """

    def __init__(self, guard: CostGuard) -> None:
        self._guard = guard

    def call_function(self, name: str, arguments: list[Any]) -> Any:
        sized = [argument for argument in arguments if type(argument) in _SIZES]
        self._guard.spend(sum(1 + len(one) // (_CHARACTERS if type(one) is str else 1) for one in sized))
        if charge := getattr(self, f"_charge_{name}", None):
            charge(*arguments)
        result = super().call_function(name, arguments)
        each = _SIZES.get(type(result), 0)
        if each and not any(result is one for one in arguments):
            self._guard.hold(_OBJECT + each * len(result))
        return result

    def measure(self, value: Any, most: int) -> int:
        """How long the value is when written, if that is less than `most`. What is shared counts each time."""
        size = seen = 0
        waiting = [value]
        while waiting:
            item = waiting.pop()
            kind = type(item)
            seen += 1
            size += 6
            if kind is str:
                size += len(item)
            elif kind is list:
                waiting.extend(item)
            elif kind is dict:
                size += 4 * len(item) + sum(map(len, item))
                waiting.extend(item.values())
            if size > most:
                break
            if seen > 1000:
                self._guard.spend(seen)
                seen = 0
        self._guard.spend(seen + size // _CHARACTERS)
        return size

    def _charge_sort(self, items: Any) -> None:
        if type(items) is not list:
            return  # the library says what is wrong with it
        letters = sum([len(item) for item in items if type(item) is str])
        self._guard.spend((len(items) + letters // _CHARACTERS) * max(len(items).bit_length(), 1))

    _charge_max = _charge_min = _charge_sort

    def _charge_sort_by(self, items: Any, expression: Any) -> None:
        if type(items) is list:
            self._guard.hold(2 * _POINTER * len(items))

    def _create_key_func(self, expref: Any, allowed_types: list[str], function_name: str) -> Any:
        key_of = super()._create_key_func(expref, allowed_types, function_name)

        def charged(item: Any) -> Any:
            key = key_of(item)
            self._guard.spend(_ROUNDS * (len(key) // _CHARACTERS) if type(key) is str else 1)
            return key

        return charged

    def _charge_join(self, glue: Any, texts: Any) -> None:
        if type(glue) is not str or type(texts) is not list:
            return
        letters = sum([len(text) for text in texts if type(text) is str])
        self._guard.hold(4 * (letters + len(glue) * len(texts)))

    def _charge_to_string(self, value: Any) -> None:
        # Escapes make a character six, and a pair twelve.
        most = self._guard.memory_left // 12
        if type(value) is not str and self.measure(value, most) > most:
            self._guard.refuse("to_string() would write too much")

    def _charge_contains(self, where: Any, what: Any) -> None:
        if type(where) is list:
            self._guard.spend(len(where) * (1 + self.measure(what, self._guard.memory_left) // _BYTES))

    def _charge_merge(self, *values: Any) -> None:
        self._guard.hold(sum([_ENTRY * len(value) for value in values if type(value) is dict]))

    @signature({"types": ["array", "string"]}, {"types": []})  # type: ignore[untyped-decorator]
    def _func_contains(self, where: Any, what: Any) -> bool:
        return not (type(where) is str and type(what) is not str) and what in where


# -- evaluation ---------------------------------------------------------------------------------------------


# What has an order.
_ORDERED: Final = {int: "number", float: "number", _Number: "number", str: "string"}


class _Interpreter(TreeInterpreter):  # type: ignore[misc]
    def __init__(self, expression: str, limits: SearchLimits) -> None:
        self._expression = expression
        self._limits = limits
        self._guard = CostGuard(limits, _ADVICE)
        super().__init__(Options(custom_functions=_Functions(self._guard)))
        self._last_embedded: tuple[str, Any] = ("", None)
        names = [name for name in dir(self) if name.startswith("visit_")]
        self._visitors = {name.removeprefix("visit_"): getattr(self, name) for name in names}

    def visit(self, node: Node, value: Any) -> Any:
        guard = self._guard
        guard.steps += 1
        if guard.steps > guard.next_look:
            guard.spend(0)
        return self._visitors[node["type"]](node, value)

    def written(self, found: Any) -> bytes:
        """Return a result as JSON."""
        largest = self._limits.result
        if isinstance(found, StoredValue):
            if found.size <= largest:
                return found.raw()
        elif self._functions.measure(found, largest) <= largest and len(encoded := _ENCODE(found)) <= largest:
            return encoded
        self._guard.refuse(f"the result would have more than {largest / (1 << 20):.0f} MB")

    # -- from the store to decoded JSON ---------------------------------------------------------------------

    def _decoded(self, found: Any) -> Any:
        """All of it, as the library takes it."""
        if isinstance(found, StoredValue):
            if found.size > self._limits.whole:
                size = f"{found.size / (1 << 20):.0f} MB"
                self._guard.refuse(f"it would have to load all {size} at {found.path or 'the top'}")
            return self._load(found.raw())
        return found

    def visit_decoded(self, node: Node, value: Any) -> Any:
        return self._decoded(self.visit(node["children"][0], value))

    def _load(self, raw: bytes) -> Any:
        self._guard.spend(len(raw) // _BYTES)
        self._guard.hold(_footprint(raw))
        return decode_json(_DECODER, raw, _Number)

    def _entered(self, value: Any) -> Any:
        """What a step goes on in: of a string that holds JSON, that JSON."""
        if isinstance(value, StoredValue):
            value = value.opened()
            return self._decoded(value) if value.kind == "text" else value
        if type(value) is not str or not _HOLDS_JSON.match(value):
            return value
        if self._last_embedded[0] is not value:
            try:
                self._last_embedded = (value, self._load(value.encode()))
            except (ValueError, RecursionError):
                self._last_embedded = (value, None)
        return self._last_embedded[1]

    def _items(self, base: Any, kind: str = "array") -> Any:
        """The items of a list or the values of an object, one by one if it is not decoded; else None."""
        if isinstance(base, StoredValue):
            return self._children(base) if base.kind == kind else None
        if kind == "object":
            return base.values() if type(base) is dict else None
        return base if type(base) is list else None

    def _kept(self, items: Iterable[Any]) -> list[Any]:
        """What comes of a stored value, one by one, as a list."""
        kept: list[Any] = []
        for item in items:
            if not isinstance(item, StoredValue):
                size = self._functions.measure(item, self._guard.memory_left)
                self._guard.hold(_OBJECT + 3 * size)
            self._guard.hold(_POINTER)
            kept.append(self._decoded(item))
        return kept

    def _children(self, value: StoredValue, first: int = 0) -> Iterator[Any]:
        """The items of a list or the values of an object. Small ones are decoded while they are looked at."""
        for child in value.chunks(first):
            if isinstance(child, StoredValue):
                yield child
                continue
            before = self._guard.held
            items = self._load(child.raw)
            size = self._guard.held - before
            yield from items.values() if type(items) is dict else items
            self._guard.held -= size

    # -- steps ----------------------------------------------------------------------------------------------

    def visit_field(self, node: Node, value: Any) -> Any:
        if type(value) is not dict:
            value = self._entered(value)
        if isinstance(value, StoredValue):
            return _not_null(value.member(node["value"]))
        return super().visit_field(node, value)

    def visit_index(self, node: Node, value: Any) -> Any:
        index, value = node["value"], self._entered(value)
        if isinstance(value, StoredValue):
            return _not_null(value.item(index + value.total if index < 0 else index))
        return super().visit_index(node, value)

    def visit_slice(self, node: Node, value: Any) -> Any:
        value = self._entered(value)
        start, stop, step = node["children"]
        if isinstance(value, StoredValue):
            picked = range(value.total if value.kind == "array" else 0)[start:stop:step]
            if not picked:
                return [] if value.kind == "array" else None
            forward = picked if picked.step > 0 else picked[::-1]
            count = forward[-1] - forward[0] + 1
            items = self._kept(islice(self._children(value, forward[0]), 0, count, forward.step))
            return items if forward is picked else items[::-1]
        return self._made(super().visit_slice(node, value) or []) if type(value) is list else None

    def _made(self, items: list[Any]) -> list[Any]:
        """Count a list that was made."""
        self._guard.hold(_OBJECT + _POINTER * len(items))
        return items

    # -- projections ----------------------------------------------------------------------------------------

    def visit_projection(self, node: Node, value: Any) -> Any:
        left, right, *condition = node["children"]
        base = self._entered(self.visit(left, value))
        items = self._items(base, "object" if node["type"] == "value_projection" else "array")
        if isinstance(base, StoredValue):
            return (
                None if items is None else self._kept(self._projected(items, right, *condition, frees=True))
            )
        return None if items is None else self._made(list(self._projected(items, right, *condition)))

    visit_filter_projection = visit_value_projection = visit_projection

    def _projected(
        self, items: Iterable[Any], right: Node, condition: Node | None = None, *, frees: bool = False
    ) -> Iterator[Any]:
        as_it_is = right["type"] == "identity"
        for item in items:
            self._guard.spend(1)
            mark = self._guard.held
            result = None
            if condition is None or not self._is_false(self.visit(condition, item)):
                result = item if as_it_is else self.visit(right, item)
            if frees:
                # What an item took is free when the next one comes; whoever keeps a result counts it.
                self._guard.held = mark
            if result is not None:
                yield result

    def visit_flatten(self, node: Node, value: Any) -> Any:
        base = self._entered(self.visit(node["children"][0], value))
        items = self._items(base)
        if items is None:
            return None
        if isinstance(base, StoredValue):
            return self._kept(self._flat(items))
        self._guard.spend(len(items))
        self._guard.hold(_OBJECT + _POINTER * sum([len(item) if type(item) is list else 1 for item in items]))
        return list(self._flat(items))

    def _flat(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            inner = self._items(item)
            if inner is None:
                yield item
            else:
                self._guard.spend(len(inner) // _BYTES if type(inner) is list else 1)
                yield from inner

    # -- what is built and compared -------------------------------------------------------------------------

    def visit_multi_select_list(self, node: Node, value: Any) -> Any:
        self._guard.hold(_OBJECT + _POINTER * len(node["children"]))
        return super().visit_multi_select_list(node, value)

    def visit_multi_select_dict(self, node: Node, value: Any) -> Any:
        self._guard.hold(_OBJECT + _ENTRY * len(node["children"]))
        return super().visit_multi_select_dict(node, value)

    def visit_comparator(self, node: Node, value: Any) -> Any:
        first, second = node["children"]
        left, right = self.visit(first, value), self.visit(second, value)
        left, right = self._decoded(left), self._decoded(right)
        kind, same = type(left), type(left) is type(right)
        if kind is str:
            self._guard.spend(len(left) // _CHARACTERS)
        elif same and kind in (list, dict):
            most = self._limits.result
            if max(self._functions.measure(left, most), self._functions.measure(right, most)) > most:
                self._guard.refuse("it compares values that are too large")
        name = node["value"]
        if same and name == "eq":
            return left == right
        if name not in ("eq", "ne") and _ORDERED.get(kind) != _ORDERED.get(type(right), 0):
            return None
        return self.COMPARATOR_FUNC[name](left, right)

    def visit_or_expression(self, node: Node, value: Any) -> Any:
        until_false = node["type"] == "and_expression"
        result = None
        for child in node["children"]:
            result = self.visit(child, value)
            if self._is_false(result) is until_false:
                break
        return result

    visit_and_expression = visit_or_expression

    def visit_not_expression(self, node: Node, value: Any) -> bool:
        return self._is_false(self.visit(node["children"][0], value))

    def _is_false(self, value: Any) -> bool:
        if type(value) is bool:
            return not value
        if isinstance(value, StoredValue) and value.kind in ("array", "object", "string"):
            return value.total == 0
        return bool(super()._is_false(self._decoded(value)))

    # -- calls ----------------------------------------------------------------------------------------------

    def visit_function_expression(self, node: Node, value: Any) -> Any:
        name = node["value"]
        arguments = [self.visit(child, value) for child in node["children"]]
        first = arguments[0]
        if isinstance(first, StoredValue) and (known := self._undecoded(name, first)) is not None:
            return known
        arguments = list(map(self._decoded, arguments))
        try:
            return self._functions.call_function(name, arguments)
        except JMESPathTypeError as error:
            raise self._bad(node, _wrong_type(error, arguments)) from None
        except TypeError:
            raise self._bad(node, f"{name}() compares numbers or strings, all of one kind") from None
        except (OverflowError, ValueError) as error:
            raise self._bad(node, f"{name}() cannot compute with such a number: {error}") from None

    def _bad(self, node: Node, what: str) -> BadQuery:
        return BadQuery(what, self._expression, node["at"], _EXAMPLE)

    def _undecoded(self, name: str, value: StoredValue) -> Any:
        """What a function says of a value that is not decoded; None if it has to be."""
        if name == "type" and value.kind != "text":
            return value.kind
        if name == "length" and value.kind in ("array", "object", "string"):
            return value.total
        if value.kind == "object" and name == "keys":
            keys: list[str] = []
            for key in value.member_keys():
                self._guard.hold(2 * _OBJECT + len(key))
                keys.append(key)
            return keys
        return None


def _wrong_type(error: Any, arguments: list[Any]) -> str:
    name = error.function_name
    wanted = " or ".join(error.expected_types).replace("array-", "array of ")
    actual = TYPES_MAP.get(error.actual_type, error.actual_type)
    if name.endswith("_by") and "expref" not in error.expected_types and "array" not in error.expected_types:
        return f"{name}() compares by numbers or by strings, not by {actual}"
    if not any(error.current_value is argument for argument in arguments):
        actual = f"array with a {actual} in it"
    return f"{name}() takes {wanted}, not {actual}; filter out the others first"
