"""The result of a soak: a table for people, a row for the page, and JSON for the picture."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.soak.facts import Facts
from tests.soak.injector import Done
from tests.soak.oracle import TOLD, Verdict
from tests.soak.plan import Plan

#: The rules that every run answers, in the order of the table.
RULES = {
    "lost": "acknowledged records neither handled nor dead-lettered",
    "phantom": "records handled that were aborted, or never written",
    "unfounded": "dead letters of records that had no reason to fail",
    "order": "starts out of the order of their key",
    "floor": "committed floors that went back",
    "metadata": "commits whose metadata can't be read",
    "settled": "handled again although settled in the commit",
    "doubled": "parked twice, with transactional parking",
    "audit": "what the audit should not have found, if it was asked for",
    "memory": "workers whose memory grew",
    "unsettled": "partitions that did not settle in the end",
    "not ready": "runs that were not ready in the end",
    "ended": "runs that did not end in order",
}
COUNTS = (
    "handled",
    "dead letters",
    "dead letters by timeouts",
    "calls",
    "repeats",
    "repeats by zombies",
    "copies in tiers",
    "copies in the DLQ",
)

#: Only of a run that was audited.
AUDITED = ("records audited", "doubles that the audit names")


@dataclass(frozen=True, slots=True)
class Result:
    """One soak as it is kept: everything the table and the picture need.

    Attributes:
        faults: each with its times, in seconds from the start of the run.
        ends: when handlers ended, and `acked`: when records were acknowledged, per second.
        states: second, lag, open, gaps; `rss`: second, MiB of all workers.
    """

    seed: int
    minutes: float
    protocol: str
    command: str
    clean: bool
    records: int
    produced: Mapping[str, int]
    counts: Mapping[str, int]
    findings: Mapping[str, Sequence[str]]
    faults: Sequence[Mapping[str, object]]
    workers: int
    settled_after_s: float
    ended_s: float
    acked: Sequence[int]
    ends: Sequence[int]
    states: Sequence[tuple[float, int, int, int]]
    rss: Sequence[tuple[float, float, float]]

    @classmethod
    def of(
        cls,
        plan: Plan,
        facts: Facts,
        verdict: Verdict,
        faults: Sequence[Done],
        times: Mapping[str, float],
    ) -> Self:
        """Put together from facts and verdict."""
        began_s = times["began_s"]
        states = facts.samples.states
        return cls(
            seed=plan.seed,
            minutes=plan.minutes,
            protocol=f"{plan.assignment}, {plan.parks.replace('_', ' ')}",
            command=plan.command,
            clean=verdict.clean,
            records=len(facts.produced.acked),
            produced={
                **facts.produced.by_kind(),
                "aborted": len(facts.produced.aborted),
                "unknown": len(facts.produced.unknown),
            },
            counts=dict(verdict.counts),
            findings={rule: found for rule, found in verdict.findings.items() if found},
            faults=[
                {**asdict(f), "from_s": f.from_s - began_s, "to_s": f.to_s - began_s}
                for f in faults
            ],
            workers=len({turn.pid for turn in facts.turns}),
            settled_after_s=times["settled_s"] - times["ended_s"],
            ended_s=times["ended_s"] - began_s,
            acked=per_second(facts.produced.acked_at_s, began_s),
            ends=per_second([c.ended_s for c in facts.calls if c.ended_s], began_s),
            states=[(s.at_s - began_s, s.lag, s.open, s.gaps) for s in states],
            rss=[
                (s.at_s - began_s, *(f(s.rss.values(), default=0) / 2**20 for f in (min, max)))
                for s in states
            ],
        )

    def write(self, file: Path) -> None:
        """Keep it."""
        file.write_text(json.dumps(asdict(self), indent=1), "utf-8")

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read a kept one."""
        return cls(**json.loads(file.read_text("utf-8")))

    def by_kind(self) -> dict[str, int]:
        """How many faults of each kind were done; those that came to nothing are left out."""
        return dict(sorted(Counter(str(f["kind"]) for f in self.faults if not f["failed"]).items()))


def per_second(times: Sequence[float], began_s: float) -> list[int]:
    """How many of the moments are in each second."""
    seconds = Counter(int(at_s - began_s) for at_s in times if at_s >= began_s)
    return [seconds[second] for second in range(max(seconds, default=-1) + 1)]


def show(result: Result, console: Console) -> None:
    """The table, the findings in words, and the verdict."""
    table = Table(title=f"{result.command}  ({result.protocol})", title_justify="left")
    table.add_column("what")
    table.add_column("count", justify="right")
    table.add_row("records acknowledged", f"{result.records:,}")
    for kind, count in sorted(result.produced.items()):
        table.add_row(f"  {kind}", f"{count:,}", style="dim")
    for name in (*COUNTS, *(name for name in AUDITED if name in result.counts)):
        table.add_row(name, f"{result.counts.get(name, 0):,}")
    table.add_row("worker processes", str(result.workers))
    table.add_row("seconds until all was settled", f"{result.settled_after_s:.1f}")
    table.add_section()
    for kind, count in result.by_kind().items():
        table.add_row(f"fault: {kind}", str(count))
    table.add_section()
    for rule, meaning in RULES.items():
        count = len(result.findings.get(rule, ()))
        table.add_row(f"{rule}: {meaning}", str(count), style="bold red" if count else "green")
    console.print(table)
    for fault in result.faults:
        if fault["failed"]:
            console.print(escape(f"no fault: {fault['kind']}: {fault['failed']}"), style="yellow")
    for rule, found in result.findings.items():
        for finding in found[:TOLD]:
            console.print(escape(f"{rule}: {finding}"), style="red", soft_wrap=True)
        if len(found) > TOLD:
            console.print(f"{rule}: and {len(found) - TOLD} more", style="red")
    verdict = "clean" if result.clean else "NOT CLEAN"
    console.print(f"[bold]{verdict}[/]: {result.command}")


def row(result: Result) -> str:
    """The run as a row of the table in docs/reliability.md."""
    kinds = result.by_kind()
    faults = f"{sum(kinds.values())} of {len(kinds)} kinds"
    counts = result.counts
    cells = [
        f"`{result.command}`",
        result.protocol,
        f"{result.records:,}",
        f"{counts.get('dead letters', 0):,}",
        faults,
        f"{counts.get('repeats', 0):,}",
        f"{counts.get('copies in tiers', 0) + counts.get('copies in the DLQ', 0):,}",
        *(str(len(result.findings.get(rule, ()))) for rule in ("lost", "order", "settled")),
        "clean" if result.clean else "not clean",
    ]
    return f"| {' | '.join(cells)} |"
