"""Suggestions for a misspelt name: a few of the known ones, nearest first."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher
from typing import Final

#: How many names are shown.
MOST: Final = 5


def there_are(name: str, known: Iterable[str]) -> str:
    """`there are billing, bill and 12 more`: what was misspelt, most likely, comes first.

    Args:
        name: what was written.
        known: the right names, each once.
    """
    sorted_ = sorted(known, key=lambda each: (-SequenceMatcher(None, name, each).ratio(), each))
    if not sorted_:
        return "there are none"
    shown, more = sorted_[:MOST], len(sorted_) - MOST
    if more > 0:
        return f"there are {', '.join(shown)} and {more:,} more"
    last = shown.pop()
    return f"there are {', '.join(shown)} and {last}" if shown else f"there is {last}"
