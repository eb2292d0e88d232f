"""What makes a site of the pages that a code host shows as they are; mkdocs calls these (hooks).

The pages link to each other by their places in the repository, also to some outside of docs/. Those
are taken into the site; a link to any other file of the repository becomes its text. Headings get
the anchors that code hosts give them.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

REPOSITORY = Path(__file__).resolve().parents[1]
#: Pages outside of docs/ that belong to the site, below this folder of it.
OUTSIDE = "repository"
TAKEN_IN = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "benchmarks/README.md",
    "benchmarks/HISTORY.md",
)
RESULTS = "benchmarks/results"

_FENCE = re.compile(r"^(```(\w*))[^\n]*(\n.*?^```$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:)([^)#\s]*)(#[^)\s]+)?\)")


def anchor(title: str, _separator: str) -> str:
    """A heading's anchor, as code hosts make it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-")


def on_config(config: MkDocsConfig) -> None:
    """Anchors as above."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = anchor


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Take in what is outside of docs/."""
    results = [file for kind in ("md", "png") for file in (REPOSITORY / RESULTS).glob(f"*.{kind}")]
    for name in (*TAKEN_IN, *(f"{RESULTS}/{file.name}" for file in sorted(results))):
        there = f"{OUTSIDE}/{name}"
        files.append(File.generated(config, there, abs_src_path=str(REPOSITORY / name)))


def on_page_markdown(
    markdown: str,
    page: Page,
    config: MkDocsConfig,  # noqa: ARG001 -- mkdocs gives it
    files: Files,
) -> str:
    """The page with links that lead somewhere on the site, and fences that say their language."""
    here = page.file.src_uri
    parts: list[str] = []
    end = 0
    for fence in _FENCE.finditer(markdown):
        parts.append(_linked(markdown[end : fence.start()], here, files))
        # What else a fence's first line says is for the tests.
        parts.append(f"{fence[1]}{fence[3]}")
        end = fence.end()
    return "".join(parts) + _linked(markdown[end:], here, files)


def _linked(text: str, here: str, files: Files) -> str:
    def link(found: re.Match[str]) -> str:
        image, told, path, heading = found[1], found[2], found[3], found[4] or ""
        if not path:
            return found[0]
        there = _on_site(posixpath.normpath(posixpath.join(posixpath.dirname(_source(here)), path)))
        if there is None or files.get_file_from_path(there) is None:
            return told
        relative = posixpath.relpath(there, posixpath.dirname(here) or ".")
        return f"{image}[{told}]({relative}{heading})"

    return _LINK.sub(link, text)


def _source(page: str) -> str:
    """Where a page of the site lies in the repository."""
    outside = page.removeprefix(f"{OUTSIDE}/")
    return outside if outside != page else f"docs/{page}"


def _on_site(path: str) -> str | None:
    """Where a file of the repository is on the site; None where it is not."""
    inside = path.removeprefix("docs/")
    if inside != path:
        return inside
    taken = path in TAKEN_IN or posixpath.dirname(path) == RESULTS
    return f"{OUTSIDE}/{path}" if taken else None
