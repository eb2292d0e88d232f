"""ProcessBatchWork: which batches go to which process of a handler that takes them.

A process has one batch at a time. A batch has one number in its process's shared progress, like a
record elsewhere: its start, its deadline and its end are those of all its records.

An answer by hand counts when its message has arrived here, which may be after the process has died:
its messages are read before its death is handled.

It is not known which record of a batch has killed its process. So none of them is charged: those
without an answer come again as the same attempt, each alone, and one that kills its process then
is charged.

Only the pool's thread calls this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ackfloor.core.engine.completions import timed_out
from ackfloor.core.records.batch import Batch
from ackfloor.core.records.envelope import Reason
from ackfloor.core.records.outcomes import APART, Failed, Outcome, Released
from ackfloor.core.state.assignment import AckStats
from ackfloor.runtime.executors.batch_calls import post, startable
from ackfloor.runtime.executors.process.handler_process import Handed, Host, LaneRun
from ackfloor.runtime.executors.process.process_dispatch import ProcessWork, is_timeout
from ackfloor.runtime.executors.process.wire_format import outcome_from_dict, sent


class ProcessBatchWork(ProcessWork):
    """The batches of one handler between its queue and its processes."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        #: Topic read from -> where late answers to its records are counted.
        self._stats: dict[str, AckStats] = {}

    # To the processes.

    def _depth(self) -> int:
        return 1

    def _give(self, host: Host, batch: Batch, _room: int) -> list[tuple[Any, ...]]:
        """Hand over a batch; empty where nothing of it may start."""
        handed = Handed(batch.items, LaneRun(None))
        # In hand before the check; see `ProcessWork._hand`.
        number = host.hand(handed)
        if not startable(batch, stopping=False):
            host.take_back(number)
            self._window.end(batch)
            return []
        handed.deliveries = batch.items
        for delivery in batch.items:
            delivery.arm(None)
            self._stats[delivery.assignment.topic] = delivery.assignment.stats
        return [(number, [sent(number, delivery) for delivery in batch.items])]

    # From the processes.

    def _undone(self, handed: Handed) -> Sequence[Batch]:
        batch = handed.deliveries[0].batch
        for delivery in batch.items:
            delivery.reopen()
        return (batch,)

    def answered_by_hand(self, host: Host, message: Mapping[str, Any]) -> None:
        """A record was answered by hand: one of a call that goes on, or too late for that."""
        if "late" in message:
            self._stats[message["late"]].late_answers.append(None)
        else:
            host.note_times(message["answered"])[message["place"]].end(outcome_from_dict(message))

    def complete(
        self, host: Host, number: int, outcome: Outcome, finished_s: float | None = None
    ) -> None:
        """A call has ended: the owner thread gives its outcome to what nobody has answered."""
        if number in host.in_flight:
            batch = host.note_times(number)[0].batch
            self._post(batch, outcome, finished_s or host.progress.finished_s(number))
            # After it was posted: `running` must not miss it.
            host.forget(number)

    def died(self, host: Host, number: int, outcome: Failed | Released) -> None:
        """Its process is dead, and was at this; see `ProcessWork.died`."""
        batch = host.note_times(number)[0].batch
        meant: Outcome | None = outcome
        if not batch.unanswered():
            meant = None
        elif is_timeout(outcome):
            meant = timed_out(batch.items[0])
        elif isinstance(outcome, Failed) and outcome.reason is Reason.CRASH:
            meant = outcome if len(batch.items) == 1 else APART
        self._post(batch, meant, self._clock())
        host.forget(number)

    def _post(self, batch: Batch, outcome: Outcome | None, finished_s: float) -> None:
        post(
            batch,
            outcome,
            None,
            window=self._window,
            inbox=self._inbox,
            now_s=finished_s,
        )
