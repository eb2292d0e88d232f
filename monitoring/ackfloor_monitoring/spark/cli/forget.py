"""`ackfloor spark forget`: erases records from the table of failures, in old files as well."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ackfloor.cli.shared.confirmation import confirm
from ackfloor.cli.shared.parameters import DryRunOption, Output, OutputOption, YesOption
from ackfloor.redrive import operator
from ackfloor.runtime.supervision.exit_codes import Exit
from ackfloor_monitoring.spark.cli.parameters import TableOption
from ackfloor_monitoring.spark.cli.stage_line import stage_line
from ackfloor_monitoring.spark.report.formatting import some
from ackfloor_monitoring.spark.setup.session import require_pyspark, spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ackfloor_monitoring.spark.forget.erasure import Erasure

_LEFT = (
    "in no version of the table and left: they may be of a batch that is being stored. Run this "
    "again in a while; after a day they are deleted"
)


def forget(
    table: TableOption,
    key: Annotated[
        str | None,
        typer.Option(help="The records of this key: text, or 0x and hexadecimal; not null."),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(help="SQL over the columns of the table: the records that meet it."),
    ] = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    output: OutputOption = Output.table,
) -> None:
    """Erase records from the table and from its old files. Nothing is erased without --yes.

    Of the last record of a partition its place stays, so that ingest does not store it again. The
    records in Kafka stay. An ingest may run meanwhile. Exits with 5 where a file had to be left.
    """
    if (key is None) == (where is None):
        raise typer.BadParameter("give --key or --where, and not both")
    require_pyspark()
    from pyspark.sql import functions as F

    from ackfloor_monitoring.spark.forget.erasure import erase, look, of_key
    from ackfloor_monitoring.spark.table import store

    with (
        stage_line("starting Spark") as show_stage,
        spark_session("ackfloor spark forget") as spark,
    ):
        show_stage(f"looking through {table}")
        failures = store.read_failures(spark, table)
        with _readable(failures, table, where):
            condition = of_key(*_keys(key or "")) if where is None else F.expr(where)
            found = look(spark, table, condition)
        show_stage("")
        nothing = not (found.rows or found.old_files or (yes and found.files_left))
        if dry_run or nothing or not yes:
            _show(found, "would be erased", output)
            if dry_run or nothing:
                return
            what = some(found.rows, "record") if found.rows else some(found.old_files, "old file")
            confirm(f"Erase {what} for ever?", f"{what} would be erased")
        show_stage(f"erasing from {table}")
        done = erase(spark, table, condition, found, operator())
    _show(done, "erased", output)
    if done.files_left:
        raise typer.Exit(Exit.PARTIAL)


@contextmanager
def _readable(failures: DataFrame, table: str, where: str | None) -> Iterator[None]:
    """Around the first evaluation: an error is about the condition, where there is one."""
    from ackfloor_monitoring.spark.redrive_selection import readable_where_errors
    from ackfloor_monitoring.spark.table.store import readable_store_errors

    with readable_store_errors(table):
        if where is None:
            yield
            return
        with readable_where_errors(where, failures):
            yield


def _keys(text: str) -> list[bytes]:
    """What a key may be that is written so; a text can look like hexadecimal."""
    keys = [text.encode()]
    if re.fullmatch(r"0x(?:[0-9a-fA-F]{2})+", text):
        keys.append(bytes.fromhex(text[2:]))
    return keys


def _show(erasure: Erasure, how: str, output: Output) -> None:
    if output is Output.json:
        typer.echo(json.dumps(asdict(erasure) | {"erased": how == "erased"}))
        return
    rows = f"{some(erasure.rows, 'record')} of {some(erasure.messages, 'message')}"
    days = f", of {erasure.first} to {erasure.last}" if erasure.rows else ""
    typer.echo(f"{how}: {rows}, {some(erasure.dead_letters, 'dead letter')}{days}")
    typer.echo(f"{how}: {some(erasure.old_files, 'old file')} that held such records")
    if erasure.files_left:
        typer.echo(f"{some(erasure.files_left, 'file')} {_LEFT}", err=True)
