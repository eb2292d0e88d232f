"""What is measured: for each case who takes part, and with how many records.

Everybody reads the same records of the same topic and stops after so many, so that a round takes
minutes: those who are slow read fewer. What a handler does in each case is in peers/work.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.peers.work import (
    COROUTINES,
    CPU_S,
    IO_S,
    NONE_SLOW,
    PROCESSES,
    THREADS,
    TWO_WORKERS,
)
from benchmarks.topic import Contents

#: What all cases read but those that name another one.
USUAL = Contents(2_000_000)
#: A few keys that everything belongs to.
HOT = Contents(500_000, keys=10)
#: As keys are in most systems: the first of 10,000 has a tenth of all, the last half of them 7 %.
ZIPF = Contents(1_000_000, zipf=True)


@dataclass(frozen=True, slots=True)
class Run:
    """One peer in one case.

    Attributes:
        peer: its name in `PEERS`.
        records: how many it handles, warm-up included.
        form: which way of ours is meant, where there are several.
    """

    peer: str
    records: int
    form: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of work.

    Attributes:
        body: what the handler does (see peers/work.py).
        limit: the most that slots and handler's time allow, in records/s.
        contents: the records that it reads.
        note: what a reader must know about it.
    """

    title: str
    body: str
    runs: tuple[Run, ...]
    order: str = "unordered"
    limit: float | None = None
    contents: Contents = USUAL
    note: str = ""


def _waiting(limit_slots: int) -> float:
    return limit_slots / IO_S


CASES = (
    Case(
        "no-op",
        "noop",
        (
            Run("confluent", 2_000_000),
            Run("ackfloor", 1_000_000, "async"),
            Run("ackfloor", 1_000_000, "thread"),
            Run("ackfloor", 1_500_000, TWO_WORKERS),
            Run("aiokafka", 500_000),
            Run("quixstreams", 400_000),
            Run("arroyo", 250_000),
            Run("parallel_consumer", 300_000),
            Run("faust", 40_000),
            Run("faststream", 20_000),
            Run("pyrallel", 20_000),
        ),
        note="aiokafka, quixstreams, arroyo, faust and FastStream handle one record at a time.",
    ),
    Case(
        "no-op, key order",
        "noop",
        (
            Run("ackfloor", 600_000, "async"),
            Run("parallel_consumer", 200_000),
            Run("pyrallel", 15_000),
        ),
        order="key",
        note="10,000 keys. Who handles one record at a time keeps any order: see no-op.",
    ),
    Case(
        "no-op, keys by Zipf's law",
        "noop",
        (
            Run("ackfloor", 600_000, "async"),
            Run("parallel_consumer", 200_000),
            Run("pyrallel", 15_000),
        ),
        order="key",
        contents=ZIPF,
        note="10,000 keys, the first of which has a tenth of all records.",
    ),
    Case(
        "no-op, 10 hot keys",
        "noop",
        (
            Run("ackfloor", 300_000, "async"),
            Run("parallel_consumer", 100_000),
            Run("pyrallel", 15_000),
        ),
        order="key",
        contents=HOT,
    ),
    Case(
        "JSON to pydantic",
        "json",
        (
            Run("confluent", 500_000),
            Run("ackfloor", 500_000, "async"),
            Run("ackfloor", 800_000, TWO_WORKERS),
            Run("aiokafka", 300_000),
            Run("quixstreams", 300_000),
            Run("arroyo", 200_000),
            Run("faust", 40_000),
            Run("faststream", 15_000),
            Run("pyrallel", 15_000),
        ),
        note="The bare loop polls and validates.",
    ),
    Case(
        "5 ms I/O",
        "io",
        (
            Run("ackfloor", 300_000, "async"),
            Run("ackfloor", 600_000, TWO_WORKERS),
            Run("parallel_consumer", 150_000),
            Run("faust", 15_000),
            Run("faststream", 15_000),
            Run("pyrallel", 15_000),
        ),
        limit=_waiting(COROUTINES),
        note="1,000 at once: coroutines, 500 in each of two workers; threads on the JVM.",
    ),
    Case(
        "5 ms I/O, key order",
        "io",
        (
            Run("ackfloor", 200_000, "async"),
            Run("parallel_consumer", 100_000),
            Run("pyrallel", 15_000),
        ),
        order="key",
        limit=_waiting(COROUTINES),
    ),
    Case(
        "5 ms blocking",
        "blocking",
        (
            Run("ackfloor", 200_000, "thread"),
            Run("arroyo", 60_000),
        ),
        limit=_waiting(THREADS),
        note="256 threads.",
    ),
    Case(
        "1 ms CPU",
        "cpu",
        (
            Run("confluent", 6_000),
            Run("ackfloor", 10_000, "process"),
            Run("arroyo", 10_000),
        ),
        limit=PROCESSES / CPU_S,
        note="Two processes; the bare loop is one.",
    ),
    Case(
        "0 to 5 ms I/O, mixed",
        "mixed",
        (
            Run("ackfloor", 300_000, "async"),
            Run("parallel_consumer", 150_000),
            Run("faust", 15_000),
            Run("faststream", 15_000),
            Run("pyrallel", 15_000),
        ),
        limit=2 * _waiting(COROUTINES),
    ),
    Case(
        "5 ms I/O, 0.01 % take 10 s",
        "stragglers",
        (
            Run("ackfloor", 300_000, "async"),
            Run("ackfloor", 300_000, NONE_SLOW),
            Run("parallel_consumer", 150_000),
            Run("pyrallel", 15_000),
        ),
        limit=_waiting(COROUTINES),
        note="Ours has a consume timeout of 1 s. The others have none: their floor waits 10 s. The "
        "handler looks at each record, so what is beside it has the same one, and none slow.",
    ),
    Case(
        "20 % fail once",
        "retry",
        (
            Run("ackfloor", 100_000, "async"),
            Run("parallel_consumer", 100_000),
            Run("pyrallel", 15_000),
        ),
        note="Again after 1 s: ours through a retry topic, the others in memory.",
    ),
    Case(
        "every record is parked",
        "parking",
        (
            Run("ackfloor", 20_000, "async"),
            Run("ackfloor", 20_000, "transactional"),
        ),
        note="Nobody else has retry topics.",
    ),
)
