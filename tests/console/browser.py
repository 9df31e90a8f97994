"""Chromium of the distribution, and a tab that notes whatever a page must not do."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from os import geteuid
from typing import Any, Final

from axe_playwright_python import base as _axe
from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

CHROMIUM = shutil.which("chromium")
NARROW: Final[ViewportSize] = {"width": 360, "height": 640}
WIDE = {"width": 1280, "height": 800}
_AXE = files(_axe.__package__ or "").joinpath("axe.min.js").read_text()
_NOTES = """
    window.notes = [];
    document.addEventListener("securitypolicyviolation", event =>
        window.notes.push(`policy: ${event.violatedDirective} ${event.blockedURI}`));
    window.alert = text => window.notes.push(`alert: ${text}`);
"""

_BACK: Final = "getComputedStyle(document.body).backgroundColor"
_FOCUSABLE: Final = """
    a[href]:not([tabindex="-1"]), button, input:not([type=hidden]), select, textarea, [tabindex="0"]
"""
_WIDER = """() => {
    const wide = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth <= wide) return [];
    return [...document.querySelectorAll("body *")]
        .filter(each => each.getBoundingClientRect().right > wide + 1 && !each.closest(".scroll"))
        .map(each => each.outerHTML.slice(0, 150));
}"""
_FOCUSED = """() => {
    const at = document.activeElement, style = getComputedStyle(at);
    if (at === document.body) return null;
    const box = at.getBoundingClientRect();
    return {
        tag: at.tagName, text: at.innerText || at.value || at.ariaLabel || "",
        outlined: style.outlineStyle !== "none" && style.outlineWidth !== "0px",
        seen: box.width > 0 && box.bottom > 0 && box.top < innerHeight,
    };
}"""


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the browser, without downloads of Playwright's own."""
    with sync_playwright() as playwright:
        sandbox = [] if geteuid() else ["--no-sandbox"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=sandbox)
        yield browser
        browser.close()


class Tab:
    """A page in a browser, with all that it has done besides."""

    def __init__(self, browser: Browser, url: str, **options: Any) -> None:
        """`options` are those of a context: viewport, color_scheme, java_script_enabled."""
        self._url = url
        self._context = browser.new_context(base_url=url, **{"viewport": WIDE} | options)
        self._scripts = options.get("java_script_enabled", True)
        self._context.add_init_script(_NOTES)
        self.page: Page = self._context.new_page()
        self.faults: list[str] = []
        self.page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        self.page.on("dialog", self._dialog)
        self.page.on("request", self._request)
        self.page.on("console", self._console)

    def _dialog(self, dialog: Any) -> None:
        self.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _request(self, request: Any) -> None:
        if not request.url.startswith(self._url):
            self.faults.append(f"request: {request.url}")

    def _console(self, message: Any) -> None:
        # A page about an error has a status of its own.
        if message.type == "error" and "status of" not in message.text:
            self.faults.append(f"console: {message.text}")

    def hold_still(self) -> None:
        """Keep the pages that are opened from here on as they are."""
        self._context.add_init_script(
            "window.EventSource = class { addEventListener() {} close() {} }"
        )

    def open(self, path: str) -> str:
        """Open a page of the console, and return its text."""
        self.page.goto(path, wait_until="load")
        return self.page.inner_text("body")

    def require_quiet(self) -> None:
        """Fail if a page ran foreign code, asked for something elsewhere, or broke its policy."""
        notes = self.page.evaluate("window.notes") if self._scripts else []
        assert self.faults + notes == [], self.page.url

    def findings(self, *rules: str) -> list[str]:
        """Return what axe finds on this page, by these rules or by all."""
        self.page.evaluate(_AXE)
        options: dict[str, Any] = {"resultTypes": ["violations"]}
        if rules:
            options["runOnly"] = list(rules)
        found = self.page.evaluate("options => axe.run(document, options)", options)
        return [
            f"{each['id']}: {node['target']} {node.get('failureSummary', '')}"
            for each in found["violations"]
            for node in each["nodes"]
        ]

    def too_wide(self) -> list[str]:
        """Return what does not fit the width of this page."""
        found: list[str] = self.page.evaluate(_WIDER)
        return found

    def focused(self) -> dict[str, Any] | None:
        """Return what has the focus: tag, text, and whether it is outlined and seen."""
        found: dict[str, Any] | None = self.page.evaluate(_FOCUSED)
        return found

    def close(self) -> None:
        self._context.close()


def require_accessible(tab: Tab, path: str) -> None:
    """Fail unless axe finds nothing, Tab reaches all that a mouse does, and the page then fits a
    narrow dark screen. The tab is wide and light."""
    tab.hold_still()
    tab.open(path)
    assert tab.page.evaluate(_BACK) == "rgb(255, 255, 255)"
    tab.require_quiet()
    assert tab.findings() == []
    expected = min(tab.page.locator(_FOCUSABLE).locator("visible=true").count(), 40)
    reached = []
    for _ in range(expected):
        tab.page.keyboard.press("Tab")
        if (found := tab.focused()) is None:
            break
        reached.append(found)
    assert len(reached) == expected
    assert [each for each in reached if not (each["outlined"] and each["seen"])] == []
    tab.page.set_viewport_size(NARROW)
    tab.page.emulate_media(color_scheme="dark")
    assert tab.page.evaluate(_BACK) == "rgb(18, 23, 30)"
    assert tab.too_wide() == []
    assert tab.findings("color-contrast") == []


def require_no_scripts(tab: Tab, path: str) -> None:
    """Fail unless a page is whole without scripts."""
    tab.open(path)
    assert tab.page.locator("h1:visible").count() == 1
    assert tab.page.locator("header nav a:visible").count() > 5
    assert tab.page.locator("#pause:visible").count() == 0
