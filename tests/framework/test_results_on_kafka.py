"""`to=` on a real broker: results are there, and a refused one fails its record alone."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from ackfloor import App, RetryPolicy, To
from ackfloor.errors import TopicsMissing
from tests.framework.runtime.on_kafka import Crowd, on_kafka

pytestmark = [pytest.mark.kafka]

NONE = RetryPolicy(max_redeliveries=0)
#: Not to be compressed below what the topic takes.
SMALL, LARGE = b"small", random.Random(1).randbytes(50_000)


async def returns_async(value: bytes) -> bytes:
    """What came, on the event loop."""
    return value


def returns(value: bytes) -> bytes:
    """What came, on a thread."""
    return value


async def yields_async(value: bytes) -> AsyncIterator[bytes]:
    """What came, as one of several."""
    yield b"first of " + value[:5]
    yield value


def yields(value: bytes) -> Iterator[bytes]:
    """The same, on a thread."""
    yield b"first of " + value[:5]
    yield value


async def batch(values: list[bytes]) -> list[bytes | None]:
    """What came, of several at once."""
    return [*values]


def with_results(crowd: Crowd, function: Callable[..., Any], **config: str) -> tuple[App, str]:
    """An app that publishes its results, and the topic of these."""
    place = crowd.place
    topic = f"{place.topic}-bills"
    place.create(topic, **config)
    app = App(place.group)
    to = To(topic, key=lambda value: value[:1], headers={"kind": "bill"})
    options = {"batch": 5, "batch_wait": "100ms"} if function is batch else {}
    app.handler(place.topic, name="bill", to=to, retry=NONE, breaker=None, **options)(function)
    return app, topic


@pytest.mark.parametrize("function", [returns_async, returns, yields_async, yields, batch])
def test_a_result_that_the_broker_refuses_dead_letters_its_record(
    bootstrap_servers: str, function: Callable[..., Any]
) -> None:
    """It is too large. Nothing of the record is lost, and those around it are not touched."""
    with on_kafka(bootstrap_servers) as crowd:
        place = crowd.place
        app, topic = with_results(crowd, function, **{"max.message.bytes": "10000"})
        for value in (SMALL, LARGE, SMALL, LARGE, SMALL):
            place.send(1, value)
        crowd.start(app)
        crowd.until(lambda: place.committed() == 5, "all records")
        letters = place.read(place.our("dlq"))
        assert [letter.value() for letter in letters] == [LARGE] * 2
        for letter in letters:
            told = dict(letter.headers())
            assert told["ackfloor.error.type"] == b"ackfloor.errors.PublishFailed"
            assert topic.encode() in told["ackfloor.error.message"]
        results = place.read(topic)
        assert [r.value() for r in results if r.value() == SMALL] == [SMALL] * 3
        assert not [r for r in results if r.value() == LARGE]
        for result in results:
            assert result.headers() == [("kind", b"bill")]
            assert result.key() == (result.value() or b"")[:1]


def test_a_topic_of_results_that_is_missing_stops_the_start(bootstrap_servers: str) -> None:
    """It would dead-letter every record."""
    with on_kafka(bootstrap_servers) as crowd:
        app = App(crowd.place.group)
        app.handler(crowd.place.topic, to=f"{crowd.place.topic}-nowhere")(returns)
        with pytest.raises(TopicsMissing, match=r"handlers\.returns\.to=.*-nowhere"):
            crowd.start(app, patience_s=5.0)
