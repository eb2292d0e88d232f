"""RateLimit: logs at most a few lines of one kind in a time, and counts the others.

When a dependency dies, everything fails at once. The first few lines say what happens. The number
of suppressed lines is logged with the next line after that time, or by `flush`.
"""

from __future__ import annotations

import logging
import re

#: Lines of one kind in one window.
MOST_LINES = 3
WINDOW_S = 1.0
#: In a summary: what is said of one, and what of more.
_ONE_OR_MANY = re.compile(r"\[(?P<one>[^|\]]*)\|(?P<many>[^|\]]*)\]")


class RateLimit:
    """One kind of line.

    Args:
        log: where the number of suppressed lines is logged.
        summary: what that log line says after "5 more"; of `[line is|lines are]` it says what fits.
        level: its level.
        window_s: in how many seconds at most a few lines are logged.
    """

    __slots__ = ("_level", "_lines", "_log", "_since_s", "_summary", "_suppressed", "_window_s")

    def __init__(
        self,
        log: logging.Logger,
        summary: str,
        level: int = logging.WARNING,
        window_s: float = WINDOW_S,
    ) -> None:
        self._log = log
        self._level = level
        self._window_s = window_s
        self._summary = summary
        self._since_s = 0.0
        self._lines = 0
        self._suppressed = 0

    def admits(self, now_s: float) -> bool:
        """Whether one more line may be logged; counts it if not."""
        self.flush(now_s)
        if self._lines < MOST_LINES:
            self._lines += 1
            return True
        self._suppressed += 1
        return False

    def flush(self, now_s: float) -> None:
        """Begin a new window if this one is over, and log how many lines it suppressed."""
        if now_s - self._since_s < self._window_s:
            return
        if self._suppressed:
            self._log.log(self._level, "%d more %s", self._suppressed, self._summed())
        self._since_s = now_s
        self._lines = self._suppressed = 0

    def _summed(self) -> str:
        """The summary as it is said of so many."""
        fits = r"\g<one>" if self._suppressed == 1 else r"\g<many>"
        return _ONE_OR_MANY.sub(fits, self._summary)
