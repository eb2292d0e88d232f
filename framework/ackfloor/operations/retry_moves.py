"""RetryMove: ends the wait of records in a retry topic, through the runs whose workers hold them.

Only the worker that has a partition knows which of its records are in flight. So no record is lost
by such an order, and none that is settled is handled again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ackfloor.core.parking.topic_names import parse_topic
from ackfloor.core.records.envelope import DID_NOT_FAIL, Reason
from ackfloor.dead_letters.rules.waiting import ChosenWaiting
from ackfloor.live.retry_orders import Action
from ackfloor.live.retry_requests import MOST, PATH
from ackfloor.operations.run_client import ControlFailed, NotKnown
from ackfloor.operations.run_orders import JudgedOrder
from ackfloor.operations.runs import Runs

#: The reasons of records that an action leaves where they are: they wait behind another one of
#: their key, or have been dead-lettered and hold their key in quarantine.
LEAVES: Final = {Action.PROMOTE: DID_NOT_FAIL, Action.BURY: frozenset({Reason.HELD})}
#: What becomes of the others, in words, and why those were left.
DONE: Final = {Action.PROMOTE: "due now", Action.BURY: "on the way to the dead-letter topic"}
LEFT: Final = {
    Action.PROMOTE: "wait behind another one of their key, and are left: they are handled after it"
    "; `lanes ls` shows it",
    Action.BURY: "are in the dead-letter topic, and are left: they keep their key in quarantine"
    "; `lanes retry` frees it",
}


@dataclass(slots=True)
class RetryOutcome:
    """What all runs did.

    Attributes:
        meant: how many records were to be reached.
        left: how many of the chosen were not meant, because of their reason.
        done: how many records they did it to, or would.
        silent: run and worker, of those that did not answer.
        refused: run -> why it did nothing, or no more: it is not asked for the rest.
        unknown: run -> why nobody knows whether it did it, or the rest: it got the order, and has
            not answered.
    """

    action: Action
    topic: str
    meant: int
    dry_run: bool
    left: int = 0
    done: int = 0
    silent: set[tuple[str, int]] = field(default_factory=set)
    refused: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Whether all runs answered, and did it to as many as were meant."""
        answered = not (self.silent or self.refused or self.unknown)
        return answered and self.done >= self.meant

    @property
    def missing(self) -> int:
        """How many wait in no worker that answered."""
        return max(0, self.meant - self.done)

    @property
    def counts(self) -> dict[str, int]:
        """How many it was done to, and how many were meant."""
        unknown = {"unknown": len(self.unknown)} if self.unknown else {}
        return {"done": self.done, "meant": self.meant, **unknown}


@dataclass(frozen=True, slots=True)
class RetryMove(JudgedOrder[RetryOutcome]):
    """An order about records that wait in one retry topic.

    Attributes:
        action: promote or bury.
        chosen: the records.
        topic_id: Kafka's of the topic that they were chosen in; empty where nobody has to know.
        asked: what chose them: `places` and `filter`, as its note says it.
    """

    action: Action
    topic: str
    chosen: ChosenWaiting
    asked: Mapping[str, Any] = field(default_factory=dict)
    topic_id: str = ""

    @property
    def name(self) -> str:
        """Under which it is noted."""
        return f"retry {self.action}"

    @property
    def target(self) -> str:
        """What it is done to."""
        return self.topic

    @property
    def group(self) -> str:
        """Whose retry topic it is."""
        parsed = parse_topic(self.topic)
        return "" if parsed is None else parsed.group

    @property
    def meant(self) -> int:
        """How many records are to be reached, with those that were named and are not open."""
        return len(self.chosen) + self.chosen.gone

    def arguments(self, runs: Runs) -> dict[str, Any]:
        """What its note says of it."""
        return {**self.asked, "runs": list(runs.tokens)}

    def _ask(self, runs: Runs, *, dry_run: bool) -> RetryOutcome:
        action = Action.COUNT if dry_run else self.action
        outcome = RetryOutcome(self.action, self.topic, self.meant, dry_run, self.chosen.left)
        outcome.refused |= runs.unreached
        for places in self._parts():
            body = {"action": action, "topic": self.topic, "places": places}
            try:
                for run, answer in runs.post(PATH, body, outcome.refused, outcome.unknown):
                    outcome.done += answer["count"]
                    outcome.silent.update((run, worker) for worker in answer["workers"]["silent"])
            except ControlFailed as exc:
                if not outcome.done:
                    raise
                # What was done before is told, and noted.
                whys = outcome.unknown if isinstance(exc, NotKnown) else outcome.refused
                whys |= dict.fromkeys(runs.tokens, str(exc))
                break
        return outcome

    def _parts(self) -> Iterator[dict[str, list[int]]]:
        """The places of each request, at most `MOST` in one."""
        part: dict[str, list[int]] = {}
        count = 0
        for partition, offsets in self.chosen.offsets.items():
            for offset in offsets:
                part.setdefault(str(partition), []).append(offset)
                count += 1
                if count == MOST:
                    yield part
                    part, count = {}, 0
        if part:
            yield part
