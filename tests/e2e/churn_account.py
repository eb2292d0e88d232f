"""The account of a churn: ledger, changes and commits in, findings out. Pure.

* lost: produced, and never handled to its end;
* repeated though settled: started again although the last commit that the broker had from before
  that start held the record as settled, its gap set included;
* back: commits below the one before;
* silence: the longest time in which nothing of a partition was handled, by the kind of change that
  lies in it. It is told, and judged by nobody here but with generous bounds;
* stops: the group's members and what there was to be handled, while a silence was longer than it
  should be.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise

from tests.e2e.commit_log import CommitLog


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the ledger: a handler started (S) or ended (E)."""

    what: str
    at_ms: float
    pid: int
    topic: str
    partition: int
    offset: int
    origin: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Change:
    """One change of the membership."""

    kind: str
    at_ms: float
    members: int


@dataclass(slots=True)
class Facts:
    """What a run leaves behind.

    Attributes:
        produced: how many records each partition of the topic got.
        lines: the ledger, in the order in which it was written.
    """

    protocol: str
    topic: str
    session_s: float
    changes: list[Change]
    produced: list[int]
    lines: list[Line]


@dataclass(slots=True)
class Findings:
    """What was found; see the head of this file."""

    protocol: str
    changes: Counter[str]
    produced: int
    lost: list[tuple[int, int]]
    settled_again: list[str]
    back: list[str]
    again: Counter[str]
    silence_s: dict[str, list[float]]
    gaps: int = 0
    commits: int = 0
    took_s: float = 0.0
    #: What the group was like in each stop that was longer than it should be.
    stops: list[str] = field(default_factory=list)

    def table(self) -> str:
        """The findings for people."""
        lines = [
            f"protocol             {self.protocol}",
            f"changes              {sum(self.changes.values())}: "
            + ", ".join(f"{n} {kind}" for kind, n in sorted(self.changes.items())),
            f"took                 {self.took_s:.0f} s",
            f"records              {self.produced:,}",
            f"lost                 {len(self.lost)}",
            f"settled, yet again   {len(self.settled_again)}",
            f"commits              {self.commits:,}, of which with a gap set {self.gaps:,}",
            f"commits that go back {len(self.back)}",
            "handled again        "
            + (", ".join(f"{n} {kind}" for kind, n in sorted(self.again.items())) or "0"),
        ]
        for kind, found in sorted(self.silence_s.items()):
            ordered = sorted(found)
            middle = ordered[len(ordered) // 2]
            lines.append(f"silence, {kind:<11} median {middle:.2f} s, longest {ordered[-1]:.2f} s")
        return "\n".join([*lines, *(f"stop: {stop}" for stop in self.stops)])


def find(facts: Facts, log: CommitLog) -> Findings:
    """Hold the ledger against what was produced and against every commit."""
    lines = facts.lines
    ended = {line.origin for line in lines if line.what == "E"}
    wanted = {(p, offset) for p, count in enumerate(facts.produced) for offset in range(count)}
    settled_again: list[str] = []
    again: Counter[str] = Counter()
    starts: Counter[tuple[str, int, int]] = Counter()
    for line in lines:
        if line.what != "S":
            continue
        where = (line.topic, line.partition, line.offset)
        starts[where] += 1
        commit = log.before(line.topic, line.partition, line.at_ms)
        if commit is not None and log.holds(commit, line.offset):
            late_ms = line.at_ms - commit.at_ms
            settled_again.append(
                f"{'/'.join(map(str, where))} by {line.pid}, {late_ms:.0f} ms after the commit "
                f"at {commit.position}"
            )
        if starts[where] > 1:
            again[_latest(facts.changes, line.at_ms)] += 1
    every = [commit for commits in log.commits.values() for commit in commits]
    return Findings(
        facts.protocol,
        Counter(change.kind for change in facts.changes),
        len(wanted),
        sorted(wanted - ended),
        settled_again,
        [f"{a.topic}/{a.partition}: {a.position} to {b.position}" for a, b in log.went_back()],
        again,
        silences(facts),
        gaps=sum(bool(log.above(commit)) for commit in every),
        commits=len(every),
    )


def _latest(changes: list[Change], at_ms: float) -> str:
    kinds = [change.kind for change in changes if change.at_ms <= at_ms]
    return f"after a {kinds[-1]}" if kinds else "at the start"


def silences(facts: Facts) -> dict[str, list[float]]:
    """For each change, the longest time around it in which nothing of some partition ended.

    A change that another one follows before it was digested counts as the worse of the two.
    """
    changes, lasts_ms = facts.changes, facts.session_s * 1000
    ends: dict[int, list[float]] = defaultdict(list)
    for line in facts.lines:
        if line.what == "E" and line.topic == facts.topic:
            ends[line.partition].append(line.at_ms)
    found: dict[str, list[float]] = defaultdict(list)
    for number, change in enumerate(changes):
        following = changes[number + 1].at_ms if number + 1 < len(changes) else float("inf")
        before = [c.kind for c in changes[:number] if change.at_ms - c.at_ms < lasts_ms]
        hasty = following - change.at_ms < 2500
        kind = "kill" if "kill" in [change.kind, *before] else change.kind
        if hasty and kind != "kill":
            kind = "hasty"
        longest = 0.0
        for times in ends.values():
            ordered = sorted(times)
            longest = max(
                longest,
                *(
                    min(later, following) - max(earlier, change.at_ms)
                    for earlier, later in pairwise(ordered)
                    if later > change.at_ms and earlier < following
                ),
                0.0,
            )
        found[kind].append(longest / 1000)
    return found
