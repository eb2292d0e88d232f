"""Handlers that quarantine, on a real broker: which worker reads what, and how soon."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from ackfloor import App, Delivery, RetryPolicy
from ackfloor.core.queues.quarantine import Quarantine, Tally
from ackfloor.runtime.loop import loop as loops
from tests.framework.runtime.on_kafka import Crowd, OnKafka, on_kafka

pytestmark = [pytest.mark.kafka]

PARTITIONS, RECORDS = 4, 5


def test_quick_retry_topics_are_read_by_the_worker_of_their_source(bootstrap_servers: str) -> None:
    """Two workers share the source out, each reads the same of the tiers, and keys are in order."""
    with on_kafka(bootstrap_servers, PARTITIONS) as crowd:
        handled: list[tuple[str, int]] = []
        app, tiers = quarantining(crowd, handled)
        first, second = crowd.start(app), crowd.start(app)
        topics = [crowd.place.topic, *tiers]
        crowd.until(lambda: shares(first, second, topics[0]) == 2 * [PARTITIONS // 2], "a share")
        crowd.until(
            lambda: all(reads_alike(w, topics) for w in (first, second)), "the same of tiers"
        )
        write(crowd, [f"k{number}" for number in range(8)])
        crowd.until(lambda: len(handled) == 8 * RECORDS, "all handled")
        for number in range(8):
            order = [value for key, value in handled if key == f"k{number}"]
            assert order == list(range(RECORDS))
        assert sorted(crowd.place.admin.list_topics(timeout=60).topics.keys() & tiers) == tiers


def quarantining(crowd: Crowd, handled: list[tuple[str, int]]) -> tuple[App, list[str]]:
    """An app whose handler fails the first attempts of each third record; and its retry topics."""
    app, topic = App(crowd.place.group), crowd.place.topic

    @app.handler(
        topic,
        ordering="key",
        on_failure="quarantine",
        retry=RetryPolicy(delays=("100ms", "300ms"), jitter=0.0),
    )
    async def bill(value: bytes, delivery: Delivery) -> None:
        if int(value) % 3 == 1 and delivery.attempt < 3:
            raise ConnectionError("away")
        handled.append(((delivery.key or b"").decode(), int(value)))

    prefix = f"{topic}--{app.group}--retry-"
    return app, [f"{prefix}100ms", f"{prefix}300ms"]


def shares(first: OnKafka, second: OnKafka, topic: str) -> list[int]:
    """How many partitions of a topic each has."""
    return [len(worker.owns(topic)) for worker in (first, second)]


def reads_alike(worker: OnKafka, topics: list[str]) -> bool:
    """Whether it has the same partitions of each of these topics."""
    return len({tuple(worker.owns(topic)) for topic in topics}) == 1


def write(crowd: Crowd, keys: list[str]) -> None:
    """Numbered records of each key."""
    producer = Producer({"bootstrap.servers": crowd.place.servers})
    for number in range(RECORDS):
        for key in keys:
            producer.produce(crowd.place.topic, b"%d" % number, key=key)
    assert producer.flush(60) == 0


def test_a_loop_with_a_quarantined_key_looks_often(bootstrap_servers: str) -> None:
    """What frees the key may have come to the client that wakes nobody."""
    with on_kafka(bootstrap_servers) as crowd:
        app, _ = quarantining(crowd, [])
        loop = crowd.start(app).loop
        loop._wait_s = loops.LONGEST_IDLE_WAIT_S
        quarantined = loop.engine.state.handlers["bill"].lanes.quarantined
        assert not loop._is_expecting()
        key = (crowd.place.topic, 0, b"a")
        quarantined[key] = Quarantine(key, 0, Tally(), 0)
        assert loop._patience() <= loops.LONGEST_BUSY_WAIT_S
        quarantined.clear()


def test_a_source_that_was_created_anew_loses_no_record_to_what_was_parked_before(
    bootstrap_servers: str,
) -> None:
    """The new records have the offsets of the old ones, one of them also the key."""
    with on_kafka(bootstrap_servers) as crowd:
        app, fails = App(crowd.place.group), [True]
        handled: list[str] = []

        @app.handler(
            crowd.place.topic,
            ordering="key",
            on_failure="quarantine",
            retry=RetryPolicy(delays=("1s", "2s"), jitter=0.0),
        )
        async def bill(value: str) -> None:
            if fails and value.startswith("old"):
                raise ConnectionError("away")
            handled.append(value)

        first = crowd.start(app)
        keys = ["ada", "ada", "bob", "bob"]
        send(crowd, [(key, f"old {number}") for number, key in enumerate(keys)])
        crowd.until(lambda: first.floor(crowd.place.topic) == len(keys), "all parked")
        first.close()
        crowd.place.delete(crowd.place.topic)
        crowd.place.create(crowd.place.topic)
        send(crowd, [("ada", "new 0"), ("bob", "new 1")])
        fails.clear()
        second = crowd.start(app)
        handler = next(iter(second.loop.engine.state.handlers.values()))
        crowd.until(lambda: len(handled) >= 6 and not handler.lanes.quarantined, "all handled")
        assert sorted(handled) == ["new 0", "new 1", *(f"old {number}" for number in range(4))]
        # Of one key those that were parked first come first, where both have an offset.
        assert handled.index("old 0") < handled.index("new 0")


def send(crowd: Crowd, records: list[tuple[str, str]]) -> None:
    """Write records of these keys and values."""
    producer = Producer({"bootstrap.servers": crowd.place.servers})
    for key, value in records:
        producer.produce(crowd.place.topic, value, key=key)
    assert producer.flush(60) == 0
