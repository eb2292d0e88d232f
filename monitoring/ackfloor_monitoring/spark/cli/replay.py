"""`ackfloor spark replay`: dead letters back to work, chosen by SQL over the table of failures."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from ackfloor import SettingError
from ackfloor.redrive import (
    Left,
    Order,
    Tally,
    Wanted,
    job_name,
    kafka_options,
    operator,
    parse_rate,
)
from ackfloor_monitoring.spark.cli.parameters import (
    BootstrapServersOption,
    ConfigOption,
    Output,
    OutputOption,
    TableOption,
    settings_flags,
)
from ackfloor_monitoring.spark.cli.redrive_shown import line_of, progress_bar, report_of, text_of

if TYPE_CHECKING:
    from ackfloor.redrive import KafkaOptions, Preview, RedriveJob
    from ackfloor_monitoring.spark.replay import Chosen

PARTIAL = 5


@dataclass(slots=True)
class Part:
    """What is to be done about one dead-letter topic; `older` rows are of an earlier topic."""

    job: RedriveJob
    wanted: Wanted
    older: int

    def __len__(self) -> int:
        return sum(map(len, self.wanted.values())) + self.older


def replay(
    table: TableOption,
    where: Annotated[
        str,
        typer.Option(
            envvar="ACKFLOOR_SPARK_REPLAY_WHERE",
            help="SQL over the columns of the table; of its rows, the dead letters.",
        ),
    ],
    to: Annotated[
        str,
        typer.Option(
            envvar="ACKFLOOR_SPARK_REPLAY_TO",
            help="`retry`: the first retry topic, so that only this group sees them; `source`: the "
            "topic they came from; or a topic.",
        ),
    ] = "retry",
    rate: Annotated[
        str | None,
        typer.Option(
            envvar="ACKFLOOR_SPARK_REPLAY_RATE", help='At most so many: "50/s" or "3000/m".'
        ),
    ] = None,
    most: Annotated[
        int | None,
        typer.Option(
            "--max", min=1, envvar="ACKFLOOR_SPARK_REPLAY_MAX", help="At most so many in all."
        ),
    ] = None,
    max_replays: Annotated[
        int,
        typer.Option(
            min=1,
            envvar="ACKFLOOR_SPARK_REPLAY_MAX_REPLAYS",
            help="What was replayed so often stays where it is.",
        ),
    ] = 5,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            envvar="ACKFLOOR_SPARK_REPLAY_DRY_RUN",
            help="Only show what would be sent.",
        ),
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", envvar="ACKFLOOR_SPARK_REPLAY_YES", help="Do not ask.")
    ] = False,
    bootstrap_servers: BootstrapServersOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.table,
) -> None:
    """Put dead letters back to work, with their budget whole. Nothing is sent without --yes.

    Each is sent once in effect: killed or asked for again, the command goes on where it was. What
    was replayed, discarded or archived before is left out. Exits with 5 where some were not sent.
    """
    order = Order("", to, job_name(), operator(), _rate(rate), most, max_replays)
    options = kafka_options(flags=settings_flags(bootstrap_servers), config=config)
    chosen = _choose(table, where)
    if not chosen:
        typer.secho(f"no dead letter meets --where {where!r}", err=True)
        return
    parts = [_part(options, order, each) for each in chosen]
    if dry_run or not yes:
        shown = _preview(parts, output)
        if dry_run:
            return
        if not sys.stdin.isatty():
            typer.secho(f"{shown:,} dead letters would be sent: confirm with --yes", err=True)
            raise typer.Exit(2)
        typer.confirm(f"Send {shown:,} dead letters?", abort=True, err=True)
    tallies = _run(parts, output)
    if not all(tally.complete for tally in tallies):
        raise typer.Exit(PARTIAL if any(tally.sent for tally in tallies) else 1)


def _rate(text: str | None) -> float | None:
    try:
        return None if text is None else parse_rate(text)
    except SettingError as exc:
        raise typer.BadParameter(str(exc), param_hint="--rate") from None


def _choose(table: str, where: str) -> list[Chosen]:
    from ackfloor_monitoring.spark import io, store
    from ackfloor_monitoring.spark.replay import choose
    from ackfloor_monitoring.spark.session import spark_session

    with (
        spark_session("ackfloor spark replay") as spark,
        io.spark_failures_told(f"the table {table}"),
    ):
        return choose(store.read_failures(spark, table), where)


def _part(options: KafkaOptions, order: Order, chosen: Chosen) -> Part:
    from ackfloor.redrive import RedriveJob

    job = RedriveJob(options, replace(order, dlq=chosen.topic))
    wanted = chosen.of(job.topics.dlq_id)
    return Part(job, wanted, len(chosen) - sum(map(len, wanted.values())))


def _preview(parts: list[Part], output: Output) -> int:
    """Show what would be sent; how much that is."""
    previews: list[tuple[str, Preview]] = []
    for part in _within_max(parts, lambda: sum(preview.tally.sent for _, preview in previews)):
        preview = part.job.preview(part.wanted)
        preview.tally = _with_older(preview.tally, part)
        previews.append((part.job.order.dlq, preview))
    if output is Output.json:
        typer.echo(json.dumps([report_of(*each) for each in previews], indent=2))
    else:
        for each in previews:
            typer.echo(text_of(*each))
    return sum(preview.tally.sent for _, preview in previews)


def _run(parts: list[Part], output: Output) -> list[Tally]:
    tallies: list[Tally] = []
    done = []
    with _interrupts() as stopping, progress_bar(sum(map(len, parts))) as advance:
        before = 0
        for part in _within_max(parts, lambda: sum(tally.sent for tally in tallies)):
            tally = part.job.run(
                part.wanted,
                progress=lambda tally, before=before: advance(before + tally.seen),  # type: ignore[misc]
                stopping=lambda: bool(stopping),
            )
            tallies.append(_with_older(tally, part))
            before += len(part)
            advance(before)
            done.append((part.job.order.dlq, part.job.topics.target.topic, tallies[-1]))
    if output is Output.json:
        facts = [
            {"dlq": dlq, "target": target, "sent": tally.sent, "left": dict(tally.left),
             "stopped": tally.stopped}
            for dlq, target, tally in done
        ]  # fmt: skip
        typer.echo(json.dumps(facts, indent=2))
    else:
        for dlq, target, tally in done:
            typer.echo(line_of(dlq, target, tally))
    return tallies


def _within_max(parts: Iterable[Part], sent: Callable[[], int]) -> Iterator[Part]:
    """The parts, each with what the ones before have left of --max."""
    for part in parts:
        order = part.job.order
        if order.limit is not None:
            if (left := order.limit - sent()) < 1:
                return
            part.job.order = replace(order, limit=left)
        yield part


def _with_older(tally: Tally, part: Part) -> Tally:
    return tally.leave(Left.GONE, part.older) if part.older else tally


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """The first SIGINT or SIGTERM ends the job after its transaction; a second one at once."""
    seen: list[int] = []

    def note(number: int, _frame: object) -> None:
        seen.append(number)
        signal.signal(number, signal.default_int_handler)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield seen
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
