"""A small monorepo in four languages, and a codemap server on it with a real client."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
from codemap.index import Built, Index
from codemap.server import Options, create_server
from fastmcp import Client

DIALECTS = ("native", "ctxo", "transcend", "gel", "scalpel")
FILES = {
    ".gitignore": "build/\n*.gen.py\n",
    "pyproject.toml": "[project]\nname = 'shop'\n",
    "shop/__init__.py": "from .core import Basket, total\n",
    "shop/core.py": '''"""Baskets."""

RATE = 1.19


class Basket:
    def __init__(self, items):
        self.items = items

    def price(self):
        return sum(each.cost() for each in self.items)

    def grö𐐷e(self): return self.price()


def total(basket):
    return basket.price() * RATE


def forgotten():
    return total(Basket([]))
''',
    "shop/web.py": """import shop.core as core
from shop import total
from . import helpers


def handle(basket):
    helpers.log(basket)
    return render(total(basket))


def render(amount):
    return f"{core.RATE} {amount}"
""",
    "shop/helpers.py": "def log(what):\n    print(what)\n",
    "shop/orphan.py": "class Lonely:\n    pass\n",
    "shop/app.py": "from shop.web import handle\n\nif __name__ == '__main__':\n    handle(None)\n",
    "broken.py": "def oops(:\n",
    "build/out.py": "def ignored(): pass\n",
    "made.gen.py": "def ignored(): pass\n",
    "packages/ui/package.json": '{"name": "@shop/ui"}',
    "packages/ui/src/index.ts": """export { Button as default, label } from './button';
export * from './theme';
""",
    "packages/ui/src/button.ts": """import { colour } from './theme';

export class Button {
  paint() { return colour(label('x')); }
}
export const label = (text: string) => text + colour('red');
""",
    "packages/ui/src/theme.ts": "export function colour(name: string) { return name; }\nfunction unused() {}\n",
    "packages/app/package.json": '{"name": "@shop/app"}',
    "packages/app/src/main.js": """import Button, { colour } from '@shop/ui';
new Button().paint(); colour('blue');
""",
    "services/api/go.mod": "module example.com/api\n",
    "services/api/main.go": """package main

import "example.com/api/store"

func main() { serve(store.Open("x")) }
""",
    "services/api/serve.go": "package main\n\nfunc serve(s any) { s.Close() }\n",
    "services/api/store/store.go": """package store

type Store struct{}

func Open(name string) *Store { return &Store{} }

func (s *Store) Close() {}
""",
}


def write(root: Path, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")


def fake(*how: str) -> str:
    """The command of the language server next to this file."""
    return shlex.join([sys.executable, str(Path(__file__).with_name("language_server.py")), *how])


class Project:
    """The monorepo, its map, and calls to a server on it."""

    def __init__(self, folder: Path, *, built: bool = True) -> None:
        self.root = folder / "shop-repo"
        self.database = folder / "map.db"
        write(self.root, FILES)
        self.index = Index(self.root, self.database)
        self.built = self.index.build() if built else Built(0, 0, 0, 0)

    def options(self, **options: Any) -> Options:
        language_server = options.pop("language_server", None)
        servers = {"py": language_server} if language_server else {}
        return Options(self.root, self.database, servers, **{"build": False, "vault": "none", **options})

    def calls(self, *calls: tuple[str, dict[str, Any]], **options: Any) -> list[Any]:
        """Make calls, one after the other, in one session."""

        async def main() -> list[Any]:
            async with Client(create_server(self.options(**options))) as client:
                return [await client.call_tool_mcp(name, arguments) for name, arguments in calls]

        return anyio.run(main)

    def call(self, name: str, arguments: dict[str, Any] | None = None, **options: Any) -> Any:
        """Make a call in `transcend`, which shows all that is said; return the envelope."""
        (result,) = self.calls((name, arguments or {}), **{"dialect": "transcend", **options})
        return result.structured_content

    def data(self, name: str, arguments: dict[str, Any] | None = None, **options: Any) -> Any:
        envelope = self.call(name, arguments, **options)
        assert envelope["ok"], envelope
        return envelope["data"]

    def code(self, name: str, arguments: dict[str, Any] | None = None, **options: Any) -> str:
        envelope = self.call(name, arguments, **options)
        assert not envelope["ok"], envelope
        assert envelope["error"]["hint"], envelope
        return str(envelope["error"].get("reason") or envelope["error"]["code"])


def shown(result: Any) -> Any:
    """What a result says, whichever lane its dialect uses."""
    return result.structured_content or json.loads(result.content[0].text)
