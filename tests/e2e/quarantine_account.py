"""The account of quarantine kills: ledger, dead letters and what is parked in, findings out. Pure.

A record of a key is resolved when it was handled, or is in the dead-letter topic.

* lost: neither handled nor a dead letter in the end; with `hold`, nor parked;
* order: a record's first start before all earlier ones of its key were resolved;
* unfounded: a dead letter of a record that could be handled, and that had to go with no other;
* spent: a record's first start was not its first attempt: it has waited, and paid for it;
* displaced: a dead letter in another partition than its source record, or, of the first copies of a
  key, before one with a lower number;
* let go: with `hold`, what was started although it is behind a dead letter of its key;
* doubled: dead letters that are there more than once; counted, those behind another apart.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf
from typing import NamedTuple

#: What a record does: it is handled, fails so often before it is, or never is.
OK, ONCE, TWICE, NEVER, AT_ONCE = "ok", "f1", "f2", "dead", "fatal"
DYING = (NEVER, AT_ONCE)


class Name(NamedTuple):
    """A record: its key, and its number among those of the key."""

    key: int
    number: int


class Line(NamedTuple):
    """A line of the ledger: a handler started (S), failed (F) or has handled (E) a record."""

    what: str
    at_ns: int
    pid: int
    name: Name
    attempt: int
    topic: str


class Letter(NamedTuple):
    """A dead letter, in the order of the topic's partitions."""

    name: Name
    partition: int
    at_ns: int
    is_behind: bool


@dataclass(slots=True)
class Facts:
    """What a run leaves behind.

    Attributes:
        after: what became of the records behind a dead letter.
        produced: key -> what its records do, in their order.
        partitions: of the source; key k is in partition k modulo this.
        parked: what is open in retry topics in the end, or was at the last commit.
        kills_ns: when workers were killed.
    """

    after: str
    produced: Mapping[int, Sequence[str]]
    partitions: int
    lines: Sequence[Line]
    letters: Sequence[Letter]
    parked: frozenset[Name] = frozenset()
    kills_ns: Sequence[int] = ()


@dataclass(slots=True)
class Findings:
    """What was found; see the head of this file."""

    records: int = 0
    wrong: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    doubled: int = 0
    doubled_behind: int = 0
    repeated: int = 0
    failures: int = 0
    letters: int = 0
    behind: int = 0
    #: How many keys were quarantined at each kill.
    quarantined: list[int] = field(default_factory=list)

    def add(self, rule: str, name: Name, why: str = "") -> None:
        """Something is wrong with a record."""
        self.wrong[rule].append(f"k{name.key} {name.number} {why}".rstrip())


def find(facts: Facts) -> Findings:
    """Judge a run."""
    found = Findings(sum(map(len, facts.produced.values())))
    resolved = resolutions(facts)
    starts: dict[Name, Line] = {}
    count = Counter(line.name for line in facts.lines if line.what == "E")
    for line in facts.lines:
        if line.what == "S":
            starts.setdefault(line.name, line)
    found.repeated = sum(times - 1 for times in count.values())
    found.failures = sum(line.what == "F" for line in facts.lines)
    for key, kinds in facts.produced.items():
        _judge_key(found, facts, key, kinds, resolved, starts)
    _judge_letters(found, facts)
    _count_quarantined(found, facts, resolved)
    return found


def resolutions(facts: Facts) -> dict[Name, int]:
    """When each record was resolved first."""
    resolved: dict[Name, int] = {}
    ends = [(line.name, line.at_ns) for line in facts.lines if line.what == "E"]
    for name, at_ns in [*ends, *((letter.name, letter.at_ns) for letter in facts.letters)]:
        resolved[name] = min(at_ns, resolved.get(name, at_ns))
    return resolved


def _judge_key(
    found: Findings,
    facts: Facts,
    key: int,
    kinds: Sequence[str],
    resolved: Mapping[Name, int],
    starts: Mapping[Name, Line],
) -> None:
    names = [Name(key, number) for number in range(len(kinds))]
    before = accumulate((resolved.get(name, inf) for name in names), max, initial=-inf)
    dead = {letter.name.number for letter in facts.letters if letter.name.key == key}
    held_from = min(dead, default=inf) if facts.after == "hold" else inf
    for name, free_ns in zip(names, before, strict=False):
        start = starts.get(name)
        if start is not None and start.at_ns < free_ns:
            found.add("order", name, f"started {(free_ns - start.at_ns) / 1e6:.1f} ms early")
        if start is not None and start.attempt != 1:
            found.add("spent", name, f"first seen at attempt {start.attempt}")
        if name.number > held_from:
            if start is not None:
                found.add("let go", name)
            if name not in facts.parked:
                found.add("lost", name, "not parked")
        elif name not in resolved:
            found.add("lost", name)


def _judge_letters(found: Findings, facts: Facts) -> None:
    found.letters = len(facts.letters)
    found.behind = sum(letter.is_behind for letter in facts.letters)
    found.doubled = _doubled(letter for letter in facts.letters if not letter.is_behind)
    found.doubled_behind = _doubled(letter for letter in facts.letters if letter.is_behind)
    last: dict[int, int] = {}
    seen: set[Name] = set()
    for letter in facts.letters:
        name = letter.name
        if letter.partition != name.key % facts.partitions:
            found.add("displaced", name, f"partition {letter.partition}")
        if name not in seen and name.number < last.get(name.key, -1):
            found.add("displaced", name, f"after {last[name.key]}")
        seen.add(name)
        last[name.key] = max(name.number, last.get(name.key, -1))
    heads = {(each.key, each.number) for each in _failed(facts)}
    for letter in facts.letters:
        name = letter.name
        if letter.is_behind:
            led = any((name.key, number) in heads for number in range(name.number))
            if facts.after != "dead_letter" or not led:
                found.add("unfounded", name, "went behind none")
        elif facts.produced[name.key][name.number] not in DYING:
            found.add("unfounded", name)


def _doubled(letters: Iterable[Letter]) -> int:
    times = Counter(letter.name for letter in letters)
    return sum(count - 1 for count in times.values())


def _failed(facts: Facts) -> Iterator[Name]:
    """The records that are dead letters of their own accord."""
    return (letter.name for letter in facts.letters if not letter.is_behind)


def _count_quarantined(found: Findings, facts: Facts, resolved: Mapping[Name, int]) -> None:
    first: dict[Name, int] = {}
    for line in facts.lines:
        if line.what == "F":
            first.setdefault(line.name, line.at_ns)
    for kill_ns in facts.kills_ns:
        keys = {
            name.key for name, at_ns in first.items() if at_ns < kill_ns < resolved.get(name, inf)
        }
        found.quarantined.append(len(keys))
