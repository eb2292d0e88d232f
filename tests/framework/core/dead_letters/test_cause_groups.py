"""Dead letters by cause: into which groups they fall."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ackfloor.core.records.envelope import Envelope, Reason, write_headers
from ackfloor.dead_letters.rules.cause_groups import MOST_GROUPS, MOST_RELEASES, REST, CauseGroups
from ackfloor.dead_letters.rules.redrive_rules import DeadLetter

DIED = Envelope(release="v7",
    origin_topic="orders", origin_partition=0, origin_offset=1, group="billing", handler="bill",
    attempt=3, reason=Reason.EXHAUSTED, error_type="shop.errors.Boom", error_message="no stock",
    error_fingerprint="abc123", failed_at_ms=5_000,
)  # fmt: skip


def letter(offset: int = 0, key: bytes | None = b"k", at: int = 9_000, **died: Any) -> DeadLetter:
    """A dead letter of ours."""
    headers = write_headers(DIED._replace(**died), ())
    return DeadLetter("orders--billing--dlq", 0, offset, key, b"v", headers, at)


FOREIGN = DeadLetter("other-dlq", 1, 7, None, None, [("h", b"1")], 9_000)


def test_letters_of_one_cause_are_one_group() -> None:
    """Counted, with the first and the last time, and the latest of them as its sample."""
    groups = CauseGroups()
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
    groups = CauseGroups()
    for number in range(MOST_GROUPS + 20):
        groups.add(letter(number, error_fingerprint=f"{number:x}"))
    found = groups.largest_first()
    assert len(found) == MOST_GROUPS + 1
    assert sum(each.count for each in found) == MOST_GROUPS + 20
    assert (found[0].cause, found[0].count, found[0].error_type) == (REST, 20, "")


def test_which_releases_failed_so_is_known_in_the_order_of_time() -> None:
    """However they are read; of very many only some, and one that names none is no release."""
    groups = CauseGroups()
    for release, at_ms in (("v8", 5), ("v7", 9), (None, 1), ("v7", 3), ("v9", 7)):
        groups.add(letter(release=release, failed_at_ms=at_ms))
    (found,) = groups.largest_first()
    assert (found.count, found.releases_in_order()) == (5, ["v7", "v8", "v9"])
    assert found.releases["v7"] == 3
    for number in range(MOST_RELEASES):
        groups.add(letter(release=f"r{number}"))
    assert len(found.releases) == MOST_RELEASES


def test_headers_that_cannot_be_read_count_as_absent() -> None:
    """However they are grouped: a name that comes twice, what is no text, what is no number."""
    twice = [*(letter().headers or ()), ("ackfloor.handler", b"ship")]
    bad = [*(letter().headers or ()), ("ackfloor.handler", b"\xff"), ("ackfloor.failed_at", b"?")]
    groups = CauseGroups()
    for headers in (twice, bad, bad, None):
        groups.add(DeadLetter("orders--billing--dlq", 0, 1, None, None, headers, 9_000))
    found = {(each.handler, each.cause): each for each in groups.largest_first()}
    assert {name: each.count for name, each in found.items()} == {
        ("ship", "abc123"): 1,
        ("", "abc123"): 2,
        ("", "not said"): 1,
    }
    assert found["ship", "abc123"].last_ms == 5_000
    assert found["", "abc123"].last_ms == 9_000


def test_what_no_header_calls_a_dead_letter_is_none() -> None:
    """Ours and another tool's say so; any other record may be anybody's."""
    spring = replace(FOREIGN, headers=[("kafka_dlt-original-topic", b"orders")])
    unreadable = replace(FOREIGN, headers=None)
    said = [each.says_it_failed for each in (letter(), spring, FOREIGN, unreadable)]
    assert said == [True, True, False, False]
