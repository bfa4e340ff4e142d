"""The page in a real browser: what is shown, by mouse and by keyboard, and that a payload stays text."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from mcp_envelope.payload import new_handle, read_payload
from mcp_envelope.vault.ledger import Ledger, LedgerEntry, digest
from mcp_envelope.vault.vault import open_vault

from ..servers.node.install import installed
from .page_server import CALLS, CHROMIUM, FLAGS, MARKUP, make_calls, page, wait_for_calls

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        CHROMIUM is None, reason="no Chromium is installed (Debian: apt-get install chromium)"
    ),
]
WAIT = 30_000
HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    make_calls(folder, *CALLS)
    wait_for_calls(folder, len(CALLS))
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    with page(folder) as address:
        yield address


@pytest.fixture
def shown(url: str, browser: Browser) -> Iterator[Page]:
    """The page, which must not fail anywhere while it is used, or load anything from elsewhere."""
    tab = browser.new_page(viewport={"width": 1280, "height": 820})
    tab.set_default_timeout(WAIT)
    wrong: list[str] = []
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    tab.on("request", lambda request: None if request.url.startswith(url) else wrong.append(request.url))
    tab.goto(url)
    expect(tab.locator("#call-table tbody tr", has_text="list_tickets")).to_be_visible(timeout=WAIT)
    yield tab
    tab.close()
    assert [each for each in wrong if not each.startswith("data:")] == []


def opened(tab: Page, tool: str) -> None:
    tab.locator("#call-table tbody tr", has_text=tool).click()
    expect(tab.locator("#detail-title")).to_have_text(tool)


def test_what_was_kept_and_what_was_cut(shown: Page) -> None:
    opened(shown, "list_tickets")
    tickets = shown.locator('#tree [data-path="/tickets"]')
    expect(tickets.locator("> span")).to_contain_text("1,200 items", timeout=WAIT)
    expect(tickets.locator("> span")).to_have_class("part")
    expect(shown.locator('#tree [data-path="/tickets/0"] > span')).to_have_class("kept", timeout=WAIT)
    expect(shown.locator('#tree [data-path="/tickets/99"] > span')).to_have_class("cut")
    # A smaller budget keeps less.
    kept = shown.locator("#tree .kept").count()
    shown.fill("#tokens", "500")
    shown.locator("#tokens").press("Tab")
    expect(shown.locator("#tree .kept")).not_to_have_count(kept, timeout=WAIT)
    assert shown.locator("#tree .kept").count() < kept


def test_further_children_come_on_a_click(shown: Page) -> None:
    opened(shown, "list_tickets")
    shown.locator("#tree li", has_text="next, from 100 of 1,200").last.click()
    expect(shown.locator('#tree [data-path="/tickets/199"]')).to_be_visible(timeout=WAIT)


def test_what_each_client_would_show(shown: Page) -> None:
    opened(shown, "list_tickets")
    shown.click("#tab-shown")
    expect(shown.locator("#shown")).to_contain_text("of 1,500 tokens", timeout=WAIT)
    expect(shown.locator("#shown")).to_contain_text("What /tickets holds: 1,200 rows")
    shown.select_option("#client", "claude-code")
    expect(shown.locator("#shown")).to_contain_text("Text, which this client doesn't show", timeout=WAIT)
    shown.select_option("#dialect", "gel")
    expect(shown.locator("#shown")).to_contain_text('"summary"', timeout=WAIT)


def test_questions(shown: Page) -> None:
    opened(shown, "list_tickets")
    shown.click("#tab-ask")
    shown.fill("#asked", "SELECT state, count(*) AS n FROM tickets GROUP BY 1 ORDER BY 1")
    shown.locator("#asked").press("Enter")
    expect(shown.locator("#answer tbody tr").nth(1)).to_have_text("failed1", timeout=WAIT)
    shown.select_option("#way", "grep")
    shown.fill("#asked", "colour 417")
    shown.locator("#asked").press("Enter")
    expect(shown.locator("#answer")).to_contain_text("The colour 417 breaks", timeout=WAIT)


def test_a_payload_never_becomes_markup(shown: Page) -> None:
    opened(shown, "markup")
    expect(shown.locator("#tree")).to_contain_text("<script>window.hurt = 1</script>", timeout=WAIT)
    shown.click("#tab-shown")
    expect(shown.locator("#shown")).to_contain_text("onerror", timeout=WAIT)
    assert shown.evaluate("window.hurt") is None
    assert shown.locator("main script, main img").count() == 0


def test_by_keyboard_alone(shown: Page) -> None:
    rows = shown.locator("#call-table tbody tr")
    rows.first.focus()
    for _ in range(rows.count() - 1):
        shown.keyboard.press("ArrowDown")
    shown.keyboard.press("Enter")
    expect(shown.locator("#detail-title")).to_have_text("list_tickets")
    shown.locator("#tab-payload").focus()
    shown.keyboard.press("ArrowRight")
    expect(shown.locator("#shown")).to_be_visible()
    shown.keyboard.press("ArrowLeft")
    expect(shown.locator('#tree [data-path="/tickets/0"]')).to_be_visible(timeout=WAIT)
    shown.locator('#tree [tabindex="0"]').focus()
    shown.keyboard.press("ArrowDown")
    shown.keyboard.press("ArrowDown")
    shown.keyboard.press("ArrowRight")
    expect(shown.locator('#tree [data-path="/tickets/0/id"]')).to_be_visible(timeout=WAIT)
    shown.keyboard.press("Escape")
    expect(shown.locator("#detail")).to_be_hidden()
    shown.keyboard.press("/")
    shown.keyboard.type("log")
    expect(shown.locator("#call-table tbody tr")).to_have_count(1)


def test_calls_appear_as_they_pass(shown: Page, folder: Path) -> None:
    before = shown.locator("#call-table tbody tr").count()
    make_calls(folder, ("count", {}))
    expect(shown.locator("#call-table tbody tr")).to_have_count(before + 1, timeout=WAIT)


def test_savings_and_settings(shown: Page) -> None:
    shown.click("[data-view=savings]")
    expect(shown.locator("#totals tbody")).to_contain_text("list_tickets", timeout=WAIT)
    shown.select_option("#by", "day")
    expect(shown.locator("#totals thead")).to_contain_text("day", timeout=WAIT)
    shown.click("[data-view=settings]")
    expect(shown.locator("#settings-table")).to_contain_text("max_images", timeout=WAIT)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_narrow_screens_and_contrast(shown: Page, scheme: str) -> None:
    shown.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    shown.set_viewport_size({"width": 380, "height": 700})
    opened(shown, "list_tickets")
    expect(shown.locator("#tree li").first).to_be_visible(timeout=WAIT)
    # Nothing sticks out, and the list makes room for what is open.
    assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")
    expect(shown.locator(".list")).to_be_hidden()
    ratios = shown.evaluate(
        """() => {
          const light = (text) => {
            const [r, g, b] = text.match(/[0-9.]+/g).map(Number).map((v) => v / 255)
              .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
          };
          const back = light(getComputedStyle(document.body).backgroundColor);
          return [".kept", ".part", ".cut", "dt", "#summary", "h2"].map((each) => {
            const front = light(getComputedStyle(document.querySelector(each)).color);
            return (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
          });
        }"""
    )
    assert min(ratios) >= 4.5


VIEWS = ("calls", "payload", "shown", "ask", "savings", "settings")


def show(tab: Page, view: str) -> None:
    if view in ("savings", "settings"):
        tab.click(f"[data-view={view}]")
        expect(tab.locator(f"#{view} tbody tr").first).to_be_visible(timeout=WAIT)
    elif view != "calls":
        opened(tab, "list_tickets")
        expect(tab.locator('#tree [data-path="/tickets/99"]')).to_be_visible(timeout=WAIT)
        tab.click(f"#tab-{view}")
        expect(tab.locator(f"#{view}")).to_be_visible()


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("width", [380, 1280])
def test_axe_finds_nothing_wrong(url: str, browser: Browser, view: str, width: int) -> None:
    """The rules for roles, names, labels, focus and contrast that axe knows, in both schemes."""
    axe = installed(HERE / "node" / "package.json", HERE.parents[1] / ".venv" / "ui")
    # The page's policy keeps any other script out, axe included.
    with browser.new_context(bypass_csp=True, viewport={"width": width, "height": 800}) as context:
        tab = context.new_page()
        tab.goto(url)
        expect(tab.locator("#call-table tbody tr", has_text="list_tickets")).to_be_visible(timeout=WAIT)
        show(tab, view)
        tab.evaluate((axe / "node_modules" / "axe-core" / "axe.min.js").read_text())
        for scheme in ("light", "dark"):
            tab.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
            found = tab.evaluate("axe.run()")
            assert len(found["passes"]) > 20
            assert [
                (rule["id"], [node["html"] for node in rule["nodes"]]) for rule in found["violations"]
            ] == []


def test_markup_in_every_field_stays_text(
    tmp_path: Path, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever names a tool, a client, a field or a setting writes no HTML into the page."""
    state = tmp_path / "mcp-envelope"
    vault = open_vault(str(state / "vault.db"))
    assert vault is not None
    payloads = {
        new_handle(): ({MARKUP: [{MARKUP: MARKUP, "n": n, "lists": [MARKUP]} for n in range(500)]}, "json"),
        new_handle(): (f"{MARKUP}\n" * 5000, "text"),
        new_handle(): ([{"type": MARKUP, MARKUP: MARKUP}, {"type": "text", "text": MARKUP}] * 300, "blocks"),
    }
    with closing(Ledger(state / "ledger.db")) as ledger:
        for handle, (payload, kind) in payloads.items():
            text = payload if isinstance(payload, str) else json.dumps(payload)
            assert vault.keep(handle, read_payload(text, kind), MARKUP) is None  # type: ignore[arg-type]
            ledger.record(
                LedgerEntry(
                    at=time.time(),
                    tool=f"{kind} {MARKUP}",
                    client=MARKUP,
                    server=MARKUP,
                    dialect=MARKUP,
                    unit=MARKUP,
                    code=MARKUP,
                    before=9000,
                    after=90,
                    cuts=1,
                    stored=True,
                    result=digest(handle),
                )
            )
    vault.close()
    monkeypatch.setenv("MCP_ENVELOPE_HINT", MARKUP)
    with page(tmp_path) as address:
        tab = browser.new_page()
        tab.goto(address)
        for kind in ("json", "text", "blocks"):
            tab.locator("#call-table tbody tr", has_text=f"{kind} <script>").click(timeout=WAIT)
            expect(tab.locator("#detail-title")).to_have_text(f"{kind} {MARKUP}", timeout=WAIT)
            for dialect in ("native", "gel", "transcend"):
                tab.select_option("#dialect", dialect)
                tab.click("#tab-shown")
                expect(tab.locator("#shown")).to_contain_text("hurt", timeout=WAIT)
            tab.click("#tab-payload")
            expect(tab.locator("#tree")).to_contain_text("hurt", timeout=WAIT)
            tab.click("#tab-ask")
            for way, asked in (("grep", "hurt"), ("sql", f'SELECT "{MARKUP}" FROM data'), ("query", MARKUP)):
                tab.select_option("#way", way)
                tab.fill("#asked", asked)
                tab.locator("#asked").press("Enter")
                expect(tab.locator("#answer p, #answer pre, #answer td").first).not_to_have_text(
                    "…", timeout=WAIT
                )
        for by in ("tool", "client", "server", "dialect", "code"):
            tab.click("[data-view=savings]")
            tab.select_option("#by", by)
            expect(tab.locator("#totals tbody")).to_contain_text("<script>", timeout=WAIT)
        tab.click("[data-view=settings]")
        tab.fill("#tool", MARKUP)
        tab.locator("#tool").press("Enter")
        expect(tab.locator("#settings-table")).to_contain_text("<script>", timeout=WAIT)
        assert tab.evaluate("window.hurt") is None
        assert tab.locator("body script, main img").count() == 0
        tab.close()


def test_everything_has_a_name(shown: Page) -> None:
    """What a screen reader says of each control."""
    opened(shown, "list_tickets")
    unnamed = shown.evaluate(
        """() => [...document.querySelectorAll("button, input, select, [role], section, article")]
          .filter((each) => !["status", "group"].includes(each.getAttribute("role")))
          .filter((each) => !(each.textContent.trim() || each.labels?.length || each.getAttribute("aria-label")
            || each.getAttribute("aria-labelledby"))).map((each) => each.outerHTML.slice(0, 80))"""
    )
    assert unnamed == []
