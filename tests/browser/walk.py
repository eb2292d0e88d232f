"""A walk through the console: what a person clicks, word by word, and pictures of what is seen.

The pictures of the guide are made by the same walks: `pytest --pictures docs/images` of a test.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from PIL import Image
from playwright.sync_api import FloatRect, Locator, Page

from tests.browser.window import Window

#: What is written on something that is clicked, or beside it.
WORDS: Final = """(each) =>
  each.ariaLabel || (each.labels && each.labels[0] && each.labels[0].innerText) || each.innerText"""
#: Has a page be renewed no more, as one that nobody sees; and again.
HIDE: Final = """(hidden) => {
  Object.defineProperty(document, "hidden", {value: hidden, configurable: true});
  document.dispatchEvent(new Event("visibilitychange"));
}"""
#: Writes other names into a page's texts, for a picture; and what was there before.
RENAME: Final = """(names) => {
  window.renamed = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = texts.nextNode(); text; text = texts.nextNode()) {
    const fresh = names.reduce((data, [own, told]) => data.replaceAll(own, told), text.data);
    if (fresh === text.data) continue;
    renamed.push([text, text.data]);
    text.data = fresh;
  }
}"""
#: Where something ends, from the top of its page.
END: Final = "(each) => each.getBoundingClientRect().bottom + scrollY"
#: So many are enough for a page, and its file is half as large.
COLOURS: Final = 64
#: Below what a picture ends with.
MARGIN_PX: Final = 16
RESTORE: Final = "() => { for (const [text, data] of renamed) text.data = data; }"


class Walk:
    """One.

    Args:
        names: names that are a test's own -> those that are told.
        pictures: the folder for them; None for none.

    Attributes:
        clicked: what was clicked, in words; a field that is written into is one.
    """

    def __init__(self, window: Window, names: Mapping[str, str], pictures: Path | None) -> None:
        self.window = window
        self._names = names
        self._pictures = pictures
        self.clicked: list[str] = []

    @property
    def page(self) -> Page:
        """What is seen."""
        return self.window.page

    def click(self, target: Locator) -> None:
        """Click on a link, a button or a box."""
        words = self._told(target.evaluate(WORDS))
        # How many there are is on the page; what is told of it are words.
        self.clicked.append(re.sub(r"^all [\d,]+", "all", words))
        target.click()

    def write(self, field: Locator, text: str) -> None:
        """Click into a field, and write."""
        self.click(field)
        self.page.keyboard.type(text)

    def picture(self, name: str, until: Locator | None = None) -> None:
        """Keep what is seen, from the top of the page to the end of something, if one is kept."""
        if self._pictures is None:
            return
        self.page.evaluate(HIDE, arg=True)
        self.page.evaluate(RENAME, list(self._names.items()))
        self.page.mouse.move(0, 0)
        width, height = self.page.evaluate("[innerWidth, document.body.scrollHeight]")
        if until is not None:
            height = min(height, until.evaluate(END) + MARGIN_PX)
        clip: FloatRect = {"x": 0, "y": 0, "width": width, "height": height}
        file = self._pictures / f"{name}.png"
        self.page.screenshot(path=file, full_page=True, clip=clip)
        with Image.open(file) as seen:
            few = seen.convert("RGB").quantize(COLOURS)
        few.save(file, optimize=True)
        self.page.evaluate(RESTORE)
        self.page.evaluate(HIDE, arg=False)

    def _told(self, words: str) -> str:
        for own, told in self._names.items():
            words = words.replace(own, told)
        return words.strip()
