"""What a worker tells of exits that are no record's."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StrayExit:
    """An exit left a task or a callback on the event loop, which goes on; no record's failure.

    A handler that awaited the task has got the same exception, and has failed with it.
    """

    error_type: str
