"""FailureCauses: which causes of failures had their traceback logged, and how often each came.

A cause is a handler and a fingerprint. What is remembered is bounded: a fixed number of causes,
those that came last, and the failures that were noted last and whose event has not come yet.
A cause that was forgotten is new when it comes again.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from ackfloor.core.messages.events import BatchFailed, DeliveryFailed
from ackfloor.core.records.record import Failure
from ackfloor.core.records.tracked_delivery import TrackedDelivery

#: Causes that are remembered.
MOST_CAUSES = 256
#: Failures that were noted and whose event has not come: more than a turn of the loop has.
MOST_NOTED = 4_096

Place = tuple[object, ...]


class Cause:
    """One cause of failures.

    Attributes:
        fingerprint: of its failures.
        count: how many there were.
        shown: whether a traceback was logged.
    """

    __slots__ = ("count", "fingerprint", "shown")

    def __init__(self, fingerprint: str) -> None:
        self.fingerprint = fingerprint
        self.count = 0
        self.shown = False


class Noted(NamedTuple):
    """A failure of a cause.

    Attributes:
        number: which of the cause's failures it is.
        stack: its traceback; empty where one of the cause was logged before.
    """

    cause: Cause
    number: int
    stack: str


class FailureCauses:
    """The causes of one worker's failures; only the owner thread calls it."""

    def __init__(self) -> None:
        self._causes: OrderedDict[tuple[str, str], Cause] = OrderedDict()
        #: By what an event says of itself.
        self._noted: OrderedDict[Place, Noted] = OrderedDict()

    def note(self, delivery: TrackedDelivery, failure: Failure) -> None:
        """A failure whose event is about to come; without a traceback there is nothing to note."""
        if not failure.stack:
            return
        handler = delivery.assignment.handler.rules.name
        cause = self._cause(handler, failure.fingerprint)
        cause.count += 1
        noted = Noted(cause, cause.count, "" if cause.shown else failure.stack)
        place: Place = (
            delivery.topic, delivery.partition, delivery.offset, delivery.attempt, handler,
        )  # fmt: skip
        self._remember(place, noted)
        if delivery.assignment.handler.rules.batch is not None:
            # The event of a call with several records names none of them.
            self._remember((handler, failure.error_type), noted)

    def _cause(self, handler: str, fingerprint: str) -> Cause:
        key = handler, fingerprint
        cause = self._causes.get(key)
        if cause is None:
            cause = self._causes[key] = Cause(fingerprint)
            if len(self._causes) > MOST_CAUSES:
                self._causes.popitem(last=False)
        else:
            self._causes.move_to_end(key)
        return cause

    def _remember(self, place: Place, noted: Noted) -> None:
        self._noted[place] = noted
        if len(self._noted) > MOST_NOTED:
            self._noted.popitem(last=False)

    def of(self, event: DeliveryFailed | BatchFailed) -> Noted | None:
        """What was noted of an event's failure."""
        if isinstance(event, BatchFailed):
            return self._noted.pop((event.handler, event.error_type), None)
        place = event.read_from, event.partition, event.offset, event.attempt, event.handler
        return self._noted.pop(place, None)
