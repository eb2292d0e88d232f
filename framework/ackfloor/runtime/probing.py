"""Probing: which of the items that a hold keeps waiting are started all the same.

They are taken from the front of the queue, where what has not been tried waits in its order. A
probe must be answered, or nothing is learnt from it. So what would be skipped in its slot (its
partition has left or is leaving) is passed over here, and an empty lane is posted as left.
"""

from __future__ import annotations

from collections.abc import Callable

from ackfloor.core.delivery import Delivery
from ackfloor.core.lanes import Run
from ackfloor.runtime.ready import ReadyQueue


def let_through(queue: ReadyQueue, count: int, most: int, leave: Callable[[Run], None]) -> int:
    """Let up to `count` items through a hold; returns fewer only where no more are waiting.

    Args:
        queue: a handler's queue.
        count: how many to let through.
        most: how many may wait to be taken, those of earlier calls included.
        leave: posts a run that was found empty.
    """
    if queue.secluded:
        # Another record runs alone; the next probe comes.
        return count
    room = min(count, most - len(queue.alone))
    through = 0
    while through < room:
        item = queue.take_held()
        if item is None:
            return through
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
    return count


def _may_start(delivery: Delivery) -> bool:
    return not (delivery.closed or delivery.assignment.stopping)
