"""The account as people read it: Spark's causes, the table, what came twice, the verdict."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ackfloor_handlers.demo.account.facts import Facts, SparkReport
from ackfloor_handlers.demo.account.order_history import Story, Why
from ackfloor_handlers.demo.account.reconcile import Account, Row
from ackfloor_handlers.demo.account.timing import Spread

_PIPE_WIDTH = 110
_REPEATS = 3
_PROBLEMS = 12


def console_out() -> Console:
    """Standard output; in a pipe nothing has to be folded."""
    console = Console()
    if console.is_terminal or "COLUMNS" in os.environ:
        return console
    return Console(width=_PIPE_WIDTH)


def timing_rows(precision: Spread, lateness: Spread, facts: Facts) -> list[Row]:
    """The precision of deadlines and retries; measured, and no part of the verdict."""
    clock = "broker's time" if all(record.by_broker for record in facts.parked) else "worker's time"
    return [
        Row("deadline precision p50 / p99", "within 100 ms", str(precision), True, clock),
        Row(
            "retry lateness p50 / p99", "within 250 ms", str(lateness), True, "due to handler start"
        ),
    ]


def print_causes(console: Console, spark: SparkReport) -> None:
    """Why deliveries failed, most frequent first, as Spark's report has it."""
    table = Table(title="Failures by cause (Spark, from the retry and dead-letter topics)")
    for name in ("handler", "error", "the latest one said"):
        table.add_column(name)
    for name in ("failures", "share", "dead"):
        table.add_column(name, justify="right")
    for cause in spark.causes:
        message = cause["sample"]["error_message"] or "-"
        table.add_row(
            *(Text(str(text)) for text in (cause["handler"], cause["error_type"] or "-", message)),
            f"{cause['failures']:,}",
            f"{cause['share']:.0%}",
            f"{cause['dead']:,}",
        )
    console.print(table)


def show_page(console: Console, page: Path) -> None:
    """Say where the report is, and open it where somebody sits at a desktop."""
    console.print(f"The failure report is in {page}", highlight=False, soft_wrap=True)
    desktop = sys.platform in {"darwin", "win32"} or bool(
        {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys()
    )
    if console.is_terminal and desktop:
        webbrowser.open(page.resolve().as_uri())


def print_account(console: Console, account: Account, timing: Sequence[Row]) -> None:
    """The one table."""
    table = Table(title="Reconciliation")
    table.add_column("what", no_wrap=True)
    table.add_column("expected")
    table.add_column("observed")
    table.add_column("", width=2)
    for row in account.rows:
        mark = Text("ok", "green") if row.adds_up else Text("NO", "bold red")
        table.add_row(row.what, row.expected, row.observed, mark)
    table.add_section()
    for row in timing:
        table.add_row(row.what, row.expected, row.observed, "")
    console.print(table)
    _print_repeats(console, account)


def print_verdict(console: Console, account: Account) -> None:
    """One line, and what does not add up."""
    if account.adds_up:
        console.print(Text("It adds up.", "bold green"))
        return
    console.print(Text(f"It does not add up: {_first(account)}", "bold red"))
    for problem in account.problems[1:_PROBLEMS]:
        console.print(f"  {problem}", markup=False, highlight=False, soft_wrap=True)
    more = len(account.problems) - _PROBLEMS
    if more > 0:
        console.print(f"  ... and {more:,} more", highlight=False)


def _first(account: Account) -> str:
    if account.problems:
        return account.problems[0]
    row = next(row for row in account.rows if not row.adds_up)
    return f"{row.what.strip()}: expected {row.expected}, observed {row.observed}"


def _print_repeats(console: Console, account: Account) -> None:
    """What was delivered more than once: how many for which cause, and the first of each."""
    by_cause: dict[str, list[tuple[Story, Why]]] = {}
    for story, why in account.repeats:
        by_cause.setdefault(why.cause, []).append((story, why))
    for cause, repeats in by_cause.items():
        console.print(
            f"Delivered again, because {cause}: {len(repeats):,}, the first of them",
            markup=False,
            highlight=False,
        )
        for story, why in repeats[:_REPEATS]:
            console.print(
                f"  {story}: {why.evidence}", markup=False, highlight=False, soft_wrap=True
            )
