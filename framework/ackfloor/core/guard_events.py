"""Events of the flood guard; they belong to the catalogue in `messages`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GuardTripped:
    """So many of a handler's records failed that nothing of it is started but probes."""

    handler: str
    failing: int
    sample: int
    error_type: str
    error_message: str


@dataclass(frozen=True, slots=True)
class GuardProbed:
    """A probe of a handler whose guard is tripped ended; without an error type it succeeded.

    Topic, partition and offset are its record's origin.
    """

    topic: str
    partition: int
    offset: int
    handler: str
    error_type: str = ""


@dataclass(frozen=True, slots=True)
class GuardReset:
    """Probes succeeded and a handler goes on; it had been stopped for `after_s`."""

    handler: str
    after_s: float


@dataclass(frozen=True, slots=True)
class RecordPutBack:
    """A delivery failed while its handler's guard was tripped: the same attempt comes again."""

    topic: str
    partition: int
    offset: int
    handler: str
    attempt: int
    #: The topic that partition and offset belong to: the source, or a retry tier.
    read_from: str = ""
