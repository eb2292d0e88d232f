"""`ackfloor demo`: runs orders through a real Kafka and reconciles every one of them.

Its code is in the package of the reference handlers and loaded by name: the framework imports none
of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ackfloor.core.values.durations import parse_duration
from ackfloor.core.values.setting_error import SettingError
from ackfloor.loading import load_command

DEMO = "ackfloor_handlers.demo.demo_run:run_demo"


def demo(
    orders: Annotated[int, typer.Option(min=100, help="Orders to produce.")] = 20_000,
    rate: Annotated[int, typer.Option(min=0, help="Orders a second; 0 for all at once.")] = 1_000,
    workers: Annotated[int, typer.Option(min=1, max=8, help="Worker processes.")] = 2,
    seed: Annotated[int, typer.Option(help="Which orders misbehave; same seed, same orders.")] = 7,
    kill: Annotated[bool, typer.Option(help="Kill a worker with SIGKILL half-way.")] = True,
    broker_outage: Annotated[
        str | None,
        typer.Option(
            help="Also kill the broker for this long, such as 20s; only one that the demo started."
        ),
    ] = None,
    spark: Annotated[
        bool, typer.Option(help="Let Spark read the retry and dead-letter topics.")
    ] = True,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace",
            help="Delete the demo's topics and their records if they exist already.",
        ),
    ] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the topics on a broker that you named.")
    ] = False,
    log: Annotated[
        Path | None, typer.Option(help="Keep the workers' log in this file.", dir_okay=False)
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(help="Keep Spark's failure report as a page in this file.", dir_okay=False),
    ] = None,
) -> None:
    """Run 20,000 orders through a real Kafka, kill a worker, and reconcile every one of them.

    Takes the broker in ACKFLOOR_BOOTSTRAP_SERVERS, else one in Docker, else starts a local one.
    Exit code 1 when anything does not add up.
    """
    code = load_command(DEMO)(
        orders=orders,
        rate=rate,
        workers=workers,
        seed=seed,
        kill=kill,
        outage_s=_outage_s(broker_outage),
        spark=spark,
        replace=replace,
        keep=keep,
        log_file=log,
        page=report,
    )
    raise typer.Exit(code)


def _outage_s(text: str | None) -> float:
    if text is None:
        return 0.0
    try:
        return parse_duration(text, field="--broker-outage")
    except SettingError as exc:
        raise typer.BadParameter(str(exc), param_hint="--broker-outage") from None
