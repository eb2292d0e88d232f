"""Probing: which of the items that a hold keeps waiting are started all the same.

They are taken from all over the queue: where a hundred bad records wait first, one of them would
say nothing of the others. A probe must be answered, or nothing is learnt from it. So what would be
skipped in its slot (its partition has left or is leaving) is passed over here, and an empty lane is
posted as left.
"""

from __future__ import annotations

from collections.abc import Callable

from ackfloor.core.delivery import Delivery
from ackfloor.core.lanes import Run
from ackfloor.runtime.ready import ReadyQueue

#: Steps of this share of a whole spread evenly over it, however many there are.
GOLDEN = 0.618033988749895


def let_through(queue: ReadyQueue, count: int, leave: Callable[[Run], None]) -> int:
    """Let up to `count` items through a hold; returns how many slots may take now.

    Args:
        queue: a handler's queue.
        count: how many may wait to be taken, those of an earlier call included.
        leave: posts a run that was found empty.
    """
    if queue.secluded:
        # Another record runs alone; the next probe comes.
        return count
    through = len(queue.alone)
    while through < count:
        queue.tried += 1
        item = queue.take_held(queue.tried * GOLDEN % 1.0)
        if item is None:
            break
        if isinstance(item, Run):
            while item and not _may_start(item[0]):
                item.popleft()
            if not item:
                leave(item)
                continue
        elif not _may_start(item):
            continue
        queue.alone.append(item)
        through += 1
    return through


def _may_start(delivery: Delivery) -> bool:
    return not (delivery.closed or delivery.assignment.stopping)
