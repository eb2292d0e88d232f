"""`ackfloor config set`: change a setting of a run without a restart, until the run ends."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from ackfloor.cli.shared.noting import Noting, ReasonOption
from ackfloor.cli.shared.parameters import Output, OutputOption, RunConfigOption, SettingsSource
from ackfloor.cli.shared.run_address import (
    ListenOption,
    TokenFileOption,
    credentials,
    exit_unless_all_applied,
    trust_of,
)
from ackfloor.operations import Runs, SettingChange

#: How many running deliveries the table names.
MOST_SHOWN = 20


def set_(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="The setting, such as handlers.bill.consume_timeout."),
    ],
    value: Annotated[
        str, typer.Argument(metavar="VALUE", help="The new value, as in ackfloor.toml.")
    ],
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Change nothing; show which records in flight it would park."
        ),
    ] = False,
    listen: ListenOption = None,
    token_file: TokenFileOption = None,
    config_file: RunConfigOption = None,
    output: OutputOption = Output.table,
    reason: ReasonOption = None,
) -> None:
    """Change a setting of a run while it runs; it lasts until the run ends.

    It overrides flags, environment and file, whatever section they have it in, and applies to
    records in flight at once. `--group` names the app where the file has several: the run must be
    of that group. The run writes its token to a file that only its user can read, and logs where.
    """
    run, token = credentials(listen, token_file, config_file)
    change = SettingChange(name, value)
    runs = Runs({run: token}, trust=trust_of(config_file, run))
    if dry_run:
        answer = change.judge(runs).answers[run]
    else:
        answer = _changed(run, runs, change, reason, config_file)
    if output is Output.json:
        typer.echo(json.dumps(answer, indent=2))
    else:
        _show(answer)
    exit_unless_all_applied(answer["workers"])


def _changed(
    run: str, runs: Runs, change: SettingChange, reason: str | None, source: SettingsSource | None
) -> Any:
    """Change it, and note it: the values as the run says they were and are."""
    given: dict[str, Any] = {"runs": [run]}
    with Noting(source, change.name, reason, given).of([change.target]) as ending:
        outcome = change.act(runs, ending)
        given |= outcome.noted()
    return outcome.answers[run]


def _show(answer: Any) -> None:
    would = "would be " if answer["dry_run"] else ""
    if not answer["changed"]:
        typer.echo("nothing changes: the setting already has this value")
    for each in answer["changed"]:
        typer.echo(f"{each['name']}  {each['before'] or 'unset'} -> {each['after'] or 'unset'}")
    applied = ", ".join(map(str, answer["workers"]["applied"])) or "none"
    # An older run does not tell its group.
    whose = f" of group {answer['group']}" if answer.get("group") else ""
    typer.echo(f"{would}applied by worker {applied}{whose}")
    if answer["ends"]:
        records, were = ("record", "was") if answer["ends"] == 1 else ("records", "were")
        typer.echo(f"{answer['ends']} {records} in flight {would or were + ' '}parked at once")
    if not answer["dry_run"]:
        return
    for each in answer["overdue"][:MOST_SHOWN]:
        place = f"{each['topic']}/{each['partition']}/{each['offset']}"
        running = f"running for {each['running_s']:.1f} s"
        typer.echo(f"  {place}  attempt {each['attempt']}  {each['handler']}  {running}")
    if answer["ends"] > MOST_SHOWN:
        typer.echo(f"  and {answer['ends'] - MOST_SHOWN} more")
