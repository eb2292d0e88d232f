"""DeadLetterArchive: a file of archived dead letters, each written before it is disposed of.

Lines are appended and synced to disk before `keep` returns. A job that was killed may have written
dead letters to the file without disposing of them. Resumed, it finds them there and does not write
them again. An incomplete last line is cut off first.

The file may also be older than the topic: one that was deleted and created anew has other dead
letters at the same offsets. So the timestamps of the first known ones are compared.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Self

from ackfloor.core.acks.offset_set import OffsetSet
from ackfloor.dead_letters.commands.json_lines import dead_letter_line
from ackfloor.dead_letters.rules.redrive_rules import DeadLetter
from ackfloor.errors import AckfloorError, RedriveRefused

if TYPE_CHECKING:
    from ackfloor.core.records.redaction import Redaction


class DeadLetterArchive:
    """The file of one dead-letter topic; a context manager.

    Raises:
        RedriveRefused: the file can't be opened, or holds something else.
    """

    def __init__(self, path: Path, topic: str, rules: Redaction) -> None:
        self._path, self._topic, self._rules = path, topic, rules
        self._there: dict[int, OffsetSet] = {}
        self._of_this_topic = False
        if path.exists() and not path.is_file():
            raise RedriveRefused(f"--file={str(path)!r}: not a file; name one")
        try:
            self._file: BinaryIO = path.open("a+b")
        except OSError as exc:
            raise RedriveRefused(f"--file={str(path)!r}: {exc.strerror}") from exc
        try:
            self._read()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def keep(self, dead_letters: Sequence[DeadLetter]) -> None:
        """Write these to the file, and sync it to disk.

        Raises:
            AckfloorError: they can't be written; none of them may be disposed of.
        """
        from ackfloor.dead_letters.kafka.dead_letter_topic import StoredDeadLetter

        self._compare(dead_letters)
        try:
            for each in dead_letters:
                there = self._there.setdefault(each.partition, OffsetSet())
                if each.offset not in there:
                    line = dead_letter_line(StoredDeadLetter(each, disposed=False), self._rules)
                    self._file.write(line.encode())
                    there.add(each.offset)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as exc:
            raise AckfloorError(f"{self._path} can't be written: {exc.strerror}") from exc

    def _compare(self, dead_letters: Sequence[DeadLetter]) -> None:
        """Check by timestamps that the file is of this topic, once it has some of these."""
        there = {
            (each.partition, each.offset): each.timestamp_ms
            for each in dead_letters
            if each.offset in self._there.get(each.partition, ())
        }
        if self._of_this_topic or not there:
            return
        with self._path.open("rb") as file:
            for line in file:
                facts = json.loads(line)
                place = facts["partition"], facts["offset"]
                if facts.get("timestamp_ms") != there.get(place, facts.get("timestamp_ms")):
                    raise self._strange()
        self._of_this_topic = True

    def _read(self) -> None:
        """Read which dead letters the file has, and cut off an incomplete last line."""
        self._file.seek(0)
        end, head = 0, f'{{"topic": {json.dumps(self._topic)}, '.encode()
        for line in self._file:
            if not line.endswith(b"\n"):
                if not (line.startswith(head) or head.startswith(line)):
                    raise self._strange()
                self._file.truncate(end)
                break
            end += len(line)
            partition, offset = self._place(line)
            self._there.setdefault(partition, OffsetSet()).add(offset)
        self._file.seek(0, os.SEEK_END)

    def _place(self, line: bytes) -> tuple[int, int]:
        try:
            facts = json.loads(line)
            if facts["topic"] == self._topic:
                return int(facts["partition"]), int(facts["offset"])
        except (KeyError, RecursionError, TypeError, ValueError):
            pass
        raise self._strange()

    def _strange(self) -> RedriveRefused:
        return RedriveRefused(
            f"--file={str(self._path)!r}: holds something else than dead letters of "
            f"{self._topic} as it is now; name a new file"
        )
