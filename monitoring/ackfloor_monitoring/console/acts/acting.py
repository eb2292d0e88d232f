"""Acting: judges an order, carries it out, and keeps what came of the newest ones.

Invariants. An order is noted before it is done, and not done where that fails. What was confirmed
once is done once: a form that is sent again leads to what came of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ackfloor import AckfloorError
from ackfloor.operations import (
    ActionNote,
    BreakerOutcome,
    HandlerBreaker,
    HandlerPause,
    LaneMove,
    LaneOutcome,
    PauseOutcome,
    RetryMove,
    RetryOutcome,
    Runs,
    noted,
)
from ackfloor_monitoring.console.access.roles import Person
from ackfloor_monitoring.console.acts.first_noted import (
    by_of,
    carrying,
    confirmed,
    console_note,
    writer_of,
)
from ackfloor_monitoring.console.acts.kept_forms import KeptForms
from ackfloor_monitoring.console.acts.order_forms import Does, Order, read_order
from ackfloor_monitoring.console.acts.retry_forms import ACTIONS, read_retry
from ackfloor_monitoring.console.forms import Fields
from ackfloor_monitoring.console.reads.cluster_facts import Cluster
from ackfloor_monitoring.console.reads.waiting_records import retry_topic_id


@dataclass(frozen=True, slots=True)
class Judged:
    """An order, and what it would do.

    Attributes:
        note: as which it would be noted; its id names the order.
        would: of lanes and waiting records; None for a handler, of which every worker is meant.
        runs: the addresses that would get it.
        unreached: address -> why not.
    """

    order: Order
    note: ActionNote
    would: LaneOutcome | RetryOutcome | None
    runs: list[str]
    unreached: Mapping[str, str]

    @property
    def needs_reason(self) -> bool:
        """Whether it is not done without a reason."""
        return self.order.needs_reason(self.would.done if self.would is not None else 0)


@dataclass(slots=True)
class Carried:
    """An order that was confirmed.

    Attributes:
        outcome: what the runs did; None while they are asked, and where that failed.
        error: why it was not done, or not noted to its end.
    """

    judged: Judged
    reason: str
    outcome: BreakerOutcome | LaneOutcome | PauseOutcome | RetryOutcome | None = None
    error: str = ""
    over: bool = False


class Acting:
    """The orders of a cluster. Its methods block, and belong to threads of the console."""

    template: Final = "order.html"

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        #: Where its methods are to be called.
        self.asking = cluster.asking
        self.kept = KeptForms[Judged, Carried]()

    def searches(self, form: Fields) -> bool:
        """Whether judging a form reads as much as a search: the records of a retry topic."""
        return form.get("action") in ACTIONS

    def judge(self, form: Fields, person: Person, address: str) -> Judged:
        """What the order of a form would do; nothing is done.

        Args:
            person: who asks.
            address: from where.

        Raises:
            SettingError: a field has no value, or an invalid one.
            Refused: a filter may not be used, or too many records are meant.
            ControlFailed: no run of the group can be asked.
            AckfloorError: a retry topic can't be read, or the settings are refused.
        """
        order = self._order(form, person)
        runs = self._cluster.runs_of(order.group)
        does = order.does
        would = None if isinstance(does, HandlerPause | HandlerBreaker) else does.judge(runs)
        note = console_note(
            order.does.name,
            by_of(person),
            address,
            target=order.does.target,
            group=order.group,
            arguments=order.does.arguments(runs),
        )
        judged = Judged(order, note, would, list(runs.tokens), runs.unreached)
        self.kept.keep(note.id, judged)
        return judged

    def _order(self, form: Fields, person: Person) -> Order:
        if form.get("action") not in ACTIONS:
            return read_order(form)
        move = read_retry(form, person, self._cluster)
        return Order(move.group, move, "retry")

    def carry_out(self, judged: Judged, reason: str, address: str) -> None:
        """Do it, once.

        Args:
            address: from where it is confirmed.

        Raises:
            SettingError: the reason is missing or too long.
        """
        order = judged.order.with_reason(reason)
        made = Carried(judged, " ".join(reason.split()))
        if not self.kept.begin(judged.note.id, made):
            return
        with carrying(made, judged.note):
            self._do(order.does, made, address)

    def stop(self, judged: Judged, reason: str, address: str) -> None:
        """There is nothing to end: runs answer within seconds."""

    def _do(self, does: Does, carried: Carried, address: str) -> None:
        """Raises what prevents it: it can't be noted, or no run does it."""
        judged = carried.judged
        begun = confirmed(judged.note, carried.reason, address)
        write = writer_of(self._cluster, lambda why: setattr(carried, "error", why))
        runs = self._cluster.runs_of(judged.order.group)
        if isinstance(does, LaneMove) and isinstance(judged.would, LaneOutcome):
            does = does.as_shown(judged.would)
        _refuse_more(does, judged, runs)
        _refuse_another_topic(does, self._cluster)
        with noted(begun, write, job=True) as ending:
            carried.outcome = does.act(runs, ending)


def _refuse_more(does: Does, judged: Judged, runs: Runs) -> None:
    """Refuse what has become more than somebody has seen, where it is for all.

    Raises:
        AckfloorError: more lanes wait, or another run would get the order.
    """
    would = judged.would
    if not isinstance(does, LaneMove) or would is None or not does.which.get("all"):
        return
    now = does.judge(runs)
    if now.done > would.done or set(runs.tokens) - set(judged.runs):
        raise AckfloorError(
            f"nothing was done: {now.done:,} lanes of {len(runs.tokens)} runs are meant now, and "
            f"{would.done:,} of {len(judged.runs)} were shown: ask again"
        )


def _refuse_another_topic(does: Does, cluster: Cluster) -> None:
    """Refuse places in a topic that is not the one any more that somebody has seen.

    Raises:
        AckfloorError: it was deleted and made anew, or the broker says nothing.
    """
    if not isinstance(does, RetryMove):
        return
    if retry_topic_id(cluster.options(), does.topic) != does.topic_id:
        why = f"{does.topic} was deleted and made anew: ask again"
        raise AckfloorError(f"nothing was done: {why}")
