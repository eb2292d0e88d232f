"""What there is in place of a misspelt name."""

from __future__ import annotations

import pytest

from ackfloor.core.values.suggestions import there_are


@pytest.mark.parametrize(
    ("known", "told"),
    [
        ([], "there are none"),
        (["ship"], "there is ship"),
        (["ship", "billing"], "there are billing and ship"),
        ([f"ship{n}" for n in range(7)] + ["billing"], "there are billing, ship0, "),
        ([f"ship{n}" for n in range(7)], "ship4 and 2 more"),
    ],
)
def test_the_nearest_name_comes_first(known: list[str], told: str) -> None:
    """And no list is longer than somebody reads."""
    assert told in there_are("biling", known)
