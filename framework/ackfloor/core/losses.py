"""Events of records that are gone; they belong to the catalogue in `messages`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RecordsLost:
    """The log no longer holds what was to be read next (retention): never delivered here."""

    topic: str
    partition: int
    count: int


@dataclass(frozen=True, slots=True)
class RecordsDeleted:
    """A retry topic was deleted with records in it, of partitions that this worker reads.

    Attributes:
        lost: so many were not read yet and are gone for good, as far as is known. Told once more
            of those that were read and not handled when the worker had to end.
        kept: so many had been read before: they are handled when they are due, as ever.
    """

    topic: str
    lost: int
    kept: int
