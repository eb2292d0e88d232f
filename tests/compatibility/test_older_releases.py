"""A worker of an older release never handles a record that waits behind one of its key.

Such a worker does not know the word in the header `reason`, and so nothing of quarantine. What
keeps it from handling the record out of order is `retry_at`, which every release knows: it writes
the record on to a retry topic each time its wait there ends, as it does for `Retry(after=)`. Here
the release of today reads a word that it does not know either.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from ackfloor.core.parking.topic_names import tier_topic
from ackfloor.core.records.envelope import (
    NOT_BEFORE,
    PREFIX,
    REASON,
    RETRY_AT,
    Envelope,
    read_envelope,
    write_headers,
)
from ackfloor.core.records.record import Headers
from ackfloor.core.records.retry_policy import RetryPolicy
from ackfloor.core.state.assignment import HandlerRules
from ackfloor.core.state.worker_state import Route
from tests.compatibility.cases import FAILED_FOLLOWER, FOLLOWER, HELD
from tests.framework.core.worlds import START_MS, MemoryRecord, World

UNKNOWN = b"a-word-of-a-later-release"
TEN_YEARS_MS = 10 * 365 * 86_400_000
LADDER = RetryPolicy(max_redeliveries=6)
OWN = [("traceparent", b"00-1-2-01"), ("twice", b"1"), ("twice", None)]
WAITING = pytest.mark.parametrize("told", [FOLLOWER, FAILED_FOLLOWER, HELD], ids=["new", "2", "7"])


def unknown(told: Envelope) -> list[tuple[str, bytes | None]]:
    """The headers of a record that waits from now on, as an older release sees them."""
    mine = {
        REASON: UNKNOWN,
        NOT_BEFORE: str(START_MS + 1_000).encode(),
        RETRY_AT: str(START_MS + TEN_YEARS_MS).encode(),
    }
    return [(name, mine.get(name, value)) for name, value in write_headers(told, OWN)]


def older(rules: HandlerRules) -> World:
    """A worker that reads every retry topic of its policy, a partition each."""
    tiers = rules.policy.tiers() or LADDER.tiers()
    names = {tier_topic("orders", "g", tier_s): tier_s for tier_s in tiers}
    world = World(rules, {name: Route("bill", "orders", tier_s) for name, tier_s in names.items()})
    world.partitions.update(dict.fromkeys(names, 1))
    for name in names:
        world.assign(topic=name)
    return world


def wait(world: World, topic: str, headers: Headers, offset: int) -> None:
    """A record is read from a retry topic, and its wait there ends."""
    world.engine.polled([MemoryRecord(topic, 0, offset, _key=b"k", _headers=headers)], world.now)
    world.take()
    world.tick(2 * LADDER.tiers()[-1])


@WAITING
@pytest.mark.parametrize("ordering", ["unordered", "key", "partition"])
@pytest.mark.parametrize(
    "policy", [LADDER, RetryPolicy.fixed("1s", 1)], ids=["ladder", "one retry topic"]
)
def test_it_writes_the_record_on_each_time_its_wait_ends(
    told: Envelope, ordering: str, policy: RetryPolicy
) -> None:
    """Into the longest retry topic, spending no attempt; what was not its own stays as it was."""
    world = older(HandlerRules("bill", ordering=ordering, policy=policy))  # type: ignore[arg-type]
    shortest = tier_topic("orders", "g", policy.tiers()[0])
    longest = tier_topic("orders", "g", policy.tiers()[-1])
    topic, headers = shortest, unknown(told)
    waits: list[int] = []
    for hop in range(300):
        wait(world, topic, headers, hop)
        assert not world.ready, "it is delivered"
        write = world.confirm()
        assert not world.writes
        topic, headers = write.topic, list(write.headers)
        assert topic == longest
        assert [each for each in headers if not each[0].startswith(PREFIX)] == OWN
        now = read_envelope(headers)
        assert (now.attempt, now.failures, now.timeouts) == (
            told.attempt, told.failures, told.timeouts
        )  # fmt: skip
        assert now.retry_at_ms == START_MS + TEN_YEARS_MS
        assert now.not_before_ms is not None
        waits.append(now.not_before_ms)
    assert all(earlier < later for earlier, later in pairwise(waits))
    assert world.floor(topic=longest) >= 1, "what it wrote on is settled"


@WAITING
def test_what_it_wrote_on_says_no_longer_why_it_waits(told: Envelope) -> None:
    """It can't keep a word that it can't read: the place of origin and `retry_at` are what is left.

    So a release that knows the word must tell such a record by its `retry_at`.
    """
    world = older(HandlerRules("bill", policy=LADDER))
    wait(world, tier_topic("orders", "g", LADDER.tiers()[0]), unknown(told), 0)
    now = read_envelope(world.confirm().headers)
    assert (now.reason, now.unreadable) == (None, ())
    assert now.retry_at_ms == START_MS + TEN_YEARS_MS
    assert (now.origin_topic, now.origin_partition, now.origin_offset) == (
        told.origin_topic, told.origin_partition, told.origin_offset
    )  # fmt: skip


@WAITING
def test_where_it_retries_in_place_it_keeps_the_record_open(told: Envelope) -> None:
    """`on_failure="block"` has nowhere to write it on to: it waits there, and is not settled."""
    world = older(HandlerRules("bill", ordering="key", policy=LADDER, in_place=True))
    topic = tier_topic("orders", "g", LADDER.tiers()[0])
    wait(world, topic, unknown(told), 0)
    world.tick(9 * 365 * 86_400)
    assert not world.ready
    assert not world.writes
    assert world.floor(topic=topic) == 0


def test_its_own_failures_are_delivered_meanwhile() -> None:
    """What waits behind a key does not stand in the way of what is due in the same retry topic."""
    world = older(HandlerRules("bill", ordering="key", policy=LADDER))
    topic = tier_topic("orders", "g", LADDER.tiers()[0])
    due = Envelope("orders", 0, 5, 0, "g", "bill", 1, 1, not_before_ms=START_MS + 1_000)
    world.engine.polled(
        [
            MemoryRecord(topic, 0, 0, _key=b"k", _headers=unknown(FOLLOWER)),
            MemoryRecord(topic, 0, 1, _key=b"k", _headers=write_headers(due, OWN)),
        ],
        world.now,
    )
    world.tick(2.0)
    assert world.start().origin.offset == 5
    assert [write.delivery.origin.offset for write in world.writes] == [FOLLOWER.origin_offset]
