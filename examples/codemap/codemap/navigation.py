"""Live navigation: a language server answers from the files as they are now; without one, the map does.

Strategy: a place is given as a node or as file, line and column. The file is read, and the node's name looked for
in what it says now, so positions are right even if the map is old. What the language server can't answer, the map
answers approximately, with a warning; where the map has nothing to say, the call fails with the server's problem.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from mcp_envelope import Failure, fallback, warn
from mcp_envelope.anchors import Anchor, LineIndex, NodeId, relative_path

from .files import is_ignored, language_of
from .lsp import GivenUp, LanguageServer, Refused, TimedOut, Unavailable, Unsupported
from .repository import Repository

DEADLINE = 15.0
SLOW_DEADLINE = 30.0  # for what makes a server look at many files
_SLOW = ("textDocument/references", "callHierarchy/incomingCalls", "callHierarchy/outgoingCalls")
_INSTALL = {
    "py": "pip install basedpyright",
    "ts": "npm install -g typescript-language-server typescript",
    "js": "npm install -g typescript-language-server typescript",
    "go": "go install golang.org/x/tools/gopls@latest",
}
_KINDS = {
    2: "module",
    5: "class",
    6: "method",
    8: "field",
    9: "method",
    10: "enum",
    11: "interface",
    12: "function",
}


class Spot(NamedTuple):
    """A place in a file as it is now. `name` is that of the symbol asked for, if one was."""

    path: str
    text: str
    line: int
    col: int
    name: str | None = None
    end_line: int | None = None

    @property
    def lang(self) -> str:
        language = language_of(self.path)
        assert language is not None  # others are not read
        return language.name

    @property
    def anchor(self) -> Anchor:
        return Anchor(self.path, self.line, self.col)


class Navigator:
    def __init__(
        self, repository: Repository, servers: Mapping[str, LanguageServer], *, deadline: float | None = None
    ) -> None:
        self.servers = servers
        self._repository = repository
        self._deadline = deadline  # for every request, instead of the two above

    def locate(self, node: NodeId | None, file: str | None, line: int | None, col: int | None) -> Spot:
        """Return the place that a call names."""
        if node is not None and file is None and line is None and col is None:
            path, text = self._repository.read(node.path)
            if node.qualified_name is None:
                return Spot(path, text, 1, 1)
            return self._symbol(path, text, node.qualified_name)
        if node is None and file is not None and line is not None:
            path, text = self._repository.read(file)
            LineIndex(text).offset(line, col or 1)  # fails if there is no such place
            return Spot(path, text, line, col or 1)
        raise Failure(
            "BAD_ARGS",
            "A place is either a node, or a file with a line and a column.",
            'Pass {"node": "py:src/app.py#run"} or {"file": "src/app.py", "line": 3, "col": 5}.',
        )

    def _symbol(self, path: str, text: str, name: str) -> Spot:
        language = language_of(path)
        assert language is not None  # it could be read
        symbols = language.parse(text.encode()).symbols
        for symbol in symbols:
            if symbol.name == name:
                return Spot(path, text, symbol.line, symbol.col, name, symbol.end_line)
        names = [symbol.name for symbol in symbols]
        raise Failure(
            "SYMBOL_NOT_FOUND",
            f"{path} has no symbol {name} now.",
            "Use one of the names in sameFile, or search for it with map_search.",
            sameFile=list(dict.fromkeys([*difflib.get_close_matches(name, names, 5, 0.4), *names]))[:10],
        )

    async def ask(self, spot: Spot, method: str, needs: str, params: Mapping[str, Any] | None = None) -> Any:
        """Ask the language server about a place. A problem is raised as a Failure."""
        lang = spot.lang
        server = self.servers.get(lang)
        install = f"Install one: {_INSTALL[lang]}, and start codemap with --language-server {lang}=COMMAND."
        if server is None:
            raise Failure(
                "LSP_UNAVAILABLE",
                f"No language server is set up for {lang}.",
                f"{install} The map tools work without it.",
                language=lang,
            )
        position = {"position": {"line": spot.line - 1, "character": spot.col - 1}}
        deadline = self._deadline or (SLOW_DEADLINE if method in _SLOW else DEADLINE)
        command = server.command[0].rpartition("/")[2]
        try:
            return await server.ask(
                method,
                {**position, **(params or {})},
                needs=needs,
                path=spot.path,
                text=spot.text,
                deadline=deadline,
            )
        except Unavailable:
            message, hint = f"{command} is not installed.", f"{install} The map tools work without it."
            raise Failure("LSP_UNAVAILABLE", message, hint, language=lang) from None
        except GivenUp:
            message, hint = (
                f"{command} crashed {server.crashes} times and is not started again.",
                ("map_status shows the end of its error output. The map tools work without it."),
            )
            raise Failure("LSP_FAILED", message, hint, language=lang) from None
        except TimedOut:
            message, hint = (
                f"{command} did not answer within {deadline:g} s.",
                ("Try once more: a large project takes a while to load. The map tools work meanwhile."),
            )
            raise Failure("LSP_TIMEOUT", message, hint, language=lang) from None
        except Unsupported:
            raise Failure("NOT_IMPLEMENTED", f"{command} does not answer {method}.", language=lang) from None
        except Refused as error:
            raise Failure("TOOL_FAILED", f"{command} refused: {error}", language=lang) from None

    async def try_to(
        self, what: str, spot: Spot, method: str, needs: str, params: Mapping[str, Any] | None = None
    ) -> tuple[Any, bool]:
        """Ask the language server; return its answer, and whether there is one. If not, the map has to answer."""
        try:
            return await self.ask(spot, method, needs, params), True
        except Failure as failure:
            if not self._repository.index.is_built:
                raise
            fallback(what, "fallback-map", f"{failure.problem.message} {failure.problem.hint}")
            return None, False

    # -- answers ----------------------------------------------------------------------------------------------

    def anchors(self, server_lang: str, found: Any) -> list[Anchor]:
        """Return the locations in the repository; others are counted in a warning."""
        server = self.servers[server_lang]
        inside, outside = [], []
        for each in found if isinstance(found, list) else [found] if found else []:
            uri = each.get("targetUri") or each["uri"]
            place = each.get("targetSelectionRange") or each["range"]
            path = server.path(uri)
            if (relative := self._inside(path)) is not None:
                inside.append(self.anchor(relative, place))
            else:
                outside.append(path.name)
        if outside:
            names = ", ".join(dict.fromkeys(outside[:5]))
            warn(f"{len(outside)} more outside of the repository: {names}.")
        return inside

    def files(self, server_lang: str, found: Any) -> set[str]:
        """Return the files in the repository that locations are in."""
        paths = {each["uri"]: self.servers[server_lang].path(each["uri"]) for each in found or []}
        return {inside for path in paths.values() if (inside := self._inside(path)) is not None}

    def anchor(self, path: str, place: Mapping[str, Any], whole: Mapping[str, Any] | None = None) -> Anchor:
        start, end = place["start"], (whole or place)["end"]
        return Anchor(path, start["line"] + 1, start["character"] + 1, max(end["line"], start["line"]) + 1)

    def outline(self, spot: Spot, symbols: list[Any], above: str = "") -> list[tuple[NodeId, str, Anchor]]:
        """Return the symbols of a file that make up its outline, with those inside of them."""
        found = []
        for each in symbols:
            if each["kind"] not in _KINDS:
                continue
            name = f"{above}.{each['name']}" if above else each["name"]
            anchor = self.anchor(spot.path, each["selectionRange"], each["range"])
            found.append((NodeId(spot.lang, spot.path, name), _KINDS[each["kind"]], anchor))
            found += self.outline(spot, each.get("children") or [], name)
        return found

    def called(self, spot: Spot, item: Mapping[str, Any]) -> tuple[NodeId, str, Anchor] | None:
        """Return the node that an entry of a call hierarchy stands for, if it is in the repository."""
        path = self._inside(self.servers[spot.lang].path(item["uri"]))
        if path is None or language_of(path) is None:
            return None
        anchor = self.anchor(path, item["selectionRange"], item["range"])
        # The server says `run`; the whole name, `App.run`, is in the file.
        language = language_of(path)
        assert language is not None
        symbols = language.parse((self._repository.root / path).read_bytes()).symbols
        found = next((each for each in symbols if each.line == anchor.line), None)
        kind = _KINDS.get(item["kind"], "function")
        return NodeId(language.name, path, found.name if found else item["name"]), kind, anchor

    def _inside(self, path: Path) -> str | None:
        """Return the path from the root, unless it is outside, or left out by .gitignore."""
        try:
            relative = relative_path(path.resolve(), self._repository.root)
        except ValueError:
            return None
        return None if is_ignored(self._repository.root, relative) else relative
