"""Delivery: a record as its handler gets it, and the answers that a handler can give.

This is all of a delivery that users can rely on. The runtime's objects have more members, which may
change with any version. A test may pass any object with these members to a handler.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Protocol, runtime_checkable

from ackfloor.core.records.record import Headers, Origin

__all__ = ["Delivery"]


@runtime_checkable
class Delivery(Protocol):
    """One attempt to handle one record.

    Read it in a handler through a parameter annotated `Delivery`. Under `ack="manual"`, and in a
    batch, its methods answer for the record, from any thread or task and without blocking: each
    returns True if the answer was recorded and False if the delivery has already ended.
    """

    # What was delivered.

    @property
    def topic(self) -> str:
        """The topic it was read from: the source topic, or a retry topic."""

    @property
    def partition(self) -> int:
        """The partition it was read from."""

    @property
    def offset(self) -> int:
        """The record's own offset there."""

    @property
    def key(self) -> bytes | None:
        """The raw key."""

    @property
    def value(self) -> bytes | None:
        """The raw value; None is a tombstone."""

    @property
    def headers(self) -> Headers:
        """The record's headers in order, repeated names included.

        Empty if the name of one is not UTF-8, which the client can't read.
        """

    @property
    def timestamp(self) -> int:
        """The record's timestamp in milliseconds since the epoch; -1 if it has none."""

    @property
    def attempt(self) -> int:
        """Which delivery of the record this is; 1 is the first."""

    @property
    def origin(self) -> Origin:
        """Topic, partition and offset of the first delivery, the same in every retry.

        A redrive to the source topic writes the record anew, with an origin of its own; what stays
        the same even then is `idempotency_key`.
        """

    @property
    def idempotency_key(self) -> str:
        """What names the record over all its deliveries: `Jq0bS6aTQs2aGUqzyx4zZw/3/41927`.

        The same in every redelivery, retry and redrive, and of no other record, also where its
        topic is deleted and created anew, or an unclean election has cut others off its log:
        Kafka's id of the topic, partition, offset and leader epoch of the first delivery. Text of
        at most 300 characters; take it as it is. Store it in the transaction of an effect to have
        the effect once.
        """

    @property
    def deadline_s(self) -> float | None:
        """When the consume timeout ends, in seconds of the monotonic clock; None for never."""

    # What goes with the acknowledgement.

    def publish(
        self,
        topic: str,
        value: Any,
        *,
        key: bytes | str | None = None,
        headers: Mapping[str, str | bytes | None] | Sequence[tuple[str, str | bytes | None]] = (),
        partition: int | None = None,
    ) -> bool:
        """Publish a record in the transaction that settles this one: both, or neither.

        Only in a handler with `output="exactly_once"`. It returns at once: the record is held until
        this one's outcome is known, and written then if it was handled. What an attempt that fails
        has published is dropped.

        Args:
            topic: the topic to write to, which must exist.
            value: bytes and str as they are, a pydantic model or anything JSON can hold as
                JSON, None as a tombstone.
            key: bytes, or text to be written in UTF-8.
            headers: by name, or (name, value) pairs in order where a name repeats; text is
                written in UTF-8.
            partition: where to write it; None: the key decides, and without a key the client.

        Returns:
            True if it is held, False if the delivery has already ended.

        Raises:
            OutputTooLarge: what this delivery has published is more than one transaction may hold
                (10,000 records, 32 MiB).
            RuntimeError: the handler has no `output="exactly_once"`.
        """

    # Answers, under manual ack or in a batch. Elsewhere these raise `RuntimeError`.

    def ack(self) -> bool:
        """Settle the record as handled."""

    def retry(self, after: timedelta | str | None = None, reason: str = "") -> bool:
        """Park the record for another delivery, after the policy's delay or the given one."""

    def dead_letter(self, reason: str) -> bool:
        """Move the record to the dead-letter topic."""

    def discard(self, reason: str) -> bool:
        """Settle the record without handling it."""

    def extend(self, by: timedelta | str) -> bool:
        """Move the deadline to `by` from now, at most `max_extend` after the handler's start.

        Never shortens a deadline. Allowed under automatic ack as well. A batch has one deadline, so
        this moves that of all its deliveries.
        """
