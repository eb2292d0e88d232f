"""The oracle of the soak: a clean run is clean, and each thing that may go wrong is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ackfloor.core.acks.gap_set import GapSet, encode, topic_hash
from tests.soak.audit import Audited
from tests.soak.cluster import Commit, DeadLetter
from tests.soak.commit_log import Written
from tests.soak.facts import Facts, Frozen, Recreated
from tests.soak.ledger import Call, Identity, Pen, Turn, read_calls
from tests.soak.oracle import Verdict, judge
from tests.soak.plan import KEYED, LOOSE
from tests.soak.producer import Produced
from tests.soak.sampler import CommitSample, Samples, StateSample

WORKER, OTHER = 11, 22
OLD_ID, NEW_ID = "old", "new"


def identity(seq: int, topic: str = KEYED) -> Identity:
    """A record of the only key."""
    return topic, "k", seq


def call(
    seq: int, at_s: float, outcome: str = "ok", *, pid: int = WORKER, attempt: int = 1
) -> Call:
    """A call of the keyed record with that number, of a tenth of a second."""
    ended_s = None if outcome == "" else at_s + 0.1
    return Call(identity(seq), (KEYED, 0, seq), attempt, pid, at_s, 0, ended_s, outcome)


def sample(at_s: float, position: int, *settled: int, topic_id: str = "") -> CommitSample:
    """The group's commit: a floor, and offsets that are settled above it."""
    runs = [(offset, offset + 1) for offset in settled]
    gaps = GapSet(position, runs, topic_hash(topic_id))
    text = encode(gaps, KEYED, 0)[0] if settled or topic_id else ""
    return CommitSample(at_s, at_s + 0.01, {(KEYED, 0): Commit(position, text)})


def clean() -> Facts:
    """Three records of one key: handled, handled the second time, dead-lettered."""
    acked = {identity(seq): (KEYED, 0, seq) for seq in (1, 2, 3)}
    kinds = {identity(1): "ok", identity(2): "flaky", identity(3): "poison"}
    failing = [call(3, 30 + n, "error", attempt=n) for n in (1, 2, 3, 4)]
    return Facts(
        Produced(acked=acked, kinds=kinds),
        calls=[call(1, 10), call(2, 20, "error"), call(2, 21, attempt=2), *failing],
        turns=[Turn("assigned", 5, WORKER, KEYED, 0)],
        dead_letters=[DeadLetter((f"{KEYED}--soak--dlq", 0, 0), identity(3), "exhausted")],
        samples=Samples(commits=[sample(6, 1), sample(12, 2), sample(22, 3), sample(36, 4)]),
        written=[written(6, 1), written(12, 2), written(22, 3), written(36, 4)],
    )


def written(at_s: float, position: int | None) -> Written:
    """A commit, or what deletes it."""
    return Written(at_s, (KEYED, 0), position)


def found(change: Callable[[Facts], None]) -> Verdict:
    """The verdict on a run that was changed."""
    facts = clean()
    change(facts)
    facts.calls = sorted(facts.calls, key=lambda call: call.started_s)
    return judge(facts)


def test_a_clean_run_is_clean() -> None:
    """And what it did is counted."""
    verdict = judge(clean())
    assert verdict.clean, verdict.findings
    assert (verdict.counts["handled"], verdict.counts["dead letters"]) == (2, 1)
    assert verdict.counts["repeats"] == 0


def lose(facts: Facts) -> None:
    """The second record is only ever tried."""
    facts.calls = [c for c in facts.calls if c.identity != identity(2) or c.attempt == 1]


def lose_a_dead_letter(facts: Facts) -> None:
    """The last one is not in the DLQ."""
    facts.dead_letters = []


def end_late(facts: Facts) -> None:
    """The first one ends long after its deadline: that proves nothing."""
    late = facts.calls[0]._replace(ended_s=16.0, outcome="late")
    facts.calls = [late, *facts.calls[1:]]


def handle_what_was_aborted(facts: Facts) -> None:
    """A record of an aborted transaction reaches a handler."""
    facts.produced.aborted.add(identity(9))
    facts.calls = [*facts.calls, call(9, 50)]


def bury_what_was_aborted(facts: Facts) -> None:
    """A record of an aborted transaction is in the DLQ."""
    facts.produced.aborted.add(identity(9))
    facts.dead_letters = [*facts.dead_letters, DeadLetter(("d", 0, 1), identity(9), "error")]


def bury_the_healthy(facts: Facts) -> None:
    """A record that fails once is dead-lettered."""
    facts.dead_letters = [*facts.dead_letters, DeadLetter(("d", 0, 1), identity(2), "error")]


def overtake(facts: Facts) -> None:
    """The third starts between the second's failure and its retry."""
    facts.calls = [*facts.calls, call(3, 20.5, "error")]


def overtake_the_dying(facts: Facts) -> None:
    """A fourth starts before the third is exhausted."""
    facts.produced.acked[identity(4)] = (KEYED, 0, 4)
    facts.produced.kinds[identity(4)] = "ok"
    facts.calls = [*facts.calls, call(4, 32.5)]


def go_back(facts: Facts) -> None:
    """The committed floor is lower than it was."""
    facts.written = [*facts.written, written(40, 3)]


def test_an_older_answer_is_no_older_commit() -> None:
    """As a coordinator gives that has just moved; nor is what follows a commit that was deleted."""

    def change(facts: Facts) -> None:
        facts.samples.commits.append(sample(40, 3))
        facts.written = [*facts.written, written(41, None), written(42, 1)]

    assert found(change).clean


def test_a_commit_that_was_late_is_made_good() -> None:
    """By the next one, where that comes before another owner, and not behind him."""

    def late(facts: Facts) -> None:
        facts.written = [*facts.written, written(40, 3), written(42, 4)]

    def too_late(facts: Facts) -> None:
        late(facts)
        facts.turns = [*facts.turns, Turn("assigned", 41, OTHER, KEYED, 0)]

    assert found(late).clean
    assert "floor" in found(too_late).findings


def test_commits_that_were_not_found_are_no_proof() -> None:
    """A run whose commits could not be read is not clean."""

    def change(facts: Facts) -> None:
        facts.written = []

    assert found(change).findings == {"floor": ["no commit was found"]}


def repeat_below_the_floor(facts: Facts) -> None:
    """Another worker comes after the commit, and handles what it says is settled."""
    facts.turns = [*facts.turns, Turn("assigned", 25, OTHER, KEYED, 0)]
    facts.calls = [*facts.calls, call(2, 26, pid=OTHER)]


def repeat_in_a_gap(facts: Facts) -> None:
    """The same, with an offset that is settled above the floor."""
    facts.samples.commits[2:] = [sample(22, 1, 2)]
    facts.samples.commits.append(sample(36, 4))
    repeat_below_the_floor(facts)


def repeat_within_an_assignment(facts: Facts) -> None:
    """One worker does it twice in one assignment."""
    facts.calls = [*facts.calls, call(1, 14)]


def write_nonsense(facts: Facts) -> None:
    """Metadata that can't be read."""
    facts.samples.commits[2].commits[KEYED, 0] = Commit(1, "af1rnonsense")
    repeat_below_the_floor(facts)


def park_twice(facts: Facts) -> None:
    """Transactional, and one attempt is in the retry topics twice."""
    facts.transactional = True
    tier = [call(2, at_s, attempt=2)._replace(place=("t", 0, n)) for n, at_s in ((0, 41), (1, 42))]
    facts.calls = [*facts.calls, *tier]


def bury_twice(facts: Facts) -> None:
    """Transactional, and one record is in the DLQ twice."""
    facts.transactional = True
    facts.dead_letters = [*facts.dead_letters, *facts.dead_letters]


def grow(facts: Facts) -> None:
    """A worker takes a tenth of a MiB more each second."""
    facts.samples.states = [
        StateSample(float(s), 0, 0, 0, {WORKER: (100 << 20) + s * (1 << 20) // 5})
        for s in range(600)
    ]


def leave_a_hole(facts: Facts) -> None:
    """The audit misses an attempt."""
    facts.audited = Audited(9, {"hole": 1, "double": 2}, ("fault=hole message=x", "fault=double"))


def fail_to_audit(facts: Facts) -> None:
    """There is no answer."""
    facts.audited = Audited(broken="ended with 4")


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("lost", lose),
        ("lost", lose_a_dead_letter),
        ("lost", end_late),
        ("phantom", handle_what_was_aborted),
        ("phantom", bury_what_was_aborted),
        ("unfounded", bury_the_healthy),
        ("order", overtake),
        ("order", overtake_the_dying),
        ("floor", go_back),
        ("settled", repeat_below_the_floor),
        ("settled", repeat_in_a_gap),
        ("settled", repeat_within_an_assignment),
        ("metadata", write_nonsense),
        ("doubled", park_twice),
        ("doubled", bury_twice),
        ("memory", grow),
        ("audit", leave_a_hole),
        ("audit", fail_to_audit),
    ],
)
def test_what_goes_wrong_is_found(rule: str, change: Callable[[Facts], None]) -> None:
    """Under the name of its rule."""
    assert found(change).findings[rule]


def test_what_the_contract_permits_is_no_finding() -> None:
    """A repeat of what no commit had, a zombie's, a frozen call, and a topic made anew."""

    def crash(facts: Facts) -> None:
        facts.turns = [*facts.turns, Turn("assigned", 21.5, OTHER, KEYED, 0)]
        facts.calls = [*facts.calls, call(2, 21.8, pid=OTHER, attempt=1)]

    def zombie(facts: Facts) -> None:
        facts.turns = [*facts.turns, Turn("assigned", 5, OTHER, KEYED, 0)]
        facts.calls = [*facts.calls, call(1, 15, pid=OTHER)]

    def freeze(facts: Facts) -> None:
        end_late(facts)
        facts.frozen = [Frozen(WORKER, 10.05, 15.95)]

    def renew(facts: Facts) -> None:
        go_back(facts)
        facts.recreated = [Recreated(KEYED, 38, 39, NEW_ID)]

    def linger(facts: Facts) -> None:
        commit_of(facts, OLD_ID)

    for change in (crash, zombie, freeze, renew, linger):
        verdict = found(change)
        assert verdict.clean, (change.__name__, verdict.findings)
    assert found(zombie).counts["repeats by zombies"] == 1


def test_doubles_of_the_audit_are_permitted_without_transactions() -> None:
    """And nothing but them."""

    def doubles(facts: Facts) -> None:
        facts.audited = Audited(9, {"double": 2}, ("fault=double message=x",))

    def doubles_in_transactions(facts: Facts) -> None:
        facts.transactional = True
        doubles(facts)

    assert found(doubles).clean
    assert found(leave_a_hole).findings["audit"] == ["1 hole", "fault=hole message=x"]
    assert found(doubles_in_transactions).findings["audit"][0] == "2 double"


def commit_of(facts: Facts, topic_id: str) -> None:
    """The topic is made anew, and long after that its first record comes while a commit has it."""
    again = [Turn("assigned", 70, OTHER, KEYED, 0)]
    facts.turns = [*facts.turns, *again]
    facts.recreated = [Recreated(KEYED, 38, 39, NEW_ID)]
    facts.samples.commits += [sample(45, 4, topic_id=topic_id)]
    facts.calls = [*facts.calls, call(1, 40, "error"), call(1, 71, pid=OTHER)]


def test_a_commit_counts_for_the_topic_that_it_names() -> None:
    """The same calls: with the id of the topic that was there, and with that of the new one."""
    assert "settled" in found(lambda facts: commit_of(facts, NEW_ID)).findings


def test_the_ledger_gives_back_what_was_written(tmp_path: Path) -> None:
    """Calls with and without an end, and turns."""
    pen = Pen(tmp_path)
    first = pen.start(identity(1, LOOSE), (LOOSE, 2, 7), 1)
    pen.start(identity(2, LOOSE), (LOOSE, 2, 8), 3)
    pen.end(first, "error")
    pen.turn("lost", LOOSE, 2)
    calls, turns = read_calls(tmp_path)
    assert [(c.identity[2], c.place, c.attempt, c.outcome) for c in calls] == [
        (1, (LOOSE, 2, 7), 1, "error"),
        (2, (LOOSE, 2, 8), 3, ""),
    ]
    assert calls[1].ended_s is None
    assert [replace(turn, at_s=0, pid=0) for turn in turns] == [Turn("lost", 0, 0, LOOSE, 2)]
