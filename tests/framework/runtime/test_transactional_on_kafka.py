"""Transactional parking of whole workers on a real broker: commits that cross, and rebalances."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ackfloor import App, Delivery, RetryPolicy
from ackfloor.core.parking.transaction import Transaction, TransactionOutcome
from ackfloor.kafka.client.client_options import KafkaOptions, transactional_config
from ackfloor.kafka.inspection.group_progress import ProgressReader
from ackfloor.kafka.produce.transactional_producer import Transactor
from tests.e2e.commit_log import read_commits
from tests.framework.runtime.on_kafka import PROTOCOLS, Crowd, Place, consumer_of, on_kafka

pytestmark = [pytest.mark.kafka]

ONCE = RetryPolicy.fixed("200ms", 1, jitter=0)


class Slow:
    """A producer that takes its time between the offsets of a transaction and its end."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def commit_transaction(self, timeout: float) -> None:
        time.sleep(0.15)
        self._producer.commit_transaction(timeout)


@pytest.fixture
def slow_transactions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Transactions take long; returns how many parcels each had."""
    carry_out, writes = Transactor.carry_out, []

    def slowly(
        self: Transactor, transaction: Transaction, member: object
    ) -> TransactionOutcome | None:
        if not isinstance(self._producer, Slow):
            self._producer = Slow(self._ready())  # type: ignore[assignment]
        writes.append(len(transaction.writes))
        return carry_out(self, transaction, member)

    monkeypatch.setattr(Transactor, "carry_out", slowly)
    return writes


def parked(crowd: Crowd, suffix: str) -> Counter[tuple[int, int]]:
    """How often each record is in a topic of ours."""
    topic = crowd.place.our(suffix)
    found = [dict(message.headers() or ()) for message in crowd.place.read(topic)]
    return Counter(
        (int(h["ackfloor.origin.partition"]), int(h["ackfloor.origin.offset"])) for h in found
    )


def written(crowd: Crowd, suffix: str) -> int:
    """How far the log of a topic of ours is: told at once, and never less than what is in it."""
    topic = crowd.place.our(suffix)
    return sum(crowd.place.end(topic, number) for number in range(4))


def test_no_plain_commit_crosses_a_transaction(
    bootstrap_servers: str, slow_transactions: list[int]
) -> None:
    """Rule 2: in the broker's own log of commits, no commit takes back what one before it said."""
    with on_kafka(bootstrap_servers, 2) as crowd:
        app = App(crowd.place.group)

        @app.handler(crowd.place.topic, concurrency=4, retry=RetryPolicy(max_redeliveries=0))
        async def work(delivery: Delivery) -> None:
            await asyncio.sleep(0.01)
            if delivery.offset % 7 == 3:
                raise ValueError("hopeless")

        crowd.start(app, parking="transactional", commit_interval="10ms")
        # In portions: a slow machine would have all of them in three transactions.
        for portion in range(8):
            crowd.place.send(100)
            crowd.until(lambda n=portion: len(slow_transactions) > n, "one more transaction")
            ends = {number: crowd.place.end(crowd.place.topic, number) for number in range(2)}
            crowd.until(
                lambda ends=ends: all(crowd.place.committed(None, n) == ends[n] for n in ends),
                "the end",
            )
        log = read_commits(bootstrap_servers, crowd.place.group)
        dead = parked(crowd, "--dlq")
    assert max(slow_transactions) > 1
    crossed = [
        (earlier, later, offset)
        for number in range(2)
        for earlier, later in pairwise(log.commits[crowd.place.topic, number])
        for offset in {*log.above(earlier), earlier.position - 1} - {-1}
        if not log.holds(later, offset)
    ]
    assert crossed == []
    assert sum(len(commits) for commits in log.commits.values()) > len(slow_transactions) + 3
    expected = {(number, offset) for number in range(2) for offset in range(3, ends[number], 7)}
    assert dead == Counter(expected)


def test_a_marker_at_the_end_of_a_retry_topic_is_lag_only_until_it_was_read_past(
    bootstrap_servers: str,
) -> None:
    """By a worker at work, and by one that is started at the marker and finds nothing else."""
    with on_kafka(bootstrap_servers) as crowd:
        place = crowd.place
        app = App(place.group)
        handled: list[int] = []

        @app.handler(place.topic, retry=ONCE)
        async def second_time(delivery: Delivery) -> None:
            if delivery.attempt == 1:
                raise ValueError("not yet")
            handled.append(delivery.origin.offset)

        onlooker = ProgressReader(KafkaOptions(*({"bootstrap.servers": bootstrap_servers},) * 3))

        def lags() -> list[int | None]:
            return [p.lag for p in onlooker.of(place.group, {}) if p.kind == "retry"]

        try:
            worker = crowd.start(app, parking="transactional")
            place.send(3)
            crowd.until(lambda: len(handled) == 3 and lags() == [0], "nothing behind")
            tier = place.our("--retry-")
            marker = place.end(tier) - 1
            assert marker >= 3
            worker.close()
            commit_as(place, TopicPartition(tier, 0, marker))
            assert lags() == [1]
            crowd.start(app, parking="transactional")
            crowd.until(lambda: lags() == [0], "the marker behind")
            assert sorted(handled) == [0, 1, 2]
        finally:
            onlooker.close()


def commit_as(place: Place, position: TopicPartition) -> None:
    """Commit in the name of a group that has no members."""
    anybody = Consumer({"bootstrap.servers": place.servers, "group.id": place.group})
    try:
        anybody.commit(offsets=[position], asynchronous=False)
    finally:
        anybody.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_rebalances_in_the_middle_of_transactions_double_nothing(
    bootstrap_servers: str, protocol: str, slow_transactions: list[int]
) -> None:
    """Revoked partitions finish their transaction first; whatever is refused is parked again."""
    with on_kafka(bootstrap_servers, 4) as crowd:
        place = crowd.place
        place.send(600)

        def start(number: int) -> None:
            app = App(place.group)

            @app.handler(place.topic, concurrency=4, retry=ONCE)
            async def fail(_: Delivery) -> None:
                await asyncio.sleep(0.005)
                raise ValueError("always")

            crowd.start(
                app,
                consumer=consumer_of(protocol),
                parking="transactional",
                transactional_id_prefix=f"{place.group}-{number}",
                drain_timeout="500ms",
            )

        start(0)
        crowd.until(lambda: len(slow_transactions) > 1, "the first transactions")
        for number in range(1, 4):
            start(number)
            newest = crowd.workers[-1]
            crowd.until(lambda w=newest: w.loop.engine.assignments, "its share")  # type: ignore[misc]
            crowd.turn_for(0.3)
            if number == 2:
                crowd.workers[0].close()
        crowd.until(lambda: written(crowd, "--dlq") >= 600, "dead letters of all, open or not")
        crowd.until(
            lambda: not faults(crowd) and len(parked(crowd, "--dlq")) == 600, "the last dead letter"
        )
        assert parked(crowd, "--dlq") == Counter(dict.fromkeys(places(crowd), 1))
        assert parked(crowd, "--retry-200ms") == Counter(dict.fromkeys(places(crowd), 1))


def places(crowd: Crowd) -> list[tuple[int, int]]:
    """Where the source's records are."""
    return [
        (number, offset)
        for number in range(4)
        for offset in range(crowd.place.end(crowd.place.topic, number))
    ]


def faults(crowd: Crowd) -> str:
    """What keeps records open, of all workers that run."""
    return "; ".join(w.faults() for w in crowd.workers if not w.closed and w.faults())


def test_a_partition_moves_on_while_a_dead_workers_transaction_is_open(
    bootstrap_servers: str,
) -> None:
    """Without a successor the broker ends it; until then its next owner reads nothing of it."""
    with on_kafka(bootstrap_servers, 1) as crowd:
        place = crowd.place
        place.send(5)
        member = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": place.group})
        member.subscribe([place.topic])
        crowd.until(lambda: (member.poll(0.05), member.assignment())[1], "the first owner")
        options = KafkaOptions(
            producer={"bootstrap.servers": bootstrap_servers, "transaction.timeout.ms": 3000}
        )
        dead = Producer(transactional_config(options, f"{place.group}-gone"))
        dead.init_transactions(60)
        dead.begin_transaction()
        offsets = [TopicPartition(place.topic, 0, 5)]
        dead.send_offsets_to_transaction(offsets, member.consumer_group_metadata(), 20)
        member.close()
        handled: list[int] = []
        app = App(place.group)

        @app.handler(place.topic)
        async def work(delivery: Delivery) -> None:
            handled.append(delivery.offset)

        crowd.start(app, parking="transactional")
        crowd.until(lambda: len(handled) >= 5, "the end of the dead worker's transaction")
        assert sorted(handled) == [0, 1, 2, 3, 4]
