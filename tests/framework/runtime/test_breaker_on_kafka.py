"""The circuit breaker on a real broker: what is sick leaves slowly, what is healthy never waits.

The simulation plays outages of every kind, and longer ones (tests/simulation/outages.py); these are
the same on a broker.

Each test draws its numbers from a seed that it prints; ACKFLOOR_BREAKER_SEED repeats it. The bounds
on time leave room for a busy machine: where healthy records are held up, it is for tens of seconds.
ACKFLOOR_OUTAGE_SECONDS and ACKFLOOR_OUTAGE_RATE (records a second) make the outage longer.
"""

from __future__ import annotations

import asyncio
import os
import sys
from random import Random, SystemRandom
from statistics import median

import pytest

from ackfloor import App, CircuitBreaker, Delivery, RetryPolicy
from ackfloor.core.breaker.park_rate import BURST
from ackfloor.core.messages.events import BreakerOpened, RecordDeadLettered, RecordParked
from ackfloor.declare.registration import DEFAULT_CONCURRENCY
from tests.framework.runtime.on_kafka import Crowd, OnKafka, on_kafka
from tests.framework.runtime.outage import (
    PARTITIONS,
    Ledger,
    Writer,
    count,
    outage,
    traffic,
)

pytestmark = pytest.mark.kafka

SECONDS = float(os.environ.get("ACKFLOOR_OUTAGE_SECONDS", "4"))
RATE = float(os.environ.get("ACKFLOOR_OUTAGE_RATE", "200"))
#: What the default breaker lets leave: the run that opens it, then a burst and the drip.
RULES = CircuitBreaker()
#: How long a failed record waits for its retry, where the others are watched meanwhile.
RETRY_S = 5


@pytest.fixture
def dice(request: pytest.FixtureRequest) -> Random:
    """Random numbers of a test's own, by a seed that is printed."""
    seed = os.environ.get("ACKFLOOR_BREAKER_SEED") or str(SystemRandom().randrange(1_000_000))
    sys.stdout.write(f"ACKFLOOR_BREAKER_SEED={seed}\n")
    return Random(f"{request.node.name} {seed}")


@pytest.mark.parametrize("kind", ["park", "dlq", pytest.param("hang", marks=pytest.mark.soak)])
def test_an_outage_does_not_drain_the_topic(
    bootstrap_servers: str, kind: str, dice: Random
) -> None:
    """A dependency is wholly dead: few records leave, work goes on by itself, all is handled."""
    seconds, rate = SECONDS * dice.uniform(0.9, 1.2), RATE * dice.uniform(0.8, 1.2)
    found = outage(bootstrap_servers, seconds, rate, kind)
    told = found.told()
    most = found.failing + BURST + RULES.park_rate_per_s * found.for_s
    assert RULES.failures <= found.failing < RULES.failures + DEFAULT_CONCURRENCY, told
    assert found.during > 5 * most, told
    assert found.left + found.dead <= most, told
    assert found.dead_in_the_end < (found.failing if kind == "dlq" else 1), told
    assert found.opened == found.closed == 1, told
    assert found.resumed_s < 5.0, told
    assert found.full_rate_s < 5.0, told
    assert found.once + found.again + found.dead_in_the_end == found.sent, told
    if kind != "hang":
        # A call that hangs may return in the moment in which its time is over.
        assert found.again == 0, told


def test_healthy_keys_do_not_wait_for_failing_ones(bootstrap_servers: str, dice: Random) -> None:
    """60 % of the keys fail for some seconds: the breaker stays closed, others come as always.

    What waited behind a failing key would wait for its retry, 5 s away.
    """
    failing = {key for key in range(1_000) if dice.random() < 0.6}
    takes_s = dice.choice([0.001, 0.02, 0.2])
    policy = RetryPolicy(delays=[f"{RETRY_S}s"], max_redeliveries=50)
    with on_kafka(bootstrap_servers, PARTITIONS) as crowd:
        ledger, down = Ledger(), True
        app = App(group=crowd.place.group)

        @app.handler(crowd.place.topic, name="bill", retry=policy)
        async def bill(delivery: Delivery) -> None:
            number = ledger.begin(delivery)
            # Both take as long: of a backlog the failures would else end first, and in a row.
            fails = down and number % 1_000 in failing
            await asyncio.sleep(takes_s)
            if fails:
                raise ConnectionError("this bank is away")
            ledger.end(number)

        worker, writer = crowd.start(app, breakers=True), Writer(crowd)
        _warm_up(crowd, writer, ledger)
        with traffic(writer, dice.uniform(250, 320)):
            crowd.turn_for(4)
            crowd.until(lambda: count(worker, RecordParked) > 500, "500 parked records")
            down = False
        waits = [w for n, w in ledger.waits.items() if n % 1_000 not in failing]
        crowd.until(lambda: len(ledger.handled) == writer.sent, "the end of every record")
        assert count(worker, BreakerOpened) == 0
        assert median(waits) < 1.0
        assert _p99(waits) < RETRY_S
        assert set(ledger.handled.values()) == {1}
        assert count(worker, RecordDeadLettered) == 0


def test_a_burst_with_stuck_records_does_not_hold_up_what_follows(
    bootstrap_servers: str, dice: Random
) -> None:
    """1 % of a burst never returns: the trickle after it is not held up, the stuck are parked."""
    burst = dice.randrange(2_500, 3_500)
    policy = RetryPolicy(delays=["1h"])
    with on_kafka(bootstrap_servers, PARTITIONS) as crowd:
        ledger, writer = Ledger(), Writer(crowd)
        _write_first(writer)
        numbers = range(writer.sent, writer.sent + burst)
        stuck = set(dice.sample(numbers, burst // 100))
        app = App(group=crowd.place.group)

        @app.handler(crowd.place.topic, name="bill", retry=policy, consume_timeout="1s")
        async def bill(delivery: Delivery) -> None:
            number = ledger.begin(delivery)
            if number in stuck:
                await asyncio.sleep(3_600)
            ledger.end(number)

        worker = crowd.start(app, breakers=True)
        crowd.until(lambda: ledger.handled, "the first record")
        writer.write(burst)
        crowd.until(lambda: len(ledger.handled) == writer.sent - len(stuck), "the burst")
        first = writer.sent
        with traffic(writer, dice.uniform(80, 120)):
            crowd.turn_for(4)
        crowd.until(lambda: len(ledger.handled) == writer.sent - len(stuck), "the trickle")
        waits = [ledger.waits[number] for number in range(first, writer.sent)]
        assert len(waits) > 200
        assert median(waits) < 1.0
        assert _p99(waits) < 4.0
        crowd.until(lambda: count(worker, RecordParked) >= len(stuck), "the last park")
        assert _parked(worker) == {(n % PARTITIONS, n // PARTITIONS) for n in stuck}
        assert count(worker, BreakerOpened) == 0


def test_healthy_records_do_not_wait_behind_failed_ones_after_a_restart(
    bootstrap_servers: str, dice: Random
) -> None:
    """A worker finds 300 failing records first: the breaker opens, and passes them in seconds."""
    total, failing = 3_000, 300
    policy = RetryPolicy(delays=["1h"])
    # Of one partition, so that all that failed comes before all that is new.
    with on_kafka(bootstrap_servers) as crowd:
        ledgers, writer = [Ledger()], Writer(crowd, partitions=1)
        _write_first(writer)
        bad = set(dice.sample(range(writer.sent, total), failing))
        app = App(group=crowd.place.group)

        # Retried in place, they stay open, and all around them is settled. Few slots, so that
        # most of them are still to be started when the breaker opens.
        @app.handler(
            crowd.place.topic, name="bill", retry=policy, on_failure="block", concurrency=8
        )
        async def bill(delivery: Delivery) -> None:
            number = ledgers[-1].begin(delivery)
            if number in bad:
                await asyncio.sleep(0.005)
                raise ValueError("no such customer")
            ledgers[-1].end(number)

        before = crowd.start(app, breakers=True)
        writer.write(total - writer.sent)
        crowd.until(lambda: len(ledgers[0].begun_s) == total, "a look at every record")
        crowd.until(lambda: len(ledgers[0].handled) == total - failing, "what can be handled")
        before.close()
        assert count(before, BreakerOpened) == 0

        ledgers.append(Ledger())
        writer.write(dice.randrange(200, 400))
        worker, fresh = crowd.start(app, breakers=True), range(total, writer.sent)
        crowd.until(lambda: len(ledgers[1].handled) >= len(fresh), "what was written meanwhile")
        assert ledgers[1].handled == dict.fromkeys(fresh, 1), "what was settled comes again"
        begun_s = ledgers[1].begun_s
        gap_s = min(begun_s[n] for n in fresh) - min(begun_s.values())
        sys.stdout.write(f"healthy records began {gap_s:.1f} s after the failed ones\n")
        assert count(worker, BreakerOpened) >= 1
        assert bad <= begun_s.keys()
        assert gap_s < 10.0
        assert max(begun_s[n] for n in fresh) - min(begun_s.values()) < 12.0


def _write_first(writer: Writer) -> None:
    """One record for each partition: who has handled one is at work."""
    writer.write(PARTITIONS)


def _warm_up(crowd: Crowd, writer: Writer, ledger: Ledger) -> None:
    """Wait until a worker is at work, so that its start delays nothing that is measured."""
    _write_first(writer)
    crowd.until(lambda: len(ledger.begun_s) == writer.sent, "the first records")
    ledger.waits.clear()


def _p99(values: list[float]) -> float:
    return sorted(values)[len(values) * 99 // 100]


def _parked(worker: OnKafka) -> set[tuple[int, int]]:
    """Partition and offset of what was parked."""
    return {(event.partition, event.offset) for event in worker.watcher.told(RecordParked)}
