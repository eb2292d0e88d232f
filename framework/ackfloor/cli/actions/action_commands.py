"""`ackfloor actions ls`: the newest actions of operators: who, when, what, why, with what end."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Final

import typer

from ackfloor.cli.shared.command_options import Commands
from ackfloor.cli.shared.parameters import OF_SETTINGS, BrokersOption, LimitOption, OfGroupOption
from ackfloor.cli.shared.rows import RowsOption, RowsOutput, json_text, print_rows
from ackfloor.cli.shared.times import moment
from ackfloor.dead_letters.commands.filter_options import time_ms
from ackfloor.operations import ActionFilter, ActionLog, ActionNote

actions_app = Commands(
    name="actions",
    help="What operators have done: who, when, what and why.",
    no_args_is_help=True,
)

COLUMNS: Final = ("at", "by", "action", "targets", "state", "counts", "reason", "job", "id")
#: Dropped where a terminal is too narrow, in this order.
_SPARE: Final = ("id", "job", "group", "counts", "reason")


@actions_app.command()
def ls(
    by: Annotated[
        str | None, typer.Option(help="Only what this user did: ann, or ann@host.")
    ] = None,
    action: Annotated[
        str | None,
        typer.Option(help='Only this action, or all that begin so: "dlq replay", "lanes".'),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            help="Only what was done since: a date or a time (UTC where it names no zone), or how "
            "long ago (24h, 7d)."
        ),
    ] = None,
    group: OfGroupOption = None,
    limit: LimitOption = 50,
    brokers: BrokersOption = OF_SETTINGS,
    output: RowsOption = RowsOutput.table,
) -> None:
    """List what operators did, the newest first: each action once, a job as far as it has come.

    Every command that changes something in a run or of dead letters has a note here; so has what is
    done with other programs that stand on `ackfloor.operations`. `begun`: a job that runs, or that
    was killed. `job` is its name in `dlq jobs`; `id` is that of the note, another one each time
    that somebody acts on a job. JSON has everything: from which host and program, what was asked
    for, the error.
    """
    wanted = ActionFilter(by, action, group, time_ms("--since", since))
    notes = ActionLog(brokers.options()).newest(wanted, limit)
    if output is RowsOutput.table:
        rows = [_row(note) for note in notes]
        if not any(row["job"] for row in rows):
            for row in rows:
                del row["job"]
        print_rows(rows, output, spare=_SPARE)
        return
    print_rows([_facts(note, output) for note in notes], output, columns=COLUMNS)


def _row(note: ActionNote) -> dict[str, Any]:
    return {
        "at": moment(note.at_ms),
        "by": note.by,
        "action": note.action,
        "group": note.group,
        "targets": ", ".join(note.targets),
        "state": note.state.value,
        "counts": _counts(note),
        "reason": note.reason,
        "job": _job(note),
        "id": note.id,
    }


def _job(note: ActionNote) -> str:
    """The job that it is or that it ended, as `dlq jobs` names it; "" for none."""
    job = note.arguments.get("job")
    return job if isinstance(job, str) else ""


def _counts(note: ActionNote) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in note.counts.items())


def _facts(note: ActionNote, output: RowsOutput) -> dict[str, Any]:
    facts = {
        "at": moment(note.at_ms),
        **asdict(note),
        "targets": list(note.targets),
        "job": _job(note),
    }
    if output is RowsOutput.csv:
        facts |= {"arguments": json_text(note.arguments), "counts": _counts(note)}
    return facts
