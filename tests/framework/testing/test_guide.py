"""The guide to testing is true: every example on it runs as it stands."""

from __future__ import annotations

from pathlib import Path

from tests.structure.pages import broken_links, check_page
from tests.structure.sources import REPOSITORY

GUIDE = REPOSITORY / "docs" / "guide" / "testing.md"


def test_the_guide_is_true(tmp_path: Path) -> None:
    """Its app and each of its tests run."""
    assert check_page(GUIDE.read_text(), tmp_path) == 8


def test_the_guide_s_links_lead_somewhere() -> None:
    """What it links to in this repository is there."""
    assert broken_links(GUIDE) == []
