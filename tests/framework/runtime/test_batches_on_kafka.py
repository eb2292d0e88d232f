"""Batches on a real broker: filled, retried one by one, redelivered through a tier, committed."""

from __future__ import annotations

from collections import Counter

import pytest

from ackfloor import App, Delivery, RetryPolicy
from ackfloor.core.messages.events import RecordsAcked
from tests.framework.runtime.on_kafka import Crowd, on_kafka

pytestmark = [pytest.mark.kafka]

RECORDS = 60


def app_of(crowd: Crowd, ordering: str, sizes: list[int], done: Counter[tuple[int, int]]) -> App:
    """A handler that refuses company for record 7, and counts what it has handled."""
    app = App(crowd.place.group)

    @app.handler(
        crowd.place.topic,
        name="store",
        batch=10,
        batch_wait="50ms",
        ordering=ordering,  # type: ignore[arg-type]  # one of the choices
        retry=RetryPolicy.fixed("100ms", 2),
    )
    async def store(deliveries: list[Delivery]) -> None:
        sizes.append(len(deliveries))
        origins = [(d.origin.partition, d.origin.offset) for d in deliveries]
        if len(deliveries) > 1 and any(offset == 7 for _, offset in origins):
            assert deliveries[0].ack()
            done[origins[0]] += 1
            raise ValueError("record 7 wants to be alone")
        done.update(origins)

    return app


@pytest.mark.parametrize("ordering", ["unordered", "partition"])
def test_batches_settle_record_by_record(bootstrap_servers: str, ordering: str) -> None:
    """Every record is handled once here, whatever batch it was in, and the floors reach the end."""
    sizes: list[int] = []
    done: Counter[tuple[int, int]] = Counter()
    with on_kafka(bootstrap_servers, partitions=2) as crowd:
        place = crowd.place
        place.send(RECORDS)
        ends = [place.end(place.topic, partition) for partition in range(2)]
        worker = crowd.start(app_of(crowd, ordering, sizes, done))
        crowd.until(
            lambda: [place.committed(partition=p) for p in range(2)] == ends, "the last commits"
        )
        crowd.until(lambda: len(done) == RECORDS, "the redeliveries")
        crowd.until(
            lambda: sum(len(e.durations_s) for e in worker.watcher.told(RecordsAcked)) == RECORDS
        )
    assert set(done.values()) == {1}
    assert max(sizes) == 10
