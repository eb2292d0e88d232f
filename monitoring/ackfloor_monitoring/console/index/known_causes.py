"""KnownCauses: the numbers of causes in the index, as many as it keeps.

Headers say what a cause is, and whoever may write to a dead-letter topic can write any. So there
is room for some, in the file as in memory; a record beyond that is in the index without its cause.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from ackfloor_monitoring.console.index.index_rows import Cause

#: Causes that are kept, of all topics together.
MOST_CAUSES: Final = 10_000
#: What a record has in place of a cause for which there is no room.
OTHER: Final = Cause("", "one of too many causes", "", "", "")


class KnownCauses:
    """Those of one index.

    Args:
        connection: to the file, in autocommit mode.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._numbers: dict[tuple[int, Cause], int] = {}
        self.read()

    def read(self) -> None:
        """Read them from the file."""
        rows = self._connection.execute(
            "select id, topic, handler, cause, error_type, reason, release from cause"
        )
        self._numbers = {(topic, Cause(*said)): number for number, topic, *said in rows}

    @property
    def is_full(self) -> bool:
        """Whether there is room for no other one."""
        return len(self._numbers) >= MOST_CAUSES

    def number(self, topic: int, cause: Cause) -> int:
        """The number of a cause; of `OTHER` where there is no room for it."""
        found = self._numbers.get((topic, cause))
        if found is None and self.is_full:
            cause = OTHER
            found = self._numbers.get((topic, cause))
        return self._add(topic, cause) if found is None else found

    def _add(self, topic: int, cause: Cause) -> int:
        added = self._connection.execute(
            "insert into cause(topic, handler, cause, error_type, reason, release) "
            "values (?, ?, ?, ?, ?, ?)",
            (topic, *cause),
        )
        number = int(added.lastrowid or 0)
        self._numbers[topic, cause] = number
        return number

    def make_room(self) -> None:
        """Forget those that no record in the index has any more."""
        self._connection.execute(
            "delete from cause where not exists "
            "(select 1 from dead_letter where dead_letter.cause = cause.id) "
            "and id not in (select retry_record.cause from retry_record)"
        )
        self.read()
