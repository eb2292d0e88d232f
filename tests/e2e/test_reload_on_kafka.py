"""Settings that change while a run runs on a real broker: by command, by file and by SIGHUP."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import OffsetSpec
from typer.testing import CliRunner

from ackfloor.cli.main import cli
from ackfloor.core.records.envelope import read_envelope
from ackfloor.errors import AckfloorError
from ackfloor.live.run_control import PATH
from ackfloor.live.token import read_token
from ackfloor.operations.run_client import post
from ackfloor.runtime.supervision.exit_codes import Exit
from tests.e2e.stage import Stage, page, ready, started, worker_pids
from tests.framework.cli.command import Running, ackfloor

pytestmark = [pytest.mark.kafka, pytest.mark.e2e]

MakeStage = Callable[..., Stage]

#: Handlers that wait for a gate, as many as there are records, whichever worker has them.
WAITING = """
app = App("GROUP")


@app.handler("TOPIC", concurrency=500, retry=RetryPolicy.fixed("1h"))
async def bill(delivery: Delivery) -> None:
    note(started, delivery)
    while not opened("gate"):
        await asyncio.sleep(0.05)
    note(handled, delivery)
"""
ONE_BY_ONE = """
app = App("GROUP")


@app.handler("TOPIC", concurrency=4, consume_timeout="60s", retry=RetryPolicy("1s", 5, "25s", 2))
def bill(delivery: Delivery) -> None:
    note(started, delivery)
    while not opened(f"gate-{delivery.origin.offset}"):
        time.sleep(0.01)
    note(handled, delivery)
"""


def listen(run: Running) -> str:
    """The run's address."""
    return run.logged("metrics and health on ").rpartition("http://")[2]


def config_set(stage: Stage, run: Running, *arguments: str, **given: str) -> Any:
    """`ackfloor config set` against a run; the result of the command."""
    # The action is noted there.
    given = {"ACKFLOOR_BOOTSTRAP_SERVERS": stage.servers, **given}
    return ackfloor("config", "set", *arguments, "--listen", listen(run), cwd=stage.folder, **given)


def refusal(stage: Stage, run: Running, *arguments: str, code: Exit = Exit.FAILURE) -> str:
    """Why it is refused: of the command in this process, because there are many to ask."""
    given = ["config", "set", *arguments, "--listen", listen(run)]
    done = CliRunner(env={"XDG_RUNTIME_DIR": str(stage.folder)}).invoke(cli, given)
    assert isinstance(done.exception, AckfloorError), done.output
    assert (done.exception.exit_code, done.stdout) == (code, "")
    return str(done.exception)


def parked(stage: Stage, tier: str) -> list[tuple[str, int]]:
    """Origin (partition/offset) and time of failure (ms) of each record of a retry topic."""
    consumer = Consumer(
        {"bootstrap.servers": stage.servers, "group.id": "reader", "enable.auto.commit": False}
    )
    topic = f"{stage.topic}--{stage.group}--retry-{tier}"
    found = []
    for number in consumer.list_topics(topic, 60).topics[topic].partitions:
        end = consumer.get_watermark_offsets(TopicPartition(topic, number), 60)[1]
        consumer.assign([TopicPartition(topic, number, 0)])
        while end and (record := consumer.poll(60)) is not None:
            envelope = read_envelope(record.headers() or [])
            origin = f"{envelope.origin_partition}/{envelope.origin_offset}"
            found.append((origin, envelope.failed_at_ms or 0))
            if record.offset() + 1 >= end:
                break
    consumer.close()
    return found


def ends(stage: Stage, tier: str) -> int:
    """How many records were written to a retry topic of four partitions."""
    topic = f"{stage.topic}--{stage.group}--retry-{tier}"
    latest = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(4)}
    found = stage._admin.list_offsets(latest)
    return sum(future.result(60).offset for future in found.values())


def setting(stage: Stage, text: str) -> None:
    """Write tables to the settings file, as an editor does: a new file takes its place."""
    kafka = '[kafka.consumer]\n"session.timeout.ms" = 6000\n"heartbeat.interval.ms" = 500\n'
    fresh = stage.folder / "fresh.toml"
    fresh.write_text(kafka + text)
    fresh.replace(stage.folder / "ackfloor.toml")


def concurrency(run: Running) -> int:
    """At most so many handlers at once, as the worker last said it: half a second ago, or more.

    0 where there is none just now, or one that has said nothing yet.
    """
    _, state = page(run, "/state")
    told = (state["workers"].get("0") or {}).get("handlers", ())
    return sum(int(handler["concurrency"]) for handler in told)


def test_a_shortened_timeout_parks_all_500_in_flight_at_once_and_each_once(
    make_stage: MakeStage,
) -> None:
    """From 60 s to 1 s while 500 run on two workers; a dry run has named them before."""
    stage = make_stage(WAITING, partitions=4)
    run = stage.run("--workers", "2")
    run.until(ready(run), "ready")
    stage.produce(500)
    run.until(lambda: len(stage.noted("started")) == 500, "500 in flight")
    time.sleep(1.1)  # each has run for longer than what is set now
    change = ("handlers.bill.consume_timeout", "1s")
    told: dict[str, Any] = {}

    def named() -> bool:
        asked = config_set(stage, run, *change, "--dry-run", "-o", "json")
        # A worker of a busy machine may say nothing within the time that the run gives it, and the
        # run nothing within the time that the command does.
        if asked.returncode not in {Exit.OK, Exit.PARTIAL}:
            return False
        told.update(json.loads(asked.stdout))
        return bool(told["workers"]["applied"] == [0, 1])

    run.until(named, "the answers of both")
    assert told["ends"] == 500
    assert {(each["handler"], each["attempt"]) for each in told["overdue"]} == {("bill", 1)}
    assert parked(stage, "1h") == []
    # What the command does, without the time that it takes to start.
    token = Path(run.logged("the token is in ").rpartition(" ")[2])
    asked_ms = time.time() * 1000
    done = post(listen(run), read_token(token), PATH, {"set": dict([change])})
    workers = done["workers"]
    assert sorted(workers["applied"] + workers["silent"]) == [0, 1]
    assert done["ends"] == 500 or workers["silent"]
    run.until(lambda: ends(stage, "1h") == 500, "all parked")
    durable_s = time.time() - asked_ms / 1000
    found = parked(stage, "1h")
    after_s = sorted((failed_ms - asked_ms) / 1000 for _, failed_ms in found)
    sys.stderr.write(
        f"\n500 in flight, timeout 60 s -> 1 s: parked {after_s[0]:.3f} s to {after_s[-1]:.3f} s "
        f"after the change was asked for, all in the retry topic after {durable_s:.3f} s\n"
    )
    assert Counter(origin for origin, _ in found).most_common(1)[0][1] == 1
    assert len(found) == 500
    stage.open_gate()
    run.signal(signal.SIGTERM)
    assert run.wait() == Exit.OK
    assert len(parked(stage, "1h")) == 500
    assert stage.committed() == 500


def test_a_file_is_read_when_it_changes_and_on_sighup_and_refused_whole(
    make_stage: MakeStage,
) -> None:
    """The workers follow; one started anew goes by what the run goes by, not by a bad file."""
    stage = make_stage(ONE_BY_ONE, partitions=1, session_s=6)
    run = stage.run()
    run.until(ready(run), "ready")
    stage.produce(8)
    run.until(lambda: len(stage.noted("started")) == 4, "4 in flight")

    setting(stage, "[handlers.bill]\nconcurrency = 6\n[app]\nworkers = 3\n")
    run.until(lambda: len(stage.noted("started")) == 6, "6 in flight")
    run.until(lambda: concurrency(run) == 6, "the worker's word of it")
    run.logged("changed in the settings file, and needs a restart: app.workers")
    _, told = page(run, "/readyz")
    assert told["ready"]
    assert [note["check"] for note in told["notes"]] == ["settings"]

    bad = "[handlers.bill]\nconcurrency = 1\nconsume_timeout = 5\n"
    setting(stage, bad)
    run.logged("settings not changed: handlers.bill.consume_timeout=5")
    _, told = page(run, "/readyz")
    assert told["ready"]
    assert "the old settings stay" in told["notes"][0]["message"]
    _, state = page(run, "/state")
    assert state["settings"]["failures"] == 1
    assert concurrency(run) == 6

    # A crash while the file is bad: the run goes on, by the settings that count.
    (pid,) = started(run, 1)
    os.kill(pid, signal.SIGKILL)
    run.until(lambda: len(worker_pids(run)) == 2, "anew")
    run.until(lambda: max(stage.noted("started").values()) == 2 and ready(run)(), "at work again")
    assert concurrency(run) == 6

    setting(stage, '[handlers.bill]\nconsume_timeout = "500ms"\nretry.max_redeliveries = 0\n')
    for _ in range(20):
        run.signal(signal.SIGHUP)
    run.until(lambda: stage.end_of(f"{stage.topic}--{stage.group}--dlq") == 8, "all dead-lettered")
    _, told = page(run, "/readyz")
    assert told["notes"] == []
    run.signal(signal.SIGTERM)
    assert run.wait() in (Exit.OK, Exit.FORCED)
    assert any("setting handlers.bill.concurrency from 6 to 4" in line for line in run.lines)


def test_what_config_set_is_refused_with(make_stage: MakeStage, tmp_path: Path) -> None:
    """A wrong token, no token, what can't change, what is no setting; nothing has changed."""
    stage = make_stage(ONE_BY_ONE, partitions=1, session_s=6)
    run = stage.run()
    run.until(ready(run), "ready")
    token = Path(run.logged("the token is in ").rpartition(" ")[2])
    assert token.stat().st_mode & 0o777 == 0o600
    wrong = tmp_path / "wrong.token"
    wrong.write_text("x" * 43)
    wrong.chmod(0o600)
    timeout = ("handlers.bill.consume_timeout", "5s")
    refused = (
        ((*timeout, "--token-file", str(wrong)), "not the token of this run"),
        (("handlers.bill.consume_timeout", "5"), "handlers.bill.consume_timeout='5'"),
        (("handlers.bil.consume_timeout", "5s"), "did you mean bill?"),
        (("handlers.bill.consume_timout", "5s"), "did you mean"),
        (("app.workers", "3"), "can't change while the run runs"),
        (("handlers.bill.retry.initial_delay", "3s"), "no retry topic with this delay"),
    )
    for arguments, named in refused:
        assert named in refusal(stage, run, *arguments)
    # A file that can't be used is wrong usage; the others the run has refused.
    wrong.chmod(0o644)
    for file, named in ((wrong, f"chmod 600 {wrong}"), (tmp_path / "none", "No such file")):
        arguments = (*timeout, "--token-file", str(file))
        assert named in refusal(stage, run, *arguments, code=Exit.USAGE)
    _, state = page(run, "/state")
    assert state["settings"]["overridden"] == {}
    # It lasts as long as the run: also in a worker that is started anew.
    done = config_set(stage, run, *timeout)
    assert (done.returncode, done.stderr) == (Exit.OK, "")
    assert "handlers.bill.consume_timeout  1m -> 5s" in done.stdout
    os.kill(started(run, 1)[0], signal.SIGKILL)
    run.until(lambda: len(worker_pids(run)) == 2, "anew")
    run.until(ready(run), "ready again")
    _, state = page(run, "/state")
    assert state["workers"]["0"]["handlers"][0]["consume_timeout_s"] == 5.0
    run.signal(signal.SIGTERM)
    assert run.wait() == Exit.OK
    assert not token.exists()
    wrong.chmod(0o600)
    done = config_set(stage, run, *timeout, "--token-file", str(wrong))
    assert (done.returncode, "no run answers at" in done.stderr) == (Exit.FAILURE, True)
    assert "Traceback" not in done.stderr
