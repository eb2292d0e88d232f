"""Job notes: which job redrives or disposes of a topic's dead letters, and its progress.

A job writes its note into the compacted topic of the dispositions, in the same transactions as
these, so its figures are exact. Key `job/` and the job's name, value JSON; the last
record of a key counts.

Invariants. A note decides nothing: which dead letters are disposed of is said by their
dispositions, and which job may write by the transactional id. It shows people a
job, keeps them from ending another's by mistake, and holds what is needed to resume it. A note
that can't be read is left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from ackfloor.core.values.json_bytes import json_bytes

PREFIX: Final = b"job/"


class JobState(StrEnum):
    """What is known of a job."""

    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"
    #: Its note says running, and is too old.
    SILENT = "silent"


@dataclass(frozen=True, slots=True)
class JobNote:
    """The note of a job.

    Attributes:
        action: what it does with each dead letter, in the words of the dispositions.
        state: as it was written: never `SILENT`.
        by: who asked for it.
        host, pid: the process that works on it.
        target: where the dead letters go; "" for nowhere.
        done: how many have been dealt with.
        wanted: how many are meant: done, or to be done when it began. What was disposed of before
            is not counted.
        began_ms, at_ms: its begin, and this note, in wall-clock ms.
        silent_at_ms: without a newer note by then, it no longer runs.
        asked: what was asked for, to ask for it again.
        why: why it stopped.
    """

    job: str
    action: str
    state: JobState
    by: str
    host: str
    pid: int
    target: str
    done: int
    wanted: int
    began_ms: int
    at_ms: int
    silent_at_ms: int
    asked: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""

    @property
    def key(self) -> bytes:
        """The record's key."""
        return PREFIX + self.job.encode("utf-8", "replace")

    def to_bytes(self) -> bytes:
        """The record's value."""
        facts = {
            "action": self.action,
            "state": self.state.value,
            "by": self.by,
            "host": self.host,
            "pid": self.pid,
            "target": self.target,
            "done": self.done,
            "wanted": self.wanted,
            "began": written_at(self.began_ms),
            "at": written_at(self.at_ms),
            "silent_at": written_at(self.silent_at_ms),
            "asked": dict(self.asked),
            "why": self.why,
        }
        return json_bytes(facts)

    def state_at(self, now_ms: int) -> JobState:
        """What is known of it now."""
        if self.state is JobState.RUNNING and now_ms >= self.silent_at_ms:
            return JobState.SILENT
        return self.state


def read_job(key: bytes | None, value: bytes | None) -> JobNote | None:
    """The note that a record is; None where it is none, or is not readable."""
    if key is None or value is None or not key.startswith(PREFIX):
        return None
    try:
        facts = json.loads(value)
        asked = facts["asked"]
        return JobNote(
            job=key[len(PREFIX) :].decode(),
            action=_text(facts["action"]),
            state=JobState(facts["state"]),
            by=_text(facts["by"]),
            host=_text(facts["host"]),
            pid=int(facts["pid"]),
            target=_text(facts["target"]),
            done=int(facts["done"]),
            wanted=int(facts["wanted"]),
            began_ms=read_at(facts["began"]),
            at_ms=read_at(facts["at"]),
            silent_at_ms=read_at(facts["silent_at"]),
            asked=asked if isinstance(asked, dict) else {},
            why=_text(facts["why"]),
        )
    except (ArithmeticError, KeyError, RecursionError, TypeError, ValueError):
        return None


@dataclass(slots=True)
class Jobs:
    """The jobs of one dead-letter topic; fed with the records of its dispositions, in order."""

    notes: dict[str, JobNote] = field(default_factory=dict)

    def note(self, key: bytes | None, value: bytes | None) -> None:
        """Note one record."""
        if (found := read_job(key, value)) is not None:
            self.notes[found.job] = found

    def latest_first(self) -> list[JobNote]:
        """All of them."""
        return sorted(self.notes.values(), key=lambda each: (-each.began_ms, each.job))


def resumable(asked: Mapping[str, Any]) -> bool:
    """Whether the note of a job says all that is needed to resume it.

    Args:
        asked: what the note says that it was asked for.
    """
    return bool(asked) and (not asked.get("edit") or asked.get("edit_kept") is True)


def busy_text(dlq: str, other: JobNote) -> str:
    """Why no job can begin on a dead-letter topic while another one runs there."""
    return (
        f"job {other.job} of {other.by} runs on {dlq}: {other.done:,} of {other.wanted:,} "
        f"done; wait for its end, or end it: ackfloor dlq cancel {dlq} {other.job}"
    )


def resuming(dlq: str, job: str, *, sends: bool) -> str:
    """The command that shows what is left of a job, asks, and goes on with it.

    Args:
        sends: whether the job redrives; else it discards.
    """
    return f"ackfloor dlq {'replay' if sends else 'discard'} {dlq} --resume {job}"


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def written_at(at_ms: int) -> str:
    """A time in wall-clock ms as it stands in these records, to the ms in any year."""
    at = datetime.fromtimestamp(at_ms // 1000, UTC) + timedelta(milliseconds=at_ms % 1000)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def read_at(text: object) -> int:
    """A time as `written_at` writes it, in wall-clock ms; raises ValueError or TypeError."""
    at = datetime.fromisoformat(_text(text))
    if at.tzinfo is None:
        raise ValueError(text)
    return round(at.timestamp() * 1000)
