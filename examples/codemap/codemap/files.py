"""The source files below a root, without what `.gitignore` leaves out, and what the imports in them lead to."""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from pathspec import GitIgnoreSpec

from . import python, treesitter
from .source import Parser, Source

LARGEST = 2_000_000
_MANIFESTS = ("pyproject.toml", "setup.py", "package.json", "go.mod")
_SCRIPTS = (".ts", ".tsx", ".d.ts", ".js", ".jsx", ".mjs", ".cjs", ".mts", ".cts")


class Language(NamedTuple):
    name: str
    parse: Parser


def _script(lang: str) -> Callable[[bytes], Source]:
    return lambda data: treesitter.parse(data, lang)


LANGUAGES: Mapping[str, Language] = {
    ".py": Language("py", python.parse),
    ".pyi": Language("py", python.parse),
    ".go": Language("go", _script("go")),
    ".tsx": Language("ts", _script("tsx")),
    **{ending: Language("ts", _script("ts")) for ending in (".ts", ".mts", ".cts")},
    **{ending: Language("js", _script("js")) for ending in (".js", ".jsx", ".mjs", ".cjs")},
}


def language_of(path: str) -> Language | None:
    return LANGUAGES.get(posixpath.splitext(path)[1])


class Found(NamedTuple):
    path: str
    size: int
    mtime: int


class Listing(NamedTuple):
    files: list[Found]
    packages: list[str]  # directories with a manifest; "" is the root


def list_files(root: Path) -> Listing:
    """Return the source files below the root, sorted."""
    listing = Listing([], [])
    _walk(str(root), "", [], listing)
    listing.files.sort()
    return listing


def _walk(directory: str, inside: str, rules: list[tuple[str, GitIgnoreSpec]], listing: Listing) -> None:
    try:
        entries = list(os.scandir(directory))
    except OSError:
        return
    names = {entry.name for entry in entries}
    if ".gitignore" in names:
        lines = Path(directory, ".gitignore").read_text(errors="replace").splitlines()
        rules = [*rules, (inside, GitIgnoreSpec.from_lines(lines))]
    if not names.isdisjoint(_MANIFESTS):
        listing.packages.append(inside.rstrip("/"))
    for entry in entries:
        path = inside + entry.name
        if entry.is_symlink() or re.search(r"[\x00-\x1f\x7f\\]", entry.name):
            continue
        if entry.is_dir():
            if entry.name != ".git" and not _is_ignored(path + "/", rules):
                _walk(entry.path, path + "/", rules, listing)
        elif language_of(path) and not _is_ignored(path, rules):
            stat = entry.stat()
            listing.files.append(Found(path, stat.st_size, stat.st_mtime_ns))


def is_ignored(root: Path, path: str) -> bool:
    """Return whether a `.gitignore` anywhere above leaves out a file, or a directory that it is in."""
    rules: list[tuple[str, GitIgnoreSpec]] = []
    parts = path.split("/")
    for depth, part in enumerate(parts):
        inside = "".join(f"{each}/" for each in parts[:depth])
        file = root / inside / ".gitignore"
        if file.is_file():
            lines = file.read_text(errors="replace").splitlines()
            rules.append((inside, GitIgnoreSpec.from_lines(lines)))
        if part == ".git" or _is_ignored(inside + part + ("/" if depth < len(parts) - 1 else ""), rules):
            return True
    return False


def _is_ignored(path: str, rules: list[tuple[str, GitIgnoreSpec]]) -> bool:
    """Return what the innermost `.gitignore` with a matching line says."""
    for inside, spec in reversed(rules):
        ignored = spec.check_file(path[len(inside) :]).include
        if ignored is not None:
            return bool(ignored)
    return False


def package_of(path: str, packages: Iterable[str]) -> str:
    """Return the innermost directory with a manifest around a file; "" is the root."""
    around = [each for each in packages if not each or path.startswith(f"{each}/")]
    return max(around, key=len, default="")


def unit_of(path: str) -> str:
    """Return what an import of a file names: the file itself; in Go, its directory."""
    return f"{posixpath.dirname(path)}/" if path.endswith(".go") else path


class Resolver:
    """Which unit an import leads to, given all files of the repository."""

    def __init__(self, root: Path, listing: Listing) -> None:
        self.paths = {found.path for found in listing.files}
        self._modules: dict[str, str] = {}
        self._workspaces: dict[str, str] = {}
        self._go: list[tuple[str, str]] = []
        self._go_units = {unit_of(path) for path in self.paths if path.endswith(".go")}
        for path in sorted(self.paths, reverse=True):
            if path.endswith((".py", ".pyi")):
                for name in self._python_names(path):
                    self._modules[name] = path
        for package in listing.packages:
            self._read_manifest(root, package)

    def find(self, path: str, module: str, name: str) -> tuple[str, str] | None:
        """Return the unit that an import in a file leads to, and the name that is left to look for there."""
        if path.endswith((".py", ".pyi")):
            return self._python(path, module, name)
        if not module:
            return path, name
        unit = self._go_package(module) if path.endswith(".go") else self._script(path, module)
        return (unit, name) if unit else None

    # -- Python -----------------------------------------------------------------------------------------------

    def _python_names(self, path: str) -> Iterator[str]:
        """Yield what a file can be imported as: from the root, and from the folder that its package is in."""
        parts = path.rpartition(".")[0].split("/")
        top = len(parts) - 1
        while top > 0 and "/".join([*parts[:top], "__init__.py"]) in self.paths:
            top -= 1
        if parts[-1] == "__init__":
            parts.pop()
        for start in {0, top, *([1] if parts[0] == "src" else [])}:
            if start < len(parts):
                yield ".".join(parts[start:])

    def _python(self, path: str, module: str, name: str) -> tuple[str, str] | None:
        if module.startswith("."):
            level = len(module) - len(module.lstrip("."))
            above = path.split("/")[:-level]
            base = "/".join([*above, *filter(None, module[level:].split("."))])
            return self._file(f"{base}/{name}" if base else name, "") or self._file(base, name)
        if name and name != "*" and (unit := self._modules.get(f"{module}.{name}")):
            return unit, ""
        unit = self._modules.get(module)
        return (unit, name) if unit else None

    def _file(self, base: str, name: str) -> tuple[str, str] | None:
        ends = (".py", "/__init__.py", ".pyi", "/__init__.pyi")
        places = [f"{base}{end}".lstrip("/") for end in ends]
        return next(((place, name) for place in places if place in self.paths), None)

    # -- TypeScript, JavaScript and Go ------------------------------------------------------------------------

    def _read_manifest(self, root: Path, package: str) -> None:
        folder = root / package
        prefix = f"{package}/" if package else ""
        try:
            described = json.loads((folder / "package.json").read_text())
            self._workspaces[str(described["name"])] = package
        except (OSError, ValueError, LookupError, TypeError):
            pass  # no such manifest, or one without a name
        try:
            module = re.search(r"^module\s+(\S+)", (folder / "go.mod").read_text(), re.MULTILINE)
        except (OSError, ValueError):
            module = None
        if module:
            self._go.append((module[1], prefix))

    def _script(self, path: str, module: str) -> str | None:
        if module.startswith("."):
            return self._module_file(posixpath.normpath(posixpath.join(posixpath.dirname(path), module)))
        parts = module.split("/")
        length = 2 if module.startswith("@") else 1
        package = self._workspaces.get("/".join(parts[:length]))
        if package is None:
            return None
        rest = "/".join(parts[length:])
        for base in filter(None, (rest or "src/index", f"src/{rest}" if rest else "index")):
            if found := self._module_file(posixpath.join(package, base)):
                return found
        return None

    def _module_file(self, base: str) -> str | None:
        # What is written `./a.js` may be compiled from a.ts.
        bare = re.sub(r"\.[cm]?jsx?$", "", base)
        places = [base, *(bare + end for end in _SCRIPTS), *(f"{base}/index{end}" for end in _SCRIPTS)]
        return next((place for place in places if place in self.paths), None)

    def _go_package(self, module: str) -> str | None:
        for name, prefix in self._go:
            if module == name or module.startswith(f"{name}/"):
                unit = posixpath.join(prefix, module[len(name) + 1 :]).rstrip("/") + "/"
                return unit if unit in self._go_units else None
        return None
