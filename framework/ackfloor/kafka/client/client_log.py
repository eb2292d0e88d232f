"""ClientLog: what a Kafka client logs by itself, with whose client it is, and bounded.

The client's own lines name a broker at most, and a worker has several clients. One that can't
connect logs the same line some twenty times a second. So each line is logged once a minute, with
how often it came meanwhile; and of different ones at most a few dozen a minute.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable

#: Seconds before a line is logged again.
SAY_AGAIN_S = 60.0
#: How many different lines of a client are logged in that time.
MOST_LINES = 30
#: What the client puts before a text: the name of its thread.
_THREAD = re.compile(r"^\[thrd:[^\]]*\]: ")
#: What differs between two lines that say the same.
_VARIES = re.compile(r"\d+ ?ms\b|, \d+ identical error\(s\) suppressed")


class ClientLog:
    """Takes a client's log lines; passed to it as its `logger`.

    It must not refer to the client: the garbage collector would end that inside of another one's
    callback.

    Args:
        log: where they are logged.
        client: whose they are, in words for people.
        clock: monotonic seconds.
    """

    def __init__(
        self, log: logging.Logger, client: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log = log
        self._client = client
        self._clock = clock
        self._since_s = clock()
        #: Each line of this minute, and how often it came after it was logged.
        self._logged: dict[str, int] = {}
        #: How many of each were not logged in the minute before.
        self._before: dict[str, int] = {}
        #: Lines beyond the most.
        self._left_out = 0

    def log(self, level: int, _format: str, code: str, name: str, text: str) -> None:
        """Log one of the client's lines; it calls this from any of our threads."""
        if not self._log.isEnabledFor(level):
            return
        text = _THREAD.sub("", text)
        more = 0
        # What it logs at that level was asked for by its property `debug`.
        if level > logging.DEBUG:
            same = f"{code} {_VARIES.sub('', text)}"
            if not self._admits(same):
                return
            more = self._before.pop(same, 0)
        again = f" ({more} more like it in the last {SAY_AGAIN_S:g} s)" if more else ""
        self._log.log(level, "%s: %s [%s, %s]%s", self._client, text, code, name, again)

    def _admits(self, line: str) -> bool:
        now_s = self._clock()
        if now_s - self._since_s >= SAY_AGAIN_S:
            if self._left_out:
                one = self._left_out == 1
                left_out = "line of this client was" if one else "lines of this client were"
                text = f"%s: %d more {left_out} left out"
                self._log.warning(text, self._client, self._left_out)
            recent = now_s - self._since_s < 2 * SAY_AGAIN_S
            self._before = {each: n for each, n in self._logged.items() if n and recent}
            self._logged.clear()
            self._since_s, self._left_out = now_s, 0
        if line in self._logged:
            self._logged[line] += 1
            return False
        if len(self._logged) >= MOST_LINES:
            self._left_out += 1
            return False
        self._logged[line] = 0
        return True
