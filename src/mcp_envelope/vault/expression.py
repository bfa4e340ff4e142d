"""A JMESPath expression, read and checked before anything is searched.

Strategy: the library reads it, and everything that can be wrong with an expression by itself is told at once,
with the character where it is: a function that does not exist, a missing argument, `&` where none belongs, a
slice that never moves. The library's tree has no positions, so functions are paired with their tokens: both
come in the order of the text.
"""

from __future__ import annotations

import difflib
import warnings
from itertools import pairwise
from typing import Any, Final

from ..jsontree import encode
from .bounds import BadQuery, printable, shown
from .functions import SIGNATURES

# A node of the library's tree: its type, its children, mostly a value; and `at`, which is ours.
Node = dict[str, Any]
Token = dict[str, Any]

DEEPEST: Final = 64
EXAMPLE: Final = "items[?status=='failed'].{id: id, name: name}"
_OPENING: Final = ("lbracket", "lbrace", "lparen", "filter")
_CLOSING: Final = ("rbracket", "rbrace", "rparen")
# Each child works on what the one before it gave: these three are one thing when evaluated.
SEQUENCES: Final = ("subexpression", "index_expression", "pipe")
_ADVICE: Final = {
    "$": "a path begins with a key and has no `$`; `@` is the current value",
    "=": "equality is written `==`",
    "/": "a key with special characters is written in double quotes, and steps are parted by `.`",
    "#": "a key with special characters is written in double quotes",
}


def parse(expression: str, longest: int) -> Node:
    """The tree of the expression; `BadQuery` if it is not one or cannot work on any payload."""
    if len(expression) > longest:
        raise bad(
            expression, longest, f"the expression has {len(expression):,} characters, {longest:,} may be"
        )
    tokens = _read_tokens(expression)
    deepest = _deepest(tokens)
    from jmespath.exceptions import ParseError  # type: ignore[import-untyped]
    from jmespath.parser import Parser  # type: ignore[import-untyped]

    parser = Parser()
    # The library keeps 512 trees for the whole process; an attacker could make that a lot of memory.
    parser._CACHE = {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PendingDeprecationWarning)
            tree: Node = parser.parse(expression).parsed
        _place(tree, tokens)
    except ParseError as error:
        raise _misread(expression, tokens, error) from None
    except RecursionError:
        raise _too_deep(expression, deepest) from None
    _check(expression, tree, deepest)
    return tree


def bad(expression: str, position: int, what: str) -> BadQuery:
    """The mistake, its place, and something that works."""
    position = min(max(position, 0), len(expression))
    place = shown(expression, position)
    return BadQuery(f"{what}, at character {position}: {place}. An example that works: {EXAMPLE}", position)


def parts_of(node: Node, kinds: tuple[str, ...]) -> list[Node]:
    """The operands of a chain such as `a || b || c`, which the library nests to the left."""
    parts: list[Node] = []
    while node["type"] in kinds:
        parts.extend(reversed(node["children"][1:]))
        node = node["children"][0]
    return [node, *reversed(parts)]


def looks_once(node: Node) -> bool:
    """Whether evaluating the node uses the current value at most once."""
    if node["type"] in (
        "multi_select_list",
        "multi_select_dict",
        "or_expression",
        "and_expression",
        "comparator",
    ):
        return False
    if node["type"] == "function_expression":
        return sum(child["type"] not in ("literal", "expref") for child in node["children"]) < 2
    return True


def _read_tokens(expression: str) -> list[Token]:
    from jmespath.exceptions import EmptyExpressionError, LexerError
    from jmespath.lexer import Lexer  # type: ignore[import-untyped]

    try:
        with warnings.catch_warnings():
            # `literal` without quotes is an old spelling that works.
            warnings.simplefilter("ignore", PendingDeprecationWarning)
            tokens: list[Token] = list(Lexer().tokenize(expression))
    except EmptyExpressionError:
        raise bad(expression, 0, "the expression is empty") from None
    except LexerError as error:
        at = error.lexer_position
        what = printable(str(error.message).partition("\n")[0])[:60]
        advice = _ADVICE.get(expression[at : at + 1])
        raise bad(expression, at, f"{what}; {advice}" if advice else what) from None
    except RecursionError:
        at = max(expression.find("`"), 0)
        raise bad(expression, at, "a literal is nested too deeply") from None
    for token in tokens:
        try:
            encode(token["value"])
        except UnicodeEncodeError:
            raise bad(expression, token["start"], "half of a surrogate pair is no character") from None
        except RecursionError:
            raise bad(expression, token["start"], "a literal is nested too deeply") from None
    return tokens


def _deepest(tokens: list[Token]) -> int:
    """Where the expression is nested deepest, by its brackets and prefixes."""
    depth = prefixes = most = position = 0
    for token in tokens:
        kind = token["type"]
        prefixes = prefixes + 1 if kind in ("not", "expref") else 0
        depth += (kind in _OPENING) - (kind in _CLOSING)
        if depth + prefixes > most:
            most, position = depth + prefixes, token["start"]
    return position


def _too_deep(expression: str, position: int) -> BadQuery:
    return bad(expression, position, f"the expression is nested more than {DEEPEST} levels deep")


def _misread(expression: str, tokens: list[Token], error: Any) -> BadQuery:
    position = error.lex_position
    kind = (error.token_type or "").lower()
    token = printable(str(error.token_value or ""))[:40]
    if kind == "" or position >= len(expression):
        return bad(expression, len(expression), "the expression ends too early")
    if kind == "number":
        return bad(expression, position, f"a number is written in backticks, `{token}`, if it is no index")
    if kind == "lparen" and position == 0 and not expression.startswith("("):
        names = [before["start"] for before, after in _pairs(tokens) if after["type"] == "lparen"]
        return bad(expression, min(names, default=0), "the name of a function stands without quotes")
    if "function name" in error.msg:
        return bad(expression, position, f"{token!r} cannot be called")
    if kind in _CLOSING or kind in ("comma", "dot", "colon"):
        return bad(expression, position, f"something is missing before {token!r}")
    return bad(expression, position, f"unexpected {token!r}")


def _pairs(tokens: list[Token]) -> list[tuple[Token, Token]]:
    return list(pairwise(tokens))


def _place(tree: Node, tokens: list[Token]) -> None:
    """Note on each function, `&` and slice the character where it stands."""
    names = [
        one["start"] for one, two in _pairs(tokens) if two["type"] == "lparen" and "identifier" in one["type"]
    ]
    places = {
        "function_expression": iter(names),
        "expref": iter([token["start"] for token in tokens if token["type"] == "expref"]),
        "slice": iter(_slices(tokens)),
    }
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if node["type"] in places:
            node["at"] = next(places[node["type"]], 0)
        children = node["children"]
        if node["type"] == "slice":
            continue
        if node["type"] == "filter_projection":
            # The only node whose children are not in the order of the text.
            left, right, condition = children
            children = [left, condition, right]
        waiting.extend(reversed(children))


def _slices(tokens: list[Token]) -> list[int]:
    """Where each slice begins: a bracket with a colon in it before anything but numbers."""
    places: list[int] = []
    for at, token in enumerate(tokens):
        if token["type"] == "lbracket":
            following = tokens[at + 1 : at + 3]
            if "colon" in [
                following[0]["type"],
                following[-1]["type"] if following[0]["type"] == "number" else "",
            ]:
                places.append(token["start"])
    return places


def _check(expression: str, tree: Node, deepest: int) -> None:
    waiting: list[tuple[Node, int, bool]] = [(tree, 0, False)]
    while waiting:
        node, depth, may_refer = waiting.pop()
        kind = node["type"]
        if depth > DEEPEST:
            raise _too_deep(expression, deepest)
        if kind == "slice":
            if node["children"][2] == 0:
                raise bad(expression, node["at"], "the step of a slice cannot be 0")
        elif kind in SEQUENCES:
            waiting.extend((part, depth + 1, False) for part in parts_of(node, SEQUENCES))
        elif kind in ("or_expression", "and_expression"):
            waiting.extend((part, depth + 1, False) for part in parts_of(node, (kind,)))
        elif kind == "function_expression":
            wanted = _checked_call(expression, node)
            for index, child in enumerate(node["children"]):
                refers = wanted[min(index, len(wanted) - 1)] == "expref"
                if refers and child["type"] != "expref":
                    what = (
                        f"argument {index + 1} of {node['value']}() is an expression after `&`, such as &name"
                    )
                    raise bad(expression, node["at"], what)
                waiting.append((child, depth + 1, refers))
        elif kind == "expref" and not may_refer:
            raise bad(
                expression, node["at"], "`&` belongs before an argument of sort_by, max_by, min_by or map"
            )
        else:
            waiting.extend((child, depth + 1, False) for child in node["children"])


def _checked_call(expression: str, node: Node) -> tuple[str, ...]:
    name, count = node["value"], len(node["children"])
    if name not in SIGNATURES:
        near = difflib.get_close_matches(name[:40], SIGNATURES, 1)
        advice = f"did you mean {near[0]}()?" if near else f"there are {', '.join(SIGNATURES)}"
        raise bad(expression, node["at"], f"there is no function {printable(name)[:40]}(); {advice}")
    wanted, more = SIGNATURES[name]
    if count < len(wanted) or (count > len(wanted) and not more):
        least = "at least " if more else ""
        takes = f"{least}{len(wanted)} argument{'s' * (len(wanted) > 1)}"
        raise bad(expression, node["at"], f"{name}() takes {takes}, not {count}")
    return wanted
