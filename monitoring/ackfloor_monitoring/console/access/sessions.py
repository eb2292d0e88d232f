"""Sessions: who is logged in, by the cookie that their browser sends.

They are kept in memory: who restarts the console logs everybody out. Of a session's secret the
console keeps the hash alone, so that a dump of its memory lets nobody in.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from ackfloor_monitoring.console.access.roles import Person
from ackfloor_monitoring.console.access.tokens import hashed

#: Seconds after which an unused session ends, and after which each does.
IDLE_S: Final = 8 * 3600.0
LONGEST_S: Final = 24 * 3600.0
#: So many are kept; one more ends the one that was unused for longest.
MOST: Final = 10_000


@dataclass(slots=True)
class Session:
    """Of somebody who is logged in.

    Attributes:
        token: the hash of the token that they logged in with.
        csrf: what a form has to send back where the browser does not say which page it is on.
    """

    person: Person
    token: str
    csrf: str
    began_s: float
    used_s: float


class Sessions:
    """All of them.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float], most: int = MOST) -> None:
        self._clock = clock
        self._most = most
        #: The hash of a session's secret -> the session; the one that was used last at the end.
        self._known: OrderedDict[str, Session] = OrderedDict()

    def begin(self, person: Person, token: str) -> str:
        """Begin a session; returns its secret, for the cookie.

        Args:
            token: what they logged in with.
        """
        now_s = self._clock()
        secret = secrets.token_urlsafe(32)
        session = Session(person, hashed(token), secrets.token_urlsafe(32), now_s, now_s)
        self._known[hashed(secret)] = session
        while len(self._known) > self._most:
            self._known.popitem(last=False)
        return secret

    def of(self, secret: str) -> Session | None:
        """The session of a cookie; None if there is none, or it is over."""
        if not self.has(secret):
            return None
        key = hashed(secret)
        session = self._known[key]
        session.used_s = self._clock()
        self._known.move_to_end(key)
        return session

    def has(self, secret: str) -> bool:
        """Whether the session of a cookie goes on; that does not count as a use of it."""
        key, now_s = hashed(secret), self._clock()
        session = self._known.get(key)
        if session is None:
            return False
        if now_s - session.used_s > IDLE_S or now_s - session.began_s > LONGEST_S:
            del self._known[key]
            return False
        return True

    def end(self, secret: str) -> None:
        """End the session of a cookie, if there is one."""
        self._known.pop(hashed(secret), None)

    def keep_only(self, people: Mapping[str, Person]) -> None:
        """End the sessions of tokens that are gone or have another role now.

        Args:
            people: the hash of a token -> whose it is.
        """
        for key, session in list(self._known.items()):
            if people.get(session.token) != session.person:
                del self._known[key]
