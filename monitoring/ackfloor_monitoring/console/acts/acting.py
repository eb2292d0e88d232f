"""Acting: judges an order, carries it out, and keeps what came of the newest ones.

Invariants. An order is noted before it is done, and not done where that fails. What was confirmed
once is done once: a form that is sent again leads to what came of it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ackfloor import AckfloorError
from ackfloor.operations import (
    ActionNote,
    HandlerPause,
    LaneMove,
    LaneOutcome,
    PauseOutcome,
    Runs,
    new_note,
    noted,
)
from ackfloor.redrive import operator
from ackfloor_monitoring.console.access.gate import ANYBODY
from ackfloor_monitoring.console.access.roles import Person
from ackfloor_monitoring.console.acts.first_noted import writer_of
from ackfloor_monitoring.console.acts.order_forms import Order, read_order
from ackfloor_monitoring.console.forms import Fields
from ackfloor_monitoring.console.reads.cluster_facts import Cluster

PROGRAM: Final = "console"
#: Orders that were judged or carried out and can be looked at again.
MOST_KEPT: Final = 500


@dataclass(frozen=True, slots=True)
class Judged:
    """An order, and what it would do.

    Attributes:
        note: as which it would be noted; its id names the order.
        would: of lanes; None for a handler, of which every worker is meant.
        runs: the addresses that would get it.
        unreached: address -> why not.
    """

    order: Order
    note: ActionNote
    would: LaneOutcome | None
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
    outcome: LaneOutcome | PauseOutcome | None = None
    error: str = ""
    over: bool = field(default=False)


class Acting:
    """The orders of a cluster. Its methods block, and belong to threads of the console."""

    template: Final = "order.html"

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        #: Where its methods are to be called.
        self.asking = cluster.asking
        self._judged: OrderedDict[str, Judged] = OrderedDict()
        self._carried: OrderedDict[str, Carried] = OrderedDict()

    def judge(self, form: Fields, person: Person, address: str) -> Judged:
        """What the order of a form would do; nothing is done.

        Args:
            person: who asks.
            address: from where.

        Raises:
            SettingError: a field has no value, or an invalid one.
            ControlFailed: no run of the group can be asked.
            ConfigError: the settings are refused.
        """
        order = read_order(form)
        runs = self._cluster.runs_of(order.group)
        would = order.does.judge(runs) if isinstance(order.does, LaneMove) else None
        note = new_note(
            order.does.name,
            PROGRAM,
            operator() if person.name == ANYBODY else person.name,
            targets=[order.does.handler],
            group=order.group,
            arguments={**order.does.arguments(runs), "from": address},
        )
        judged = Judged(order, note, would, list(runs.tokens), runs.unreached)
        _keep(self._judged, note.id, judged)
        return judged

    def judged(self, id_: str) -> Judged | None:
        """An order that was judged; None where it was too long ago."""
        return self._judged.get(id_)

    def carried(self, id_: str) -> Carried | None:
        """An order that was confirmed; None for others."""
        return self._carried.get(id_)

    def carry_out(self, judged: Judged, reason: str) -> None:
        """Do it, once.

        Raises:
            SettingError: the reason is missing or too long.
        """
        order = judged.order.with_reason(reason)
        made = Carried(judged, " ".join(reason.split()))
        # Two threads may confirm the same form: the first one's entry stands.
        carried = self._carried.setdefault(judged.note.id, made)
        if carried is not made:
            return
        _keep(self._carried, judged.note.id, made)
        try:
            self._do(order.does, made)
        except AckfloorError as exc:
            made.error = str(exc)
        finally:
            made.over = True

    def stop(self, judged: Judged) -> None:
        """There is nothing to end: runs answer within seconds."""

    def _do(self, does: LaneMove | HandlerPause, carried: Carried) -> None:
        """Raises what prevents it: it can't be noted, or no run does it."""
        judged = carried.judged
        begun = replace(judged.note, reason=carried.reason)
        write = writer_of(self._cluster, lambda why: setattr(carried, "error", why))
        with noted(begun, write, job=True) as ending:
            runs: Runs = self._cluster.runs_of(judged.order.group)
            carried.outcome = does.act(runs, ending)


def _keep(kept: OrderedDict[str, Any], id_: str, value: object) -> None:
    kept[id_] = value
    while len(kept) > MOST_KEPT:
        kept.popitem(last=False)
