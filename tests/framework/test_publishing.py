"""`app.publishing()` without a broker: what the harness gives a test, settings, forks, the end."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from ackfloor import App, ConfigError, PublishFailed
from ackfloor.kafka.produce.publisher import KafkaPublisher
from ackfloor.testing import Harness

NOWHERE = {"bootstrap_servers": "127.0.0.1:1"}


class Order(BaseModel):
    """What is published."""

    id: int


def shop() -> App:
    """An app that only publishes, to a broker that is away."""
    return App("shop", kafka=NOWHERE)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """What was given to Kafka clients."""
    counted = Sent()
    publish = KafkaPublisher.publish

    def counting(self: KafkaPublisher, topic: str, *args: Any) -> None:
        publish(self, topic, *args)
        counted.topics.append(topic)

    monkeypatch.setattr(KafkaPublisher, "publish", counting)
    return counted


class Sent:
    """Counts what was given to Kafka clients."""

    def __init__(self) -> None:
        self.topics: list[str] = []

    def wait_for(self, count: int) -> None:
        """Until so many records were."""
        give_up_s = time.monotonic() + 20
        while len(self.topics) < count:
            assert time.monotonic() < give_up_s, "the records did not get to the client"
            time.sleep(0.005)


def raised(call: Callable[[], object]) -> BaseException | None:
    """What a call raises."""
    try:
        call()
    except Exception as exc:  # noqa: BLE001
        return exc
    return None


async def place(app: App, number: int) -> None:
    """What a web process does for a request."""
    async with app.publishing():
        await app.publish("orders", Order(id=number), key=str(number))


# In a test.


def test_a_test_needs_no_broker() -> None:
    """Inside a harness all goes to its broker, also from a loop of the test's own."""
    app = shop()
    with Harness(app) as h:
        asyncio.run(place(app, 1))
        with app.publishing():
            app.publish_sync("orders", Order(id=2), headers={"trace": "7f3a", "raw": b"\xff"})
        [one, two] = h.published("orders")
    assert (one.json(), one.key) == ({"id": 1}, b"1")
    assert (two.json(), two.headers) == ({"id": 2}, (("trace", b"7f3a"), ("raw", b"\xff")))


def test_what_is_published_is_handled() -> None:
    """A handler of the same app takes it."""
    app, taken = shop(), []

    @app.handler("orders")
    def take(order: Order) -> None:
        taken.append(order.id)

    with Harness(app) as h:
        asyncio.run(place(app, 1))
        h.settle()
    assert taken == [1]


def test_a_partition_can_be_chosen() -> None:
    """It is written there, whatever its key; one that is not there is refused."""
    app = shop()
    with Harness(app) as h:
        h.broker.create_topic("orders", 3)
        for partition in (2, 0, 2):
            app.publish_sync("orders", b"v", key="k", partition=partition)
        found = [(record.partition, record.offset) for record in h.published("orders")]
        with pytest.raises(PublishFailed):
            app.publish_sync("orders", b"v", partition=3)
    assert found == [(0, 0), (2, 0), (2, 1)]


def test_a_refusal_of_the_broker_is_an_error_of_the_call() -> None:
    """As on a real one."""
    app = shop()
    with Harness(app) as h:
        h.broker.fail_publish("orders", "not authorised", times=1)
        with pytest.raises(PublishFailed, match="not authorised"):
            asyncio.run(place(app, 1))
        asyncio.run(place(app, 2))
        assert [record.json() for record in h.published("orders")] == [{"id": 2}]


def test_a_harness_that_has_ended_is_no_way_to_kafka() -> None:
    """What was to go to its broker does not end up on a real one."""
    app = shop()
    with Harness(app):
        publishing = app.publishing()
        publishing.__enter__()
    with pytest.raises(RuntimeError, match="has ended"):
        app.publish_sync("orders", b"v")
    publishing.__exit__(None, None, None)


def test_a_worker_may_enter_it() -> None:
    """Its lifespan and its handlers do; all goes through the worker's own publisher."""

    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[None]:
        async with app.publishing():
            await app.publish("orders", Order(id=1))
            yield

    app = App("shop", lifespan=lifespan, kafka=NOWHERE)

    @app.handler("orders")
    async def take(order: Order) -> None:
        await copy(app, order.id)

    async def copy(app: App, number: int) -> None:
        async with app.publishing():
            await app.publish("copies", Order(id=number))

    with Harness(app) as h:
        h.settle()
        assert [record.json() for record in h.published("copies")] == [{"id": 1}]
        assert h.errors == []


# Where it is, and where it is not.


def test_it_says_what_is_missing() -> None:
    """Outside of it, before and after."""
    app = shop()
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"app\.publishing\(\)"):
            app.publish_sync("orders", b"v")
        with pytest.raises(RuntimeError, match=r"app\.publishing\(\)"):
            asyncio.run(app.publish("orders", b"v"))
        with app.publishing():
            pass


def test_it_may_be_entered_again() -> None:
    """A function that publishes may see to it itself; the outermost one closes."""
    app = shop()
    with app.publishing():
        with app.publishing(), app.publishing():
            pass
        own = app._publishers.current().publisher
        assert not own._closing  # type: ignore[attr-defined]
    assert own._closing  # type: ignore[attr-defined]


def test_a_wrong_setting_is_refused_at_its_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The settings are those of a worker: environment and file count, and are checked."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ACKFLOOR_KAFKA__PRODUCER__ACKS", "1")
    with pytest.raises(ConfigError, match=r"kafka\.producer\.acks"), shop().publishing():
        pytest.fail("never entered")
    monkeypatch.delenv("ACKFLOOR_KAFKA__PRODUCER__ACKS")
    (tmp_path / "ackfloor.toml").write_text('[kafka]\nclient_id = ""\nno_such = 1\n')
    with pytest.raises(ConfigError), shop().publishing():
        pytest.fail("never entered")


def test_a_worker_s_file_is_good_for_a_web_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What it says of handlers is no matter of an app that has none."""
    monkeypatch.chdir(tmp_path)
    text = '[kafka]\nbootstrap_servers = "127.0.0.1:2"\n[handlers.bill]\nconsume_timeout = "2s"\n'
    (tmp_path / "ackfloor.toml").write_text(text)
    app = shop()
    with app.publishing():
        publisher = app._publishers.current().publisher
        assert isinstance(publisher, KafkaPublisher)
        assert publisher._config["bootstrap.servers"] == "127.0.0.1:2"


def test_what_it_may_not_be_given_is_refused() -> None:
    """A duration has a unit."""
    with pytest.raises(ValueError, match="close_timeout"):
        shop().publishing(close_timeout="10")


# The end.


def test_who_waits_at_the_end_is_told(sent: Sent, caplog: pytest.LogCaptureFixture) -> None:
    """A record that is not confirmed when `close_timeout` is over has failed; nobody hangs."""
    app = shop()
    with ThreadPoolExecutor() as pool, app.publishing(close_timeout="100ms"):
        waiting = [pool.submit(app.publish_sync, "orders", b"v") for _ in range(3)]
        sent.wait_for(3)
    for call in waiting:
        with pytest.raises(PublishFailed, match="orders: not confirmed before"):
            call.result(5)
    assert "3 published records were not confirmed" in caplog.text


def test_a_task_that_waits_at_the_end_is_told(sent: Sent) -> None:
    """And the loop runs on meanwhile."""
    app, ticks = shop(), 0

    async def beat() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    async def main() -> BaseException | None:
        async with app.publishing(close_timeout="300ms"):
            waiting = asyncio.create_task(app.publish("orders", b"v"))
            await asyncio.to_thread(sent.wait_for, 1)
            beating = asyncio.create_task(beat())
        beating.cancel()
        [answer] = await asyncio.gather(waiting, return_exceptions=True)
        return answer

    assert isinstance(asyncio.run(main()), PublishFailed)
    assert ticks


def test_a_wait_may_be_given_up(caplog: pytest.LogCaptureFixture) -> None:
    """`timeout_s` bounds the wait and not the record: the end counts it as unconfirmed."""
    app = shop()
    with app.publishing(close_timeout="0s"), pytest.raises(TimeoutError):
        app.publish_sync("orders", b"v", timeout_s=0.05)
    assert "1 published records were not confirmed" in caplog.text


def test_a_late_call_is_refused() -> None:
    """A thread that still publishes while the block ends gets an error."""
    app = shop()
    with app.publishing():
        own = app._publishers.current().publisher
    answers: list[BaseException | None] = []
    own.publish("orders", b"v", None, (), answers.append)
    assert isinstance(answers[0], PublishFailed)


def test_no_thread_is_left() -> None:
    """Nor one made before something is published."""
    before = set(threading.enumerate())
    app = shop()
    with app.publishing(close_timeout="50ms"):
        assert set(threading.enumerate()) <= before
        with pytest.raises(TimeoutError):
            app.publish_sync("orders", b"v", timeout_s=0.01)
    for thread in set(threading.enumerate()) - before:
        thread.join(5)
    # Those of tests before this one may have ended meanwhile.
    assert set(threading.enumerate()) <= before


def test_a_full_client_refuses_at_once(sent: Sent) -> None:
    """What does not fit is an error of its call, and was not sent."""
    kafka = {**NOWHERE, "producer": {"queue.buffering.max.messages": "2"}}
    app = App("shop", kafka=kafka)
    with ThreadPoolExecutor() as pool, app.publishing(close_timeout="0s"):
        waiting = [pool.submit(app.publish_sync, "orders", b"v") for _ in range(2)]
        sent.wait_for(2)
        with pytest.raises(PublishFailed, match="Queue full"):
            app.publish_sync("orders", b"v", timeout_s=20)
    for call in waiting:
        with pytest.raises(PublishFailed, match="not confirmed before"):
            call.result(20)


# Processes.


def test_a_forked_process_is_told_to_begin_anew() -> None:
    """A Kafka client does not live through a fork: an error, where it would hang for ever."""
    app = shop()
    with app.publishing(close_timeout="0s"):
        with pytest.raises(TimeoutError):
            app.publish_sync("orders", b"v", timeout_s=0.01)
        answers: list[str] = in_a_fork(app)
    refused, anew = answers
    assert "forked" in refused
    assert anew == "TimeoutError"


def in_a_fork(app: App) -> list[str]:
    """What a forked child gets from a call, and from one inside a block of its own."""
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe()

    def child() -> None:
        refused = raised(lambda: app.publish_sync("orders", b"v", timeout_s=0.01))
        with app.publishing(close_timeout="0s"):
            anew = raised(lambda: app.publish_sync("orders", b"v", timeout_s=0.01))
        theirs.send([str(refused), type(anew).__name__])

    process = fork.Process(target=child)
    process.start()
    try:
        assert ours.poll(20), "the child hangs"
        answers: list[str] = ours.recv()
        process.join(20)
        assert process.exitcode == 0
        return answers
    finally:
        process.kill()
