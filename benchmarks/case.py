"""One case in a process of its own: `python benchmarks/case.py CASE SERVERS TOPIC RECORDS`.

Prints one line of JSON: records per second, CPU microseconds per record, peak memory in MiB.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Callable

from confluent_kafka import Consumer
from topic import starts, unique

from ackfloor import App
from ackfloor.launch import Launch
from ackfloor.runtime.event_loop import EventLoopThread
from ackfloor.runtime.worker import Worker

#: A case that takes longer than this has hung, in seconds.
LONGEST_S = 300.0


def bare(servers: str, topic: str, records: int) -> tuple[float, float]:
    """The client alone: (seconds, CPU seconds)."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": unique("bare"), "enable.auto.commit": False}
    )
    consumer.assign(starts(topic))
    count = total = 0
    began_s = cpu_s = 0.0
    while count < records:
        messages = consumer.consume(500, 1.0)
        if messages and not began_s:
            began_s, cpu_s = time.perf_counter(), time.process_time()
        for message in messages:
            message.value()
            total += message.offset() or 0
        count += len(messages)
    took = time.perf_counter() - began_s, time.process_time() - cpu_s
    consumer.close()
    return took


def noop_async(app: App, topic: str) -> None:
    """64 coroutines, unordered."""

    @app.handler(topic)
    async def handle(value: bytes) -> None:
        pass


def noop_thread(app: App, topic: str) -> None:
    """64 threads, unordered."""

    @app.handler(topic)
    def handle(value: bytes) -> None:
        pass


def noop_async_key(app: App, topic: str) -> None:
    """64 coroutines, key order."""

    @app.handler(topic, ordering="key", on_failure="park")
    async def handle(value: bytes) -> None:
        pass


def io_async(app: App, topic: str) -> None:
    """1,000 coroutines that wait 5 ms each."""

    @app.handler(topic, concurrency=1_000)
    async def handle(value: bytes) -> None:
        await asyncio.sleep(0.005)


CASES: dict[str, Callable[[App, str], None]] = {
    "no-op async": noop_async,
    "no-op thread": noop_thread,
    "no-op async, key order": noop_async_key,
    "5 ms async": io_async,
}


def ours(
    servers: str, topic: str, records: int, register: Callable[[App, str], None]
) -> tuple[float, float]:
    """A whole worker with its metrics: (seconds, CPU seconds)."""
    app = App(group=unique("bench"), kafka={"bootstrap_servers": servers}, log_level="error")
    register(app, topic)
    launch = Launch.of(app, flags={})
    launch.prepare_topics("30s")
    monitoring = launch.monitoring()
    assert monitoring is not None, "the worker is measured with its metrics on"
    worker = Worker(
        app,
        launch.handlers,
        launch.worker_config(),
        launch.topology(),
        launch.outside(events := EventLoopThread(), "bench"),
        [monitoring.worker_monitor(0, app.group)],
    )
    loop = worker.start()
    assert events.loop.is_running()
    began_s = cpu_s = 0.0
    until_s = time.monotonic() + LONGEST_S
    while time.monotonic() < until_s:
        loop.turn()
        read = sum(
            a.tracker.position for a in worker.engine.assignments.values() if a.topic == topic
        )
        if read and not began_s:
            began_s, cpu_s = time.perf_counter(), time.process_time()
        if read == records and not worker.engine.flow.open_count:
            break
    else:
        raise SystemExit(f"not settled within {LONGEST_S:g} s")
    took = time.perf_counter() - began_s, time.process_time() - cpu_s
    worker.close()
    return took


def main() -> None:
    """Run one case and print its figures."""
    case, servers, topic, records = *sys.argv[1:4], int(sys.argv[4])
    if case == "bare":
        seconds, cpu_s = bare(servers, topic, records)
    else:
        seconds, cpu_s = ours(servers, topic, records, CASES[case])
    figures = {
        "records_per_s": records / seconds,
        "cpu_us_per_record": cpu_s / records * 1e6,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
