"""RecoveryTimes: quantiles of the time to recovery, from how many messages lie in each bucket."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from math import exp
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Row

    from ackfloor_monitoring.spark.whatif.policies_in_force import Owner

#: Buckets of a time that is longer by a factor of e: each is 0.1 percent longer than the last.
BUCKETS = 1_000
#: Shares add up to a little less than whole messages.
_ROUNDING = 1e-6


class RecoveryTimes:
    """What was, and what would have been, of each handler and of all.

    Args:
        rows: of `whatif_frames.recovery_times`.
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        self._counts: dict[tuple[Owner | None, bool], dict[int, float]] = defaultdict(
            lambda: defaultdict(float)
        )
        for row in rows:
            for owner in (None, (row["group"], row["handler"])):
                self._counts[owner, row["then"]][row["bucket"]] += row["messages"]

    def at(self, share: float, owner: Owner | None, *, then: bool) -> float | None:
        """Seconds within which this share of the messages that recover does so.

        Args:
            share: 0.5 for the median.
            owner: of this handler only.
            then: under the other policy.
        """
        counts = self._counts.get((owner, then), {})
        needed, seen = share * sum(counts.values()) - _ROUNDING, 0.0
        for bucket in sorted(counts):
            seen += counts[bucket]
            if seen >= needed:
                return round(exp(bucket / BUCKETS) / 1000, 3)
        return None
