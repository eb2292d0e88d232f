"""Exits on a real broker: what ends a process elsewhere is here the failure of one record.

One run has a handler for each executor and each way to take records. Every one of them gets good
records and one of each exception that is no `Exception`, which it raises at every attempt.
"""

from __future__ import annotations

import os
import signal
import uuid
from collections import Counter
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ackfloor.core.parking.topic_names import dlq_topic
from ackfloor.core.records.envelope import read_envelope
from ackfloor.runtime.supervision.exit_codes import Exit
from tests.e2e.stage import Stage, worker_pids
from tests.framework.cli.command import PATIENCE_S, Running
from tests.written import whole_lines

pytestmark = [pytest.mark.kafka, pytest.mark.e2e]

MakeStage = Callable[..., Stage]

#: What a record says -> the class of what its handler raises.
EXITS = {
    b"exit-0": "SystemExit",
    b"exit-3": "SystemExit",
    b"interrupt": "KeyboardInterrupt",
    b"generator": "GeneratorExit",
    b"cancelled": "CancelledError",
    b"own": "Own",
    b"group": "BaseExceptionGroup",
}
#: Processes can't be answered by hand.
HANDLERS = [
    f"{executor}-{shape}"
    for executor in ("async", "thread", "process")
    for shape in ("single", "batch", "keyed", "manual")
    if (executor, shape) != ("process", "manual")
]
GOOD = 3

EVERY_HANDLER = """
app = App("GROUP")


class Own(BaseException):
    pass


EXITS = {
    b"exit-0": SystemExit(0),
    b"exit-3": SystemExit(3),
    b"interrupt": KeyboardInterrupt(),
    b"generator": GeneratorExit(),
    b"cancelled": asyncio.CancelledError(),
    b"own": Own(),
    b"group": BaseExceptionGroup("several", [SystemExit(0), ValueError()]),
}


def finish(*deliveries):
    for delivery in deliveries:
        if delivery.value in EXITS:
            raise EXITS[delivery.value]
    for delivery in deliveries:
        os.write(handled, f"{delivery.origin.topic}/{delivery.origin.offset}\\n".encode())


def one(delivery: Delivery) -> None:
    finish(delivery)


def many(values: list[bytes], deliveries: list[Delivery]) -> None:
    finish(*deliveries)


def by_hand(delivery: Delivery) -> None:
    finish(delivery)
    delivery.ack()
    if delivery.value == b"answered":
        sys.exit(0)


async def one_async(delivery: Delivery) -> None:
    if delivery.value == b"beside":
        asyncio.get_running_loop().call_soon(sys.exit, 0)
        await asyncio.sleep(0)
    finish(delivery)


async def many_async(values: list[bytes], deliveries: list[Delivery]) -> None:
    finish(*deliveries)


async def by_hand_async(delivery: Delivery) -> None:
    by_hand(delivery)


SHAPES = {
    "single": (one, one_async, {}),
    "batch": (many, many_async, {"batch": 50, "batch_wait": "100ms"}),
    "keyed": (one, one_async, {"ordering": "key"}),
    "manual": (by_hand, by_hand_async, {"ack": "manual"}),
}
RETRY = RetryPolicy.fixed("50ms", 2)
for name in HANDLERS:
    executor, shape = name.split("-")
    on_thread, on_loop, options = SHAPES[shape]
    if executor == "process":
        options = {**options, "executor": "process"}
    app.handler(
        f"TOPIC-{name}", name=name, concurrency=1, retry=RETRY, breaker=None, **options
    )(on_loop if executor == "async" else on_thread)
"""


class Ledger:
    """What was written to the topics of a run's handlers, and what has become of it."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._producer = Producer({"bootstrap.servers": stage.servers})
        #: topic/offset -> what the record says.
        self.sent: dict[str, bytes] = {}

    def topic(self, handler: str) -> str:
        """The topic of one handler."""
        return f"{self._stage.topic}-{handler}"

    def send(self, handler: str, value: bytes) -> None:
        """Write one record, under a key of its own."""
        topic, written = self.topic(handler), []
        self._producer.produce(
            topic, value, key=value, on_delivery=lambda _error, message: written.append(message)
        )
        assert self._producer.flush(60) == 0
        (message,) = written
        assert message.error() is None
        self.sent[f"{topic}/{message.offset()}"] = value

    def good(self) -> set[str]:
        """The records that no handler raises for before it has done its work."""
        return {place for place, value in self.sent.items() if value not in EXITS}

    def handled(self) -> Counter[str]:
        """How often each record was handled."""
        return Counter(whole_lines(self._stage.folder / "handled"))

    def dead(self, handler: str) -> dict[str, str]:
        """The dead letters of one handler: the record they come from, and the error's class."""
        topic = dlq_topic(self.topic(handler), self._stage.group)
        end = self._stage.end_of(topic)
        reader = Consumer(
            {"bootstrap.servers": self._stage.servers, "group.id": f"reader-{uuid.uuid4().hex}"}
        )
        found: dict[str, str] = {}
        try:
            reader.assign([TopicPartition(topic, 0, 0)])
            for _ in range(end):
                message = reader.poll(PATIENCE_S)
                assert message is not None
                assert message.error() is None
                envelope = read_envelope(message.headers())
                place = f"{envelope.origin_topic}/{envelope.origin_offset}"
                assert place not in found, "dead-lettered twice"
                found[place] = (envelope.error_type or "").rpartition(".")[2]
        finally:
            reader.close()
        return found


def test_every_exit_is_the_failure_of_its_record_alone(make_stage: MakeStage) -> None:
    """Whatever is raised wherever: it is dead-lettered, all else is handled, and the run lives."""
    stage = make_stage(EVERY_HANDLER.replace("HANDLERS", repr(HANDLERS)), partitions=1)
    ledger = Ledger(stage)
    for handler in HANDLERS:
        stage.make_topic(handler, joint="-")
        for value in (b"good-0", *EXITS, *(b"good-%d" % n for n in range(1, GOOD))):
            ledger.send(handler, value)
    ledger.send("async-manual", b"answered")
    ledger.send("thread-manual", b"answered")
    ledger.send("async-single", b"beside")

    run = stage.run()
    run.until(lambda: ledger.good() <= set(ledger.handled()), "all others handled")
    run.until(lambda: all_dead(stage, ledger), "all exits dead-lettered")
    for handler in HANDLERS:
        topic = ledger.topic(handler)
        own = {p: v for p, v in ledger.sent.items() if p.startswith(f"{topic}/")}
        bad = {place: EXITS[value] for place, value in own.items() if value in EXITS}
        assert ledger.dead(handler) == bad, handler

    # Every slot still works, and in the worker that was there from the start.
    for handler in HANDLERS:
        ledger.send(handler, b"later")
    run.until(lambda: ledger.good() <= set(ledger.handled()), "what came later handled")
    run.logged("a task or callback on the event loop raised SystemExit")
    run.logged("raised after its delivery had been answered")
    assert ledger.handled() == Counter(dict.fromkeys(ledger.good(), 1))
    assert len(worker_pids(run)) == 1
    assert run.process.poll() is None
    run.signal(signal.SIGTERM)
    assert run.wait() == Exit.OK


def all_dead(stage: Stage, ledger: Ledger) -> bool:
    """Whether each handler has as many dead letters as it got exits."""
    dlqs = [dlq_topic(ledger.topic(handler), stage.group) for handler in HANDLERS]
    return all(stage.end_of(dlq) >= len(EXITS) for dlq in dlqs)


# The end of a worker.

PLAIN = """
app = App("GROUP")


@app.handler("TOPIC", concurrency=1)
def bill(value: bytes, delivery: Delivery) -> None:
    note(handled, delivery)
    if value == b"break" and not opened("broken"):
        Path("broken").touch()
        # What an exception that another thread raises here may hit: the slot outside of its call.
        threading.current_thread()._executor._cells = None
"""
LEAVING = """
@asynccontextmanager
async def lifespan(app):
    if opened("start"):
        sys.exit(0)
    yield
    sys.exit(0)


app = App("GROUP", lifespan=lifespan)


@app.handler("TOPIC")
async def bill(delivery: Delivery) -> None:
    note(handled, delivery)
"""


def restarted(run: Running, workers: int) -> bool:
    """Whether so many workers have been started by now."""
    return len(worker_pids(run)) >= workers


def test_a_worker_that_ends_unasked_is_restarted(make_stage: MakeStage) -> None:
    """Only the run can be asked to stop: a worker that was told so alone has a successor."""
    stage = make_stage(PLAIN, partitions=1)
    stage.produce(1)
    run = stage.run()
    run.until(lambda: stage.records() == 1, "the first handled")
    os.kill(worker_pids(run)[0], signal.SIGTERM)
    run.logged("ended with code 0; restarting it in 0.5 s")
    run.until(lambda: restarted(run, 2), "a second worker")
    stage.produce(1)
    run.until(lambda: stage.records() == 2, "the second handled")
    run.signal(signal.SIGTERM)
    assert run.wait() == Exit.OK


def test_a_worker_whose_slot_breaks_is_replaced(make_stage: MakeStage) -> None:
    """It does not go on with a slot less, and loses nothing."""
    stage = make_stage(PLAIN, partitions=1)
    stage.produce(1, b"break")
    stage.produce(3)
    run = stage.run()
    run.logged("a part of the worker has failed: draining, to be replaced")
    run.logged("ended with code 1; restarting it in 0.5 s")
    run.until(lambda: stage.records() == 4, "all handled")
    run.until(lambda: stage.committed() == 4, "all committed")
    run.signal(signal.SIGTERM)
    assert run.wait() == Exit.OK


def test_an_exit_of_the_lifespan_never_passes_for_success(make_stage: MakeStage) -> None:
    """At the start it is one that failed; at the end the run has failed."""
    stage = make_stage(LEAVING, partitions=1)
    stage.produce(1)
    run = stage.run()
    run.until(lambda: stage.records() == 1, "the record handled")
    run.signal(signal.SIGTERM)
    assert run.wait() == Exit.FAILURE
    stage.open_gate("start")
    again = stage.run()
    assert again.wait() == Exit.NOT_READY
    assert any("SystemExit: 0" in line for line in again.lines)
