"""The cases of cases.py in interleaved rounds: A B C A B C, every run a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from benchmarks.cases import CASES, Case, Run
from benchmarks.measured import RunFailed, measure
from benchmarks.peers.installed import PEERS, NotInstalled
from benchmarks.topic import filled

#: A run that takes longer has hung, in seconds.
LONGEST_S = 180.0
#: Who failed so often isn't asked again.
PATIENCE = 2
#: Fewer records than this say nothing.
FEWEST = 2_000

Figures = dict[str, float]


@dataclass(slots=True)
class Entry:
    """What one peer did in one case, round by round.

    Attributes:
        rounds: round -> figures; a round that failed is missing.
        failed: why runs failed.
    """

    run: Run
    rounds: dict[int, Figures] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """What it is called in tables."""
        title = PEERS[self.run.peer].title
        return f"{title}, {self.run.form}" if self.run.form else title


Found = dict[str, list[Entry]]


def chosen(words: Iterable[str]) -> list[Case]:
    """The cases whose titles hold one of the words; all without any."""
    wanted = [word.lower() for word in words]
    return [c for c in CASES if not wanted or any(w in c.title.lower() for w in wanted)]


def speed(
    servers: str,
    cases: list[Case],
    peers: set[str],
    rounds: int,
    scale: float,
    step: Callable[[str], None],
) -> Found:
    """Run the cases.

    Args:
        peers: who takes part.
        scale: what every number of records is multiplied with.
        step: told of each run before it starts.
    """
    found = {case.title: [Entry(run) for run in case.runs if run.peer in peers] for case in cases}
    topics = {case.contents: filled(servers, case.contents) for case in cases}
    for number in range(rounds):
        for case in cases:
            for entry in found[case.title]:
                if len(entry.failed) >= PATIENCE:
                    continue
                step(f"round {number + 1}: {case.title}: {entry.name}")
                _one(entry, case, servers, topics[case.contents], number, scale)
    return found


def _one(entry: Entry, case: Case, servers: str, topic: str, number: int, scale: float) -> None:
    peer = PEERS[entry.run.peer]
    records = min(max(FEWEST, int(entry.run.records * scale)), case.contents.records)
    form = [entry.run.form] if entry.run.form else []
    try:
        argv = [*peer.command(), case.body, case.order, servers, topic, str(records), *form]
        entry.rounds[number] = measure(argv, env=peer.env, timeout_s=LONGEST_S).figures
    except (NotInstalled, RunFailed) as error:
        entry.failed.append(str(error))
