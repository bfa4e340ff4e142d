"""What single files say."""

from __future__ import annotations

import pytest
from codemap.source import HERE, UNKNOWN, Source

from codemap import python, treesitter


def uses(source: Source) -> set[tuple[str, str, str]]:
    """Owner, what is used (with the module that it is imported from), and how."""
    found = set()
    for owner, target, name, kind, _, _ in source.uses:
        if target == UNKNOWN:
            name = f"?.{name}"
        elif target != HERE:
            each = source.imports[target]
            name = f"{each.module}:{'.'.join(filter(None, (each.name, name)))}"
        found.add((owner, name, kind))
    return found


def test_python() -> None:
    text = b"""import a.b
from .c import d as e, F
class G(F):
    @e
    def h(self, q=e.k):
        self.i(); a.b.j(); q.run(); F.make(); local = 1; local
    async  def i(self): return h(G)
def h(e): return e, e.x
try:
    import late
finally:
    late.go(h)
"""
    source = python.parse(text)
    assert [(each.name, each.kind, each.line, each.col) for each in source.symbols] == [
        ("G", "class", 3, 7),
        ("G.h", "method", 5, 9),
        ("G.i", "method", 7, 16),
        ("h", "function", 8, 5),
    ]
    assert source.symbols[1].is_registered
    assert uses(source) == {
        ("G", ".c:F", "inherits"),
        ("G", ".c:d", "reads"),
        ("G.h", ".c:d", "reads"),
        ("G.h", ".c:d.k", "reads"),
        ("G.h", "G.i", "calls"),
        ("G.h", "a.b:", "reads"),
        ("G.h", "a.b:j", "calls"),
        ("G.h", "?.run", "calls"),
        ("G.h", ".c:F", "reads"),
        ("G.h", ".c:F.make", "calls"),
        ("G.i", "h", "calls"),
        ("G.i", "G", "reads"),
        ("h", "?.x", "reads"),
        ("", "late:", "reads"),
        ("", "late:go", "calls"),
        ("", "h", "reads"),
    }


def test_columns_are_utf16_units() -> None:
    source = python.parse("def f(): pass\nx = '𝄞é'; f()\n".encode())
    assert [(each.line, each.col) for each in source.uses] == [(2, 12)]
    source = treesitter.parse("function f() {}\nconst x = '𝄞é'; f()\n".encode(), "js")
    assert [(each.line, each.col) for each in source.uses] == [(2, 18)]


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_and_byte_order_marks(end: str, mark: str) -> None:
    source = python.parse(f"{mark}class Ä:{end}  def go(self): pass{end}Ä().go(){end}".encode())
    assert [(each.name, each.line, each.col) for each in source.symbols] == [("Ä", 1, 7), ("Ä.go", 2, 7)]
    assert sorted((each.name, each.line, each.col) for each in source.uses) == [("go", 3, 5), ("Ä", 3, 1)]
    source = treesitter.parse(f"{mark}class Ä {{}}{end} new Ä().go(){end}".encode(), "ts")
    assert sorted((each.name, each.line, each.col) for each in source.uses) == [("go", 2, 10), ("Ä", 2, 6)]


def test_typescript() -> None:
    source = treesitter.parse(
        b"""import d, { a as b } from './x'; import * as ns from 'y'; import './effect';
export { q as r } from './z'; export * from './w';
export default function foo(x: T) { return this.x.y(b) + ns.go(d); }
export abstract class A extends ns.B { m() { this.n(); new A(); } n() { a?.b.c(); } }
const { k } = require('./r'); k();
const h = async () => { await import('./dyn'); foo(1); };
interface I extends A {}
export { h as hh };
""",
        "ts",
    )
    symbols = {each.name: (each.kind, each.is_public) for each in source.symbols}
    assert symbols == {
        "foo": ("function", True),
        "A": ("class", True),
        "A.m": ("method", True),
        "A.n": ("method", True),
        "h": ("function", True),
        "I": ("interface", False),
    }
    imports = {(each.module, each.name, each.alias) for each in source.imports}
    assert imports == {
        ("./x", "default", "d"),
        ("./x", "a", "b"),
        ("y", "", "ns"),
        ("./effect", "", "'./effect'"),
        ("./z", "q", "r"),
        ("./w", "*", "*"),
        ("", "foo", "default"),
        ("./r", "k", "k"),
        ("./dyn", "", "'./dyn'"),
        ("", "h", "hh"),
    }
    assert {
        ("foo", "./x:a", "reads"),
        ("foo", "y:go", "calls"),
        ("A", "y:B", "inherits"),
        ("A.m", "A.n", "calls"),
        ("A.m", "A", "calls"),
        ("A.n", "?.c", "calls"),
        ("", "./r:k", "calls"),
        ("h", "foo", "calls"),
        ("I", "A", "inherits"),
    } <= uses(source)


def test_go() -> None:
    source = treesitter.parse(
        b"""package a
import (
  f "fmt"
  "x/y"
)
type S struct{ T }
func (s *S) Run(q y.Z) { s.Go(); f.Println(limit); other(len(q)) }
const limit = 1
""",
        "go",
    )
    assert [(each.name, each.kind, each.is_public) for each in source.symbols] == [
        ("S", "class", True),
        ("S.Run", "method", True),
        ("limit", "variable", False),
    ]
    assert uses(source) >= {
        ("S", "T", "reads"),
        ("S.Run", "x/y:Z", "reads"),
        ("S.Run", "?.Go", "calls"),
        ("S.Run", "fmt:Println", "calls"),
        ("S.Run", "limit", "reads"),
        ("S.Run", "other", "calls"),
    }
    assert not any(name == "len" for _, name, _ in uses(source))


def test_what_cannot_be_parsed() -> None:
    assert python.parse(b"x = (\n").problem == "line 1: '(' was never closed"
    assert "cannot be parsed" in (python.parse(b"\xff\xfe").problem or "")
    assert "null bytes" in (python.parse(b"x = 1\0").problem or "")
    broken = treesitter.parse(b"function ok() {}\n\nfunction {{{\n", "js")
    assert broken.problem == "line 3: the syntax is not valid"
    assert [each.name for each in broken.symbols] == ["ok"]
    assert treesitter.parse(b"func \xff() {}", "go").problem
