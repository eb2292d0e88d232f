"""The table of `ackfloor lag` in the documentation is the one that the command prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackfloor.cli.progress.lag import SPARE, _for_people
from ackfloor.cli.shared.tables import print_table
from ackfloor.core.acks.progress import Progress

PAGE = Path(__file__).parents[4] / "docs" / "guide" / "operations.md"
OWNER = "ackfloor-worker-0@10.0.0.7"
DEAD = "orders--billing--dlq"
#: The group of the page: an order hangs, nothing waits in the retry topic, three dead letters.
FOUND = (
    Progress("billing", "orders", 0, "source", 0, 10, 3, ((4, 9),), owner=OWNER),
    Progress("billing", "orders--billing--retry-1s", 0, "retry", 0, 0, 0, owner=OWNER),
    Progress("billing", DEAD, 0, "dlq", 0, 4, None, disposed=1),
)


def test_the_page_shows_what_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without what is not behind, and with totals, in which dead letters are open."""
    monkeypatch.setenv("COLUMNS", "160")
    print_table(_for_people(FOUND, every=False), spare=SPARE)
    printed = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
    page = PAGE.read_text()
    shown = page[page.index("$ ackfloor lag --group billing\n") :].split("```")[0].splitlines()[1:]
    assert [line.split() for line in shown] == printed
    assert (printed[-1][1], printed[-1][6:9]) == ("total", ["7", "6", "5"])
