"""Lookout: now and then asks Kafka how far the group has come, and tells the monitor.

What a worker knows of the end of a log is what its client last saw, which is not refreshed while a
partition is paused; of partitions that nobody has and of dead letters it knows nothing. So the
run asks as any onlooker would, on a thread and with clients of its own. What it can't get to know
is not told at all: an old number would look like a new one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from threading import Event, Thread

from ackfloor.core.progress import Progress
from ackfloor.errors import AckfloorError

log = logging.getLogger("ackfloor.run")

Look = Callable[[], Sequence[Progress]]

#: How long the end of a run waits for a look under way: it has no way to be cut short.
END_S = 3.0


class Lookout:
    """Looks every so often, the first time after one such wait.

    Args:
        looking: opens and closes what is looked with, on the lookout's thread.
        tell: takes what was seen, or None where nothing is known.
    """

    def __init__(
        self,
        looking: Callable[[], AbstractContextManager[Look]],
        tell: Callable[[Sequence[Progress] | None], None],
        every_s: float,
    ) -> None:
        self._looking = looking
        self._tell = tell
        self._every_s = every_s
        self._ended = Event()
        self._said = ""
        self._thread = Thread(target=self._run, name="ackfloor-lookout", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; a look that does not come back is left behind."""
        self._ended.set()
        self._thread.join(END_S)

    def _run(self) -> None:
        if self._ended.wait(self._every_s):
            return
        with self._looking() as look:
            while not self._ended.is_set():
                self._tell(self._seen(look))
                self._ended.wait(self._every_s)

    def _seen(self, look: Look) -> Sequence[Progress] | None:
        try:
            seen = look()
        except AckfloorError as exc:
            self._say(f"{exc}")
        except Exception as exc:
            # Whatever it is, the next look may do better, and no metric ends a run.
            if self._say(f"{exc!r}"):
                log.exception("a look at Kafka failed")
        else:
            self._said = ""
            return seen
        return None

    def _say(self, why: str) -> bool:
        """Once for each reason, until a look succeeds."""
        if why == self._said:
            return False
        self._said = why
        log.warning("lag and dead letters as Kafka sees them are not known: %s", why)
        return True
