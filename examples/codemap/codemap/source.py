"""What one source file says: the symbols it defines, what it imports, and what it uses.

Strategy: a parser for each language finds definitions, imports and uses; `Names` decides, from that one file alone,
what a used name stands for: a symbol of the same file, something imported, or an attribute of a value whose type is
unknown. Names that are none of these are local variables and builtins, and are left out. Which file an import leads
to is for the index to say: it knows all files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

# What a use refers to, if it isn't the number of an import.
HERE = -1
UNKNOWN = -2


class Symbol(NamedTuple):
    """`name` is qualified: `App.run`. Lines and columns are those of the name itself, and count from 1."""

    name: str
    kind: str
    line: int
    col: int
    end_line: int
    is_public: bool = True
    is_registered: bool = False  # a decorator may call it from anywhere


class Import(NamedTuple):
    """`name` of `module` is called `alias` here. Without a name it is the module itself; `*` is all names.

    The module "" is this file itself: `export { run as start }`.
    """

    module: str
    name: str
    alias: str
    line: int
    col: int


class Use(NamedTuple):
    """`name` is used inside of `owner`, a symbol of this file, or "" if outside of all."""

    owner: str
    target: int  # an import's number, HERE or UNKNOWN
    name: str
    kind: str  # calls, inherits or reads
    line: int
    col: int


class Source(NamedTuple):
    symbols: Sequence[Symbol] = ()
    imports: Sequence[Import] = ()
    uses: Sequence[Use] = ()
    problem: str | None = None


class Names:
    """What names stand for in one file."""

    def __init__(
        self, symbols: Sequence[Symbol], imports: Sequence[Import], receivers: Sequence[str]
    ) -> None:
        self.symbols = {symbol.name: symbol.kind for symbol in symbols}
        self.imports = {each.alias: number for number, each in enumerate(imports)}
        self.receivers = receivers

    def find(self, chain: str, owner: str) -> tuple[int, str] | None:
        """Return what a dotted name stands for inside of `owner`: a target, and the name there."""
        head, dot, rest = chain.partition(".")
        if head in self.receivers:
            return self._member(rest, owner) if rest else None
        prefix = chain if "." in chain and any("." in alias for alias in self.imports) else head
        while prefix:
            if prefix in self.imports:
                return self.imports[prefix], chain[len(prefix) + 1 :]
            prefix = prefix.rpartition(".")[0]
        scope = owner
        while True:
            known = f"{scope}.{head}" if scope else head
            # The body of a class is no scope for what is inside of its methods.
            if known in self.symbols and self.symbols.get(scope) not in ("class", "interface"):
                break
            if not scope:
                return (UNKNOWN, chain.rpartition(".")[2]) if dot else None
            scope = scope.rpartition(".")[0]
        if not dot:
            return HERE, known
        whole = f"{known}.{rest}"
        return (HERE, whole) if whole in self.symbols else (UNKNOWN, chain.rpartition(".")[2])

    def _member(self, rest: str, owner: str) -> tuple[int, str]:
        """Return what `self.rest` stands for: a member of the class around, or of one that it inherits from."""
        while owner and self.symbols.get(owner) != "class":
            owner = owner.rpartition(".")[0]
        if f"{owner}.{rest}" in self.symbols:
            return HERE, f"{owner}.{rest}"
        return UNKNOWN, rest.rpartition(".")[2]


Parser = Callable[[bytes], Source]
