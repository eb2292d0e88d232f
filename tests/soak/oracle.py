"""The oracle: facts in, findings out. Pure; nothing is forgiven that the contract does not permit.

Rules, each by its name in the findings:

* `lost`: what was acknowledged is handled, or a dead letter.
* `phantom`: what was aborted, or never written, is neither.
* `unfounded`: a dead letter is one that had to fail, or one that met a fault of the handlers.
* `order`: in key mode a record never starts before an earlier one of its key has been handled, or
  its last attempt is over. Repeats are permitted: what was handled once counts for ever.
* `floor`: nobody has to begin at a lower position than was committed, but in a topic made anew.
* `settled`: what a commit recorded as settled, its gap set included, is not handled again by a
  worker that was assigned the partition after that commit. Commits are sampled, so a case is
  missed where none was sampled between the two; none is invented. A worker that has the partition
  since before the commit is a zombie: the contract permits it, and it is counted apart.
* `doubled`: with transactional parking no delivery is in the retry or dead-letter topics twice.
* `unsettled`, `not ready`, `ended`: the end of the run.
* `memory`: no worker grows.
* `audit`: see tests/soak/audit.py.
"""

from __future__ import annotations

import pickle
import sys
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from statistics import median

from ackfloor.core.acks.gap_set import (
    LARGEST_OFFSET,
    GapSet,
    MetadataRefused,
    Runs,
    decode,
    topic_hash,
)
from tests.soak.audit import complaints
from tests.soak.cluster import Commit, DeadLetter
from tests.soak.facts import Facts
from tests.soak.floors import floors_going_back
from tests.soak.ledger import Call, Identity, Place
from tests.soak.plan import ATTEMPTS, KEYED, LATE_S, SHORTEST_TIMEOUT_S

#: Findings of one rule that are told in words; the others are only counted.
TOLD = 10
#: A worker's memory is judged from this age on, and where it lived this long.
WARM_S, JUDGED_S = 60.0, 240.0
GROWTH_MIB = 40
LARGEST_MIB = 600
MUST_FAIL = ("poison", "garbage")


@dataclass(slots=True)
class Verdict:
    """What the oracle found, and what it counted on the way."""

    findings: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return not any(self.findings.values())

    def add(self, rule: str, findings: Iterable[str]) -> None:
        """Take in what a rule found."""
        for finding in findings:
            self.findings[rule].append(finding)


def judge(facts: Facts) -> Verdict:
    """Apply every rule."""
    verdict = Verdict()
    counts = verdict.counts
    verdict.add("lost", lost(facts, counts))
    verdict.add("phantom", phantoms(facts))
    verdict.add("unfounded", unfounded(facts, counts))
    verdict.add("order", disorder(facts))
    verdict.add("floor", floors_going_back(facts))
    history = History(facts)
    verdict.add("settled", settled_and_handled_again(facts, history, counts))
    verdict.add("metadata", sorted(history.refused))
    verdict.add("memory", growth(facts))
    verdict.add("unsettled", (f"{t}/{p}: {n} records" for (t, p), n in facts.left.items()))
    verdict.add("not ready", facts.not_ready)
    verdict.add("ended", facts.troubles)
    doubles = list(doubled(facts, counts))
    verdict.add("doubled", doubles if facts.transactional else ())
    verdict.add("audit", complaints(facts, counts))
    counts["calls"] = len(facts.calls)
    counts["repeats"] = sum(
        len(calls) - len({call.attempt for call in calls}) for calls in _by_place(facts)
    )
    return verdict


def lost(facts: Facts, counts: Counter[str]) -> Iterator[str]:
    """Acknowledged, and neither handled nor a dead letter."""
    handled = _handled(facts)
    dead = _dead(facts)
    counts["handled"] = len(handled & facts.produced.acked.keys())
    counts["dead letters"] = len(dead & facts.produced.acked.keys())
    by_place = defaultdict(list)
    for call in facts.calls:
        by_place[call.identity].append(call)
    for identity in sorted(facts.produced.acked.keys() - handled - dead):
        place, kind = facts.produced.acked[identity], facts.produced.kinds[identity]
        seen = "; ".join(map(_told, by_place[identity])) or "never started"
        yield f"{identity} ({kind}) at {place}: {seen}"


def phantoms(facts: Facts) -> Iterator[str]:
    """Handled or dead-lettered, and never there."""
    ours = facts.produced
    there = ours.acked.keys() | ours.unknown
    seen = [(call.identity, _told(call)) for call in facts.calls]
    seen += [(letter.identity, f"dead letter {letter.place}") for letter in facts.dead_letters]
    for identity, told in seen:
        if identity not in there and not identity[1].startswith("filler"):
            why = "aborted" if identity in ours.aborted else "never written"
            yield f"{identity} was {why}: {told}"


def unfounded(facts: Facts, counts: Counter[str]) -> Iterator[str]:
    """Dead letters of records that had no reason to fail so often.

    A healthy record may time out again and again while handlers are slow or stuck, or its worker
    stands still: dead letters whose calls all ended late, or never, are counted and no finding.
    """
    calls = defaultdict(list)
    for call in facts.calls:
        calls[call.identity].append(call)
    for letter in facts.dead_letters:
        identity = letter.identity
        if facts.produced.kinds.get(identity, MUST_FAIL[0]) in MUST_FAIL:
            continue
        failed = [c for c in calls[identity] if c.outcome != "ok"]
        if len({call.attempt for call in failed}) >= 2:
            counts["dead letters by timeouts"] += 1
        else:
            seen = "; ".join(map(_told, calls[identity]))
            yield f"{identity} ({facts.produced.kinds[identity]}), {letter.reason}: {seen}"


def disorder(facts: Facts) -> Iterator[str]:
    """First starts in key mode, against the order of the keys' numbers."""
    dead = _dead(facts)
    calls: dict[Identity, list[Call]] = defaultdict(list)
    for call in facts.calls:
        if call.place[0] == KEYED:
            calls[call.identity].append(call)
    keys: dict[str, list[Identity]] = defaultdict(list)
    for identity in sorted(calls, key=lambda identity: identity[2]):
        keys[identity[1]].append(identity)
    for identities in keys.values():
        free_s, holder = 0.0, None
        for identity in identities:
            first = calls[identity][0]
            if holder is not None and first.started_s < free_s:
                held_by = "; ".join(map(_told, calls[holder]))
                yield f"{_told(first)} while its lane was held by {held_by}"
            if (done_s := _done_s(calls[identity], identity in dead)) > free_s:
                free_s, holder = done_s, identity


def _done_s(calls: list[Call], dead: bool) -> float:
    """When a record's lane may go on: handled, or its last attempt over."""
    ok = [call.ended_s for call in calls if call.ended_s and call.outcome == "ok"]
    if ok:
        return min(ok)
    # A call that outlives its deadline is given up there; it may end much later, or never.
    over = [
        min(call.ended_s or inf, call.started_s + SHORTEST_TIMEOUT_S)
        for call in calls
        if not dead or call.attempt >= ATTEMPTS
    ]
    return min(over, default=0.0)


def settled_and_handled_again(
    facts: Facts, history: History, counts: Counter[str]
) -> Iterator[str]:
    """Calls of what the group had recorded as settled before the worker was assigned."""
    began = _assignments(facts)
    for calls in _by_place(facts):
        for number, call in enumerate(calls[1:], 1):
            topic, partition, _ = call.place
            if history.settled(call.place, call.started_s) is None:
                continue
            assigned_s = _last(began.get((call.pid, topic, partition), []), call.started_s)
            if assigned_s is None:
                yield f"{_told(call)}: never assigned there"
                continue
            known = history.settled(call.place, assigned_s)
            own = [c for c in calls[:number] if c.pid == call.pid and c.started_s > assigned_s]
            if known is None and not any(c.outcome == "ok" for c in own):
                counts["repeats by zombies"] += 1
                continue
            yield (
                f"{_told(call)}: settled in {known or 'its own commit'}; assigned at "
                f"{assigned_s:.3f}; first: {_told(calls[0])}"
            )


class History:
    """The group's commits over time, with their gap sets."""

    def __init__(self, facts: Facts) -> None:
        self._samples = facts.samples.commits
        self._times = [sample.answered_s for sample in self._samples]
        self._recreated = facts.recreated
        self._gap_sets: dict[tuple[str, int, Commit], GapSet] = {}
        #: Metadata that can't be read, and why.
        self.refused: set[str] = set()

    def settled(self, place: Place, at_s: float) -> str | None:
        """The commit, in words, that has an offset as settled: the last sampled before a moment.

        None where there is none, or where the topic was made anew around that time.
        """
        topic, partition, offset = place
        at = bisect_left(self._times, at_s) - 1
        if at < 0 or (topic, partition) not in self._samples[at].commits:
            return None
        sampled_s, commit = self._samples[at].asked_s, self._samples[at].commits[topic, partition]
        if any(r.topic == topic and sampled_s < r.to_s + 5 < at_s + 10 for r in self._recreated):
            return None
        gaps = self._gap_set(topic, partition, commit)
        if self._of_an_earlier_topic(topic, gaps, at_s):
            return None
        if offset >= commit.position and not _holds(gaps.runs, offset):
            return None
        return f"the commit {commit.position} {commit.metadata[:60]!r} of {self._times[at]:.3f}"

    def _gap_set(self, topic: str, partition: int, commit: Commit) -> GapSet:
        key = (topic, partition, commit)
        if key not in self._gap_sets:
            try:
                self._gap_sets[key] = gap_set(topic, partition, commit)
            except MetadataRefused as why:
                self.refused.add(f"{topic}/{partition}: {commit}: {why}")
                self._gap_sets[key] = GapSet(commit.position)
        return self._gap_sets[key]

    def _of_an_earlier_topic(self, topic: str, gaps: GapSet, at_s: float) -> bool:
        """Whether a commit tells of what had this name before: its owner had not noticed yet."""
        anew = [r for r in self._recreated if r.topic == topic and r.to_s < at_s]
        return bool(anew and gaps.topic_hash not in (0, topic_hash(anew[-1].topic_id)))


def gap_set(topic: str, partition: int, commit: Commit) -> GapSet:
    """What a commit's metadata says; the floor alone where it is empty.

    Raises:
        MetadataRefused: the group's own metadata can't be read.
    """
    if not commit.metadata:
        return GapSet(commit.position)
    gaps = decode(commit.metadata, topic, partition)
    if gaps.floor != commit.position:
        raise MetadataRefused(f"{topic}/{partition}: floor {gaps.floor}, commit {commit.position}")
    return gaps


def _holds(runs: Runs, offset: int) -> bool:
    at = bisect_right(runs, (offset, LARGEST_OFFSET)) - 1
    return at >= 0 and runs[at][0] <= offset < runs[at][1]


def doubled(facts: Facts, counts: Counter[str]) -> Iterator[str]:
    """Second records of one delivery in the retry topics, and of one record in the DLQ."""
    copies: dict[tuple[Identity, int], dict[Place, Call]] = defaultdict(dict)
    for call in facts.calls:
        if not call.identity[1].startswith("filler"):
            copies[call.identity, call.attempt].setdefault(call.place, call)
    for (_, attempt), found in copies.items():
        if len(found) > 1 and attempt > 1:
            counts["copies in tiers"] += len(found) - 1
            yield "; ".join(map(_told, found.values()))
    letters: dict[Identity, list[DeadLetter]] = defaultdict(list)
    for letter in facts.dead_letters:
        letters[letter.identity].append(letter)
    for identity, there in letters.items():
        if len(there) > 1 and not identity[1].startswith("filler"):
            counts["copies in the DLQ"] += len(there) - 1
            yield f"{identity} is in the DLQ at {[letter.place for letter in there]}"


def growth(facts: Facts) -> Iterator[str]:
    """Workers whose memory grew after they were warm, or was ever too much."""
    sizes: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for sample in facts.samples.states:
        for pid, rss in sample.rss.items():
            sizes[pid].append((sample.at_s, rss / 2**20))
    for pid, seen in sizes.items():
        name = facts.samples.pids.get(pid, "?")
        if (most := max(size for _, size in seen)) > LARGEST_MIB:
            yield f"worker {pid} of {name} had {most:.0f} MiB"
        warm = [size for at_s, size in seen if at_s > seen[0][0] + WARM_S]
        if seen[-1][0] - seen[0][0] < JUDGED_S:
            continue
        third = len(warm) // 3
        early, late = median(warm[:third]), median(warm[-third:])
        if late - early > GROWTH_MIB and late > 1.2 * early:
            yield f"worker {pid} of {name} grew from {early:.0f} to {late:.0f} MiB"


def _handled(facts: Facts) -> set[Identity]:
    """What has a call that ended well; late ones only where the whole process stood still."""
    good = set()
    for call in facts.calls:
        if call.outcome == "ok" or (call.outcome == "late" and _stood_still(facts, call)):
            good.add(call.identity)
    return good


def _stood_still(facts: Facts, call: Call) -> bool:
    assert call.ended_s is not None
    still_s = sum(
        max(0.0, min(f.to_s, call.ended_s) - max(f.from_s, call.started_s))
        for f in facts.frozen
        if f.pid == call.pid
    )
    return call.ended_s - call.started_s - still_s < LATE_S


def _dead(facts: Facts) -> set[Identity]:
    return {letter.identity for letter in facts.dead_letters}


def _by_place(facts: Facts) -> list[list[Call]]:
    """Calls by where their record was read; a topic made anew has other records."""
    found: dict[tuple[Place, int], list[Call]] = defaultdict(list)
    for call in facts.calls:
        age = sum(r.topic == call.place[0] and r.from_s < call.started_s for r in facts.recreated)
        found[call.place, age].append(call)
    return list(found.values())


def _assignments(facts: Facts) -> dict[tuple[int, str, int], list[float]]:
    began: dict[tuple[int, str, int], list[float]] = defaultdict(list)
    for turn in facts.turns:
        if turn.what == "assigned":
            began[turn.pid, turn.topic, turn.partition].append(turn.at_s)
    return began


def _last(times: list[float], before_s: float) -> float | None:
    at = bisect_left(times, before_s)
    return times[at - 1] if at else None


def _told(call: Call) -> str:
    topic, partition, offset = call.place
    ended = "no end" if call.ended_s is None else f"{call.outcome} at {call.ended_s:.3f}"
    return (
        f"{call.identity[1]}#{call.identity[2]} {topic}/{partition}/{offset} attempt "
        f"{call.attempt} pid {call.pid} started {call.started_s:.3f}, {ended}"
    )


if __name__ == "__main__":
    again = judge(pickle.loads(Path(sys.argv[1]).read_bytes()))
    for rule, found in again.findings.items():
        sys.stdout.writelines(f"{rule}: {finding}\n" for finding in found)
    sys.stdout.write(f"{dict(again.counts)}\n")
