"""Dead letters looked through: which are meant, and into which groups they fall."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ackfloor.core.envelope import Envelope, Reason, write_headers
from ackfloor.core.letter_groups import MOST_GROUPS, REST, LetterFilter, LetterGroups
from ackfloor.core.redrive import DeadLetter

DIED = Envelope(
    origin_topic="orders", origin_partition=0, origin_offset=1, group="billing", handler="bill",
    attempt=3, reason=Reason.EXHAUSTED, error_type="shop.errors.Boom", error_message="no stock",
    error_fingerprint="abc123", failed_at_ms=5_000,
)  # fmt: skip


def letter(offset: int = 0, key: bytes | None = b"k", at: int = 9_000, **died: Any) -> DeadLetter:
    """A dead letter of ours."""
    headers = write_headers(replace(DIED, **died), ())
    return DeadLetter("orders--billing--dlq", 0, offset, key, b"v", headers, at)


FOREIGN = DeadLetter("other-dlq", 1, 7, None, None, [("h", b"1")], 9_000)


@pytest.mark.parametrize(
    ("wanted", "foreign"),
    [
        ({"handler": "bill"}, False), ({"handler": "ship"}, None), ({"reason": "exhausted"}, False),
        ({"reason": "decode"}, None), ({"key": b"k"}, False), ({"key": b""}, None),
        ({"error": "shop.errors.Boom"}, False), ({"error": "Boom"}, False),
        ({"error": "abc123"}, False), ({"error": "oom"}, None), ({"since_ms": 5_000}, True),
        ({"since_ms": 5_001}, True), ({"until_ms": 5_000}, None), ({"until_ms": 5_001}, False),
        ({"until_ms": 9_001}, True), ({}, True),
    ],
)  # fmt: skip
def test_each_wish_must_be_met(wanted: dict[str, Any], foreign: bool | None) -> None:
    """By the headers; a time that no header tells is the record's own. None: neither letter."""
    meant = LetterFilter(**wanted)
    late = wanted == {"since_ms": 5_001}
    assert meant.matches(letter()) is (foreign is not None and not late)
    assert meant.matches(FOREIGN) is bool(foreign)


def test_letters_of_one_cause_are_one_group() -> None:
    """Counted, with the first and the last time, and the latest of them as its sample."""
    groups = LetterGroups()
    groups.add(letter(4, failed_at_ms=7_000, error_message="latest"))
    for offset in range(3):
        groups.add(letter(offset, failed_at_ms=1_000 + offset))
    groups.add(letter(9, error_fingerprint=None, error_type=None, reason=None, handler=None))
    groups.add(FOREIGN)
    boom, *others = groups.largest_first()
    assert (boom.count, boom.first_ms, boom.last_ms) == (4, 1_000, 7_000)
    assert (boom.handler, boom.cause, boom.error_type) == ("bill", "abc123", "shop.errors.Boom")
    assert (boom.partition, boom.offset, boom.message) == (0, 4, "latest")
    assert [(each.topic, each.cause, each.count) for each in others] == [
        ("orders--billing--dlq", "not said", 1),
        ("other-dlq", "not said", 1),
    ]


def test_memory_is_bounded_and_no_letter_is_left_out() -> None:
    """What goes beyond the most groups is one group more for each topic."""
    groups = LetterGroups()
    for number in range(MOST_GROUPS + 20):
        groups.add(letter(number, error_fingerprint=f"{number:x}"))
    found = groups.largest_first()
    assert len(found) == MOST_GROUPS + 1
    assert sum(each.count for each in found) == MOST_GROUPS + 20
    assert (found[0].cause, found[0].count, found[0].error_type) == (REST, 20, "")
