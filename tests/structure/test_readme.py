"""The README is true: its programs run, its commands exist, its links lead somewhere.

How each kind of block is checked is told in `pages`. A kind of command not known there is a
failure.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.structure.pages import broken_links, check_page
from tests.structure.sources import REPOSITORY

README = REPOSITORY / "README.md"


def test_the_readme_is_true(tmp_path: Path) -> None:
    """Every program in it runs and every command in it exists."""
    assert check_page(README.read_text(), tmp_path) > 0


def test_the_readme_s_links_lead_somewhere() -> None:
    """What it links to in this repository is there."""
    assert broken_links(README) == []


def test_the_readme_is_short() -> None:
    """It is the way in; the guide is for the rest."""
    assert len(README.read_text().splitlines()) < 150


@pytest.mark.parametrize(
    "text",
    [
        "```python\nraise SystemExit(1)\n```",
        "```python\n# test_it.py\ndef test_it():\n    assert 1 == 2\n```",
        "```python\n# a.py\nprice = cost\n```\n```python\n# a.py\nprice = 1\n```",
        "```python\n# a.py\nimport sys\nsys.exit(0)\n```\n```python\n# b.py\nprice = 1\n```",
        "```python needs-broker\n# send.py\nimport ackfloor\nackfloor.no_such_name\n```",
        "```python needs-broker\n# send.py\ndef send(topic):\n    pass\n```",
        '```toml\n[app]\nno_such_setting = "1"\n```',
        "```sh\nackfloor run billing:app --no-such-option 3\n```",
        "```sh\nackfloor spark report --no-such-option 3\n```",
        "```console\n$ ackfloor no-such-command\n```",
        "```sh\nmake no-such-target\n```",
        "```sh\npip install 'ackfloor[no-such-extra]'\n```",
        "```sh\nrm-everything\n```",
    ],
)
def test_a_false_page_is_found(text: str, tmp_path: Path) -> None:
    """Each kind of untruth fails the check."""
    with pytest.raises(AssertionError):
        check_page(text + "\n", tmp_path)


def test_a_program_can_use_the_one_before_it(tmp_path: Path) -> None:
    """A named block is a file that later blocks, tests and commands find."""
    text = (
        "```python\n# shop/prices.py\nprice = 3\n```\n"
        "```python\n# test_prices.py\nfrom shop.prices import price\n"
        "def test_price():\n    assert price == 3\n```\n"
        "```sh\nPRICE=1 python -c 'import shop.prices'   # a comment\nmake setup test\n```\n"
    )
    assert check_page(text, tmp_path) == 4


def test_unnamed_programs_of_a_page_are_one(tmp_path: Path) -> None:
    """What an earlier block imports and defines is there for the later ones."""
    text = "```python\nprice = 3\n```\n\nlater:\n\n```python\nassert price == 3\n```\n"
    assert check_page(text, tmp_path) == 2


@pytest.mark.parametrize("link", ["no-such-page.md", "page.md#no-such-heading", "#elsewhere"])
def test_a_broken_link_is_found(link: str, tmp_path: Path) -> None:
    """A link to a file that is not there, or to a heading that its file lacks."""
    page = tmp_path / "page.md"
    page.write_text(f"# One, two & `three`\n\n[right](page.md#one-two--three)\n[wrong]({link})\n")
    assert broken_links(page) == [link]
