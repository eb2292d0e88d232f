"""GroupWatch: reads the progress of groups from Kafka for `lag` and `acks`, with --watch again."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from ackfloor.cli.shared.parameters import Brokers
from ackfloor.cli.shared.rows import Row, RowsOutput, print_rows
from ackfloor.core.values.suggestions import there_are
from ackfloor.errors import AckfloorError, KafkaUnreachable
from ackfloor.runtime.supervision.exit_codes import Exit

if TYPE_CHECKING:
    from rich.table import Table

    from ackfloor.core.acks.progress import Progress
    from ackfloor.kafka.client.client_options import KafkaOptions
    from ackfloor.kafka.inspection.group_progress import ProgressReader

#: Seconds from one look to the next under `--watch`.
WATCH_EVERY_S = 2.0

WatchOption = Annotated[
    bool,
    typer.Option("--watch", help="Repeat every two seconds, until Ctrl-C; with -o table or jsonl."),
]
GroupOption = Annotated[
    str | None,
    typer.Option(
        envvar="ACKFLOOR_GROUP",
        help="This consumer group, which may be another tool's.",
        show_default="all with retry or dead-letter topics",
    ),
]


PlaceArgument = Annotated[
    str | None,
    typer.Argument(metavar="[TOPIC[/PARTITION]]", help="Only this topic, or this partition of it."),
]
#: A topic, and a partition of it or None.
Place = tuple[str, int | None]
_PLACE = re.compile(r"(?P<topic>[^/]+)(/(?P<partition>[0-9]{1,9}))?")


class NotThere(AckfloorError):
    """A group, topic or partition that was asked for does not exist."""

    exit_code = Exit.USAGE


def place_of(text: str | None) -> Place | None:
    """The topic, and the partition if one is named.

    Raises:
        typer.BadParameter: it is neither.
    """
    if text is None:
        return None
    match = _PLACE.fullmatch(text)
    if match is None:
        raise typer.BadParameter(f"{text!r}: give TOPIC or TOPIC/PARTITION, such as orders/3")
    return match["topic"], None if match["partition"] is None else int(match["partition"])


def at_place(seen: Sequence[Progress], named: Place | None) -> Sequence[Progress]:
    """The partitions that were asked for, all for None.

    Raises:
        NotThere: the group reads no such topic or partition.
    """
    if named is None:
        return seen
    topic, partition = named
    found = [each for each in seen if each.topic == topic]
    if not found:
        topics = {each.topic for each in seen}
        raise NotThere(f"no group that was asked for has {topic!r}: {there_are(topic, topics)}")
    if partition not in {None, *(each.partition for each in found)}:
        count = len({each.partition for each in found})
        raise NotThere(f"{topic} has no partition {partition}: it has {count}, from 0")
    return [each for each in found if partition in {None, each.partition}]


class GroupWatch:
    """Reads the progress of groups, and prints each warning about one once."""

    def __init__(self, reader: ProgressReader, options: KafkaOptions, group: str | None) -> None:
        self._reader = reader
        self._options = options
        self._group = group
        self._printed: set[str] = set()

    def look(self, named: Place | None = None) -> Sequence[Progress]:
        """The progress of the group, or of all groups with retry or dead-letter topics.

        Args:
            named: only of this topic or partition; nothing is said about groups without it.

        Raises:
            AckfloorError: nothing is known of the group, or no group has what is named.
        """
        if self._group is not None:
            return at_place(self._look(self._group, named), named)
        found: list[Progress] = []
        for group in self._reader.groups():
            try:
                found += self._look(group, named)
            except KafkaUnreachable:
                raise
            except AckfloorError as exc:
                # Go on with the other groups.
                self._say_once(str(exc))
        return at_place(found, named)

    def written_ms(self, found: Iterable[Progress]) -> dict[tuple[str, str, int], int]:
        """When the oldest open record of each was written, by group, topic and partition."""
        from ackfloor.kafka.topics.record_times import written_ms

        wanted: dict[str, dict[tuple[str, int], int]] = {}
        for each in found:
            if each.oldest is not None:
                wanted.setdefault(each.group, {})[each.topic, each.partition] = each.oldest
        return {
            (group, *place): at_ms
            for group, positions in wanted.items()
            for place, at_ms in written_ms(self._options, group, positions).items()
        }

    def _look(self, group: str, named: Place | None) -> list[Progress]:
        members = self._reader.members(group)
        found = self._reader.of(group, members.owners)
        if members.number:
            return found
        if not found:
            raise NotThere(
                f"nothing is known of group {group!r}: no members, no commits, no retry or "
                "dead-letter topics; is it spelt so, and is this its cluster? Of groups with such "
                f"topics {there_are(group, self._reader.groups())}"
            )
        concerned = named is None or any(each.topic == named[0] for each in found)
        if members.known and concerned:
            self._say_once(f"group {group} has no members: no worker is running")
        return found

    def _say_once(self, text: str) -> None:
        if text not in self._printed:
            self._printed.add(text)
            typer.secho(text, fg="yellow", err=True)


@contextmanager
def open_group_watch(group: str | None, brokers: Brokers) -> Iterator[GroupWatch]:
    """A GroupWatch on the cluster that the settings name."""
    from ackfloor.kafka.inspection.group_progress import ProgressReader

    options = brokers.options()
    with closing(ProgressReader(options)) as reader:
        reader.reach()
        yield GroupWatch(reader, options, group)


def show(
    look: Callable[[], Sequence[Row]],
    columns: Sequence[str],
    output: RowsOutput,
    spare: Sequence[str],
    *,
    watch: bool,
) -> None:
    """Print rows once, or again and again until Ctrl-C.

    Args:
        spare: the columns that a table in a narrow terminal drops, in this order.
    """
    if watch and output not in {RowsOutput.table, RowsOutput.jsonl}:
        typer.secho(f"--watch goes on for ever: -o table or jsonl, not {output.value}", err=True)
        raise typer.Exit(Exit.USAGE)

    from rich.live import Live

    from ackfloor.cli.shared.tables import console, fitted

    def draw(rows: Sequence[Row]) -> None:
        shown = _without_empty_columns(rows) if output is RowsOutput.table else rows
        print_rows(shown, output, columns, spare)

    def table(rows: Sequence[Row]) -> Table:
        return fitted(_without_empty_columns(rows), target.width, spare)[0]

    rows, target = look(), console()
    if not watch:
        draw(rows)
        return
    in_place = output is RowsOutput.table and target.is_terminal
    try:
        # In place, unless lines would be broken; rows below the screen's end are printed, too.
        if in_place and (table(rows).width or 0) <= target.width:
            seen = table(rows)
            with Live(
                seen, console=target, auto_refresh=False, vertical_overflow="visible"
            ) as live:
                _again(look, lambda rows: live.update(table(rows), refresh=True))
        else:
            draw(rows)
            _again(look, draw)
    except KeyboardInterrupt:
        return


def _without_empty_columns(rows: Sequence[Row]) -> list[Row]:
    """Rows without the columns that are empty in all of them."""
    names = [
        name
        for name in (rows[0] if rows else ())
        if any(row[name] not in {None, ""} for row in rows)
    ]
    return [{name: row[name] for name in names} for row in rows]


def _again(look: Callable[[], Sequence[Row]], draw: Callable[[Sequence[Row]], None]) -> None:
    """Draw again every few seconds; print an error and go on."""
    while True:
        time.sleep(WATCH_EVERY_S)
        try:
            rows = look()
        except AckfloorError as exc:
            typer.secho(f"error: {exc}", fg="red", err=True)
        else:
            draw(rows)
