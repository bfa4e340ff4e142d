"""Links out of docs/ lead to the repository on the documentation site. mkdocs.yml names this file."""

from __future__ import annotations

from typing import Any


def on_page_markdown(markdown: str, *, config: Any, **_: Any) -> str:
    return markdown.replace("](../", f"]({config.repo_url}/blob/main/")
