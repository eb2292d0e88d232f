"""Plan: what happens in one run, as plain data made from a seed.

What a record's handler does and which faults there are is written down before the run begins, so a
run that fails can be made smaller by leaving records and faults out. What is too small to be
written down (latencies, who runs next) is for the hub's dice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from ackfloor.core.queues.flow_limits import MIB

#: What a record's code may raise that is no `Exception`.
EXITS = ("SystemExit", "KeyboardInterrupt", "GeneratorExit", "CancelledError", "Odd")


@dataclass(frozen=True, slots=True)
class Act:
    """What a handler does with one delivery.

    Attributes:
        kind: "ok", "slow" (near its deadline), "fail", "down" (fails until `after_s`), "retry",
        "dead_letter", "discard", "pause", "exit", "hang", "stubborn",
            "extend", "crash"; by hand also "late", "twice", "thread", "silent".
        takes_s: how long it runs before that, in seconds.
        after_s: the wait of a `retry`, the length of a `pause` or an extension.
        raises: of "exit", which.
    """

    kind: str
    takes_s: float = 0.0
    after_s: float = 0.0
    raises: str = ""


#: What a record can end as, for ever: the last act repeats.
SICK = frozenset({"fail", "hang", "stubborn", "exit", "silent", "late", "crash"})


#: What stops healthy records by design: a `Pause` says so, a process that dies takes them along.
APART = frozenset({"pause", "crash"})


@dataclass(frozen=True, slots=True)
class RecordPlan:
    """One record.

    Attributes:
        uid: unique in the run; its value.
        handler: which handler's topic it goes to.
        partition: where.
        key: its key; None for none.
        at_s: when it is produced, seconds after the beginning.
        acts: what its handler does with its first delivery, its second, …; the last one repeats.
        gap: offsets that never arrive, left before it (a transaction's marker).
        garbage: whether its value does not decode.
    """

    uid: int
    handler: int
    partition: int
    key: bytes | None
    at_s: float
    acts: tuple[Act, ...]
    gap: int = 0
    garbage: bool = False

    @property
    def sick(self) -> bool:
        """Whether any of its deliveries is not simply handled."""
        return self.garbage or any(act.kind != "ok" for act in self.acts)


@dataclass(frozen=True, slots=True)
class HandlerPlan:
    """One handler's options."""

    kind: str  # "async", "thread" or "process"
    ordering: str = "unordered"
    on_failure: str = "park"
    manual: bool = False
    batch: int | None = None
    concurrency: int = 4
    timeout_s: float = 5.0
    delays_s: tuple[float, ...] = (1.0, 4.0)
    redeliveries: int = 3
    #: With on_failure="quarantine": what becomes of those behind a dead-lettered record.
    after_dead_letter: str = "continue"
    #: Failures that open the circuit breaker; 0 for none.
    breaker: int = 0
    #: Records a second that the whole group may start; 0 for no limit.
    rate_per_s: int = 0
    #: How many records each delivery publishes, to be committed with its acknowledgement.
    outputs: int = 0


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong, or that an operator does.

    Attributes:
        kind: see `faults.py`.
        at_s: when, seconds after the beginning.
        lasts_s: for how long, where it lasts.
        number: a kind's own: a worker, a partition, a count.
        share: a kind's own: of requests.
    """

    kind: str
    at_s: float
    lasts_s: float = 0.0
    number: int = 0
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Plan:
    """One run."""

    seed: int
    handlers: tuple[HandlerPlan, ...]
    records: tuple[RecordPlan, ...]
    faults: tuple[Fault, ...] = ()
    partitions: int = 2
    workers: int = 1
    transactional: bool = False
    max_open: int = 50_000
    partition_open: int = 25_000
    #: A quarter of it is what outputs may hold before their handler is given nothing more.
    open_bytes: int = 256 * MIB
    commit_interval_s: float = 1.0
    drain_s: float = 3.0
    session_s: float = 10.0
    batch: int = 500
    most_events: int = 60_000

    def healthy(self) -> Plan:
        """The same without its sick records."""
        return replace(self, records=tuple(r for r in self.records if not r.sick))

    def without(self, records: Sequence[RecordPlan] = (), faults: Sequence[Fault] = ()) -> Plan:
        """The same without some records and faults."""
        return replace(
            self,
            records=tuple(r for r in self.records if r not in records),
            faults=tuple(f for f in self.faults if f not in faults),
        )


def make_plan(seed: int) -> Plan:
    """The plan of a seed."""
    dice = Random(f"plan {seed}")
    workers = dice.choice((1, 1, 2, 2, 3))
    partitions = dice.choice((1, 2, 2, 3, 4))
    handlers = tuple(_handler(dice) for _ in range(dice.choice((1, 1, 1, 2))))
    calm = dice.random() < 0.15
    span_s = dice.choice((1.0, 5.0, 20.0))
    records = _records(dice, handlers, partitions, span_s)
    faults = () if calm else _faults(dice, workers, span_s + 15.0)
    plan = Plan(
        seed,
        handlers,
        records,
        faults,
        partitions=partitions,
        workers=workers,
        transactional=dice.random() < 0.4,
        max_open=dice.choice((50_000, 50_000, 20, 8)),
        partition_open=dice.choice((25_000, 25_000, 10)),
        commit_interval_s=dice.choice((0.2, 1.0, 1.0, 3.0)),
        drain_s=dice.choice((0.5, 3.0)),
        batch=dice.choice((500, 7, 3)),
    )
    plan = _with_outputs(_with_quarantine(plan), calm=calm)
    if calm:
        return _comparable(plan)
    plan = _with_rate(plan)
    plan = _with_removals(_with_operator(plan, span_s + 15.0), span_s + 15.0)
    return _with_silence(plan, span_s + 15.0)


def _with_quarantine(plan: Plan) -> Plan:
    """In some runs what is ordered by key quarantines, by dice of its own."""
    dice = Random(f"quarantine {plan.seed}")
    handlers = tuple(
        replace(
            each,
            on_failure="quarantine",
            after_dead_letter=dice.choice(("continue", "continue", "dead_letter", "hold")),
        )
        if _may_quarantine(each) and dice.random() < 0.5
        else each
        for each in plan.handlers
    )
    return replace(plan, handlers=handlers)


def _with_outputs(plan: Plan, *, calm: bool) -> Plan:
    """In some runs handlers publish, and what they publish is committed with their
    acknowledgements; by dice of their own."""
    dice = Random(f"outputs {plan.seed}")
    if dice.random() < 0.7:
        return plan
    handlers = tuple(replace(each, outputs=dice.choice((1, 1, 2, 3))) for each in plan.handlers)
    faults = plan.faults
    if not calm:
        until_s = max([r.at_s for r in plan.records]) + 10.0
        faults += tuple(
            Fault(
                dice.choice(("output_forbidden", "output_forbidden", "output_too_small")),
                dice.random() * until_s,
                dice.choice((0.5, 2.0, 8.0)),
                dice.randrange(12),
            )
            for _ in range(dice.choice((0, 1, 2, 4)))
        )
        plan = replace(plan, open_bytes=dice.choice((256 * MIB, 8_000, 4_000)))
    return replace(plan, handlers=handlers, faults=faults, transactional=True)


def _with_rate(plan: Plan) -> Plan:
    """In some runs handlers have a rate for the group, by dice of their own."""
    dice = Random(f"rate {plan.seed}")
    handlers = tuple(
        replace(each, rate_per_s=dice.choice((1, 2, 2, 5))) if dice.random() < 0.3 else each
        for each in plan.handlers
    )
    return replace(plan, handlers=handlers)


def _may_quarantine(handler: HandlerPlan) -> bool:
    return handler.ordering == "key" and handler.batch is None and handler.redeliveries > 0


def _with_operator(plan: Plan, until_s: float) -> Plan:
    """In some runs an operator moves the heads of blocked lanes, by dice of their own."""
    dice = Random(f"operator {plan.seed}")
    if dice.random() < 0.6 or all(h.ordering == "unordered" for h in plan.handlers):
        return plan
    orders = tuple(
        Fault("lane_order", dice.random() * until_s, number=dice.randrange(12))
        for _ in range(dice.choice((1, 3, 8)))
    )
    return replace(plan, faults=plan.faults + orders)


def _with_removals(plan: Plan, until_s: float) -> Plan:
    """In some runs retry topics of quarantining handlers lose records, by dice of their own."""
    dice = Random(f"removals {plan.seed}")
    if dice.random() < 0.2 or all(h.on_failure != "quarantine" for h in plan.handlers):
        return plan
    removals = tuple(
        Fault(
            "retry_retention",
            dice.random() * until_s,
            dice.choice((2.0, 8.0)),
            dice.randrange(12),
        )
        for _ in range(dice.choice((1, 4, 10)))
    )
    return replace(plan, faults=plan.faults + removals)


def _with_silence(plan: Plan, until_s: float) -> Plan:
    """In some runs workers give their partitions up and take them up again, by dice of their own.

    Most of these park in transactions, whose end may come after that.
    """
    dice = Random(f"silence {plan.seed}")
    if dice.random() < (0.4 if plan.transactional else 0.8):
        return plan
    silences = tuple(
        Fault("silence", dice.random() * until_s, dice.choice((0.5, 1.0, 3.0, 15.0)), number)
        for number in (dice.randrange(12) for _ in range(dice.choice((1, 3, 8))))
    )
    return replace(plan, faults=plan.faults + silences)


def _comparable(plan: Plan) -> Plan:
    """The same so that only its sick records make it other than the run without them.

    That is what invariant 12 is looked at by: see `delays.py`.
    """
    records = tuple(
        replace(
            record,
            acts=tuple(
                replace(act, kind="fail") if act.kind in APART else act for act in record.acts
            ),
        )
        for record in plan.records
    )
    return replace(plan, records=records, max_open=50_000, partition_open=25_000)


def _handler(dice: Random) -> HandlerPlan:
    kind = dice.choice(("async", "async", "async", "thread", "thread", "process"))
    ordering = dice.choice(("unordered", "unordered", "key", "key", "partition"))
    on_failure = "park" if ordering == "unordered" else dice.choice(("park", "block", "block"))
    batch = dice.choice((2, 5)) if kind != "process" and dice.random() < 0.2 else None
    manual = batch is None and kind != "process" and dice.random() < 0.25
    delays = dice.choice(((1.0, 4.0), (0.5,), (1.0, 2.0, 8.0)))
    return HandlerPlan(
        kind,
        ordering,
        on_failure,
        manual,
        batch,
        concurrency=dice.choice((1, 2, 4, 16)),
        timeout_s=dice.choice((1.0, 3.0, 5.0)),
        delays_s=delays,
        redeliveries=dice.choice((0, 1, 3, 4)),
        breaker=dice.choice((0, 0, 3)),
    )


def _records(
    dice: Random, handlers: Sequence[HandlerPlan], partitions: int, span_s: float
) -> tuple[RecordPlan, ...]:
    count = dice.choice((6, 15, 30, 50, 90))
    sick = dice.choice((0.02, 0.1, 0.1, 0.3, 0.6))
    slow_s = dice.choice((0.0, 0.01, 0.2))
    keys = [None if dice.random() < 0.1 else b"k%d" % n for n in range(dice.choice((1, 3, 10)))]
    at_s, found = 0.0, []
    for uid in range(count):
        if dice.random() < 0.5:
            at_s += dice.random() * 2 * span_s / count
        number = dice.randrange(len(handlers))
        key = dice.choice(keys)
        place = hash_of(key) % partitions if key is not None else dice.randrange(partitions)
        takes_s = slow_s * 2 * dice.random()
        acts = (Act("ok", takes_s),)
        if dice.random() < sick:
            acts = _sick_acts(dice, handlers[number], takes_s)
        gap = dice.choice((1, 1, 3)) if dice.random() < 0.05 else 0
        garbage = dice.random() < 0.01
        found.append(RecordPlan(uid, number, place, key, at_s, acts, gap, garbage))
    found = _with_volley(dice, found) if dice.random() < 0.4 else found
    return tuple(_with_outage(dice, found) if dice.random() < 0.3 else found)


def _with_volley(dice: Random, records: list[RecordPlan]) -> list[RecordPlan]:
    """Some records come together and fail together, in different ways: what is written of them
    goes to several topics at once."""
    first = dice.randrange(len(records))
    at_s = records[first].at_s
    kinds = ("fail", "dead_letter", "fail", "discard", "dead_letter", "fail", "dead_letter")
    for number, kind in enumerate(kinds, first):
        if number < len(records):
            acts = (Act(kind), Act("ok"))
            records[number] = replace(records[number], at_s=at_s, acts=acts)
    return records


def _with_outage(dice: Random, records: list[RecordPlan]) -> list[RecordPlan]:
    """From one record on, all or some of them fail until a dependency is back."""
    first = dice.randrange(len(records))
    until_s = records[first].at_s + dice.choice((3.0, 12.0, 30.0))
    share = dice.choice((0.6, 1.0, 1.0))
    for number in range(first, len(records)):
        record = records[number]
        if record.at_s < until_s and dice.random() < share:
            acts = (Act("down", dice.choice((0.0, 0.01, 0.2)), until_s),)
            records[number] = replace(record, acts=acts)
    return records


def hash_of(key: bytes) -> int:
    """Which partition a key goes to; the same in every process."""
    return sum(key) * 31 + len(key)


def _sick_acts(dice: Random, handler: HandlerPlan, takes_s: float) -> tuple[Act, ...]:
    count = dice.choice((1, 1, 2, 3, 9))
    acts = [_sick_act(dice, handler, takes_s) for _ in range(count)]
    if (count < 9 and dice.random() < 0.7) or acts[-1].kind not in SICK:
        acts.append(Act("ok", takes_s))
    return tuple(acts)


def _sick_act(dice: Random, handler: HandlerPlan, takes_s: float) -> Act:
    kinds = ["fail"] * 4 + ["hang", "hang", "stubborn", "retry", "dead_letter", "discard"]
    kinds += ["pause", "exit", "exit", "extend", "slow"]
    if dice.random() < 0.15 and handler.kind != "process":
        # What a process handler does to its own process can't hurt the worker's.
        kinds.append("crash")
    if handler.manual:
        kinds += ["late", "twice", "thread", "silent"] * 2
    kind = dice.choice(kinds)
    if kind == "slow":
        return Act("slow", handler.timeout_s * dice.choice((0.5, 0.98, 1.0, 1.02)))
    after_s = {
        "retry": dice.choice((0.0, 0.2, 3.0, 20.0)),
        "pause": dice.choice((0.5, 3.0)),
        "extend": handler.timeout_s * dice.choice((0.5, 2.0)),
        "stubborn": handler.timeout_s * dice.choice((1.2, 3.0, 9.0)),
        "late": handler.timeout_s * dice.choice((0.5, 1.5, 4.0)),
        "thread": handler.timeout_s * dice.choice((0.1, 0.9)),
    }.get(kind, 0.0)
    return Act(kind, takes_s, after_s, dice.choice(EXITS) if kind == "exit" else "")


#: Kind of fault -> how often it is chosen.
FAULTS = {
    "rebalance": 3,
    "join": 2,
    "leave": 2,
    "expel": 3,
    "freeze": 3,
    "freeze_owner": 2,
    "crash": 3,
    "crash_at_call": 4,
    "commits_refused": 2,
    "commits_lost": 2,
    "commit_answers_lost": 2,
    "publishes_refused": 3,
    "publishes_lost": 2,
    "publish_answers_lost": 2,
    "aborts": 2,
    "unclear": 2,
    "slow": 2,
    "tier_forbidden": 2,
    "dlq_missing": 2,
    "too_small": 2,
    "retention": 1,
    "compaction": 2,
    "aborted_records": 2,
    "wall_back": 1,
    "wall_forward": 1,
    "reload": 2,
    # Drawn apart: see `_with_operator`.
    "lane_order": 0,
    # The same: see `_with_removals`.
    "retry_retention": 0,
    # The same: see `_with_silence`.
    "silence": 0,
    # The same: see `_with_outputs`.
    "output_forbidden": 0,
    "output_too_small": 0,
}


def _faults(dice: Random, workers: int, until_s: float) -> tuple[Fault, ...]:
    kinds, weights = list(FAULTS), list(FAULTS.values())
    chosen = dice.choices(kinds, weights, k=dice.choice((1, 2, 4, 6, 9)))
    return tuple(
        Fault(
            kind,
            dice.random() * until_s,
            dice.choice((0.2, 2.0, 8.0, 15.0)),
            dice.randrange(12),
            dice.choice((0.3, 1.0)),
        )
        for kind in chosen
    )
