"""Python, by the standard library's `ast`."""

from __future__ import annotations

import ast
import re
import warnings

from mcp_envelope.anchors import LineIndex

from .source import HERE, UNKNOWN, Import, Names, Source, Symbol, Use

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
# Fields of nodes with nothing to find in them.
_IDLE = {"ctx", "op", "ops", "type_comment", "type_ignores", "kind", "conversion"}


def parse(data: bytes) -> Source:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd escapes, which are the file's business
            tree = ast.parse(data.decode("utf-8-sig"))
    except SyntaxError as error:
        return Source(problem=f"line {error.lineno or 1}: {error.msg}")
    except (ValueError, RecursionError, MemoryError) as error:
        return Source(problem=f"it cannot be parsed: {error}")
    found = _Finder(data)
    found.visit_body(tree.body, "")
    return Source(found.symbols, found.imports, found.uses())


class _Finder:
    def __init__(self, data: bytes) -> None:
        self.symbols: list[Symbol] = []
        self.imports: list[Import] = []
        self._lines = LineIndex.from_bytes(data)
        self._is_ascii = data.isascii()
        # Owner, dotted name ("" if its beginning is no name), last name, kind, line and byte column.
        self._used: list[tuple[str, str, str, str, int, int]] = []
        self._parameters: list[set[str]] = []
        self._kinds: dict[str, str] = {}

    def uses(self) -> list[Use]:
        names = Names(self.symbols, self.imports, ("self", "cls"))
        found = []
        for owner, chain, last, kind, line, byte in self._used:
            target = names.find(chain, owner) if chain else (UNKNOWN, last)
            if target is not None and target != (HERE, owner):
                found.append(Use(owner, *target, kind, line, self._col(line, byte)))
        return found

    def _col(self, line: int, byte: int) -> int:
        """Return a column in UTF-16 units; `ast` counts bytes of UTF-8."""
        if self._is_ascii:
            return byte + 1
        before = self._lines.line_text(line).encode()[:byte].decode()
        return self._lines.position_at(line, len(before) + 1)[1]

    # -- definitions and imports ------------------------------------------------------------------------------

    def visit_body(self, body: list[ast.stmt], owner: str) -> None:
        for statement in body:
            if isinstance(statement, ast.Assign | ast.AnnAssign) and not self._parameters:
                self._variable(statement, owner)
            self._visit(statement, owner)

    def _variable(self, node: ast.Assign | ast.AnnAssign, owner: str) -> None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            if isinstance(target, ast.Name) and not owner:
                self._add(target.id, "variable", target.lineno, target.col_offset, node)
                if target.id == "__all__" and isinstance(node.value, ast.List | ast.Tuple):
                    names = [str(each.value) for each in node.value.elts if isinstance(each, ast.Constant)]
                    self._used += [("", n, n, "reads", target.lineno, target.col_offset) for n in names]

    def _add(
        self, name: str, kind: str, line: int, byte: int, node: ast.stmt, registered: bool = False
    ) -> None:
        public = not any(part.startswith("_") for part in name.split("."))
        end, col = node.end_lineno or line, self._col(line, byte)
        self.symbols.append(Symbol(name, kind, line, col, end, public, registered))
        self._kinds[name] = kind

    def _define(self, node: _Definition, owner: str) -> None:
        name = f"{owner}.{node.name}" if owner else node.name
        in_class = self._kinds.get(owner) == "class"
        # The node begins at `def`, or `async`; the name is the next word that is neither.
        text = self._lines.line_text(node.lineno)
        at = re.compile(rf"\b{re.escape(node.name)}\b").search(text, node.col_offset)
        byte = len(text[: at.start()].encode()) if at else node.col_offset
        kind = "class" if isinstance(node, ast.ClassDef) else "method" if in_class else "function"
        self._add(name, kind, node.lineno, byte, node, bool(node.decorator_list))
        for decorator in node.decorator_list:
            self._visit(decorator, owner)
        if isinstance(node, ast.ClassDef):
            for base in node.bases:
                self._visit(base, name, "inherits")
            for keyword in node.keywords:
                self._visit(keyword.value, owner)
            self.visit_body(node.body, name)
            return
        every = node.args
        arguments = [*every.posonlyargs, *every.args, *every.kwonlyargs, every.vararg, every.kwarg]
        for value in (
            *every.defaults,
            *every.kw_defaults,
            *(a.annotation for a in arguments if a),
            node.returns,
        ):
            if value is not None:
                self._visit(value, name)
        self._parameters.append({a.arg for a in arguments if a} - {"self", "cls"})
        self.visit_body(node.body, name)
        self._parameters.pop()

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            line = alias.lineno
            col = self._col(line, alias.col_offset)
            if isinstance(node, ast.ImportFrom):
                module = "." * node.level + (node.module or "")
                self.imports.append(Import(module, alias.name, alias.asname or alias.name, line, col))
            else:
                self.imports.append(Import(alias.name, "", alias.asname or alias.name, line, col))

    # -- uses -------------------------------------------------------------------------------------------------

    def _visit(self, node: ast.AST, owner: str, kind: str = "reads") -> None:
        of = type(node)
        if of is ast.Name:
            assert isinstance(node, ast.Name)
            if isinstance(node.ctx, ast.Load) and not self._is_parameter(node.id):
                self._used.append((owner, node.id, node.id, kind, node.lineno, node.col_offset))
            return
        if of is ast.Attribute:
            assert isinstance(node, ast.Attribute)
            chain = _chain(node)
            if chain and self._is_parameter(chain.partition(".")[0]):
                chain = ""
            end, last = node.end_col_offset or 0, len(node.attr.encode())
            self._used.append((owner, chain, node.attr, kind, node.end_lineno or node.lineno, end - last))
            self._visit(node.value, owner)
            return
        if of is ast.Call:
            assert isinstance(node, ast.Call)
            self._visit(node.func, owner, "calls")
            for argument in node.args:
                self._visit(argument, owner)
            for keyword in node.keywords:
                self._visit(keyword.value, owner)
            return
        if isinstance(node, _Definition):
            self._define(node, owner)
            return
        if isinstance(node, ast.Import | ast.ImportFrom):
            self._import(node)
            return
        if of is ast.Constant:
            return
        for field in of._fields:
            if field in _IDLE:
                continue
            value = getattr(node, field, None)
            if isinstance(value, list):
                for item in value:
                    if isinstance(item, ast.AST):
                        self._visit(item, owner)
            elif isinstance(value, ast.AST):
                self._visit(value, owner)

    def _is_parameter(self, name: str) -> bool:
        return any(name in each for each in self._parameters)


def _chain(node: ast.Attribute) -> str:
    """Return a dotted name as text; "" if it starts with anything but a name."""
    parts = [node.attr]
    value: ast.expr = node.value
    while isinstance(value, ast.Attribute):
        parts.append(value.attr)
        value = value.value
    return ".".join([value.id, *reversed(parts)]) if isinstance(value, ast.Name) else ""
