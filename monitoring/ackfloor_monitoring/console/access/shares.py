"""Shares: how much is under way at once, of everybody and of each person.

A bound of all together alone would let one person take all of it, and everybody else be refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from ackfloor_monitoring.console.access.gate import Refused
from ackfloor_monitoring.console.access.roles import Person

#: Bytes of a file that are handed over at once: the next ones when the reader has taken these.
PIECE_BYTES: Final = 64 * 1024


class Busy(Refused):
    """What did not come in for now: the same may, a moment later."""


class Shares:
    """Counts what is under way; all methods belong to one event loop.

    Args:
        what: is counted, such as "searches".
        fix: what helps whoever is refused.
    """

    def __init__(self, what: str, fix: str) -> None:
        self._what = what
        self._fix = fix
        #: Names of people -> how many are theirs.
        self._of = Counter[str]()

    @contextmanager
    def taken(self, person: Person, most: int, each: int) -> Iterator[None]:
        """Count one more of somebody meanwhile.

        Args:
            most: of everybody.
            each: of one person.

        Raises:
            Busy: there would be more than that.
        """
        if self._of.total() >= most:
            raise Busy(503, f"too many {self._what} at once: {self._fix}")
        if self._of[person.name] >= each:
            raise Busy(429, f"{person.name} has {each} {self._what} at once: {self._fix}")
        self._of[person.name] += 1
        try:
            yield
        finally:
            self._of[person.name] -= 1
            # Who has none is forgotten.
            self._of = +self._of


class SharedResponse(StreamingResponse):
    """An answer that takes a share until it is sent, or whoever has asked for it is gone.

    Args:
        share: is given back then.
    """

    def __init__(self, content: AsyncIterator[Any], share: ExitStack, **more: Any) -> None:
        super().__init__(content, **more)
        self._share = share

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        with self._share:
            await super().__call__(scope, receive, send)


def sent_file(body: bytes, share: ExitStack, media_type: str, **headers: str) -> SharedResponse:
    """A file as an answer, which is in memory until its reader has taken it.

    Args:
        headers: with `_` for `-`.
    """
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    named["Content-Length"] = str(len(body))
    return SharedResponse(_pieces(body), share, headers=named, media_type=media_type)


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), PIECE_BYTES):
        yield body[start : start + PIECE_BYTES]
