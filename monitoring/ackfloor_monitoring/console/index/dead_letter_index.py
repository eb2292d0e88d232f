"""DeadLetterIndex: one cluster's index, as pages use it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from ackfloor.core.records.redaction import Redaction
from ackfloor.dead_letters.kafka.followed_topics import FollowedTopics
from ackfloor.kafka.client.client_options import KafkaOptions
from ackfloor_monitoring.console.index.follower import Follower
from ackfloor_monitoring.console.index.index_file import IndexFile
from ackfloor_monitoring.console.index.index_rows import (
    named_header,
    stored_header,
    stored_key,
)
from ackfloor_monitoring.console.index.index_search import IndexSearch

#: Seconds that an ending console waits for the batch that is being written.
GRACE_S: Final = 5.0


class NoIndex(Exception):
    """There is nothing to search in yet, or it is being made anew."""


class DeadLetterIndex:
    """Follows a cluster's dead-letter topics, and answers.

    Args:
        path: of its file, in a folder that exists.
        rules: what is taken away from what is kept.
        most: so many dead letters are kept; the oldest go first.
    """

    def __init__(self, options: KafkaOptions, path: Path, rules: Redaction, most: int) -> None:
        self.rules = rules
        self._file = IndexFile(path, rules)
        self.follower = Follower(lambda: FollowedTopics(options), self._file, rules, most)

    @contextmanager
    def following(self) -> Iterator[None]:
        """Keep it up to date meanwhile."""
        self.follower.start()
        try:
            yield
        finally:
            self.follower.close(GRACE_S)

    @contextmanager
    def searching(self) -> Iterator[IndexSearch]:
        """A search; raises NoIndex while there is none to search in, without words before it is."""
        if not self._file.path.exists():
            raise NoIndex
        try:
            with closing(self._file.to_read()) as connection:
                yield IndexSearch(connection)
        except sqlite3.DatabaseError as exc:
            raise NoIndex(str(exc)) from exc

    def stored_key(self, text: str) -> bytes | None:
        """A key as the index has it; None where redaction leaves nothing to compare."""
        key = text.encode()
        kept = self.rules.of_key(key)
        if self.rules.key == "keep" and kept != key:
            return None
        return stored_key(key, self.rules)

    def stored_header(self, text: str) -> str | None:
        """NAME or NAME=VALUE as the index has it; None where redaction hides such a value."""
        name, equals, value = text.partition("=")
        if not equals:
            return named_header(name)
        [(_, kept)] = self.rules.of_headers([(name, value.encode())])
        return stored_header(name, kept) if kept == value.encode() else None
