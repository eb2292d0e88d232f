"""CommittedOutputs: the reader of the output topics, who sees what is committed and nothing else.

It holds the rule 14: a record that was handled has each of its outputs there once, all of one
attempt and of one transaction; one that was discarded, parked or dead-lettered has none there; and
a lane's are in the lane's order. A record that failed leaves its lane where nothing holds that, as
soon as the worker decides to park it, and has no place in the lane's order from then on: neither if
the park is written, nor if the partition is lost before and the record comes again from its source.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ackfloor import Delivery
from ackfloor.testing.memory.memory_log import MemoryRecord
from tests.simulation.outputs import Said, read_output
from tests.simulation.plan import HandlerPlan, Plan

if TYPE_CHECKING:
    from tests.simulation.watch import Watch


class CommittedOutputs:
    """What a reader of the outputs of one run has seen."""

    def __init__(self, watch: Watch, plan: Plan) -> None:
        self._watch = watch
        self._plan = plan
        self._records = {record.uid: record for record in plan.records}
        self._seen: dict[int, list[Said]] = {}
        #: Those that a worker once decided to park or to dead-letter.
        self._left: set[int] = set()
        #: Lane -> the highest offset of which outputs are committed, and the batch it was in.
        self._newest: dict[object, tuple[int, Any]] = {}

    def _handler(self, uid: int) -> HandlerPlan:
        return self._plan.handlers[self._records[uid].handler]

    def expected(self, uid: int) -> int:
        """How many outputs a record has."""
        return self._handler(uid).outputs

    def leaves(self, uid: int) -> None:
        """A worker decides to send a record to a retry or dead-letter topic."""
        self._left.add(uid)

    def parked(self, uid: int, topic: str) -> None:
        """A record is in a retry or dead-letter topic."""
        if self.expected(uid):
            self._watch.check(
                "14", uid not in self._seen, f"{uid} is parked in {topic}, and has outputs"
            )

    def written(self, uid: int, delivery: Delivery, record: MemoryRecord) -> None:
        """An output is committed."""
        said, seen = read_output(record.value()), self._seen.setdefault(uid, [])
        check = self._watch.check
        check("14", said.uid == uid, f"{said} is committed with the acknowledgement of {uid}")
        numbers = [other.number for other in seen]
        check("14", said.number not in numbers, f"{said} is committed after {seen}")
        check("14", said.number == len(seen), f"{said} is committed before what precedes it")
        check("14", all(o.start == said.start for o in seen), f"{said} is committed after {seen}")
        if not seen:
            self._check_order(uid, delivery)
        seen.append(said)

    def _check_order(self, uid: int, delivery: Delivery) -> None:
        plan, record = self._handler(uid), self._records[uid]
        if plan.ordering == "unordered" or (plan.on_failure == "park" and uid in self._left):
            return
        if plan.ordering == "key" and record.key is None:
            return
        place = self._watch.place_of(uid)
        lane = (place.topic, place.partition, record.key if plan.ordering == "key" else None)
        newest, batch = self._newest.get(lane, (-1, None))
        together = batch is not None and place.offset in [d.origin.offset for d in batch.items]
        self._watch.check(
            "14",
            place.offset > newest or together,
            f"the outputs of {uid}, offset {place.offset} of its lane, are committed after those "
            f"of offset {newest}",
        )
        if place.offset > newest:
            self._newest[lane] = place.offset, getattr(delivery, "batch", None)

    def complete(self, uids: Iterable[int]) -> None:
        """A transaction with outputs of these records is committed."""
        for uid in uids:
            count = len(self._seen[uid])
            self._watch.check(
                "14", count == self.expected(uid), f"{count} outputs of {uid} are committed"
            )

    def check_end(self, uid: int, fate: str) -> None:
        """A record has ended, and the run as well."""
        expected = self.expected(uid)
        if expected:
            most = expected if fate == "handled" else 0
            seen = self._seen.get(uid, [])
            self._watch.check(
                "14", len(seen) == most, f"{uid} is {fate}, and its outputs are {seen}"
            )
