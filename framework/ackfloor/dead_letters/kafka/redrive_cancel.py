"""Cancels a redrive job by taking its transactional id, which fences it."""

from __future__ import annotations

from dataclasses import replace

from ackfloor.dead_letters.kafka.disposition_reading import DispositionsLog
from ackfloor.dead_letters.kafka.redrive_notes import now_ms, state_of
from ackfloor.dead_letters.kafka.redrive_topics import RedriveTopics
from ackfloor.dead_letters.kafka.redrive_writer import NewRecord, RedriveWriter, TooLarge, Unwritten
from ackfloor.dead_letters.rules.dispositions import Disposed, Disposition
from ackfloor.dead_letters.rules.redrive_jobs import JobNote, Jobs, JobState
from ackfloor.dead_letters.rules.redrive_rules import Order
from ackfloor.errors import KafkaUnreachable, RedriveRefused
from ackfloor.kafka.client.client_options import KafkaOptions


def cancelled(options: KafkaOptions, dlq: str, job: str, by: str) -> JobNote:
    """End a job of a dead-letter topic; returns its note, which is exact from here on.

    A job that has ended is left as it is.

    Raises:
        RedriveRefused: there is no such job, or this user may not.
        KafkaUnreachable: no broker answers.
        ConfigError: a client property is refused.
    """
    topics = RedriveTopics.find(options, Order(dlq, "", job, by, action=Disposition.DISCARDED))
    if not topics.dispositions_partitions:
        raise _unknown(dlq, job)
    disposed = Disposed(topics.dlq_id)
    log = DispositionsLog(options, topics.dispositions, topics.dispositions_partitions)
    log.read_on(disposed)
    if job not in disposed.jobs.notes:
        raise _unknown(dlq, job)
    if disposed.jobs.notes[job].state is not JobState.RUNNING:
        return disposed.jobs.notes[job]
    _refuse_for_another(dlq, disposed.jobs, job)
    writer = RedriveWriter(options, f"ackfloor-redrive-{dlq}")
    try:
        writer.take()
        # The job is fenced: what it wrote is committed, and it adds nothing.
        log.read_on(disposed)
        note = disposed.jobs.notes[job]
        if note.state is JobState.RUNNING:
            note = replace(note, state=JobState.STOPPED, at_ms=now_ms(), why=f"cancelled by {by}")
            writer.write([NewRecord(topics.dispositions, 0, note.key, note.to_bytes())])
    except (TooLarge, Unwritten) as exc:
        raise KafkaUnreachable(f"{topics.dispositions} can't be written: {exc}") from exc
    finally:
        writer.discard()
    return note


def _refuse_for_another(dlq: str, jobs: Jobs, job: str) -> None:
    """Refuse where the job is silent and another one runs: to end it would end that one.

    Raises:
        RedriveRefused: that is so.
    """
    if state_of(jobs.notes[job]) is JobState.RUNNING:
        return
    for other in jobs.latest_first():
        if other.job != job and state_of(other) is JobState.RUNNING:
            raise RedriveRefused(
                f"{job!r} is silent, and job {other.job} of {other.by} runs on {dlq}: it writes "
                f"nothing any more; name {other.job} to end that one"
            )


def _unknown(dlq: str, job: str) -> RedriveRefused:
    return RedriveRefused(f"{job!r}: no such job; `ackfloor dlq jobs {dlq}` lists them")
