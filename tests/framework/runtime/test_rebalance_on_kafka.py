"""Partitions come and go on a real broker, under each protocol, in the middle of everything."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest

from ackfloor import App, Delivery, RetryPolicy
from ackfloor.core.messages.events import LateAnswers, PartitionsRevoked
from ackfloor.core.parking.topic_names import tier_topic
from ackfloor.core.records.record import StartPosition
from ackfloor.kafka.consume import membership
from ackfloor.kafka.consume.start_positions import resolve
from tests.framework.runtime.live import Gate, register
from tests.framework.runtime.on_kafka import PROTOCOLS, Crowd, OnKafka, consumer_of, on_kafka

pytestmark = [pytest.mark.kafka]
EVERY_PROTOCOL = pytest.mark.parametrize("protocol", PROTOCOLS)
NONE = RetryPolicy(max_redeliveries=0)


def place_of(delivery: Delivery) -> tuple[int, int]:
    """Where a record was first read."""
    return delivery.origin.partition, delivery.origin.offset


def settled(crowd: Crowd, partitions: int) -> bool:
    """Whether the group has committed everything of the source."""
    place = crowd.place
    return all(place.committed(None, n) == place.end(place.topic, n) for n in range(partitions))


@EVERY_PROTOCOL
def test_a_pause_and_a_pending_retry_survive_a_revoke_and_a_reassignment(
    bootstrap_servers: str, protocol: str
) -> None:
    """The partition comes back paused by nothing but its own load, the retry in its own time."""
    with on_kafka(bootstrap_servers, 2) as crowd:
        place = crowd.place
        gates = [Gate(), Gate()]
        done: Counter[tuple[int, int, int]] = Counter()
        failed: dict[tuple[int, int], float] = {}
        retried: dict[tuple[int, int], float] = {}

        def app(gate: Gate) -> App:
            made = App(place.group)

            def script(delivery: Delivery) -> Iterator[Gate]:
                where = place_of(delivery)
                if delivery.value == b"fail" and delivery.attempt == 1:
                    failed[where] = time.monotonic()
                    raise ValueError("once")
                if delivery.value == b"fail":
                    retried.setdefault(where, time.monotonic())
                else:
                    yield gate
                done[(*where, delivery.attempt)] += 1

            policy = RetryPolicy.fixed("6s", 1, jitter=0)
            register(made, "async", place.topic, script, concurrency=4, retry=policy)
            return made

        def start(gate: Gate) -> OnKafka:
            return crowd.start(
                app(gate),
                consumer=consumer_of(protocol),
                max_open=20,
                drain_timeout="100ms",
                # The second is closed while its handlers wait at its gate.
                shutdown_timeout="500ms",
            )

        for number in range(2):
            place.send(1, b"fail", partition=number)
        first = start(gates[0])
        crowd.until(lambda: len(failed) == 2, "both failures")
        for number in range(2):
            place.send(150, b"x", partition=number)
        crowd.until(lambda: gates[0].arrived >= 4, "every slot at work")
        crowd.until(
            lambda: all(first.paused(place.topic)),
            "a pause",
        )
        second = start(gates[1])
        crowd.until(lambda: second.loop.engine.assignments, "the second's share")
        second.close()
        crowd.until(lambda: first.owns(place.topic) == [0, 1], "the return")
        gates[0].open()
        crowd.until(lambda: len(done) == 302, "everything")
        crowd.until(lambda: settled(crowd, 2), "the commit")
        # The last of all may be a retry, which is not in the source any more.
        crowd.until(lambda: first.loop.engine.flow.open_count == 0, "the last answer")
        assert set(retried) == set(failed)
        for where, when_s in retried.items():
            assert when_s - failed[where] >= 5.9, "early"


def test_a_worker_that_joins_later_gets_its_share_of_every_topic(bootstrap_servers: str) -> None:
    """As a worker is configured by default: nobody is left with nothing but retry topics."""
    with on_kafka(bootstrap_servers, 4) as crowd:
        place = crowd.place
        done: Counter[tuple[int, int]] = Counter()

        def app() -> App:
            made = App(place.group)

            @made.handler(place.topic, retry=RetryPolicy(delays=("1s", "5s")))
            async def count(delivery: Delivery) -> None:
                done[place_of(delivery)] += 1

            return made

        def shares(topic: str) -> list[int]:
            return [len(worker.owns(topic)) for worker in crowd.workers]

        crowd.start(app(), consumer={"heartbeat.interval.ms": "300"})
        crowd.until(lambda: shares(place.topic) == [4], "all of it")
        crowd.start(app(), consumer={"heartbeat.interval.ms": "300"})
        tiers = [tier_topic(place.topic, place.group, delay_s) for delay_s in (1.0, 5.0)]
        for topic in (place.topic, *tiers):
            crowd.until(lambda topic=topic: shares(topic) == [2, 2], f"a half of {topic} for each")
        for number in range(4):
            place.send(10, partition=number)
        crowd.until(lambda: len(done) == 40, "everything")


@EVERY_PROTOCOL
def test_an_answer_after_the_revoke_is_stale_and_counted(
    bootstrap_servers: str, protocol: str
) -> None:
    """The old owner's answer is False and moves nothing; the new owner's counts."""
    with on_kafka(bootstrap_servers, 2) as crowd:
        place = crowd.place
        held: list[dict[int, Delivery]] = [{}, {}]

        def app(number: int) -> App:
            made = App(place.group)

            @made.handler(place.topic, ack="manual", retry=NONE)
            async def hold(delivery: Delivery) -> None:
                held[number][delivery.partition] = delivery

            return made

        def start(number: int) -> OnKafka:
            settings = {"consumer": consumer_of(protocol), "drain_timeout": "50ms"}
            return crowd.start(app(number), **settings)

        first = start(0)
        for number in range(2):
            place.send(partition=number)
        crowd.until(lambda: len(held[0]) == 2)
        second = start(1)
        crowd.until(lambda: held[1], "a delivery to the new owner")
        # At one time: in the middle of a rebalance either may have none for a moment.
        crowd.until(
            lambda: [len(worker.owns(place.topic)) for worker in crowd.workers] == [1, 1],
            "a share for each",
        )
        [moved] = second.owns(place.topic)
        crowd.until(lambda: moved in held[1])
        assert held[0][moved].ack() is False
        crowd.turn_for(0.3)
        assert place.committed(None, moved) == 0
        assert held[1][moved].ack() is True
        [stayed] = first.owns(place.topic)

        def answered() -> bool:
            # Under the eager protocol everybody's partitions were revoked, so it comes again.
            return held[0][stayed].ack()

        crowd.until(answered, "an answer that counts")
        crowd.until(lambda: settled(crowd, 2), "the commits")
        crowd.until(lambda: sum(e.count for e in first.watcher.told(LateAnswers)) >= 1)


@EVERY_PROTOCOL
def test_a_revoke_in_the_middle_of_the_start_up(
    bootstrap_servers: str, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another member joins while the first looks up its positions: both work, nothing is lost."""
    with on_kafka(bootstrap_servers, 4) as crowd:
        place = crowd.place
        handled: Counter[tuple[int, int]] = Counter()

        def app() -> App:
            made = App(place.group)
            register(
                made, "async", place.topic, lambda d: iter(handled.update([place_of(d)]) or ()),
                retry=NONE,
            )  # fmt: skip
            return made

        joined = threading.Event()

        def slowly(*given: Any) -> list[StartPosition]:
            if not joined.is_set():
                joined.set()
                crowd.start(app(), consumer=consumer_of(protocol))
                # Long enough that the group asks for the partitions before they are in use.
                crowd.workers[-1].loop.turn(1.0)
            return resolve(*given)

        monkeypatch.setattr(membership, "resolve", slowly)
        for number in range(4):
            place.send(20, partition=number)
        crowd.start(app(), consumer=consumer_of(protocol))
        crowd.until(lambda: len(handled) == 80, "everything")
        crowd.until(lambda: settled(crowd, 4), "the commits")

        def shared() -> bool:
            owned = [worker.owns(place.topic) for worker in crowd.workers]
            return all(owned) and sorted(chain.from_iterable(owned)) == [0, 1, 2, 3]

        crowd.until(shared, "a share for both")


@EVERY_PROTOCOL
def test_closing_in_the_middle_of_a_rebalance_is_bounded_and_committed(
    bootstrap_servers: str, protocol: str
) -> None:
    """A member that leaves while another joins commits what it has done and holds up nobody."""
    with on_kafka(bootstrap_servers, 2) as crowd:
        place = crowd.place
        handled: Counter[tuple[int, int]] = Counter()

        def app() -> App:
            made = App(place.group)
            register(
                made, "async", place.topic, lambda d: iter(handled.update([place_of(d)]) or ()),
                retry=NONE,
            )  # fmt: skip
            return made

        settings = {"consumer": consumer_of(protocol), "commit_interval": "60s"}
        first = crowd.start(app(), **settings)
        for number in range(2):
            place.send(50, partition=number)
        crowd.until(lambda: len(handled) == 100 and not first.loop.engine.flow.open_count)
        second = crowd.start(app(), **settings)
        # It asks to join; the first is told of it no more, because it is not polled until it ends.
        second.loop.turn(0.5)
        began_s = time.monotonic()
        assert first.close() == 0
        assert time.monotonic() - began_s < 60
        crowd.until(lambda: second.owns(place.topic) == [0, 1], "the partitions")
        for number in range(2):
            place.send(1, partition=number)
        crowd.until(lambda: len(handled) == 102)
        assert set(handled.values()) == {1}
        assert not any(told.lost for told in first.watcher.told(PartitionsRevoked))
