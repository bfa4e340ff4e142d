"""TypeScript, JavaScript and Go, by tree-sitter.

Strategy: a query finds definitions, imports and identifiers in one pass; the name of a symbol follows from the
definitions around it. A file with syntax errors is parsed as far as it goes, and says where the first one is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

import tree_sitter_go
import tree_sitter_javascript
import tree_sitter_typescript
from tree_sitter import Language, Node, Query, QueryCursor
from tree_sitter import Parser as TreeParser

from mcp_envelope.anchors import LineIndex

from .source import HERE, UNKNOWN, Import, Names, Source, Symbol, Use

_SCRIPT = """
(function_declaration name: (_) @name) @function
(generator_function_declaration name: (_) @name) @function
(class_declaration name: (_) @name) @class
(method_definition name: (_) @name) @method
(variable_declarator name: (identifier) @name value: [(arrow_function) (function_expression)]) @function
(program (lexical_declaration (variable_declarator name: (identifier) @name
  value: [(number) (string) (object) (array) (new_expression) (call_expression)]) @variable))
(export_statement (lexical_declaration (variable_declarator name: (identifier) @name
  value: [(number) (string) (object) (array) (new_expression) (call_expression)]) @variable))
(import_statement) @import
(export_statement) @export
(call_expression function: [(identifier) (import)] @loader arguments: (arguments . (string) @module)) @load
[(identifier) (shorthand_property_identifier)] @use
(member_expression property: (property_identifier) @use)
"""
_TYPES = """
(abstract_class_declaration name: (_) @name) @class
(interface_declaration name: (_) @name) @interface
(type_alias_declaration name: (_) @name) @type
(enum_declaration name: (_) @name) @enum
(internal_module name: (_) @name) @module
(type_identifier) @use
"""
_GO = """
(function_declaration name: (_) @name) @function
(method_declaration name: (_) @name) @method
(type_spec name: (_) @name type: (interface_type)) @interface
(type_spec name: (_) @name type: [(struct_type) (type_identifier) (map_type) (function_type)]) @class
(source_file (const_declaration (const_spec name: (_) @name) @variable))
(source_file (var_declaration (var_spec name: (_) @name) @variable))
(import_spec) @import
[(identifier) (type_identifier)] @use
(selector_expression field: (field_identifier) @use)
"""
_KINDS = ("function", "class", "method", "interface", "type", "enum", "module", "variable")
_GO_BUILTIN = re.compile(
    r"append|bool|byte|cap|close|complex(64|128)?|copy|delete|error|false|float(32|64)|imag|u?int(8|16|32|64)?|iota|len"
    r"|make|map|max|min|new|nil|panic|print(ln)?|real|recover|rune|string|true|uintptr|any|_"
)


@cache
def _grammar(lang: str) -> tuple[Language, Query]:
    if lang == "go":
        language, text = Language(tree_sitter_go.language()), _GO
    elif lang == "js":
        language, text = Language(tree_sitter_javascript.language()), _SCRIPT
    elif lang == "tsx":
        language, text = Language(tree_sitter_typescript.language_tsx()), _SCRIPT + _TYPES
    else:
        language, text = Language(tree_sitter_typescript.language_typescript()), _SCRIPT + _TYPES
    return language, Query(language, text)


def parse(data: bytes, lang: str) -> Source:
    language, query = _grammar(lang)
    root = TreeParser(language).parse(data).root_node
    try:
        found = _Finder(data, lang, QueryCursor(query).matches(root))
    except ValueError as error:
        return Source(problem=str(error))
    return Source(found.symbols, found.imports, found.uses(), _first_error(root) if root.has_error else None)


def _first_error(root: Node) -> str:
    node = root
    while not (node.is_error or node.is_missing):
        node = next(child for child in node.children if child.has_error or child.is_missing)
    return f"line {node.start_point[0] + 1}: the syntax is not valid"


class _Finder:
    def __init__(self, data: bytes, lang: str, matches: Iterable[tuple[int, dict[str, list[Node]]]]) -> None:
        self.symbols: list[Symbol] = []
        self.imports: list[Import] = []
        self._lang = lang
        self._lines = LineIndex.from_bytes(data)
        self._names: set[int] = set()  # bytes at which names start that are no uses
        self._owners: list[tuple[int, int, str]] = []
        self._uses: list[Node] = []
        definitions: dict[int, tuple[str, Node, Node]] = {}
        exported: set[str] = set()
        for _, match in matches:
            if "use" in match:
                self._uses += match["use"]
            elif "import" in match:
                self._import(match["import"][0])
            elif "export" in match:
                exported |= self._export(match["export"][0])
            elif "load" in match:
                self._load(match["load"][0], match["loader"][0], match["module"][0])
            else:
                kind = next(kind for kind in _KINDS if kind in match)
                for name in match["name"]:
                    definitions.setdefault(name.start_byte, (kind, match[kind][0], name))
        for _, (kind, node, name) in sorted(definitions.items()):
            self._define(kind, node, name, exported)

    def _define(self, kind: str, node: Node, name: Node, exported: set[str]) -> None:
        last = _text(name)
        self._names.add(name.start_byte)
        if self._lang == "go":
            receiver = node.child_by_field_name("receiver")
            types = _all(receiver, "type_identifier") if receiver is not None else []
            owner = _text(types[0]) if types else ""
            public = last[:1].isupper()
        else:
            owner = self._owner(name.start_byte)
            public = last in exported if not owner else not last.startswith(("_", "#"))
        qualified = f"{owner}.{last}" if owner else last
        end_line, _ = self._position(node.end_byte)
        self.symbols.append(Symbol(qualified, kind, *self._position(name.start_byte), end_line, public))
        self._owners.append((node.start_byte, node.end_byte, qualified))

    def _owner(self, byte: int) -> str:
        """Return the innermost symbol so far around a position. Definitions come in their order."""
        return next((name for start, end, name in reversed(self._owners) if start <= byte < end), "")

    def _position(self, byte: int) -> tuple[int, int]:
        return self._lines.position(self._lines.offset_of_byte(byte))

    # -- imports ----------------------------------------------------------------------------------------------

    def _add(self, node: Node, module: str, name: str, alias: str) -> None:
        self.imports.append(Import(module, name, alias, *self._position(node.start_byte)))

    def _import(self, node: Node) -> None:
        self._hide(node)
        if self._lang == "go":
            path = node.child_by_field_name("path")
            alias = node.child_by_field_name("name")
            module = _unquoted(path)
            self._add(node, module, "", _text(alias) if alias else module.rpartition("/")[2])
            return
        module = _unquoted(node.child_by_field_name("source"))
        clause = next((child for child in node.children if child.type == "import_clause"), None)
        if clause is None:
            self._add(node, module, "", f"'{module}'")
            return
        for child in clause.children:
            if child.type == "identifier":
                self._add(child, module, "default", _text(child))
            elif child.type == "namespace_import":
                self._add(child, module, "", _text(child.named_children[0]))
            elif child.type == "named_imports":
                self._specifiers(child, module)

    def _specifiers(self, node: Node, module: str) -> list[str]:
        found = []
        for each in node.named_children:
            name, alias = each.child_by_field_name("name"), each.child_by_field_name("alias")
            if name is not None:
                self._add(each, module, _text(name), _text(alias or name))
                found.append(_text(name))
        return found

    def _export(self, node: Node) -> set[str]:
        """Return the names of this file that are exported; those of other files are imports."""
        source = node.child_by_field_name("source")
        clause = next((child for child in node.children if child.type == "export_clause"), None)
        if source is not None:
            self._hide(node)
            module = _unquoted(source)
            if clause is None:
                self._add(node, module, "*", "*")
            else:
                self._specifiers(clause, module)
            return set()
        if clause is not None:
            self._hide(node)
            return set(self._specifiers(clause, ""))
        declared = node.child_by_field_name("declaration") or node.child_by_field_name("value")
        if declared is None:
            return set()
        names = [each.child_by_field_name("name") for each in (declared, *declared.named_children)]
        found = {_text(name) for name in names if name is not None}
        if declared.type == "identifier":
            found.add(_text(declared))
        if any(child.type == "default" for child in node.children) and len(found) == 1:
            self._add(node, "", found.copy().pop(), "default")
        return found

    def _load(self, node: Node, loader: Node, module: Node) -> None:
        """`require("x")` and `import("x")`."""
        if _text(loader) not in ("require", "import"):
            return
        parent = node.parent
        while parent is not None and parent.type in ("await_expression", "parenthesized_expression"):
            parent = parent.parent
        name = parent.child_by_field_name("name") if parent and parent.type == "variable_declarator" else None
        if name is not None and name.type == "identifier":
            self._names.add(name.start_byte)
            self._add(name, _unquoted(module), "", _text(name))
        elif name is not None:
            for each in _all(name, "shorthand_property_identifier_pattern"):
                self._add(each, _unquoted(module), _text(each), _text(each))
        else:
            self._add(node, _unquoted(module), "", f"'{_unquoted(module)}'")

    def _hide(self, node: Node) -> None:
        """What an import or export names is not a use."""
        for kind in ("identifier", "type_identifier"):
            self._names.update(each.start_byte for each in _all(node, kind))

    # -- uses -------------------------------------------------------------------------------------------------

    def uses(self) -> list[Use]:
        names = Names(self.symbols, self.imports, ("this", "super"))
        found: list[Use] = []
        stack: list[tuple[int, int, str]] = []
        owners = sorted(self._owners, reverse=True)
        seen = set(self._names)
        for node in sorted(self._uses, key=lambda node: node.start_byte):
            at = node.start_byte
            if at in seen:
                continue
            seen.add(at)
            while owners and owners[-1][0] <= at:
                stack.append(owners.pop())
            while stack and stack[-1][1] <= at:
                stack.pop()
            owner = next((each[2] for each in reversed(stack) if at < each[1]), "")
            use = self._use(node, owner, names)
            if use is not None and (use.target, use.name) != (HERE, owner):
                found.append(use)
        return found

    def _use(self, node: Node, owner: str, names: Names) -> Use | None:
        parent = node.parent
        assert parent is not None
        field = {"member_expression": "object", "selector_expression": "operand", "qualified_type": "package"}
        whole, chain = node, _text(node)
        if parent.type in field:
            value = parent.child_by_field_name(field[parent.type])
            if value is not None and value.start_byte != node.start_byte:
                whole = parent
                chain = _text(parent).replace("?.", ".")
        if whole is parent and not all(map(str.isidentifier, chain.replace("$", "_").split("."))):
            place: tuple[int, str] | None = (UNKNOWN, _text(node))
        else:
            place = names.find(chain, owner)
        above = whole.parent
        called = above is not None and above.child_by_field_name("function") == whole
        if place is None and self._lang == "go" and not _GO_BUILTIN.fullmatch(chain):
            # It may be defined in another file of the package.
            if called or node.type == "type_identifier" or chain[:1].isupper():
                place = HERE, chain
        if place is None:
            return None
        heritage = ("class_heritage", "extends_clause", "implements_clause", "extends_type_clause")
        inherits = above is not None and above.type in heritage
        if above is not None and above.type == "new_expression":
            called = above.child_by_field_name("constructor") == whole
        kind = "inherits" if inherits else "calls" if called else "reads"
        return Use(owner, *place, kind, *self._position(node.start_byte))


def _all(node: Node, kind: str) -> list[Node]:
    found = [node] if node.type == kind else []
    for child in node.children:
        found += _all(child, kind)
    return found


def _text(node: Node) -> str:
    return (node.text or b"").decode()


def _unquoted(node: Node | None) -> str:
    return _text(node).strip("\"'`") if node is not None else ""
