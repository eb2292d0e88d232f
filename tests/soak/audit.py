"""The audit of a soak: what `ackfloor spark audit` finds in the retry and dead-letter topics.

Run on the brokers of the soak when everything has settled and before they go: ingest into a
table, then the audit of it, both as their commands. It is judged as the guide promises: nothing
after transactional parking, doubles and nothing else after at-least-once parking.

A retry topic that was deleted took its records with it, and without them later attempts have a
hole before them. That is true and says nothing of ackfloor, so a soak that is audited does
without that fault.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.framework.cli.command import environment
from tests.soak.plan import GROUP

if TYPE_CHECKING:
    from tests.soak.facts import Facts

#: The fault that takes records from the audit.
TAKES_RECORDS = "recreate tier"
_PATIENCE_S = 600.0
#: Everything has settled, so nothing may wait, however short a time.
_AUDIT = ("--grace", "0", "--max", "10", "-o", "json")


@dataclass(frozen=True, slots=True)
class Audited:
    """What came of it.

    Attributes:
        records: how many of the table were looked at.
        counts: how many faults of each kind.
        examples: some of each, in words.
        broken: why there is no answer; "" where there is one.
    """

    records: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    examples: tuple[str, ...] = ()
    broken: str = ""


def ingest_and_audit(servers: str, table: Path) -> Audited:
    """Fill a table from all topics of the group, and audit it."""
    where = ("--table", str(table), "--group", GROUP, "--bootstrap-servers", servers)
    stored = _spark("ingest", "--once", *where)
    if stored.returncode != 0:
        return Audited(broken=_why("ingest", stored))
    done = _spark("audit", *where, *_AUDIT)
    if done.returncode not in (0, 1):
        return Audited(broken=_why("audit", done))
    told = json.loads(done.stdout)
    examples = (" ".join(f"{k}={v}" for k, v in each.items()) for each in told["findings"])
    return Audited(told["records"], told["counts"], tuple(examples))


def complaints(facts: Facts, counts: Counter[str]) -> Iterator[str]:
    """What the audit found and should not have."""
    made = facts.audited
    if made is None:
        return
    counts["records audited"] = made.records
    counts["doubles that the audit names"] = made.counts.get("double", 0)
    if made.broken or not made.records:
        yield made.broken or "there was nothing to audit"
    permitted = () if facts.transactional else ("double",)
    for fault, count in made.counts.items():
        if fault not in permitted:
            yield f"{count} {fault}"
            yield from (each for each in made.examples if each.startswith(f"fault={fault} "))


def _spark(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ackfloor.cli.main", "spark", *arguments],
        env=environment({}),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=_PATIENCE_S,
        check=False,
    )


def _why(command: str, done: subprocess.CompletedProcess[str]) -> str:
    return f"ackfloor spark {command} ended with {done.returncode}: {done.stderr[-2000:]}"
