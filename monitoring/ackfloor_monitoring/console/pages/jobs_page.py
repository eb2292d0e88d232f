"""Jobs: what redrives or disposes of dead letters, wherever it runs, the latest first."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from ackfloor.dead_letters.kafka.redrive_notes import state_of
from ackfloor.dead_letters.rules.redrive_jobs import resumable
from ackfloor.redrive import Disposition, JobNote, JobState
from ackfloor_monitoring.console.access.gate import Refused
from ackfloor_monitoring.console.pages.console_page import Asked, AskedPage
from ackfloor_monitoring.console.reads.cluster_facts import Cluster

#: Rows of a page: more than a person reads.
MOST: Final = 200


def facts(cluster: Cluster, asked: Asked) -> Mapping[str, Any]:  # noqa: ARG001 -- pages are alike
    """What the template shows; raises Refused."""
    if cluster.index is None:
        raise Refused(404, "this console keeps no index of dead letters")
    follower = cluster.index.follower
    found = [(topic, note) for topic, notes in list(follower.jobs.items()) for note in notes]
    found.sort(key=lambda each: -each[1].began_ms)
    begun = cluster.begun_jobs.unread(dict(follower.jobs))
    busy = {topic for topic, note in found if state_of(note) is JobState.RUNNING}
    busy |= {each.topic for each in begun}
    rows = [_row(cluster, topic, note, busy) for topic, note in found[:MOST]]
    running = bool(begun) or any(row["state"] is JobState.RUNNING for row in rows)
    return {"rows": rows, "begun": begun, "running": running, "error": follower.error}


def _row(cluster: Cluster, topic: str, note: JobNote, busy: Collection[str]) -> Mapping[str, Any]:
    state = state_of(note)
    ended = state in {JobState.SILENT, JobState.STOPPED}
    why_not = _why_not(note) if ended else ""
    resumed = ended and not why_not
    command = "dlq discard" if note.action == Disposition.DISCARDED else "dlq replay"
    goes_on = cluster.commands.asks_kafka(command, topic, f"--resume={note.job}")
    return {
        "topic": topic,
        "note": note,
        "state": state,
        # What has not said that it ended may still write, unless another one does.
        "ends": state is JobState.RUNNING or (state is JobState.SILENT and topic not in busy),
        "resume": goes_on if resumed else "",
        "goes_on": resumed and topic not in busy,
        "has_rate": note.action == Disposition.REPLAYED,
        "why_not": why_not,
    }


def _why_not(note: JobNote) -> str:
    """Why a job that has ended can't be gone on with here; "" where it can."""
    asked = note.asked
    if note.action == Disposition.ARCHIVED:
        return "its file is where it ran: give `ackfloor dlq archive` there again"
    if "where" in asked:
        return f"`ackfloor spark replay` goes on with it: --table TABLE --resume {note.job}"
    if asked.get("edit") and not resumable(asked):
        return "it edited what it sent, and kept none of that: give the command that began it again"
    if not resumable(asked):
        return (
            "its note does not say which dead letters it was about, as an earlier release wrote "
            "it: ask for the same again, what it has done is not done twice"
        )
    return ""


JOBS = AskedPage("jobs", "Jobs", "j", "jobs.html", facts)
