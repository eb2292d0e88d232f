"""`app.running()` where no broker answers, in a harness, and where it is refused."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from ackfloor import App, ConfigError, KafkaUnreachable, SettingError
from ackfloor.embedded import running
from ackfloor.launch import Launch
from ackfloor.runtime.executors.callers_loop import CallersLoop
from ackfloor.runtime.supervision import restarts
from ackfloor.runtime.supervision.exit_codes import Exit
from ackfloor.testing import Harness
from tests.framework.embedded.asgi_client import asked
from tests.framework.runtime.live import within

NOWHERE = "127.0.0.1:1"


def app_of(**options: Any) -> App:
    """An app whose broker is away."""
    app = App("web", kafka={"bootstrap_servers": NOWHERE}, **options)

    @app.handler("orders")
    async def bill(value: bytes) -> None: ...

    return app


def no_worker() -> bool:
    """Whether the thread of each worker has ended."""
    return all(thread.name != "ackfloor:worker" for thread in threading.enumerate())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"name": "web 1"}, "name='web 1': expected 1 to 100 of"),
        ({"name": ""}, "name=''"),
        ({"restarts": -1}, "restarts=-1: must not be negative"),
        ({"connect_timeout": "soon"}, "connect_timeout='soon'"),
    ],
)
def test_an_argument_that_makes_no_sense_is_refused(arguments: Any, says: str) -> None:
    """Where it is given, before anything is entered."""
    with pytest.raises(SettingError, match=says):
        app_of().running(**arguments)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("option", "value"), [("static_membership", True), ("parking", "transactional")]
)
async def test_what_needs_a_name_is_refused_without_one(option: str, value: object) -> None:
    """Each process of a server would take it from the other; with a name it goes on."""
    app = app_of(**{option: value})
    with pytest.raises(ConfigError, match=rf"app\.{option}={value!r}.*running\(name=") as refused:
        async with app.running():
            pytest.fail("it was entered")
    assert refused.value.exit_code == Exit.START
    async with app.running(name="web-1"):
        assert app.embedded is not None
    assert app.embedded is None


@pytest.mark.asyncio
async def test_while_kafka_is_away_the_program_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """Alive, not ready, and why; leaving does not wait for it either."""
    app = app_of(workers=3)
    started_s = time.monotonic()
    with caplog.at_level(logging.WARNING, "ackfloor.supervisor"):
        async with app.running():
            status, _, text = await asked(app, "/readyz")
            assert status == 503
            assert NOWHERE in text
            assert (await asked(app, "/livez"))[0] == 200
    assert time.monotonic() - started_s < 20
    assert "app.workers = 3 is for `ackfloor run`" in caplog.text
    assert (await asked(app, "/livez"))[0] == 503
    await asyncio.to_thread(within, no_worker)


@pytest.mark.asyncio
async def test_a_program_that_needs_kafka_says_how_long_it_waits() -> None:
    """Then the error is raised where the block is entered."""
    app = app_of()
    with pytest.raises(KafkaUnreachable, match=NOWHERE):
        async with app.running(connect_timeout="500ms"):
            pytest.fail("it was entered")
    assert app.embedded is None


@pytest.mark.asyncio
async def test_a_cancellation_while_it_is_entered_leaves_nothing() -> None:
    """A program that is ended while it starts."""
    app = app_of()
    entering = asyncio.create_task(app.running(connect_timeout="10m").__aenter__())
    await asyncio.sleep(1.0)
    assert not entering.done()
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering
    assert app.embedded is None
    await asyncio.to_thread(within, no_worker)


@pytest.mark.asyncio
async def test_a_block_is_entered_once() -> None:
    """A second time it would find what the first has left."""
    block = app_of().running()
    async with block:
        pass
    with pytest.raises(RuntimeError, match="was entered before"):
        async with block:
            pytest.fail("it was entered")


def test_in_a_harness_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the body publishes goes to the harness."""
    monkeypatch.setattr(running, "WorkerThread", lambda *_, **__: pytest.fail("it is started"))
    app = app_of()

    async def body() -> None:
        async with app.running():
            await app.publish("orders", b"1")

    with Harness(app) as harness:
        asyncio.run(body())
        harness.settle()
        assert [record.value for record in harness.handled("orders")] == [b"1"]


def test_two_harnesses_at_once_do_not_meet() -> None:
    """Each of an app of its own; what one app publishes stays with it."""
    handled: list[tuple[str, bytes]] = []
    apps = App("one"), App("two")
    for app in apps:

        @app.handler("orders")
        async def handle(value: bytes, app: App = app) -> None:
            handled.append((app.group, value))
            if value == b"first":
                await app.publish("orders", b"second")

    with Harness(apps[0]) as one, Harness(apps[1]) as two:
        one.send("orders", b"first")
        two.send("orders", b"other")
        one.settle()
        assert [record.value for record in one.handled("orders")] == [b"first", b"second"]
        assert [record.value for record in two.handled("orders")] == [b"other"]
    assert sorted(handled) == [("one", b"first"), ("one", b"second"), ("two", b"other")]


class NoPages:
    """A monitoring plugin from before there were pages."""

    def worker_monitor(self, worker: int, group: str) -> Any:
        """None is asked for reports here."""
        return SimpleNamespace(observe=print, snapshot=print, report=lambda: b"")

    def run_monitor(self, group: str, workers: int) -> Any:
        """It serves at an address of its own, or not at all."""
        nothing = dict.fromkeys(("waits", "update", "worker_gone", "progress"), lambda *_: None)
        return SimpleNamespace(**nothing)


class TestPages:
    """The pages of a run's address, as an ASGI app."""

    @pytest.mark.asyncio
    async def test_they_are_served_where_they_are_mounted(self) -> None:
        """Some frameworks leave the mount in the path, others take it away."""
        app = app_of()
        async with app.running():
            assert (await asked(app, "/health/livez", mounted_at="/health"))[0] == 200
            assert (await asked(app, "/livez", mounted_at="/health"))[0] == 200
            status, headers, text = await asked(app, "/metrics")
            assert status == 200
            assert headers["content-type"].startswith("text/plain")
            assert headers["content-length"] == str(len(text.encode()))
            assert "ackfloor_workers" in text
            assert (await asked(app, "/state"))[1]["content-type"] == "application/json"
            status, _, text = await asked(app, "/nothing")
            assert status == 404
            assert "/readyz" in text

    @pytest.mark.asyncio
    async def test_they_can_only_be_read(self) -> None:
        """HEAD is without the body that its length tells of; the rest is not allowed."""
        app = app_of()
        async with app.running():
            status, headers, text = await asked(app, "/livez", "HEAD")
            assert (status, text) == (200, "")
            assert int(headers["content-length"]) > 0
            status, headers, _ = await asked(app, "/livez", "POST")
            assert (status, headers["allow"]) == (405, "GET, HEAD")

    @pytest.mark.asyncio
    async def test_a_plugin_without_pages_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The worker runs all the same."""
        monkeypatch.setattr(Launch, "monitoring", staticmethod(NoPages))
        app = app_of()
        async with app.running():
            status, _, text = await asked(app, "/livez")
        assert status == 503
        assert "no monitoring plugin that has pages" in text

    @pytest.mark.asyncio
    async def test_outside_of_the_block_they_say_so(self) -> None:
        """A probe fails then."""
        status, _, text = await asked(app_of(), "/livez")
        assert status == 503
        assert "app.running() is not entered" in text

    @pytest.mark.asyncio
    @pytest.mark.parametrize("kind", ["lifespan", "websocket"])
    async def test_other_scopes_are_refused(self, kind: str) -> None:
        """As the specification has it for an app without a lifespan."""
        with pytest.raises(RuntimeError, match=f"HTTP requests, and no {kind}"):
            await asked(app_of(), "/livez", kind=kind)


@contextmanager
def loop_in_a_thread() -> Iterator[asyncio.AbstractEventLoop]:
    """A program's event loop."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_a_loop_that_the_program_blocks_is_noticed() -> None:
    """And one that runs is silent for no time; what looks is gone when the worker is."""
    with loop_in_a_thread() as loop:
        events = CallersLoop(loop)
        events.start()
        blocked, go_on = threading.Event(), threading.Event()
        loop.call_soon_threadsafe(lambda: (blocked.set(), go_on.wait()))
        blocked.wait()
        time.sleep(1.0)
        assert 0.0 < events.silence_s() <= 1.5
        go_on.set()
        assert events.run(asyncio.sleep(0, "done")) == "done"
        events.stop()
        events.run(asyncio.sleep(0))
        assert [handle for handle in loop._scheduled if not handle.cancelled()] == []
    assert events.silence_s() == 0.0
    events.stop()


def test_a_worker_is_started_again_so_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A steady run counts anew; what is to be replaced at once does not count."""
    found = restarts.Restarts("the worker")
    steady_s = restarts.STEADY_S
    assert [found.wait_s(1, "failed", 0.0) for _ in range(2)] == [0.5, 1.0]
    assert found.is_enough(2, 1, 0.0)
    assert not found.is_enough(3, 1, 0.0)
    assert not found.is_enough(2, 1, steady_s)
    assert not found.is_enough(2, Exit.WORN_OUT, 0.0)
    assert found.wait_s(1, "failed", steady_s) == 0.5
