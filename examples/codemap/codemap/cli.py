"""`codemap --root PATH` serves over stdio, `--listen HOST:PORT` over HTTP; `codemap index` only builds the map."""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from .access import TIERS
from .index import Index

DIALECTS = ("native", "ctxo", "transcend", "gel", "scalpel")
LANGUAGE_SERVERS = {"py": "basedpyright-langserver --stdio"}


def main(argv: Sequence[str] | None = None) -> None:
    arguments = _parser().parse_args(argv)
    root = arguments.root.resolve()
    if not root.is_dir():
        sys.exit(f"codemap: {arguments.root} is not a directory")
    database = arguments.db or _default_database(root)
    if arguments.command == "index":
        _index(Index(root, database), full=arguments.full)
        return
    from .server import Options, create_server

    servers = dict(LANGUAGE_SERVERS)
    for setting in arguments.language_server:
        lang, equals, command = setting.partition("=")
        if not equals:
            sys.exit(f"codemap: --language-server is LANG=COMMAND, such as go=gopls; got {setting}")
        servers[lang] = command
    mcp = create_server(
        Options(
            root=root,
            database=database,
            language_servers={lang: command for lang, command in servers.items() if command},
            dialect=arguments.dialect,
            tier=arguments.tier,
            calls_per_minute=arguments.calls_per_minute,
            build=not arguments.no_build,
            deadline=arguments.deadline,
        )
    )
    if arguments.listen:
        host, _, port = arguments.listen.rpartition(":")
        if not port.isdigit():
            sys.exit(f"codemap: --listen is HOST:PORT, such as 127.0.0.1:8910; got {arguments.listen}")
        mcp.run("http", host=host or "127.0.0.1", port=int(port), show_banner=False)
    else:
        mcp.run(show_banner=False)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("codemap", description="A map of a repository, as an MCP server.")
    parser.add_argument("command", nargs="?", choices=["serve", "index"], default="serve")
    parser.add_argument("--root", type=Path, default=Path(), help="the repository; default: this directory")
    parser.add_argument("--db", type=Path, help="where the map is kept; default: in the user's cache")
    parser.add_argument("--full", action="store_true", help="index: read every file again")
    parser.add_argument("--listen", metavar="HOST:PORT", help="serve HTTP instead of stdio")
    parser.add_argument("--dialect", choices=DIALECTS, help="the shape of results")
    parser.add_argument(
        "--language-server",
        action="append",
        default=[],
        metavar="LANG=COMMAND",
        help="for py, ts, js or go; without a command, none is used (default: py=basedpyright-langserver --stdio)",
    )
    parser.add_argument(
        "--deadline", type=float, metavar="SECONDS", help="for its answers; default: 15, slow ones 30"
    )
    parser.add_argument("--tier", choices=TIERS, default=TIERS[-1])
    parser.add_argument("--calls-per-minute", type=int, metavar="N", help="refuse more; default: no limit")
    parser.add_argument("--no-build", action="store_true", help="build no map until map_rebuild is called")
    return parser


def _default_database(root: Path) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "codemap" / f"{hashlib.blake2b(bytes(root), digest_size=8).hexdigest()}.db"


def _index(index: Index, *, full: bool) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    console = Console(stderr=True)
    with Progress(
        "Indexing", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=console
    ) as bar:
        task = bar.add_task("", total=None)
        built = index.build(
            full=full, progress=lambda done, total: bar.update(task, completed=done, total=total)
        )
        bar.update(task, completed=1, total=1, visible=built.indexed > 0)
    with index.open() as connection:
        for path, problem in connection.execute("SELECT path, problem FROM files WHERE problem IS NOT NULL"):
            print(f"warning: {path}: {problem}", file=sys.stderr)
    print(
        f"{built.indexed:,} files indexed, {built.unchanged:,} unchanged, {built.deleted:,} deleted,"
        f" in {built.seconds} s"
    )
