"""Redrive: sends dead letters back to work, as a job that can be killed and resumed.

    from ackfloor.redrive import Order, RedriveJob, kafka_options, select

    order = Order(dlq="orders--billing--dlq", to="retry", job="incident-17", by="ann")
    job = RedriveJob(kafka_options(), order)
    wanted = select([(0, 41_927), (3, 7)])
    print(job.preview(wanted))
    print(job.run(wanted))

The public part of redrive, and the one place that knows both the settings and the Kafka clients.
The Kafka client and the settings are loaded when they are first needed.
"""

from __future__ import annotations

import getpass
import os
import re
import secrets
import time
from array import array
from collections.abc import Iterable, Mapping
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING, Any

from ackfloor.core.values.setting_error import SettingError
from ackfloor.dead_letters.rules.dispositions import Disposition
from ackfloor.dead_letters.rules.redrive_jobs import JobNote, JobState
from ackfloor.dead_letters.rules.redrive_rules import (
    MAX_REPLAYS,
    TO_RETRY,
    DeadLetter,
    Left,
    Order,
    Target,
    Wanted,
)
from ackfloor.dead_letters.rules.redrive_tally import Preview, Tally

if TYPE_CHECKING:
    from ackfloor.dead_letters.kafka.redrive_job import RedriveJob
    from ackfloor.kafka.client.client_options import KafkaOptions

__all__ = [
    "MAX_REPLAYS",
    "TO_RETRY",
    "DeadLetter",
    "Disposition",
    "JobNote",
    "JobState",
    "KafkaOptions",
    "Left",
    "Order",
    "Preview",
    "RedriveJob",
    "Tally",
    "Target",
    "Wanted",
    "job_name",
    "kafka_options",
    "notes_of",
    "operator",
    "parse_rate",
    "select",
]

_LAZY = {
    "KafkaOptions": "ackfloor.kafka.client.client_options",
    "RedriveJob": "ackfloor.dead_letters.kafka.redrive_job",
}
_RATE = re.compile(r"([0-9]{1,7})/(s|m)")


def kafka_options(
    *, flags: Mapping[str, object] | None = None, config: Path | str | None = None
) -> KafkaOptions:
    """The clients' properties from the settings: flags, environment, ackfloor.toml.

    Args:
        flags: settings from the command line, such as `{"kafka.bootstrap_servers": "host:9092"}`.
        config: the settings file; None for ackfloor.toml, if it exists.

    Raises:
        ConfigError: a setting is refused.
    """
    from ackfloor.kafka.client.client_options import KafkaOptions
    from ackfloor.settings import Settings

    return KafkaOptions.of(Settings.load(flags=flags or {}, config=config).kafka)


def select(coordinates: Iterable[tuple[int, int]]) -> Wanted:
    """A selection of dead letters of one topic, from (partition, offset) in any order."""
    found: dict[int, array[int]] = {}
    for partition, offset in coordinates:
        found.setdefault(partition, array("q")).append(offset)
    return {partition: array("q", sorted(set(found[partition]))) for partition in sorted(found)}


def parse_rate(text: str) -> float:
    """Records a second, from "50/s" or "3000/m".

    Raises:
        SettingError: it has neither form, or is zero.
    """
    match = _RATE.fullmatch(text.strip())
    if match is None or int(match[1]) == 0:
        raise SettingError(
            "rate", text, "not a rate", 'write records per second or minute: "50/s", "3000/m"'
        )
    return int(match[1]) / (1 if match[2] == "s" else 60)


def job_name() -> str:
    """A name for a new job: the time and a random suffix."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"


def notes_of(options: KafkaOptions, job: str) -> dict[str, JobNote]:
    """The notes of a job, by dead-letter topic; none where there is no job of that name.

    Reads what was noted of all dead-letter topics.

    Raises:
        RedriveRefused: a topic may not be read.
        KafkaUnreachable: no broker answers.
    """
    from ackfloor.dead_letters.kafka.dead_letter_topic import DeadLetterTopics

    topics = DeadLetterTopics(options)
    return {
        topic: note for topic in topics.names() for note in topics.jobs(topic) if note.job == job
    }


def operator() -> str:
    """The operator as user@host, for the dispositions."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # no entry for this user id, as in some containers
        user = str(os.getuid())
    return f"{user}@{gethostname()}"


if not TYPE_CHECKING:
    # A type checker that saw this would take every misspelt name for one of these.
    def __getattr__(name: str) -> Any:
        module = _LAZY.get(name)
        if module is None:
            raise AttributeError(f"module 'ackfloor.redrive' has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(module), name)
