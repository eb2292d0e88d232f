"""PartitionCommits: the state of one partition's offset commits during one epoch.

One commit of a partition is outstanding at a time, plain or as part of a transaction, because
Kafka keeps whichever comes last. A plain commit that was refused is in doubt until the next one
is confirmed: it may have been stored, or may still be.
"""

from __future__ import annotations

from math import inf

from ackfloor.core.acks.gap_set import LARGEST_OFFSET, LONGEST, SHORT
from ackfloor.core.queues.flow_limits import Gate


class PartitionCommits:
    """The commits of one assignment.

    Attributes:
        position: the committed position, None where none is confirmed.
        settled_count: `tracker.settled_count()` as of the last confirmed commit.
        outstanding: a commit is on its way, plain or in a transaction.
        transacting: it is in a transaction.
        in_doubt: the last plain commit was refused, and may be stored all the same.
        sent_s: when the last commit was sent (monotonic seconds), minus infinity before the first.
        longest_metadata: most characters a commit's metadata may have; less after a broker
            refused some.
        metadata_length: characters that all of the gap set took in the last commit, whether they
            fitted or not.
        metadata_gate: stops fetching before the gap set no longer fits.
    """

    __slots__ = (
        "in_doubt",
        "longest_metadata",
        "metadata_gate",
        "metadata_length",
        "outstanding",
        "position",
        "sent_s",
        "settled_count",
        "transacting",
    )

    def __init__(self) -> None:
        self.position: int | None = None
        self.settled_count = 0
        self.outstanding = False
        self.transacting = False
        self.in_doubt = False
        self.sent_s = -inf
        self.longest_metadata = LONGEST
        self.metadata_length = 0
        self.metadata_gate = Gate(LONGEST)
        self.limit_metadata(LONGEST)

    def limit_metadata(self, longest: int) -> None:
        """Fetching stops at three quarters of this many characters.

        Where a broker takes less than any gap set needs, floors alone are committed, and fetching
        never stops for it.
        """
        if longest < SHORT:
            self.longest_metadata = 0
            self.metadata_gate.limit = LARGEST_OFFSET
        else:
            self.longest_metadata = longest
            self.metadata_gate.limit = longest * 3 // 4
