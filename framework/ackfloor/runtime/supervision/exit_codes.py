"""Exit codes of every command and of the worker processes."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """The exit code of a process."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    START = 3
    KAFKA_UNREACHABLE = 4
    PARTIAL = 5
    FORCED = 6
    #: What the start needs is not there yet: topics, or what the lifespan connects to.
    NOT_READY = 7
    #: A worker that asks to be replaced at once (too many abandoned handlers, a topic that was
    #: created anew).
    WORN_OUT = 75
    #: A worker whose name in the group another process has taken (static membership).
    FENCED = 76
    #: A worker whose name in the group is not free yet (static membership).
    HELD_UP = 77


#: Exit codes of a worker that could not start.
NO_START = frozenset({Exit.START, Exit.NOT_READY})
