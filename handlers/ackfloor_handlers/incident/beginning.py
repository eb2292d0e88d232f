"""The beginning: topics, records, and what breaks outside.

The seed decides which payments have a coupon, and whose row is locked.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from ackfloor import AckfloorError, KafkaUnreachable
from ackfloor_handlers.incident.outside import FOLDER, LOCKED_ROW, WAREHOUSE_DOWN

TOPICS = ("payments", "parcels", "points", "mails", "searches")
PARTITIONS = 1
RECORDS = 200
CUSTOMERS = tuple(f"customer-{number}" for number in range(10))
_ANSWER_S = 60.0
_FIRST_ANSWER_S = 10.0

#: Topic, key and value.
Record = tuple[str, str | None, object]


class NotConfirmed(AckfloorError):
    """A broker did not take what was written."""


def records(chance: random.Random) -> Iterator[Record]:
    """The records to write, one of each topic after another."""
    with_coupon = set(chance.sample(range(RECORDS), RECORDS // 8))
    for number in range(RECORDS):
        payment: dict[str, object] = {"id": number, "cents": 100 + number}
        if number in with_coupon:
            payment["coupon"] = {"percent": 10}
        customer = CUSTOMERS[number % len(CUSTOMERS)]
        yield "payments", None, payment
        yield "parcels", None, number
        yield "points", customer, {"customer": customer, "points": number}
        yield "mails", None, f"someone-{number}@example.com"
        yield "searches", None, f"shoes {number}"


def begin(servers: str, seed: int) -> None:
    """Create the topics, break what is outside, and write the records.

    Raises:
        KafkaUnreachable: no broker answers; nothing is begun.
        KafkaException: the broker refused.
        NotConfirmed: it did not answer.
    """
    _check_answers(servers)
    chance = random.Random(seed)  # noqa: S311 -- the same incident for the same seed
    FOLDER.mkdir(exist_ok=True)
    WAREHOUSE_DOWN.touch()
    LOCKED_ROW.write_text(chance.choice(CUSTOMERS))
    admin = AdminClient({"bootstrap.servers": servers})
    created = admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in TOPICS])
    for done in created.values():
        try:
            done.result(_ANSWER_S)
        except KafkaException as exc:
            if exc.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
    write(servers, records(chance))


def _check_answers(servers: str) -> None:
    """Refuse servers of which none answers; the client would report it 20 times a second."""
    try:
        AdminClient({"bootstrap.servers": servers, "log_level": 0}).list_topics(
            timeout=_FIRST_ANSWER_S
        )
    except KafkaException as exc:
        raise KafkaUnreachable(
            f"no broker answers at {servers} within {_FIRST_ANSWER_S:g} s: begin with "
            "`export ACKFLOOR_BOOTSTRAP_SERVERS=$(ackfloor broker up)`, in every terminal"
        ) from exc


def write(servers: str, given: Iterable[Record]) -> None:
    """Write records, and wait until all are confirmed.

    Raises:
        KafkaException: the broker refused.
        NotConfirmed: it did not answer.
    """
    producer = Producer({"bootstrap.servers": servers})
    for topic, key, value in given:
        text = value if isinstance(value, str) else json.dumps(value)
        producer.produce(topic, text.encode(), key=key)
        producer.poll(0)
    left = producer.flush(_ANSWER_S)
    if left:
        raise NotConfirmed(f"{left} records were not confirmed by {servers}")
