r"""What may be shown of a text: no traceback, no source code, no absolute path.

Strategy: two passes, each linear in the text. The first goes line by line, removes stack traces and whatever looks
like source, and leaves a short mark. The second finds absolute paths in the rest and shows each relative to the
root, or by its last component alone. When in doubt, the text goes: a message that lost a word is a nuisance, but
one that reveals the layout of somebody's disk is a leak. Every repetition in the expressions is bounded or can
match in only one way, so hostile text costs no more than any other.

What begins with a slash stays if it is a value that the client itself passed (`known`), one segment without a dot
(`/items`, `/health`), or a JSON pointer with an index (`/items/0/name`), unless its first segment is a directory
that file systems have (`/home`, `/tmp`). Other slashes stay: `3/4`, `text/plain`, `src/a.py`, `https://host/a`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Any, Final

LIMIT: Final = 500
# For what an author wrote for the caller.
SAID: Final = 4000
TRACEBACK: Final = "[traceback removed]"
CODE: Final = "[code removed]"
PATH: Final = "[path]"

# Longer texts are read up to here: the rest could not be shown anyway.
_READ: Final = 65_536
_KNOWN: Final = 64
_NODES: Final = 10_000
_DEPTH: Final = 32
_PUNCTUATION: Final = ".,;:!?)]}"
_NEVER: Final = frozenset({"snippet", "stack", "stacktrace", "stack_trace", "traceback"})
_ROOT_NAMES: Final = (
    "app applications apps bin boot build builds c code cygdrive d dev etc export home host lib lib64 library"
    " media mnt mount network nix opt private proc program project projects repo repos root run sbin sdcard"
    " snap src srv storage sys system tmp users usr vagrant var volumes windows work workspace workspaces"
)
_ROOTS: Final = frozenset(_ROOT_NAMES.split())

# Terminal colours, control characters, and marks that change the direction of text.
_UNSEEN = (
    r"\x1b\[[0-9;?]{0,32}[A-Za-z]|[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]"
    r"|[\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]"
)
_REST_IS_TRACE = r"Traceback \(most recent call last\)|\bstack backtrace:|\bgoroutine \d{1,9} \["
_FRAME = (
    r'File "[^"]{1,1000}", line \d'
    r"|\bat (?:async )?[\w.$<>\[\] ]{1,80}\([^()]{1,400}:\d{1,7}(?::\d{1,7})?\)"
    r"|\bat [\w.$<>]{1,200}\([^()]{0,300}\) in |(?<!\S)#\d{1,4}\s\S{1,300}\(\d{1,7}\):|:\d{1,7}:in [`']"
    r"|^\s*at\s.*(?::\d+\)?|\((?:Native Method|Unknown Source|native|<anonymous>)\))\s*$"
    r"|^\s{2,}at\s|^\s*\.\.\. \d{1,9} (?:more|common)|^\s*Caused by:|^\s*#\d{1,4}\s.*(?:\(\d+\)|:\d+|\{main\})"
)
_EXCERPT = r"\s*(?:>\s*)?\d+\s*[|→]|\s*\|\s*[\^~]|\s*-->\s|>>> "
_BULLET = r"\s*(?:[-*+•]|\d{1,4}[.)])\s"
_STATEMENT = (
    r"import\s+[\w.]+(?:\s+as\s+\w+)?\s*;?$"
    r"|(?:if|elif|for|while|with|try|else|except|finally|match|case)\b.*:$"
    r"|@[\w.]+(?:\(.*\))?$|raise\s+\w+(?:\(|$)|assert\s.*(?:[=!]=|\bis\b|\bin\b)|[A-Za-z_][\w.]*\(.*\)[;,]?$"
    r"|[A-Za-z_][\w.\[\]'\"]*(?::\s(?:str|int|float|bool|bytes|list|dict|set|tuple|Any)\b[^=]{0,80})?"
    r"\s[-+*/|&%@]?=\s\S|.*[;{]$|[})\]]+[;,]?$"
)
_INLINE = (
    r"(?<![\w.])(?:(?:async\s+)?def\s+\w+\s*[(\[]|class\s+\w+\s*(?:\([^)]{0,200}\))?\s*[:{](?=\s|$)"
    r"|class\s+\w+\s+(?:extends|implements)\b|function\s*\*?\s*\w*\s*\([^)]{0,200}\)\s*\{"
    r"|(?:const|let|var)\s+\w+\s*[:=]|(?:public|private|protected|static)\s+[\w<>\[\]]+\s+\w+\s*[(=;{]"
    r"|fn\s+\w+\s*[(<]|func\s+\w+\s*\(|func\s+\([^)]{0,80}\)\s*\w+\s*\(|from\s+[\w.]+\s+import\s"
    r"|for\s+\w+\s+in\s[^:]{1,80}:\s*$|(?:if|elif|while)\s[^:]{1,80}(?:[=!<>]=|[<>)])[^:]{0,80}:\s*$"
    r"|lambda\b[^:]{0,80}:\s|if\s+__name__\b|[A-Za-z_][\w.]*\s=\s[^=]{0,200}[(\[{\"'+*])"
    r"|#include\s*[<\"]|\)\s*->\s*[\w\[\]., ]{1,80}:|\)\s*(?:=>\s*)?\{"
)

# One character of an unquoted path. A colon before a line number or another path ends it.
_CHAR = r"(?:[^\s\"'`<>|:]|:(?![/\d\s]|$)|(?<=\w)'(?=\w))"
# Directories with spaces: words followed by another separator belong to the path before them.
_WORD = r"[ ][^\s/\\\"'`<>|:,;=~()\[\]{}]{1,40}"
_MORE = rf"(?P<more_%s>(?:(?<![,;:.!?)\]}}])(?:{_WORD}){{1,3}}[/\\]{_CHAR}{{0,256}}){{0,4}})"
_ABSOLUTE = r"(?:file:|~[\w.-]{0,64}[/\\]|[A-Za-z]:[\\/]|\\\\|\\?/)"
_PATHS = (
    r"(?P<url>(?<![A-Za-z0-9+.\-])[A-Za-z][A-Za-z0-9+.\-]{1,30}://[^\s\"'`<>]*)"
    rf"|(?P<quote>[\"'`])(?P<inner>(?={_ABSOLUTE})[^\n]{{1,512}}?)(?P=quote)(?![A-Za-z0-9])"
    rf"|(?P<home>(?<![\w~/\\.])~[\w.-]{{0,64}}[/\\]{_CHAR}*){_MORE % 'home'}"
    rf"|(?P<drive>(?<![A-Za-z0-9])[A-Za-z]:[\\/]+{_CHAR}*){_MORE % 'drive'}"
    r"|(?P<share>(?<![A-Za-z0-9\\])\\\\+(?:[?.]|[A-Za-z0-9][\w.$-]+)[\\/]+(?:[A-Za-z]:)?"
    rf"{_CHAR}*){_MORE % 'share'}"
    r"|(?P<rooted>(?<![\w\\])\\{1,2}(?:Users|Windows|ProgramData|Program Files(?: \(x86\))?|home|tmp)[\\/]+"
    rf"{_CHAR}*){_MORE % 'rooted'}"
    rf"|(?P<posix>(?:(?<![A-Za-z0-9_.~\\/}}*%])|(?<=-[ILFBD]))\\?/{_CHAR}*){_MORE % 'posix'}"
)
_compiled = cache(re.compile)


def scrub(
    text: str, root: str | None = None, limit: int = LIMIT, known: Collection[str] = (), paths: bool = True
) -> str:
    """Return the text as it may be shown, in at most `limit` characters.

    `known` are values that the client itself passed: a path among them may be repeated to it. With `paths`
    false, all of them stay.
    """
    text = text[: max(_READ, 2 * limit)].replace("\r\n", "\n")
    # A lone surrogate could not be encoded.
    text = _compiled(_UNSEEN).sub("", text).encode("utf-8", "replace").decode()
    lines = _without_traces("\n".join(text.splitlines()).replace("\t", "    ").split("\n"))
    if paths:
        lines = [_without_paths(line.rstrip(), _pattern(known), root, known) for line in lines]
    shown = "\n".join(lines)
    shown = _compiled(r"\n{3,}").sub("\n\n", shown).strip()
    return shown if len(shown) <= limit else f"{shown[: max(limit - 1, 0)]}…"[:limit]


def scrub_line(text: str, root: str | None = None, limit: int = LIMIT, known: Collection[str] = ()) -> str:
    """Return only the first line, "" if nothing can be shown. Exceptions put excerpts into the lines after it."""
    line = scrub(text, root, 2 * limit + _READ, known).partition("\n")[0]
    line = line if len(line) <= limit else f"{line[: limit - 1]}…"
    return "" if not line.replace(TRACEBACK, "").replace(CODE, "").strip(" :-") else line


def show_path(path: str, root: str | None = None, known: Collection[str] = ()) -> str:
    """Return a path as it may be shown; "" for what cannot be a path, such as a whole source text."""
    if path in known and path.isprintable():
        return path
    shown = _short(path, root) if _compiled(_ABSOLUTE).match(path) else path
    return shown if shown.isprintable() and len(shown) <= 255 else ""


def scrub_details(
    value: Any, root: str | None = None, limit: int = 4 * LIMIT, known: Collection[str] = ()
) -> Any:
    """Return a JSON-like value as it may be shown. Others are named by their type: a `repr` could hold anything."""
    left = iter(range(_NODES))

    def visit(value: Any, depth: int) -> Any:
        if next(left, None) is None or depth > _DEPTH:
            return "[left out]"
        if isinstance(value, str):
            return scrub(value, root, limit, known)
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, Mapping):
            return dict(members(value, depth))
        if isinstance(value, list | tuple | set | frozenset):
            return [visit(item, depth + 1) for item in islice(value, _NODES)]
        if isinstance(value, bytes | bytearray | memoryview):
            return f"[{len(value)} bytes]"
        if hasattr(value, "__fspath__"):
            return scrub(str(value), root, limit, known)
        return f"[{type(value).__name__}]"

    def members(value: Mapping[Any, Any], depth: int) -> Iterator[tuple[str, Any]]:
        for key in islice(value, _NODES):
            name = scrub(key, root, LIMIT, known) if isinstance(key, str) else visit(key, _DEPTH)
            if isinstance(key, str) and key.lower() in _NEVER:
                yield name, CODE if key.lower() == "snippet" else TRACEBACK
            else:
                yield str(name), visit(value[key], depth + 1)

    return visit(value, 0)


def given(arguments: Any) -> frozenset[str]:
    """Return the strings in a call's arguments, for `known`."""
    found: set[str] = set()
    waiting = [arguments]
    budget = _NODES
    while waiting and budget:
        budget -= 1
        value = waiting.pop()
        if isinstance(value, str):
            found.add(value)
        elif isinstance(value, Mapping):
            waiting.extend(value.values())
        elif isinstance(value, list | tuple):
            waiting.extend(value)
    return frozenset(found)


# Stack traces and source


def _without_traces(lines: list[str]) -> list[str]:
    kept: list[str] = []

    def drop(mark: str, before: str = "") -> None:
        # A run of removed lines gets one mark.
        if before.strip() or not kept or not kept[-1].endswith((TRACEBACK, CODE)):
            kept.append(f"{before.rstrip()} {mark}".lstrip())

    fenced = in_frame = False
    for line in lines:
        if trace := _compiled(_REST_IS_TRACE).search(line):
            # There is no telling where a traceback ends: the message at its end may have any number of lines.
            drop(TRACEBACK, _without_code(line[: trace.start()]))
            break
        bare = line.strip()
        if bare.startswith(("```", "~~~")):
            fenced = not fenced
            drop(CODE)
        elif fenced:
            continue
        elif frame := _compiled(_FRAME).search(line):
            in_frame = True
            before = "" if frame.group().startswith(":") else line[: frame.start()]
            drop(TRACEBACK, _without_code(before))
        elif in_frame and (not bare or line[0] == " "):
            continue
        elif _compiled(r"[|\s]*[\^~]+(?:\s|$)").match(line):
            # A caret points at the line above it.
            if kept and not kept[-1].endswith((TRACEBACK, CODE)):
                kept.pop()
            drop(CODE)
        elif _is_block(line, bare):
            drop(CODE)
        elif code := _compiled(_INLINE).search(line):
            drop(CODE, line[: code.start()])
        elif _compiled(_STATEMENT).match(bare):
            drop(CODE)
        else:
            in_frame = False
            kept.append(line)
    return kept


def _is_block(line: str, bare: str) -> bool:
    # As in Markdown, four columns of indentation make a code block.
    if line.startswith("    ") and bare and not _compiled(_BULLET).match(line):
        return True
    return bool(_compiled(_EXCERPT).match(line))


def _without_code(line: str) -> str:
    code = _compiled(_INLINE).search(line)
    return f"{line[: code.start()].rstrip()} {CODE}".lstrip() if code else line


# Paths


def _pattern(known: Collection[str]) -> re.Pattern[str]:
    echoes = [value for value in known if 1 < len(value) <= 1024 and _compiled(_ABSOLUTE).match(value)]
    if not echoes:
        return _compiled(_PATHS)
    # Longest first: a path must not be mistaken for a prefix of it.
    longest = sorted(echoes, key=len, reverse=True)[:_KNOWN]
    words = "|".join(re.escape(value) for value in longest)
    return re.compile(rf"(?P<known>(?<![\w/\\.])(?:{words})(?![\w/\\-]|\.\w))|{_PATHS}")


def _without_paths(line: str, pattern: re.Pattern[str], root: str | None, known: Collection[str]) -> str:
    shown: list[str] = []
    at = 0
    while found := pattern.search(line, at):
        shown.append(line[at : found.start()])
        text, at = _replace(found, root, known)
        shown.append(text)
    shown.append(line[at:])
    return "".join(shown)


def _replace(found: re.Match[str], root: str | None, known: Collection[str]) -> tuple[str, int]:
    """Return what is shown instead of a match, and where to continue."""
    groups = found.groupdict()
    if groups.get("known"):
        return found.group(), found.end()
    if groups["url"]:
        return _url(groups["url"], root), found.end()
    if groups["quote"]:
        inner = groups["inner"]
        # In JSON inside a string, the closing quote has a backslash, which isn't part of the path.
        tail = "\\" if inner.endswith("\\") and not inner.endswith("\\\\") else ""
        inner = inner.removesuffix("\\")
        shown = inner if inner in known or _stays(inner) else _short(inner, root)
        return f"{groups['quote']}{shown}{tail}{groups['quote']}", found.end()
    kind = next(name for name in ("home", "drive", "share", "rooted", "posix") if groups[name])
    head, more = groups[kind], groups[f"more_{kind}"]
    if kind == "posix" and _stays(head.rstrip(_PUNCTUATION)):
        # "/my docs/plan.txt" is a path with a space in it; "/items of the file a/b" is not.
        if len(more.partition("/")[0].split()) != 1:
            return head, found.end(kind)
    path = head + more
    bare = path.rstrip(_PUNCTUATION)
    return _short(bare, root) + path[len(bare) :], found.end()


def _stays(path: str) -> bool:
    parts = [part for part in re.split(r"[\\/]+", path) if part]
    if path[:1] != "/":
        return False
    if not any(character.isalnum() for character in path):
        return True
    if parts[0].lower() in _ROOTS or (path[:2] == "//" and len(parts) > 1):
        return False
    if _compiled(r"/[^/]*[\^$*+?\[(|\\].*/[gimsuy]{0,6}").fullmatch(path):
        return True  # a regular expression between slashes
    if len(parts) == 1:
        return "." not in path
    if not all(_compiled(r"[\w$@~%-]+").fullmatch(part) for part in parts):
        return False
    return any(_compiled(r"0|[1-9][0-9]{0,5}").fullmatch(part) for part in parts)


def _url(url: str, root: str | None) -> str:
    scheme, _, rest = url.partition("://")
    if scheme.lower().endswith("file"):
        bare = rest.rstrip(_PUNCTUATION)
        return _short(bare, root) + rest[len(bare) :]
    if scheme.lower() not in ("http", "https", "ws", "wss"):
        # Some schemes hold a path: sqlite:///home/…, vscode://file/home/…
        names = [part.lower() for part in rest.split("/")[:2]]
        return f"{scheme}://{_short(rest, root)}" if {"", "file", *_ROOTS} & set(names) else url
    cut = _compiled(r"[?#]").search(url)
    if cut and _compiled(r"(?i)/|\\|%2f|%5c").search(url, cut.start()):
        return f"{url[: cut.end()]}…"
    return url


def _short(path: str, root: str | None) -> str:
    parts = _parts(path)
    base = _parts(root) if root else []
    # A root without parts is the whole disk: everything would be inside it.
    if base:
        above = parts[: len(base)]
        is_windows = base[0].endswith(":") or "\\" in (root or "")
        if above == base or (is_windows and [*map(str.lower, above)] == [*map(str.lower, base)]):
            return "/".join(parts[len(base) :]) or "."
    last = parts[-1] if parts else ""
    return last if last and not last.endswith(":") and last != "~" else PATH


def _parts(path: str) -> list[str]:
    if path[:5].lower() == "file:":
        path = path[5:]
    parts: list[str] = []
    for part in re.split(r"[\\/]+", path):
        if part == "..":
            del parts[-1:]
        elif part not in ("", ".", "?"):
            parts.append(part)
    return parts
