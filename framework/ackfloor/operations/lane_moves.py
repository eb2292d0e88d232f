"""LaneMove: moves the failed heads of lanes and keys, in all workers of some runs.

Each worker acts on its own blocked lanes and quarantined keys, on an order that its run passes on,
so nothing is lost by it: a head that is being delivered or written is left as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ackfloor.core.messages.lane_order import EXHAUSTED, MOST_NAMED, PARKED, TOO_MANY, Action
from ackfloor.live.lane_requests import PATH
from ackfloor.operations.noted import counts_of
from ackfloor.operations.run_orders import JudgedOrder
from ackfloor.operations.runs import Runs

#: What each action does to a head, in words.
DONE: Final = {
    Action.RETRY: "tried now",
    Action.DELAY: "given another time",
    Action.PARK: "parked in a retry topic",
    Action.DEAD_LETTER: "on the way to the dead-letter topic",
    Action.DISCARD: "discarded",
}
#: Why a head was left as it is, in words.
LEFT: Final = {
    TOO_MANY: "is more than one order writes: give the order again",
    PARKED: "is quarantined, so it is in a retry topic already: left as it is",
    EXHAUSTED: "has no attempt left, so it can't be parked: dead-letter it, or leave it to a trial",
    "running": "is being delivered: left as it is",
    "queued": "is about to be delivered: left as it is",
    "withheld": "waits for a trial of the circuit breaker, which decides when: left as it is",
    "dead_lettering": "is on its way to the dead-letter topic already",
    "moving": "is being written, or not read back yet: left as it is, give the order again",
    "held": "is dead-lettered already and holds its key: left as it is; `lanes retry` frees the "
    "key, `lanes dead-letter --followers` gives up what waits behind it",
}


@dataclass(slots=True)
class LaneOutcome:
    """What all runs did, as JSON shows it.

    Attributes:
        done: how many lanes it was done to, or would be.
        freed: how many of them were quarantined keys that were held, and are free now.
        left: what other heads were doing, which were left as they are -> how many.
        missing: what was named and waits in no worker that answered.
        refused: run and worker -> why it did nothing.
        silent: run and worker, of those that did not answer.
        unknown: run -> why nobody knows whether it did it: it got the order, and has not answered.
        places: topic/partition/offset of the heads that it would be done to, where a dry run has
            asked; none where there are more than a thousand, or an older run does not tell.
    """

    action: str
    handler: str
    dry_run: bool
    done: int = 0
    freed: int = 0
    left: dict[str, int] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    silent: list[str] = field(default_factory=list)
    unknown: dict[str, str] = field(default_factory=dict)
    places: list[str] = field(default_factory=list)

    def add(self, run: str, answer: Mapping[str, Any]) -> None:
        """One run's answer."""
        self.done += answer["done"]
        # An older run does not tell, and frees nothing.
        self.freed += answer.get("freed", 0)
        # No Counter is stored: `asdict` would count its items.
        self.left = dict(Counter(self.left) + Counter(answer["left"]))
        self.refused |= {f"{run} worker {n}": why for n, why in answer["refused"].items()}
        self.silent += [f"{run} worker {n}" for n in answer["workers"]["silent"]]
        self.places += answer.get("places", ())

    @property
    def counts(self) -> dict[str, int]:
        """How many lanes it was done to, and of the others how many for which reason."""
        others = {"missing": len(self.missing), "refused": len(self.refused)}
        others |= {"silent": len(self.silent), "unknown": len(self.unknown)}
        named = {**others, "freed": self.freed}
        return counts_of(self.done, **{**self.left, **named})

    @property
    def whole(self) -> bool:
        """Whether all that was named was reached."""
        return not (self.left or self.missing or self.refused or self.silent or self.unknown)


@dataclass(frozen=True, slots=True)
class LaneMove(JudgedOrder[LaneOutcome]):
    """An order about lanes of a handler that wait for a failed record.

    Attributes:
        which: the lanes: `places` (topic/partition/offset of failed records), `keys`,
            `keys_base64`, or `all`.
        more: what else the action takes: `delay_s`, `followers`, `reason`.
        command: the name under which it is noted; None for its own.
    """

    action: Action
    handler: str
    which: Mapping[str, Any]
    more: Mapping[str, Any] = field(default_factory=dict)
    command: str | None = None

    @property
    def name(self) -> str:
        """Under which it is noted."""
        return self.command or f"lanes {self.action.replace('_', '-')}"

    @property
    def target(self) -> str:
        """What it is done to."""
        return self.handler

    def as_shown(self, would: LaneOutcome | None) -> LaneMove:
        """The same for the lanes that somebody has seen: what `all` is, the runs decide now.

        Of more than one order can name, and of older runs, nobody knows which these were.

        Args:
            would: what `judge` has found; None where it did not.
        """
        if would is None or not would.places or not self.which.get("all"):
            return self
        return replace(self, which={"places": would.places})

    def arguments(self, runs: Runs) -> dict[str, Any]:
        """What its note says of it."""
        return {**self.which, **self.more, "runs": list(runs.tokens), "reason": None}

    def _ask(self, runs: Runs, *, dry_run: bool) -> LaneOutcome:
        outcome = LaneOutcome(self.action, self.handler, dry_run)
        head = {"action": self.action, "handler": self.handler}
        body = {**head, **self.which, **self.more, "dry_run": dry_run}
        missing: list[set[str]] = []
        order: dict[str, None] = {}
        for run, answer in runs.post(PATH, body, outcome.refused, outcome.unknown):
            outcome.add(run, answer)
            missing.append(set(answer["missing"]))
            order |= dict.fromkeys(answer["missing"])
        nowhere = set.intersection(*missing) if missing else set()
        outcome.missing = [name for name in order if name in nowhere]
        if not len(outcome.places) == outcome.done <= MOST_NAMED:
            outcome.places.clear()
        return outcome
