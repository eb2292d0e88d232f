"""Where a whole worker begins to read; the source's own rules are in
tests/framework/kafka/consume/test_start_positions.py.
"""

from __future__ import annotations

import pytest

from ackfloor import App, Delivery, RetryPolicy
from ackfloor.core.messages.events import RecordsLost
from tests.framework.runtime.on_kafka import Place, on_kafka

pytestmark = [pytest.mark.kafka]

NONE = RetryPolicy(max_redeliveries=0)
Handled = list[tuple[int, int, bytes]]


def noting(place: Place, handled: Handled) -> App:
    """A handler that writes down what it handles."""
    app = App(place.group)

    @app.handler(place.topic, retry=NONE)
    async def handle(value: bytes, delivery: Delivery) -> None:
        handled.append((delivery.partition, delivery.offset, value))

    return app


@pytest.mark.parametrize("longer", [False, True])
def test_a_topic_that_was_made_anew_is_read_from_its_beginning(
    bootstrap_servers: str, longer: bool
) -> None:
    """Whether the old commit is beyond its end or, with as many records again, inside it."""
    with on_kafka(bootstrap_servers) as crowd:
        place = crowd.place
        handled: Handled = []
        first = crowd.start(noting(place, handled))
        place.send(5, b"old")
        crowd.until(lambda: place.committed() == 5)
        first.close()
        place.delete(place.topic)
        place.create(place.topic)
        new = 8 if longer else 2
        place.send(new, b"new")
        handled.clear()
        crowd.start(noting(place, handled))
        crowd.until(lambda: place.committed() == new and len(handled) == new, "the new records")
        assert [offset for _, offset, _ in handled] == list(range(new))
        assert {value for *_, value in handled} == {b"new"}


def test_an_idle_latest_group_skips_nothing_that_came_while_it_was_away(
    bootstrap_servers: str,
) -> None:
    """Its first position was committed although it never had a record."""
    with on_kafka(bootstrap_servers) as crowd:
        place = crowd.place
        handled: Handled = []
        place.send(4, b"before")
        first = crowd.start(noting(place, handled), start="latest")
        crowd.until(lambda: place.committed() == 4, "the first position")
        first.close()
        place.send(3, b"away")
        again = crowd.start(noting(place, handled), start="latest")
        crowd.until(lambda: place.committed() == 7)
        assert [value for *_, value in handled] == [b"away"] * 3
        assert again.watcher.told(RecordsLost) == []
