"""The docs as a site: it builds without a warning, holds every page, and fetches nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.site_pages import OUTSIDE, TAKEN_IN, anchor
from tests.structure.pages import headings
from tests.structure.sources import REPOSITORY

DOCS = REPOSITORY / "docs"

# Built once for all that look at it.
pytestmark = pytest.mark.xdist_group("site")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make site` builds it: a warning is a failure.

    Such as a link that leads nowhere, or a page that mkdocs.yml does not have in its navigation.
    """
    folder = tmp_path_factory.mktemp("site")
    build = ("-m", "mkdocs", "build", "--strict", "--site-dir", str(folder))
    done = subprocess.run(
        [sys.executable, *build],
        cwd=REPOSITORY,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    told = done.stdout + done.stderr
    assert done.returncode == 0, f"{told}\na page belongs in the navigation of mkdocs.yml"
    assert "WARNING" not in told
    return folder


def test_every_page_is_there(site: Path) -> None:
    """Those of docs/ and those that are taken in; nothing else of the folder is."""
    pages = [page.relative_to(DOCS) for page in DOCS.rglob("*.md")]
    pages += [Path(OUTSIDE) / name for name in TAKEN_IN]
    assert [page for page in pages if not _written(site, page).exists()] == []
    assert list(site.rglob("*.py")) == []


def _written(site: Path, page: Path) -> Path:
    # As on a code host, a README is its folder's page.
    name = "index.html" if page.stem == "README" else f"{page.stem}.html"
    return site / page.parent / name


def test_it_fetches_nothing_from_elsewhere(site: Path) -> None:
    """No font, script or image: it can be read where there is no network."""
    sources = r"<(?:script|img)[^>]*\ssrc|<link[^>]*\shref"
    fetched = re.compile(rf"""(?:{sources})=["']?(https?:[^"' >]*)""")
    found = {page: fetched.findall(page.read_text()) for page in site.rglob("*.html")}
    assert {page: urls for page, urls in found.items() if urls} == {}


def test_programs_are_shown_as_such(site: Path) -> None:
    """A fence with notes for the tests is a block of code as any other."""
    page = (site / "guide" / "getting-started.html").read_text()
    assert "```" not in page
    assert "needs-broker" not in page


def test_headings_have_the_anchors_of_code_hosts() -> None:
    """So a link to a heading leads to it in both places."""
    for title in ("What is not obvious", "`[kafka]`: how to reach the brokers", "A, b & c_d (e-f)"):
        assert headings(f"## {title}\n") == {anchor(title.replace("`", ""), "-")}
