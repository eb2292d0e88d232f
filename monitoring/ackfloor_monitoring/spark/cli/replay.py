"""`ackfloor spark replay`: dead letters back to work, chosen by SQL over the table of failures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ackfloor.cli.shared.noting import Noting, ReasonOption
from ackfloor.cli.shared.parameters import (
    OF_SETTINGS,
    BrokersOption,
    MaxOption,
    MaxReplaysOption,
    Output,
    OutputOption,
    RateOption,
    ResumeOption,
    ToOption,
    YesOption,
)
from ackfloor.dead_letters.commands.redriving import (
    Part,
    carry_out,
    rate_of,
)
from ackfloor.errors import RedriveRefused
from ackfloor.redrive import MAX_REPLAYS, TO_RETRY, Order, job_name, notes_of, operator
from ackfloor_monitoring.spark.cli.parameters import TableOption

if TYPE_CHECKING:
    from ackfloor.redrive import JobNote, KafkaOptions
    from ackfloor_monitoring.spark.redrive_selection import Chosen


@dataclass(frozen=True, slots=True)
class Asked:
    """What a replay was asked for: on the command line, or as the notes of its job say.

    Attributes:
        limit: the maximum of all topics.
        done: how many the job had sent before, by dead-letter topic.
    """

    where: str
    to: str = TO_RETRY
    limit: int | None = None
    max_replays: int = MAX_REPLAYS
    done: Mapping[str, int] = field(default_factory=dict)

    def to_dict(self, table: str) -> dict[str, Any]:
        """For the note of the job, as JSON."""
        return {
            "table": table,
            "where": self.where,
            "to": self.to,
            # Not "max": that is what one topic had left of it.
            "max_in_all": self.limit,
            "max_replays": self.max_replays,
        }

    @classmethod
    def of(cls, job: str, notes: Mapping[str, JobNote]) -> Asked:
        """The same again, with what is left of its maximum.

        Raises:
            RedriveRefused: there is no such job, another command began it, or its maximum is sent.
        """
        if not notes:
            raise RedriveRefused(
                f"--resume={job!r}: no such job; `ackfloor dlq jobs TOPIC` lists those of a topic"
            )
        done = {topic: note.done for topic, note in notes.items()}
        try:
            # All topics have the same.
            asked = next(iter(notes.values())).asked
            most = None if asked["max_in_all"] is None else int(asked["max_in_all"])
            found = cls(
                str(asked["where"]), str(asked["to"]), most, int(asked["max_replays"]), done
            )
        except (KeyError, TypeError, ValueError) as exc:
            raise RedriveRefused(
                f"--resume={job!r}: not a job of `spark replay`; give the command that began it "
                "again, and it goes on"
            ) from exc
        if most is not None and sum(done.values()) >= most:
            raise RedriveRefused(f"--resume={job!r}: the job has sent its {most:,}")
        return found

    @property
    def left(self) -> int | None:
        """What is left of the maximum."""
        return None if self.limit is None else self.limit - sum(self.done.values())


def replay(
    table: TableOption,
    where: Annotated[
        str | None,
        typer.Option(help="SQL over the columns of the table; of its rows, the dead letters."),
    ] = None,
    to: ToOption = None,
    rate: RateOption = None,
    most: MaxOption = None,
    max_replays: MaxReplaysOption = None,
    resume: ResumeOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be sent.")
    ] = False,
    yes: YesOption = False,
    because: ReasonOption = None,
    brokers: BrokersOption = OF_SETTINGS,
    output: OutputOption = Output.table,
) -> None:
    """Put dead letters back to work, with their budget whole. Nothing is sent without --yes.

    Each is sent once in effect: killed or asked for again, the command goes on where it was. What
    was replayed, discarded or archived before is left out. Exits with 5 where some were not sent.
    """
    given = (where, to, most, max_replays)
    if resume is not None and any(each is not None for each in given):
        raise typer.BadParameter(
            "the job says what is meant: give only --table, and --rate, --dry-run or --yes",
            param_hint="--resume",
        )
    options = brokers.options()
    if resume is not None:
        asked = Asked.of(resume, notes_of(options, resume))
    elif where is None:
        raise typer.BadParameter("say which dead letters are meant", param_hint="--where")
    else:
        asked = Asked(where, to or TO_RETRY, most, max_replays or MAX_REPLAYS)
    noted = {**asked.to_dict(table), "rate": rate, "resumed": resume}
    noting = Noting(brokers, "spark replay", because, noted)
    order = Order(
        "", asked.to, resume or job_name(), operator(), rate_of(rate), asked.left,
        asked.max_replays, asked=asked.to_dict(table),
    )  # fmt: skip
    chosen = _choose(table, asked.where)
    if not chosen:
        typer.secho(f"no dead letter meets --where {asked.where!r}", err=True)
        return
    parts = [_part(options, order, each, asked.done.get(each.topic, 0)) for each in chosen]
    carry_out(parts, dry_run=dry_run, yes=yes, as_json=output is Output.json, noting=noting)


def _choose(table: str, where: str) -> list[Chosen]:
    from ackfloor_monitoring.spark.redrive_selection import choose
    from ackfloor_monitoring.spark.setup.session import spark_session
    from ackfloor_monitoring.spark.table import kafka_reads as io
    from ackfloor_monitoring.spark.table import store

    with (
        spark_session("ackfloor spark replay") as spark,
        io.readable_spark_errors(f"the table {table}"),
    ):
        return choose(store.read_failures(spark, table), where)


def _part(options: KafkaOptions, order: Order, chosen: Chosen, done: int) -> Part:
    """A topic's part of the job, which has sent so many of it before."""
    from ackfloor.redrive import RedriveJob

    job = RedriveJob(options, replace(order, dlq=chosen.topic, before=done))
    wanted = chosen.of(job.topics.dlq_id)
    return Part(job, wanted, len(chosen) - sum(map(len, wanted.values())))
