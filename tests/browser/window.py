"""A window of a real browser, and what it complained about while a test looked."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import BrowserContext, ConsoleMessage, Request, expect

#: Milliseconds that a page has for what a test expects of it, on a busy machine.
PATIENCE_MS = 180_000
#: Times that a person presses keys.
TRIES = 10
#: The widths of a desk and of a phone, in pixels.
WIDE, NARROW = 1280, 390

#: Each width and each colour: a page is read in all of them.
TASTES = tuple((width, is_dark) for width in (WIDE, NARROW) for is_dark in (False, True))
#: The ground of a page that is light.
WHITE = "rgb(255, 255, 255)"
#: That of one that is dark: any other that can't be seen through.
DARK = r"^rgb\((?!255, 255, 255)"
#: Whether a page is seen by one who likes it dark.
IS_DARK = "matchMedia('(prefers-color-scheme: dark)').matches"

#: From the first moment, notes each element that a page replaces or takes out.
WATCH = """document.addEventListener("DOMContentLoaded", () => {
  window.gone = [];
  new MutationObserver((changes) => {
    for (const change of changes) {
      for (const node of change.removedNodes) if (node.outerHTML) gone.push(node.outerHTML);
    }
  }).observe(document.getElementById("facts"), {childList: true, subtree: true});
})"""

#: What axe finds: of all that it knows, or of what the colours of a page decide.
FOUND = "(rules) => axe.run({resultTypes: ['violations'], ...(rules && {runOnly: rules})})"
COLOUR_RULES = ["color-contrast", "link-in-text-block"]

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

        On a desk and on a phone, light and dark; after that the window is as it was.

        Args:
            what: it shows.
        """
        size, was_dark = self.page.viewport_size, self.page.evaluate(IS_DARK)
        assert size is not None
        for width, is_dark in TASTES:
            self.show(width, size["height"], is_dark=is_dark)
            seen = f"{what}, {width} px wide, {'dark' if is_dark else 'light'}"
            assert self.overflow_px() <= 0, seen
            assert self.barriers(COLOUR_RULES if is_dark else None) == [], seen
        self.show(size["width"], size["height"], is_dark=was_dark)

    def show(self, width: int, height: int, *, is_dark: bool) -> None:
        """Make the window so large, of somebody who likes pages dark or light."""
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.emulate_media(color_scheme="dark" if is_dark else "light")
        # A page that does not heed the colour would be read twice in the same one. One that is
        # being loaded has none yet.
        ground = re.compile(DARK) if is_dark else WHITE
        expect(self.page.locator("body")).to_have_css("background-color", ground)

    def overflow_px(self) -> int:
        """By how much the page is wider than the window, with its styles."""
        self.page.wait_for_load_state()
        wider = "document.scrollingElement.scrollWidth - document.documentElement.clientWidth"
        return int(self.page.evaluate(wider))

    def barriers(self, rules: list[str] | None = None) -> list[str]:
        """What axe finds that keeps people from using the page, by these rules; by default all."""
        if self.page.evaluate("typeof axe") == "undefined":
            self.page.evaluate(AXE_SCRIPT)
        found: dict[str, Any] = self.page.evaluate(FOUND, rules)
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
