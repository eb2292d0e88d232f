"""What a page of the console says: its words and its tags, and what must stay text in it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html.parser import HTMLParser

OVERVIEW, IN_FLIGHT = "/c/kafka/overview", "/c/kafka/in-flight"
SCRIPT = '<script>alert("x")</script><img src=x onerror=alert(1)>'


class Tags(HTMLParser):
    """The names of all tags of a page, and the attributes that run scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.scripts: list[tuple[str, str | None]] = []
        self.sources: list[str | None] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        """Note one."""
        self.names.add(tag)
        self.scripts += [each for each in attrs if each[0].startswith("on") or each[0] == "style"]
        self.sources += [dict(attrs).get("src") for _ in (1,) if tag == "script"]


def words(text: str) -> str:
    """What a page says."""
    return " ".join(re.sub("<[^>]+>", " ", text).split())
