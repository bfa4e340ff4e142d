"""Makes the pictures of docs/ui.md from real calls: `python -m tests.ui.screenshots`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Literal

from playwright.sync_api import sync_playwright

from .page_server import CALLS, CHROMIUM, FLAGS, make_calls, page, wait_for_calls

DOCS = Path(__file__).resolve().parents[2] / "docs"
SCHEMES: tuple[Literal["light"], Literal["dark"]] = ("light", "dark")


def main() -> None:
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        make_calls(folder, *CALLS[:3])
        wait_for_calls(folder, 3)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        with page(folder) as url:
            for scheme in SCHEMES:
                tab = browser.new_page(viewport={"width": 1200, "height": 640}, color_scheme=scheme)
                tab.goto(url)
                tab.locator("#call-table tbody tr", has_text="list_tickets").click()
                tab.locator('#tree [data-path="/tickets/99"]').wait_for()
                tab.screenshot(path=DOCS / f"ui-{scheme}.png")
        browser.close()


if __name__ == "__main__":
    main()
