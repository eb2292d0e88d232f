"""`ackfloor dlq groups|ls|show`: what lies in dead-letter topics. Nothing is changed.

What was replayed, discarded or archived before is hidden unless `--all` asks for it. What
`[redaction]` takes away is not shown.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn

from ackfloor.cli.dlq_shown import fields_of, group_rows, letter_rows, letter_text
from ackfloor.cli.parameters import ConfigOption, Output, OutputOption, ServersOption
from ackfloor.cli.rows import RowsOption, RowsOutput, print_rows
from ackfloor.core.durations import parse_duration
from ackfloor.core.errors import SettingError
from ackfloor.core.letter_groups import LetterFilter, LetterGroups
from ackfloor.redrive import kafka_options
from ackfloor.runtime.exit_codes import Exit
from ackfloor.settings import Settings

if TYPE_CHECKING:
    from ackfloor.core.redaction import Redaction
    from ackfloor.kafka.letter_box import Letter, LetterBoxes

dlq_app = typer.Typer(name="dlq", help="Dead letters, to look at.", no_args_is_help=True)

_PLACE = re.compile(r"(?P<topic>[^/]+)/(?P<partition>[0-9]{1,9})/(?P<offset>[0-9]{1,18})")

_Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The dead-letter topic.")]
_Handler = Annotated[
    str | None, typer.Option(envvar="ACKFLOOR_DLQ_HANDLER", help="Only of this handler.")
]
_Error = Annotated[
    str | None,
    typer.Option(
        envvar="ACKFLOOR_DLQ_ERROR",
        help="Only with this error: its class, with or without its module, or its fingerprint.",
    ),
]
_Reason = Annotated[
    str | None,
    typer.Option(
        envvar="ACKFLOOR_DLQ_REASON", help="Only with this reason, such as exhausted or decode."
    ),
]
_Key = Annotated[str | None, typer.Option(envvar="ACKFLOOR_DLQ_KEY", help="Only with this key.")]
_Since = Annotated[
    str | None,
    typer.Option(
        envvar="ACKFLOOR_DLQ_SINCE",
        help="Only what failed since: a date, a time, or how long ago (24h, 7d).",
    ),
]
_Until = Annotated[
    str | None,
    typer.Option(envvar="ACKFLOOR_DLQ_UNTIL", help="Only what failed before; as --since."),
]
_All = Annotated[
    bool,
    typer.Option(
        "--all",
        envvar="ACKFLOOR_DLQ_ALL",
        help="Also those that were replayed, discarded or archived.",
    ),
]


@dlq_app.command()
def groups(
    topics: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TOPIC]...", help="Dead-letter topics.", show_default="all"),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(envvar="ACKFLOOR_GROUP", help="Those of this consumer group."),
    ] = None,
    since: _Since = None,
    all_: _All = False,
    bootstrap_servers: ServersOption = None,
    config: ConfigOption = None,
    output: RowsOption = RowsOutput.table,
) -> None:
    """Dead letters by handler and cause: how many, since when, and the latest of each."""
    wanted = LetterFilter(since_ms=_time_ms("--since", since))
    boxes, rules = _open(bootstrap_servers, config)
    found, hidden = LetterGroups(), 0
    for topic in topics or boxes.names(group):
        for letter, disposed in _told(boxes.letters(topic), topic):
            if not wanted.matches(letter):
                continue
            if disposed and not all_:
                hidden += 1
            else:
                found.add(letter)
    print_rows(group_rows(found.largest_first(), rules), output)
    _tell_hidden(hidden)


@dlq_app.command()
def ls(
    topic: _Topic,
    handler: _Handler = None,
    error: _Error = None,
    reason: _Reason = None,
    key: _Key = None,
    since: _Since = None,
    until: _Until = None,
    limit: Annotated[
        int, typer.Option(min=1, envvar="ACKFLOOR_DLQ_LIMIT", help="At most so many.")
    ] = 100,
    all_: _All = False,
    bootstrap_servers: ServersOption = None,
    config: ConfigOption = None,
    output: RowsOption = RowsOutput.table,
) -> None:
    """Dead letters one by one, oldest first within each partition."""
    wanted = LetterFilter(
        handler,
        error,
        reason,
        None if key is None else key.encode(),
        _time_ms("--since", since),
        _time_ms("--until", until),
    )
    boxes, rules = _open(bootstrap_servers, config)
    found: list[Letter] = []
    hidden = 0
    for each in _told(boxes.letters(topic), topic):
        if not wanted.matches(each.letter):
            continue
        if each.disposed and not all_:
            hidden += 1
        elif len(found) == limit:
            typer.secho(f"there are more: raise --limit {limit}, or narrow it down", err=True)
            break
        else:
            found.append(each)
    print_rows(letter_rows(found, rules), output)
    _tell_hidden(hidden)


@dlq_app.command()
def show(
    place: Annotated[str, typer.Argument(metavar="TOPIC/PARTITION/OFFSET", help="Which one.")],
    raw: Annotated[
        bool,
        typer.Option(
            "--raw",
            envvar="ACKFLOOR_DLQ_RAW",
            help="Only the payload, byte for byte, to standard output; refused where [redaction] "
            "has rules.",
        ),
    ] = False,
    bootstrap_servers: ServersOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.table,
) -> None:
    """One dead letter: why it died, where it came from, its headers and its payload."""
    match = _PLACE.fullmatch(place)
    if match is None:
        raise typer.BadParameter(f"{place!r}: give TOPIC/PARTITION/OFFSET, as `dlq ls` prints it")
    boxes, rules = _open(bootstrap_servers, config)
    if raw and rules.active:
        typer.secho("--raw would show what [redaction] takes away; leave it out", err=True)
        raise typer.Exit(Exit.USAGE)
    found = boxes.letter(match["topic"], int(match["partition"]), int(match["offset"]))
    if raw:
        sys.stdout.buffer.write(found.letter.value or b"")
    elif output is Output.json:
        typer.echo(json.dumps(fields_of(found, rules), indent=2, ensure_ascii=False))
    else:
        typer.echo(letter_text(found, rules))


def _open(servers: str | None, config: Path | None) -> tuple[LetterBoxes, Redaction]:
    from ackfloor.kafka.letter_box import LetterBoxes

    flags = {"kafka.bootstrap_servers": servers}
    rules = Settings.load(flags=flags, config=config).redaction.rules()
    return LetterBoxes(kafka_options(flags=flags, config=config)), rules


def _told(letters: Iterable[Letter], topic: str) -> Iterator[Letter]:
    """The letters, with how many were read told on a terminal."""
    columns = SpinnerColumn(), TextColumn("{task.description}: {task.completed:,} read")
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as p:
        reading = p.add_task(topic, total=None)
        for number, letter in enumerate(letters):
            if number % 500 == 0:
                p.update(reading, completed=number)
            yield letter


def _tell_hidden(hidden: int) -> None:
    if hidden:
        typer.secho(f"{hidden:,} replayed, discarded or archived: not shown (--all)", err=True)


def _time_ms(option: str, text: str | None) -> int | None:
    """A date or time, in UTC where it names no zone, or how long ago, in wall-clock ms."""
    if text is None:
        return None
    now = datetime.now(UTC)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        try:
            return round((now.timestamp() - parse_duration(text, field=option)) * 1000)
        except SettingError:
            raise typer.BadParameter(
                f"{text!r} is neither a time nor a duration: give a date (2026-10-20), a time "
                "(2026-10-20T14:30), or how long ago (90m, 24h, 7d)",
                param_hint=option,
            ) from None
    time = time.replace(tzinfo=UTC) if time.tzinfo is None else time
    return round(time.timestamp() * 1000)
