"""A look at groups: which of them are looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ackfloor.cli.status.group_look import looks
from ackfloor.dead_letters.kafka import dead_letter_topic, retry_topic
from ackfloor.kafka.inspection import group_progress
from ackfloor.kafka.inspection.group_progress import Members


class Reader:
    """A cluster with topics of two groups, in which nothing is open."""

    def __init__(self, _options: object) -> None: ...

    def reach(self) -> None:
        """It answers."""

    def groups(self) -> list[str]:
        """Those with topics of ours."""
        return ["billing", "forgotten"]

    def members(self, _group: str) -> Members:
        """None is known."""
        return Members(False, 0, {})

    def of(self, _group: str, _owners: object) -> Sequence[object]:
        """No partition is read."""
        return ()

    def close(self) -> None:
        """It holds nothing."""


@pytest.fixture(autouse=True)
def reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """No broker is asked."""
    monkeypatch.setattr(group_progress, "ProgressReader", Reader)
    monkeypatch.setattr(retry_topic, "RetryTopics", Reader)
    monkeypatch.setattr(dead_letter_topic, "DeadLetterTopics", Reader)


@pytest.mark.parametrize(
    ("groups", "more", "found"),
    [
        (None, (), ["billing", "forgotten"]),
        (None, ["new", "billing"], ["billing", "forgotten", "new"]),
        (["billing"], (), ["billing"]),
    ],
)
def test_the_groups_of_a_look(
    groups: Sequence[str] | None, more: Sequence[str], found: list[str]
) -> None:
    """Those that are named, or all with topics of ours; and more, each once."""
    options: Any = None
    assert [each.group for each in looks(options, groups, more)] == found
