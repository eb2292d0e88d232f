"""`ackfloor run` on a real broker: its signals, its crashes and its ends, with real processes."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable

import pytest

from ackfloor.runtime.logging.rate_limit import MOST_LINES
from ackfloor.runtime.supervision.exit_codes import Exit
from tests.e2e.stage import Stage, gone, page, ready, reasons, started, worker_pids
from tests.framework.cli.command import PATIENCE_S, Running, ackfloor, environment
from tests.framework.kafka.wire import recreate, until

pytestmark = [pytest.mark.kafka, pytest.mark.e2e]

MakeStage = Callable[..., Stage]

PLAIN = """
app = App("GROUP")


@app.handler("TOPIC", concurrency=8)
async def bill(delivery: Delivery) -> None:
    note(started, delivery)
    await asyncio.sleep(float(os.environ.get("PACE_S", "0.002")))
    note(handled, delivery)
"""
APART = """
app = App("GROUP")


@app.handler("TOPIC", executor="process", concurrency=1)
def bill(delivery: Delivery) -> None:
    note(handled, delivery)
"""
GATED = """
app = App("GROUP")


@app.handler("TOPIC", concurrency=4)
async def bill(delivery: Delivery) -> None:
    note(started, delivery)
    while not opened("gate"):
        await asyncio.sleep(0.01)
    note(handled, delivery)
"""


def test_workers_share_the_work_tell_their_state_and_drain(make_stage: MakeStage) -> None:
    """Two of them: ready, stacks and ack map on SIGUSR1, everything handled once, exit 0."""
    stage = make_stage(PLAIN, partitions=4)
    stage.produce(400)
    run = stage.run("--workers", "2")
    run.until(lambda: stage.records() == 400, "all handled")
    run.until(ready(run), "ready")

    def shared() -> bool:
        _, state = page(run, "/state")
        # One that has just started has said nothing yet.
        owned = [worker["partitions"] for worker in state["workers"].values() if worker]
        sources = [p["partition"] for p in itertools.chain(*owned) if p["topic"] == stage.topic]
        return len(owned) == 2 and all(owned) and sorted(sources) == [0, 1, 2, 3]

    # One of them may have handled all before the other joined; retry topics are shared as well.
    run.until(shared, "partitions for both")
    run.signal(signal.SIGUSR1)
    run.logged("ack map:")
    run.logged(f"{stage.topic}/0 floor=")
    run.logged("Thread 0x")
    pids = started(run, 2)
    assert len(pids) == 2
    run.signal(signal.SIGTERM)
    assert run.wait() == Exit.OK
    assert all(gone(pid) for pid in pids)
    assert set(stage.noted().values()) == {1}
    assert stage.committed() == 400


def test_sigterm_with_full_queues_loses_nothing(make_stage: MakeStage) -> None:
    """Running handlers end, the queue is released, and the next run handles all of it."""
    stage = make_stage(PLAIN, partitions=1)
    stage.produce(3000)
    run = stage.run(PACE_S="0.1")
    run.until(lambda: stage.records() > 50, "some handled")
    run.signal(signal.SIGTERM)
    assert run.wait() == Exit.OK
    first, floor = stage.noted(), stage.committed()
    assert stage.noted("started") == first
    assert 50 < len(first) < 3000
    second = stage.run()
    second.until(lambda: stage.records() == 3000, "all handled")
    second.signal(signal.SIGTERM)
    assert second.wait() == Exit.OK
    again = {name for name, count in stage.noted().items() if count > 1}
    assert again <= {name for name in first if int(name.split("#")[0].split("/")[1]) >= floor}


def test_a_second_signal_stops_now_and_says_what_stayed_open(make_stage: MakeStage) -> None:
    """Exit 6 at once although handlers hang; stacks can be had in the drain; records come again."""
    stage = make_stage(GATED, session_s=6)
    stage.produce(4)
    run = stage.run(ACKFLOOR_APP__SHUTDOWN_TIMEOUT="5m")
    run.until(lambda: len(stage.noted("started")) == 4, "handlers at work")
    run.signal(signal.SIGTERM)
    run.logged("draining; a second signal stops now")
    (pid,) = started(run, 1)
    os.kill(pid, signal.SIGUSR1)
    run.logged("Thread 0x")
    run.logged("ack map:")
    started_s = time.monotonic()
    run.signal(signal.SIGTERM)
    assert run.wait() == Exit.FORCED
    assert time.monotonic() - started_s < 100
    assert any("4 running handlers were cut short" in line for line in run.lines)
    stage.open_gate()
    again = stage.run()
    again.until(lambda: stage.records() == 4, "all handled")
    again.signal(signal.SIGTERM)
    assert again.wait() == Exit.OK
    # Cut short is no failure: no attempt was spent.
    assert all(name.endswith("#1") for name in stage.noted())


def test_without_standard_streams_it_works_all_the_same(make_stage: MakeStage) -> None:
    """Their numbers went to other files, and no process of a process handler could start."""
    stage = make_stage(APART)
    stage.produce(20)
    command = [sys.executable, "-m", "ackfloor.cli.main", "run", "stage_app:app", "--workers", "2"]
    run = subprocess.Popen(
        ["bash", "-c", 'exec "$@" 0<&- 1>&- 2>&-', "-", *command],
        cwd=stage.folder,
        env=environment(
            {"ACKFLOOR_BOOTSTRAP_SERVERS": stage.servers, "ACKFLOOR_RUN_LISTEN": "127.0.0.1:0"}
        ),
    )
    try:
        until(lambda: stage.records() == 20 or run.poll() is not None)
        run.terminate()
        assert run.wait(PATIENCE_S) == Exit.OK
    finally:
        run.kill()
        run.wait()
    assert set(stage.noted().values()) == {1}


def test_a_killed_worker_is_replaced_and_its_records_come_again(make_stage: MakeStage) -> None:
    """And a killed run takes its workers along."""
    stage = make_stage(PLAIN, partitions=4, session_s=6)
    stage.produce(2000)
    run = stage.run("--workers", "2")
    run.until(lambda: stage.records() > 100, "some handled")
    os.kill(started(run, 2)[0], signal.SIGKILL)
    run.logged("was killed by signal 9 (SIGKILL); restarting it")
    run.until(lambda: stage.records() == 2000, "all handled")
    pids = started(run, 3)
    assert len(pids) == 3
    run.signal(signal.SIGKILL)
    run.wait()
    assert all(gone(pid) for pid in pids)


def test_a_topic_that_is_created_anew_is_read_by_a_fresh_worker(make_stage: MakeStage) -> None:
    """At once, and no crash: told to stop in that moment, the run ends with 0 as ever."""
    stage = make_stage(PLAIN, partitions=1)
    stage.produce(20)
    run = stage.run()
    run.until(lambda: stage.records() == 20, "the old ones handled")
    recreate(stage.servers, stage.topic)
    stage.produce_to([0], b"{}")
    run.logged(f"topic {stage.topic} was deleted and created anew")
    run.logged("asked to be replaced; restarting it now")
    run.until(lambda: len(worker_pids(run)) == 2, "the fresh one")
    # Once by the old one as well, where it came to read it; only the fresh one settles it.
    run.until(lambda: sum(stage.noted().values()) >= 21, "the new one handled")
    run.until(lambda: stage.committed() == 1, "settled in the new log")
    run.signal(signal.SIGTERM)
    assert run.wait() == Exit.OK
    assert sum(stage.noted().values()) in (21, 22)


def test_a_lifespan_that_fails_at_the_start_stops_the_run_with_7(make_stage: MakeStage) -> None:
    """With the reason, and both workers are gone."""
    stage = make_stage(
        """
@asynccontextmanager
async def lifespan(app):
    raise ConnectionError("no database at db:5432")
    yield


app = App("GROUP", lifespan=lifespan)


@app.handler("TOPIC")
async def bill(delivery: Delivery) -> None: ...
"""
    )
    run = stage.run("--workers", "2")
    assert run.wait() == Exit.NOT_READY
    assert any("ConnectionError: no database at db:5432" in line for line in run.lines)
    assert all(gone(pid) for pid in worker_pids(run))


def test_publishing_from_handlers_is_confirmed_by_the_broker(make_stage: MakeStage) -> None:
    """Async and from threads: when the handler has noted it, the record is in the topic."""
    stage = make_stage(
        """
app = App("GROUP")


@app.handler("TOPIC")
async def bill(value: bytes, delivery: Delivery) -> None:
    await app.publish("TOPIC--notes--retry-1h", value, key="k")
    await asyncio.to_thread(app.publish_sync, "TOPIC--notes--retry-1h", b"sync")
    note(handled, delivery)
"""
    )
    target = stage.make_topic("notes--retry-1h")
    stage.produce(50)
    run = stage.run()
    run.until(lambda: stage.records() == 50, "all handled")
    assert stage.end_of(target) == 100
    run.signal(signal.SIGTERM)
    assert run.wait() == Exit.OK


def test_topics_that_are_missing_are_named(make_stage: MakeStage) -> None:
    """The source always, tiers and dead letters where creation is off; exit 7 before any worker."""
    stage = make_stage(PLAIN)
    off = stage.run(ACKFLOOR_APP__CREATE_TOPICS="false")
    assert off.wait() == Exit.NOT_READY
    assert stage.topics() == {stage.topic}
    (line,) = [line for line in off.lines if line.startswith("error: ")]
    assert f"{stage.topic}--{stage.group}--dlq" in line
    assert "ackfloor topics apply" in line

    applied = ackfloor(
        "topics",
        "apply",
        "stage_app:app",
        "--yes",
        cwd=stage.folder,
        ACKFLOOR_BOOTSTRAP_SERVERS=stage.servers,
    )
    assert applied.returncode == 0, applied.stderr
    run = stage.run(ACKFLOOR_APP__CREATE_TOPICS="false")
    run.until(ready(run), "ready")
    run.signal(signal.SIGTERM)
    assert run.wait() == Exit.OK

    stage.app(PLAIN.replace("TOPIC", "TOPIC-typo"))
    typo = stage.run()
    assert typo.wait() == Exit.NOT_READY
    (line,) = [line for line in typo.lines if line.startswith("error: ")]
    assert f"handlers.bill.topics='{stage.topic}-typo'" in line
    assert worker_pids(typo) == []


STUCK = """
app = App("GROUP")


@app.handler(
    "TOPIC", concurrency=16, consume_timeout="1s", retry=RetryPolicy.fixed("1h", 1), breaker=None
)
def bill(value: bytes, delivery: Delivery) -> None:
    if value == b"stuck":
        note(started, delivery)
        threading.Event().wait()
    note(handled, delivery)
"""


def test_two_hundred_stuck_threads_do_not_stop_the_worker_for_good(make_stage: MakeStage) -> None:
    """Others are handled at 0.9 of their rate again within a minute; people are told why.

    The rate is what the producer writes, so it is the same before and after on any machine.
    """
    rate = 150.0
    stage = make_stage(STUCK, partitions=2)
    began_s = time.monotonic()
    run = stage.run(ACKFLOOR_APP__MAX_ABANDONED_THREADS="250")
    run.until(ready(run), "ready")
    with stage.flow(rate):
        run.until(lambda: stage.records() > 2 * rate, "a steady flow")
        stage.produce(200, b"stuck")
        run.until(lambda: len(stage.noted("started")) == 200, "two hundred stuck handlers")
        stuck_s = time.monotonic()

        def at_full_rate() -> bool:
            before, start_s = sum(stage.noted().values()), time.monotonic()
            time.sleep(2.0)
            return sum(stage.noted().values()) - before >= 0.9 * rate * (time.monotonic() - start_s)

        run.until(at_full_rate, "the old rate")
        assert time.monotonic() - stuck_s < 60
        run.until(
            lambda: any("200 abandoned handlers of bill" in why for why in reasons(run)),
            "the reason in /readyz",
        )
        assert page(run, "/livez")[0] == 200

    def accounted_for() -> bool:
        """Each timeout is a line or part of a count; on a slow machine others are late as well."""
        lines = [line for line in run.drain() if "consume timeout" in line]
        suppressed = [int(found[1]) for line in lines if (found := re.search(r"(\d+) more", line))]
        told = sum("gave no answer" in line for line in lines) + sum(suppressed)
        return 200 <= told == timed_out(run)

    run.until(accounted_for, "a line or a count for each timeout")
    lines = [line for line in run.drain() if "consume timeout" in line]
    # A few in each second, and their number.
    assert len(lines) <= (MOST_LINES + 1) * (time.monotonic() - began_s + 2)
    run.signal(signal.SIGTERM)
    assert run.wait() == Exit.OK


def timed_out(run: Running) -> int:
    """How many deliveries have outlived their timeout, as the metrics tell it."""
    address = run.logged("metrics and health on ").rpartition(" ")[2]
    with urllib.request.urlopen(f"{address}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    name = "ackfloor_messages_timed_out_total"
    return sum(
        round(float(value)) for value in re.findall(rf"^{name}{{.*}} (\S+)$", text, re.MULTILINE)
    )


def test_past_the_limit_of_abandoned_threads_the_worker_is_replaced_at_once(
    make_stage: MakeStage,
) -> None:
    """It drains, exits as worn out, and its successor goes on without the stuck ones."""
    stage = make_stage(STUCK, partitions=2)
    stage.produce(40, b"stuck")
    run = stage.run(ACKFLOOR_APP__MAX_ABANDONED_THREADS="20")
    run.logged("too many abandoned handlers, which run on after their consume timeout")
    run.logged("worker 0 asked to be replaced; restarting it now")
    stage.produce(200)
    run.until(lambda: stage.records() == 200, "the others")
    run.until(ready(run), "ready")
    first, second, *_ = started(run, 2)
    assert gone(first)
    assert second != first
    run.signal(signal.SIGTERM)
    assert run.wait() == Exit.OK
