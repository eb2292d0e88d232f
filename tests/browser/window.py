"""A window of a real browser, and what it complained about while a test looked."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import BrowserContext, ConsoleMessage, Request, expect

#: Milliseconds that a page has for what a test expects of it, on a busy machine.
PATIENCE_MS = 60_000
#: Times that a person presses keys.
TRIES = 10
#: The widths of a desk and of a phone, in pixels.
WIDE, NARROW = 1280, 390

#: Each width and each colour once: what keeps people from reading a page is of one of the two.
TASTES = [(WIDE, "light"), (NARROW, "dark")]

#: From the first moment, notes each element that a page replaces or takes out.
WATCH = """document.addEventListener("DOMContentLoaded", () => {
  window.gone = [];
  new MutationObserver((changes) => {
    for (const change of changes) {
      for (const node of change.removedNodes) if (node.outerHTML) gone.push(node.outerHTML);
    }
  }).observe(document.getElementById("facts"), {childList: true, subtree: true});
})"""

expect.set_options(timeout=PATIENCE_MS)


class Window:
    """One, of a person of their own.

    Args:
        context: with the person's cookies, zone and taste.
        home: the address that everything has to come from, such as `http://127.0.0.1:9700`.
    """

    def __init__(self, context: BrowserContext, home: str) -> None:
        self.home = home
        #: What it complained about: errors of scripts, refusals of the policy, what did not load.
        self.complaints: list[str] = []
        #: Requests to anybody but the console.
        self.strange: list[str] = []
        self.context = context
        context.set_default_timeout(PATIENCE_MS)
        context.on("request", self._asked)
        self.page = context.new_page()
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def open(self, path: str) -> None:
        """Go to a page of the console."""
        self.page.goto(f"{self.home}{path}")

    def type_for(self, keys: str, title: str) -> None:
        """Go to a page by its keys, as a person does: again where nothing has come of it."""
        heading = self.page.get_by_role("heading", level=1)
        for _ in range(TRIES):
            self.page.wait_for_load_state("load")
            self.page.keyboard.type(keys)
            with suppress(AssertionError):
                expect(heading).to_have_text(title, timeout=PATIENCE_MS / TRIES)
                return
        expect(heading).to_have_text(title)

    def screenshot(self, file: Path) -> Path:
        """The whole page as a picture."""
        self.page.screenshot(path=file, full_page=True)
        return file

    def clean(self) -> None:
        """Fail where it complained, or something came from elsewhere."""
        assert (self.complaints, self.strange) == ([], [])

    def readable(self, what: str) -> None:
        """Fail where something keeps people from using this page, or it is wider than the window.

        Args:
            what: it shows.
        """
        assert self.overflow_px() <= 0, what
        assert self.barriers() == [], what

    def overflow_px(self) -> int:
        """By how much the page is wider than the window, with its styles."""
        self.page.wait_for_load_state()
        wider = "document.scrollingElement.scrollWidth - document.documentElement.clientWidth"
        return int(self.page.evaluate(wider))

    def barriers(self) -> list[str]:
        """What axe finds that keeps people from using the page."""
        self.page.evaluate(AXE_SCRIPT)
        found: dict[str, Any] = self.page.evaluate("axe.run({resultTypes: ['violations']})")
        assert found["passes"], "axe looked at nothing"
        return [
            f"{each['id']}: {each['help']}: {json.dumps([node['html'] for node in each['nodes']])}"
            for each in found["violations"]
        ]

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.complaints.append(message.text)

    def _asked(self, request: Request) -> None:
        if urlsplit(request.url)[:2] != urlsplit(self.home)[:2]:
            self.strange.append(request.url)


#: Opens a window on the console at an address, of a width, a height and a taste.
Look: TypeAlias = Callable[..., Window]
