"""Plan: everything a soak is made of, so that a seed and a length repeat it."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

GROUP = "soak"
#: Handled in any order on the event loop; compacted, with filler keys outside the ledger.
LOOSE = "loose"
#: Handled in key order on the event loop.
KEYED = "keyed"
#: Handled in any order on threads.
THREADED = "threaded"
SOURCES = (LOOSE, KEYED, THREADED)

#: As in the app: the shortest consume timeout that any settings file of a run sets.
SHORTEST_TIMEOUT_S = 1.5
TIMEOUT_S = 2.0
#: Deliveries of the app's retry policy, the first included.
ATTEMPTS = 4
#: A call that took so long was given up at its deadline: its end is no proof of anything.
LATE_S = 4.0
SESSION_TIMEOUT_S = 8.0
#: Faults end so long before the producer does, so that the end of a run is calm.
CALM_S = 5.0

PROTOCOLS = ("cooperative-sticky", "range", "consumer")
PARKINGS = ("at_least_once", "transactional")


@dataclass(frozen=True, slots=True)
class Plan:
    """One soak.

    Attributes:
        minutes: how long records are produced; start-up and the drain come on top.
        rate: records per second, over all sources.
        pause_s: between two faults, from and to.
        settle_s: how long nothing may change at the end before everything is settled; the end takes
            five times as long at most.
        protocol: how partitions are assigned: a classic strategy, or "consumer" for KIP-848.
        parking: how records are parked: one of `PARKINGS`.
        only, without: the kinds of faults to draw from, all where empty; and those to leave out.
        audit: whether the topics are ingested and audited in the end.
    """

    seed: int
    minutes: float
    folder: Path
    nodes: int = 3
    partitions: int = 3
    rate: float = 200.0
    pause_s: tuple[float, float] = (2.0, 6.0)
    settle_s: float = 180.0
    protocol: str = ""
    parking: str = ""
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    audit: bool = False

    @property
    def seconds(self) -> float:
        return self.minutes * 60

    @property
    def assignment(self) -> str:
        """The protocol: given, or the seed's turn."""
        return self.protocol or PROTOCOLS[self.seed % len(PROTOCOLS)]

    @property
    def parks(self) -> str:
        """The parking: given, or the seed's turn, so that six seeds in a row meet every pair."""
        return self.parking or PARKINGS[self.seed // len(PROTOCOLS) % len(PARKINGS)]

    def chance(self, of: str) -> random.Random:
        """Randomness of its own for each part, so that none changes another's draws."""
        return random.Random(f"{self.seed}/{of}")

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger"

    @property
    def control(self) -> Path:
        return self.folder / "control"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def command(self) -> str:
        """What repeats this run."""
        extra = f" PROTOCOL={self.protocol}" if self.protocol else ""
        extra += f" PARKING={self.parking}" if self.parking else ""
        extra += " AUDIT=1" if self.audit else ""
        return f"make soak MINUTES={self.minutes:g} SEED={self.seed}{extra}"
