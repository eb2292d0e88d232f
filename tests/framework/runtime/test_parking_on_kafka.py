"""Parks, publishes and deadlines on a real broker that refuses and comes back."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest
from confluent_kafka import TopicCollection

from ackfloor import App, Delivery, Pause, RetryPolicy
from ackfloor.core.messages.events import DeliveryTimedOut, PublishFailed, RecordParked
from ackfloor.core.records.envelope import IDEMPOTENCY_KEY, NOT_BEFORE, ORIGIN_OFFSET
from ackfloor.dead_letters.rules.redrive_rules import DeadLetter, redriven_headers
from ackfloor.errors import TopicReplaced
from ackfloor.kafka.topics.topic_ids import printed
from tests.framework.runtime.on_kafka import Crowd, consumer_of, on_kafka

pytestmark = [pytest.mark.kafka]

NONE = RetryPolicy(max_redeliveries=0)
FAST = {"delivery.timeout.ms": 3000}


def failing_once(crowd: Crowd, done: Counter[tuple[int, int]], policy: RetryPolicy) -> App:
    """A handler that fails each record once; `done` counts (offset, attempt)."""
    app = App(crowd.place.group)

    @app.handler(crowd.place.topic, name="bill", retry=policy)
    async def bill(delivery: Delivery) -> None:
        if delivery.attempt == 1:
            raise ValueError("once")
        done[delivery.origin.offset, delivery.attempt] += 1

    return app


def test_a_retry_topic_that_was_deleted_and_made_again_is_used_again(
    bootstrap_servers: str,
) -> None:
    """A missing tier is a failed park; its records stay open until it is there.

    Whoever knew the earlier one starts afresh: its clients may not find the new one.
    """
    with on_kafka(bootstrap_servers) as crowd:
        place, done = crowd.place, Counter[tuple[int, int]]()
        app = failing_once(crowd, done, RetryPolicy.fixed("100ms", 1))
        worker = crowd.start(app, producer=FAST)
        crowd.until(lambda: place.committed() == 0)
        tier = place.our("retry")
        place.delete(tier)
        place.send(3)
        crowd.until(lambda: worker.watcher.told(PublishFailed), "a refused park")
        assert worker.floor(place.topic) == 0
        assert tier in worker.faults()
        place.create(tier)
        with pytest.raises(TopicReplaced):
            crowd.until(lambda: False, "the new one is noticed")
        worker.close()
        worker = crowd.start(failing_once(crowd, done, RetryPolicy.fixed("100ms", 1)))
        crowd.until(lambda: place.committed() == 3, "the parks")
        crowd.until(lambda: worker.faults() == "", "the end of the fault")
        assert place.end(tier) >= 3


def test_a_publish_that_is_not_confirmed_is_the_handlers_failure(bootstrap_servers: str) -> None:
    """It raises where it is awaited, and the record goes the way of every failure."""
    with on_kafka(bootstrap_servers) as crowd:
        place = crowd.place
        app = App(place.group)

        @app.handler(place.topic, retry=NONE)
        async def copy(value: bytes) -> None:
            await app.publish(f"{place.topic}--away--retry-1h", value)

        crowd.start(app, producer={**FAST, "topic.metadata.propagation.max.ms": 500})
        place.send()
        [dlq] = place.own()
        crowd.until(lambda: place.end(dlq) == 1, "the dead letter")
        headers = dict(place.read(dlq)[0].headers())
        assert headers["ackfloor.error.type"].endswith(b"PublishFailed")
        crowd.until(lambda: place.committed() == 1)


def test_extend_keeps_a_long_handler_from_its_deadline(bootstrap_servers: str) -> None:
    """Handled once, never parked; without another word the moved deadline is the deadline."""
    with on_kafka(bootstrap_servers) as crowd:
        place = crowd.place
        app, ended, answers = App(place.group), [], []

        @app.handler(place.topic, consume_timeout="2s", max_extend="5m", retry=NONE)
        async def long(value: bytes, delivery: Delivery) -> None:
            if value == b"silent":
                answers.append(delivery.extend("1s"))
                await asyncio.sleep(300)
            for _ in range(8):
                answers.append(delivery.extend("1m"))
                await asyncio.sleep(0.3)
            ended.append(delivery.offset)

        worker = crowd.start(app)
        place.send()
        crowd.until(lambda: place.committed() == 1, "the long one")
        assert (ended, all(answers)) == ([0], True)
        assert worker.watcher.told(DeliveryTimedOut) == []
        place.send(1, b"silent")
        crowd.until(lambda: place.committed() == 2, "the silent one")
        assert len(worker.watcher.told(DeliveryTimedOut)) == 1
        [dlq] = place.own()
        [message] = place.read(dlq)
        assert dict(message.headers())["ackfloor.error.type"] == b"ConsumeTimeout"


def test_a_record_that_waits_for_a_slot_is_not_late(bootstrap_servers: str) -> None:
    """Read at once, the last of them begins after several timeouts, and none is parked."""
    with on_kafka(bootstrap_servers) as crowd:
        place = crowd.place
        app, attempts = App(place.group), []

        @app.handler(place.topic, consume_timeout="1s", concurrency=1, retry=NONE)
        async def slow(delivery: Delivery) -> None:
            attempts.append(delivery.attempt)
            await asyncio.sleep(0.3)

        place.send(12)
        worker = crowd.start(app)
        crowd.until(lambda: place.committed() == 12, "all of them")
        assert worker.watcher.told(DeliveryTimedOut) == []
        assert attempts == [1] * 12
        [dlq] = place.own()
        assert place.end(dlq) == 0


def test_retries_are_not_early_and_a_redrive_to_the_source_keeps_the_key(
    bootstrap_servers: str,
) -> None:
    """The key is the topic's id as Kafka tells it, partition and offset, whatever delivers it."""
    with on_kafka(bootstrap_servers) as crowd:
        place = crowd.place
        app, keys, early_ms = App(place.group), list[str](), list[int]()

        @app.handler(place.topic, retry=RetryPolicy.fixed("500ms", 1))
        async def fail(delivery: Delivery) -> None:
            keys.append(delivery.idempotency_key)
            due_ms = dict(delivery.headers).get(NOT_BEFORE)
            if due_ms is not None and delivery.attempt > 1:
                early_ms.append(int(due_ms) - time.time_ns() // 1_000_000)
            raise ValueError("always")

        place.send(3)
        crowd.start(app)
        dlq = place.our("dlq")
        crowd.until(lambda: place.end(dlq) == 3, "the dead letters")
        last = max(place.read(dlq), key=lambda r: int(dict(r.headers())[ORIGIN_OFFSET]))
        dead = DeadLetter(dlq, 0, last.offset(), None, last.value(), last.headers())
        place.send(headers=redriven_headers(dead, 0))
        crowd.until(lambda: place.end(dlq) == 4, "it fails again")
        described = place.admin.describe_topics(TopicCollection([place.topic]))
        topic_id = printed(described[place.topic].result(60).topic_id)
        again = place.read(dlq)[-1]
    assert Counter(keys) == {f"{topic_id}/0/{n}": 4 if n == 2 else 2 for n in range(3)}
    assert dict(again.headers())[IDEMPOTENCY_KEY] == f"{topic_id}/0/2".encode()
    assert dict(again.headers())[ORIGIN_OFFSET] == b"3"
    assert len(early_ms) == 4
    assert max(early_ms) <= 0


@pytest.mark.parametrize("change", ["the tier left the policy", "the handler was renamed"])
def test_what_waits_in_a_tier_of_yesterday_is_handled_today(
    bootstrap_servers: str, change: str
) -> None:
    """Every existing tier of this topic and group is drained, whoever filled it."""
    with on_kafka(bootstrap_servers) as crowd:
        place, done = crowd.place, Counter[tuple[int, int]]()
        first = crowd.start(failing_once(crowd, done, RetryPolicy.fixed("700ms", 3)))
        place.send(20)
        crowd.until(lambda: len(first.watcher.told(RecordParked)) >= 20, "the parks")
        crowd.until(lambda: place.committed() == 20)
        first.close()
        before = set(done)
        app = App(place.group)

        async def handle(delivery: Delivery) -> None:
            done[delivery.origin.offset, delivery.attempt] += 1

        renamed = change.startswith("the handler")
        policy = RetryPolicy.fixed("700ms", 3) if renamed else RetryPolicy.fixed("5m", 1)
        name = "charge" if renamed else "bill"
        app.handler(place.topic, name=name, retry=policy)(handle)
        crowd.start(app)
        # A copy, made at once: the handler's thread adds to it meanwhile.
        crowd.until(lambda: {offset for offset, _ in list(done)} == {*range(20)}, "the old tier")
        assert {attempt for _, attempt in done} == {2}
        tier = place.our("retry-700ms")
        crowd.until(lambda: place.committed(tier) == place.end(tier), "the tier's commit")
        assert all(count == 1 for where, count in done.items() if where in before)


def test_a_pause_that_two_rebalances_interrupt_spends_no_budget(bootstrap_servers: str) -> None:
    """The record is away twice within the pause of its handler, and is handled in the end."""
    with on_kafka(bootstrap_servers, 2) as crowd:
        place = crowd.place
        handled: Counter[tuple[int, int, int]] = Counter()
        away = [True]

        def app() -> App:
            made = App(place.group)

            @made.handler(place.topic, retry=NONE)
            async def handle(delivery: Delivery) -> None:
                if away[0]:
                    raise Pause("1500ms")
                handled[delivery.partition, delivery.offset, delivery.attempt] += 1

            return made

        settings = {"consumer": consumer_of("eager")}
        first = crowd.start(app(), **settings)
        for number in range(2):
            place.send(5, partition=number)
        held = first.loop.engine.state.handlers["handle"]
        crowd.until(lambda: held.held_until_s, "the pause")
        for _ in range(2):
            other = crowd.start(app(), **settings)
            crowd.until(lambda: other.owns(place.topic))  # noqa: B023 -- called before it changes
            other.close()
            crowd.until(lambda: first.owns(place.topic) == [0, 1])
        away[0] = False
        crowd.until(lambda: len(handled) == 10, "everything")
        assert {attempt for *_, attempt in handled} == {1}
        assert place.end(place.own()[0]) == 0, "a dead letter"


def test_polling_goes_on_while_a_handler_takes_longer_than_the_poll_interval(
    bootstrap_servers: str,
) -> None:
    """No eviction: the same epoch, one delivery, the partition stays where it is."""
    with on_kafka(bootstrap_servers) as crowd:
        place = crowd.place
        seen: list[int] = []
        app = App(place.group)

        @app.handler(place.topic, retry=NONE)
        def slow(delivery: Delivery) -> None:
            seen.append(delivery.offset)
            time.sleep(6.0)

        consumer = {**consumer_of("cooperative", 4.0), "max.poll.interval.ms": "4000"}
        worker = crowd.start(app, consumer=consumer, drain_timeout="500ms")
        crowd.until(lambda: worker.owns(place.topic) == [0])
        epoch = worker.loop.engine.assignments[place.topic, 0].epoch
        place.send(2)
        crowd.until(lambda: place.committed() == 2, "the commit")
        assert seen == [0, 1]
        assert worker.loop.engine.assignments[place.topic, 0].epoch == epoch
