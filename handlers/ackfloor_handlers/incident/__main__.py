"""`python -m ackfloor_handlers.incident begin|mend`: starts the incident, repairs what is outside.

`begin` creates the topics and writes to them. The seed decides which payments have a coupon, and
whose row is locked.
"""

from __future__ import annotations

import argparse
import json
import os
import random
from collections.abc import Iterator

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from ackfloor_handlers.incident.outside import FOLDER, LOCKED_ROW, WAREHOUSE_DOWN, mend

TOPICS = ("payments", "parcels", "points", "mails", "searches")
PARTITIONS = 1
RECORDS = 200
CUSTOMERS = tuple(f"customer-{number}" for number in range(10))
_ANSWER_S = 60.0


def records(chance: random.Random) -> Iterator[tuple[str, str | None, object]]:
    """The records to write: topic, key and value."""
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
        KafkaException: the broker refused.
    """
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
    producer = Producer({"bootstrap.servers": servers})
    for topic, key, value in records(chance):
        text = value if isinstance(value, str) else json.dumps(value)
        producer.produce(topic, text.encode(), key=key)
        producer.poll(0)
    left = producer.flush(_ANSWER_S)
    if left:
        raise SystemExit(f"{left} records were not confirmed by {servers}")
    print(f"{RECORDS} records in each of {', '.join(TOPICS)}; something is wrong outside")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m ackfloor_handlers.incident")
    parser.add_argument("what", choices=["begin", "mend"])
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    if given.what == "begin":
        begin(os.environ.get("ACKFLOOR_BOOTSTRAP_SERVERS", "localhost:9092"), given.seed)
    else:
        mended = mend()
        print(
            f"mended: {'; '.join(mended)}" if mended else "nothing to mend: begin an incident first"
        )


if __name__ == "__main__":
    main()
