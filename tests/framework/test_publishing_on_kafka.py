"""`app.publishing()` on a real broker: written and confirmed, from loops, threads and forks."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pydantic import BaseModel

from ackfloor import App, PublishFailed
from ackfloor.testing import SchemaRegistry
from tests.framework.kafka.schemas_written import AVRO
from tests.framework.kafka.wire import fresh, make_topic, until

pytestmark = [pytest.mark.kafka]


class Order(BaseModel):
    """What is published."""

    id: int


def shop(servers: str, **kafka: object) -> App:
    """An app that only publishes."""
    return App("shop", kafka={"bootstrap_servers": servers, **kafka})


def everything(servers: str, topic: str, count: int) -> list[Message]:
    """The first records of a topic, by partition and offset."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": fresh("r")})
    partitions = consumer.list_topics(topic, 60).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    found: list[Message] = []

    def read() -> bool:
        found.extend(m for m in consumer.consume(500, 0.1) if m.error() is None)
        return len(found) >= count

    try:
        until(read)
    finally:
        consumer.close()
    return sorted(found, key=lambda m: (m.partition(), m.offset()))


@pytest.fixture
def topic(bootstrap_servers: str) -> Iterator[str]:
    """A topic of three partitions."""
    return make_topic(bootstrap_servers, 3)


def test_what_is_published_is_there(bootstrap_servers: str, topic: str) -> None:
    """From a coroutine and from a thread: value, key, headers and partition as they were given."""
    app = shop(bootstrap_servers)

    async def main() -> None:
        async with app.publishing():
            await app.publish(topic, Order(id=1), key="k", headers={"a": "ä"}, partition=2)
            await app.publish(topic, None, key=b"\xff", partition=2)

    asyncio.run(main())
    with app.publishing():
        app.publish_sync(topic, "text", headers=[("a", b"1"), ("a", None)], partition=0)
    found = [(m.partition(), m.key(), m.value(), m.headers()) for m in _read(topic, app, 3)]
    assert found == [
        (0, None, b"text", [("a", b"1"), ("a", None)]),
        (2, b"k", b'{"id":1}', [("a", "ä".encode())]),
        (2, b"\xff", None, None),
    ]


def _read(topic: str, app: App, count: int) -> list[Message]:
    kafka = app.options["kafka"]
    assert isinstance(kafka, dict)
    return everything(kafka["bootstrap_servers"], topic, count)


def test_a_topic_or_partition_that_is_missing_fails_the_call(
    bootstrap_servers: str, topic: str
) -> None:
    """With a typed error, well before the delivery timeout."""
    app = shop(bootstrap_servers)
    missing = fresh("missing")
    with app.publishing():
        with pytest.raises(PublishFailed, match=missing):
            app.publish_sync(missing, b"v", timeout_s=30)
        with pytest.raises(PublishFailed, match=topic):
            app.publish_sync(topic, b"v", partition=7, timeout_s=30)
        app.publish_sync(topic, b"v")


def test_any_thread_and_any_loop_may_publish(bootstrap_servers: str, topic: str) -> None:
    """Two loops, two plain threads, one block; each call is confirmed in its own."""
    app = shop(bootstrap_servers)
    failed: list[BaseException] = []

    async def many(name: str) -> None:
        await asyncio.gather(*(app.publish(topic, f"{name}-{n}") for n in range(50)))

    def in_a_loop(name: str) -> None:
        asyncio.run(many(name))

    def plain(name: str) -> None:
        for n in range(50):
            app.publish_sync(topic, f"{name}-{n}")

    def run(work: object, name: str) -> None:
        try:
            work(name)  # type: ignore[operator]
        except BaseException as exc:
            failed.append(exc)
            raise

    with app.publishing():
        jobs = [(in_a_loop, "a"), (in_a_loop, "b"), (plain, "c"), (plain, "d")]
        threads = [threading.Thread(target=run, args=job) for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failed == []
    values = {m.value() for m in _read(topic, app, 200)}
    assert values == {f"{name}-{n}".encode() for name in "abcd" for n in range(50)}


def test_the_end_waits_for_what_is_under_way(bootstrap_servers: str, topic: str) -> None:
    """Nothing that was begun is lost at the end of the block, though nobody waited for it."""
    app = shop(bootstrap_servers, producer={"linger.ms": 300})

    async def main() -> list[None]:
        async with app.publishing():
            calls = [asyncio.create_task(app.publish(topic, str(n))) for n in range(100)]
            await asyncio.sleep(0)
        return await asyncio.gather(*calls)

    assert asyncio.run(main()) == [None] * 100
    assert {m.value() for m in _read(topic, app, 100)} == {str(n).encode() for n in range(100)}


FORKED = """
    import os, sys
    from ackfloor import App

    servers, topic, way = sys.argv[1:]
    app = App("shop", kafka={"bootstrap_servers": servers})

    def end():
        # A worker of gunicorn ends like this: the interpreter is torn down, objects are freed.
        sys.exit(0)

    def child():
        try:
            app.publish_sync(topic, "refused")
        except RuntimeError as exc:
            assert "forked" in str(exc), exc
        else:
            sys.exit("published through a client that is not there")
        with app.publishing():
            app.publish_sync(topic, "child")
        try:
            app.publish_sync(topic, "refused")
        except RuntimeError as exc:
            assert "app.publishing()" in str(exc), exc
        end()

    with app.publishing():
        app.publish_sync(topic, "before")
        pid = os.fork()
        if pid == 0:
            if way == "inside":
                child()
        else:
            app.publish_sync(topic, "after")
    if pid == 0:
        if way == "outside":
            # The block was left in the child too, and nothing was closed there.
            with app.publishing():
                app.publish_sync(topic, "child")
        end()
    _, status = os.waitpid(pid, 0)
    sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.parametrize("way", ["inside", "outside"])
def test_a_forked_process_publishes_by_itself(bootstrap_servers: str, topic: str, way: str) -> None:
    """Parent and child both go on, each with a client of its own, and both end."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FORKED), bootstrap_servers, topic, way],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    values = sorted(m.value() or b"" for m in everything(bootstrap_servers, topic, 3))
    assert values == [b"after", b"before", b"child"]


def test_a_script_ends_when_its_work_is_done(bootstrap_servers: str, topic: str) -> None:
    """No thread of ours keeps an interpreter alive; settings come from the environment."""
    script = """
        import asyncio
        from ackfloor import App

        app = App("shop")

        async def main():
            async with app.publishing():
                await app.publish(TOPIC, {"id": 1})

        asyncio.run(main())
        print("done")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script).replace("TOPIC", repr(topic))],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"ACKFLOOR_BOOTSTRAP_SERVERS": bootstrap_servers},
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    [record] = everything(bootstrap_servers, topic, 1)
    assert record.value() == b'{"id":1}'


def test_a_value_with_a_schema_is_read_by_others(bootstrap_servers: str, topic: str) -> None:
    """From a process of its own, with settings from its environment, by confluent's reader."""
    script = """
        from ackfloor import App
        from ackfloor.schemas import Avro

        app = App("shop")
        with app.publishing():
            app.publish_sync(TOPIC, {"id": 7, "buyer": "mina"}, encoder=Avro())
    """
    with SchemaRegistry() as registry:
        registry.register(f"{topic}-value", AVRO)
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script).replace("TOPIC", repr(topic))],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={
                "ACKFLOOR_BOOTSTRAP_SERVERS": bootstrap_servers,
                "ACKFLOOR_REGISTRY__URL": registry.url,
            },
        )
        assert done.returncode == 0, done.stderr
        [record] = everything(bootstrap_servers, topic, 1)
        read = AvroDeserializer(SchemaRegistryClient({"url": registry.url}))
        context = SerializationContext(topic, MessageField.VALUE)
        assert read(record.value(), context) == {"id": 7, "buyer": "mina"}
