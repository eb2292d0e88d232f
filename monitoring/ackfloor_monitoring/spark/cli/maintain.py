"""`ackfloor spark maintain`: keeps the files of the table of failures few, beside an ingest."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import typer

from ackfloor.cli.shared.parameters import DryRunOption, Output, OutputOption
from ackfloor.core.values.durations import parse_duration
from ackfloor_monitoring.spark.cli.parameters import KeepOption, TableOption
from ackfloor_monitoring.spark.cli.stage_line import stage_line
from ackfloor_monitoring.spark.report.formatting import some
from ackfloor_monitoring.spark.setup.session import require_pyspark, spark_session

if TYPE_CHECKING:
    from ackfloor_monitoring.spark.table.upkeep import Upkeep


def maintain(
    table: TableOption,
    keep: KeepOption = None,
    dry_run: DryRunOption = False,
    output: OutputOption = Output.table,
) -> None:
    """Merge small files, forget old days, and delete files that no version needs.

    An ingest may run meanwhile; it does the same itself when it starts and once a day. No row
    changes, and what is read of an older version stays readable for seven days. Killed at any
    moment, start it again.
    """
    keep_s = parse_duration(keep, field="--keep") if keep else None
    require_pyspark()
    from ackfloor_monitoring.spark.table.upkeep import keep_up, look

    now = datetime.now(UTC)
    oldest = None if keep_s is None else (now - timedelta(seconds=keep_s)).date()
    with (
        stage_line("starting Spark") as show_stage,
        spark_session("ackfloor spark maintain") as spark,
    ):
        show_stage(f"looking through the files of {table}")
        work = look if dry_run else keep_up
        found = work(spark, table, now.date(), oldest)
    if output is Output.json:
        typer.echo(json.dumps(asdict(found) | {"done": not dry_run}))
    else:
        _show(found, dry_run=dry_run)


def _show(found: Upkeep, *, dry_run: bool) -> None:
    would = "would be " if dry_run else ""
    days, merged = some(found.old_days, "day"), some(found.days_to_merge, "day")
    typer.echo(f"{would}forgotten: {days}, {some(found.old_files, 'file')}")
    typer.echo(f"{would}merged: {some(found.small_files, 'small file')} of {merged}")
    typer.echo(f"{would}deleted: {some(found.dead_files, 'file')} that no version of a week needs")
    typer.echo(f"the table has {some(found.files, 'file')}, {found.bytes / 1e6:,.1f} MB")
