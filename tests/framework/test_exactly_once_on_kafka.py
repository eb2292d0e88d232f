"""`output="exactly_once"` on a real broker: faults of output topics, sizes, rebalances.

Six rebalances here in each order; OUTPUT_REBALANCES=200 for the proof.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ackfloor import App, Delivery, RetryPolicy, To
from tests.framework.runtime.on_kafka import Crowd, Place, on_kafka

pytestmark = [pytest.mark.kafka]

REBALANCES = int(os.environ.get("OUTPUT_REBALANCES", "6"))
SOON = RetryPolicy.fixed("200ms", 1)
#: Not to be compressed below what the topic takes.
MEDIUM, LARGE = (random.Random(n).randbytes(n) for n in (6_000, 50_000))


def app_of(place: Place, *topics: str) -> App:
    """An app that publishes what comes to each of these topics, and fails where that says so."""
    app = App(place.group)

    @app.handler(
        place.topic,
        name="bill",
        output="exactly_once",
        retry=SOON,
        breaker=None,
    )
    async def bill(value: bytes, delivery: Delivery) -> None:
        for topic in topics:
            delivery.publish(topic, value)
        if value.startswith(b"fails") and delivery.attempt == 1:
            raise ValueError("no")
        if value.startswith(b"always"):
            raise ValueError("no")

    return app


def bill_in_process(value: bytes, delivery: Delivery) -> None:
    """A handler in a process of its own; a value is a topic and a text."""
    topic, text = value.decode().split()
    delivery.publish(topic, text, key=text, headers={"kind": "bill", "empty": None})
    delivery.publish(topic, None, partition=0)
    if text.startswith("fails") and delivery.attempt == 1:
        raise ValueError("no")


def bill_in_process_by_batch(values: list[bytes], deliveries: list[Delivery]) -> None:
    """The same for several at once; every third is answered by hand."""
    for number, (value, delivery) in enumerate(zip(values, deliveries, strict=True)):
        topic, text = value.decode().split()
        delivery.publish(topic, text, key=text, headers={"kind": "bill", "empty": None})
        delivery.publish(topic, None, partition=0)
        if text.startswith("fails") and delivery.attempt == 1:
            delivery.retry()
        elif number % 3 == 0:
            delivery.ack()


def sum_of(result: dict[str, int]) -> str:
    """The key of a result."""
    return str(result["twice"])


def kind_of(result: dict[str, int]) -> dict[str, str | None]:
    """The headers of a result."""
    return {"kind": "even" if result["twice"] % 4 == 0 else "odd"}


def double_in_process(value: bytes, delivery: Delivery) -> dict[str, int] | None:
    """A result in a process of its own; a failed attempt and every seventh record have none."""
    if int(value) % 5 == 3 and delivery.attempt == 1:
        delivery.publish("never-written", value)
        raise ValueError("no")
    return {"twice": 2 * int(value)} if int(value) % 7 else None


def double_in_process_by_batch(values: list[bytes]) -> list[dict[str, int] | None]:
    """The same for several at once."""
    return [{"twice": 2 * int(value)} if int(value) % 7 else None for value in values]


def double_in_process_one_by_one(value: bytes) -> Iterator[dict[str, int] | None]:
    """The same, yielded."""
    yield {"twice": 2 * int(value)} if int(value) % 7 else None


def values(place: Place, topic: str) -> Counter[bytes]:
    """What a reader of committed records finds in a topic, and how often."""
    return Counter(bytes(message.value() or b"") for message in place.read(topic))


def bills_of(crowd: Crowd, name: str = "bills", **config: str) -> str:
    """A topic for outputs."""
    topic = f"{crowd.place.topic}-{name}"
    crowd.place.create(topic, **config)
    return topic


def test_outputs_are_there_once_with_their_acknowledgement(bootstrap_servers: str) -> None:
    """Those of failed attempts are not; dead letters have none."""
    with on_kafka(bootstrap_servers) as crowd:
        place = crowd.place
        bills, ledger = bills_of(crowd), bills_of(crowd, "ledger")
        sent = [b"%s%d" % (kind, n) for n in range(40) for kind in (b"ok", b"fails", b"always")]
        for value in sent:
            place.send(1, value)
        crowd.start(app_of(place, bills, ledger))
        crowd.until(lambda: place.committed() == len(sent), "all of the source topic")
        good = Counter(value for value in sent if not value.startswith(b"always"))
        crowd.until(lambda: values(place, bills).total() >= len(good), "all outputs")
        crowd.until(lambda: len(place.read(place.our("dlq"))) == 40, "all dead letters")
        assert values(place, bills) == values(place, ledger) == good


def test_a_missing_output_topic_is_named_and_holds_its_records_alone(
    bootstrap_servers: str,
) -> None:
    """They stay open, and others go on; once it is there, they are published once."""
    with on_kafka(bootstrap_servers) as crowd:
        place = crowd.place
        bills, missing = bills_of(crowd), f"{place.topic}-missing"
        app = App(place.group)

        @app.handler(place.topic, name="bill", output="exactly_once")
        async def bill(value: bytes, delivery: Delivery) -> None:
            delivery.publish(missing if value == b"1" else bills, value)

        for number in range(4):
            place.send(1, b"%d" % number)
        worker = crowd.start(app)
        crowd.until(lambda: missing in worker.faults(), "the fault")
        crowd.until(lambda: values(place, bills).total() == 3, "the others")
        assert "can't be settled, because what they publish can't be written" in worker.faults()
        assert place.committed() <= 1
        place.create(missing)
        crowd.until(lambda: place.committed() == 4, "all records")
        crowd.until(lambda: not worker.faults(), "the end of the fault")
        assert values(place, missing) == Counter([b"1"])
        assert values(place, bills) == Counter([b"0", b"2", b"3"])


def test_outputs_too_large_for_their_topic_dead_letter_their_record(
    bootstrap_servers: str,
) -> None:
    """Those that fit one by one are published, however large they are together."""
    with on_kafka(bootstrap_servers) as crowd:
        place = crowd.place
        bills = bills_of(crowd, **{"max.message.bytes": "10000"})
        for value in (MEDIUM, LARGE, b"small"):
            place.send(1, value)
        crowd.start(app_of(place, bills, bills, bills))
        crowd.until(lambda: place.committed() == 3, "all records")
        assert values(place, bills) == Counter({MEDIUM: 3, b"small": 3})
        (letter,) = place.read(place.our("dlq"))
        assert letter.value() == LARGE
        assert dict(letter.headers())["ackfloor.error.type"] == b"OutputTooLarge"


def test_outputs_of_one_record_are_no_request_that_is_too_large(bootstrap_servers: str) -> None:
    """Nothing else waits, and together they are more than their topic takes at once."""
    with on_kafka(bootstrap_servers) as crowd:
        place, noise = crowd.place, random.Random(5)
        bills = bills_of(crowd, **{"max.message.bytes": "10000"})
        app = App(place.group)

        @app.handler(place.topic, name="bill", output="exactly_once")
        async def bill(value: bytes, delivery: Delivery) -> None:
            for _ in range(int(value)):
                delivery.publish(bills, noise.randbytes(2_000))

        worker = crowd.start(app)
        for number, count in enumerate((40, 600)):
            place.send(1, b"%d" % count)
            crowd.until(lambda end=number + 1: place.committed() == end, "the record")
        assert len(place.read(bills)) == 640
        assert place.read(place.our("dlq")) == []
        crowd.until(lambda: not worker.faults(), "the end of the fault that each was, together")


def failing_app(place: Place, bills: str, ordering: str) -> App:
    """Of fifty records one fails ten times, one always, and ten once."""
    app = App(place.group)

    @app.handler(
        place.topic,
        name="bill",
        output="exactly_once",
        ordering=ordering,  # type: ignore[arg-type]
        retry=RetryPolicy.fixed("50ms", 11, jitter=0),
        breaker=None,
    )
    async def bill(value: bytes, delivery: Delivery) -> None:
        delivery.publish(bills, value, key=delivery.key)
        number = int(value) % 50
        if number == 7 or delivery.attempt <= (10 if number == 41 else number % 5 == 3):
            raise ValueError("no")

    return app


@pytest.mark.timeout(900 + 15 * REBALANCES)
@pytest.mark.parametrize("ordering", ["unordered", "key"])
def test_a_rebalance_under_load_doubles_no_output(bootstrap_servers: str, ordering: str) -> None:
    """Workers come and go; each record's output is there once, a key's in its order."""
    with on_kafka(bootstrap_servers, partitions=4) as crowd:
        place = crowd.place
        bills = bills_of(crowd)
        sent = 0
        crowd.start(failing_app(place, bills, ordering))
        for number in range(REBALANCES):
            for _ in range(150):
                place.send(1, b"%d" % sent, key=b"k%d" % (sent % 11))
                sent += 1
            if number % 2:
                crowd.workers[number // 2].close()
            else:
                crowd.start(failing_app(place, bills, ordering))
            crowd.turn_for(0.2)

        def settled() -> int:
            return sum(max(0, place.committed(partition=number)) for number in range(4))

        handled = {number for number in range(sent) if number % 50 != 7}
        crowd.until(lambda: settled() == sent, "all records")
        crowd.until(lambda: len(place.read(bills)) >= len(handled), "all outputs")
        found = place.read(bills)
        assert Counter(int(m.value() or b"") for m in found) == Counter(handled)
        if ordering == "key":
            for key in range(11):
                of_key = [n for m in found if (n := int(m.value() or b"")) % 11 == key]
                assert of_key == sorted(of_key)


@pytest.mark.parametrize("function", [bill_in_process, bill_in_process_by_batch])
def test_a_process_handler_sends_its_outputs_with_the_answer(
    bootstrap_servers: str, function: Callable[..., None]
) -> None:
    """Key, value, headers and partition are as they were published; each is there once."""
    with on_kafka(bootstrap_servers) as crowd:
        place = crowd.place
        bills = bills_of(crowd)
        app = App(place.group)
        batch = {} if function is bill_in_process else {"batch": 7, "batch_wait": "50ms"}
        app.handler(
            place.topic,
            name="bill",
            executor="process",
            concurrency=2,
            output="exactly_once",
            retry=SOON,
            breaker=None,
            **batch,  # type: ignore[arg-type]
        )(function)
        texts = [f"{kind}{n}" for n in range(15) for kind in ("ok", "fails")]
        for text in texts:
            place.send(1, f"{bills} {text}".encode())
        crowd.start(app)
        crowd.until(lambda: place.committed() == len(texts), "all of the source topic")
        crowd.until(lambda: values(place, bills).total() == 2 * len(texts), "all outputs")
        found = [m for m in place.read(bills) if m.value() is not None]
        assert sorted(m.value().decode() for m in found) == sorted(texts)
        assert all(m.key() == m.value() for m in found)
        assert {tuple(m.headers() or ()) for m in found} == {(("kind", b"bill"), ("empty", None))}


@pytest.mark.parametrize(
    "function",
    [double_in_process, double_in_process_by_batch, double_in_process_one_by_one],
)
def test_the_results_of_a_process_handler_go_with_its_answer(
    bootstrap_servers: str, function: Callable[..., Any]
) -> None:
    """Its `to=` says their topic, key and headers, as for any handler; each is there once."""
    with on_kafka(bootstrap_servers) as crowd:
        place = crowd.place
        doubled = bills_of(crowd, "doubled")
        app = App(place.group)
        batch = {"batch": 7, "batch_wait": "50ms"} if "batch" in function.__name__ else {}
        app.handler(
            place.topic,
            name="double",
            to=To(doubled, key=sum_of, headers=kind_of),
            executor="process",
            concurrency=2,
            output="exactly_once",
            retry=SOON,
            breaker=None,
            **batch,  # type: ignore[arg-type]
        )(function)
        for number in range(30):
            place.send(1, b"%d" % number, key=b"k")
        crowd.start(app)
        crowd.until(lambda: place.committed() == 30, "all of the source topic")
        wanted = [2 * number for number in range(30) if number % 7]
        crowd.until(lambda: len(place.read(doubled)) >= len(wanted), "all results")
        found = place.read(doubled)
        assert sorted(int(m.key()) for m in found) == wanted
        assert all(json.loads(m.value()) == {"twice": int(m.key())} for m in found)
        kinds = [(m.key(), dict(m.headers())["kind"]) for m in found]
        assert all(kind == (b"odd" if int(key) % 4 else b"even") for key, kind in kinds)
