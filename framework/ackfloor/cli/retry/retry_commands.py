"""`ackfloor retry`: shows the records that wait in retry topics.

The commands here only read; `promote` and `bury` are in `retry_promote`. Waiting records are found
from the topics and the group's commits, so no worker is needed. Redacted fields (`[redaction]`) are
not shown.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ackfloor.cli.lanes.lane_list import blocked_of, lane_remarks, not_named
from ackfloor.cli.retry.retry_promote import bury, is_retry_topic, promote
from ackfloor.cli.shared.command_options import Commands
from ackfloor.cli.shared.parameters import (
    OF_SETTINGS,
    Brokers,
    BrokersOption,
    LimitOption,
    OfGroupOption,
    RunBrokersOption,
)
from ackfloor.cli.shared.read_count import counted
from ackfloor.cli.shared.rows import RowsOption, RowsOutput, json_text, print_rows
from ackfloor.cli.shared.run_address import ListenOption, state_if_any
from ackfloor.cli.shared.times import moment
from ackfloor.core.acks.tier_counts import TierCount
from ackfloor.core.parking.topic_names import parse_topic
from ackfloor.core.values.durations import format_duration
from ackfloor.dead_letters.commands.dead_letter_views import (
    OPTIONAL_COLUMNS,
    OPTIONAL_GROUP_COLUMNS,
    dead_letter_text,
    fields_of,
    group_rows,
    record_row,
    releases_shown,
)
from ackfloor.dead_letters.commands.filter_misses import Misses
from ackfloor.dead_letters.commands.filter_options import FilterOptions
from ackfloor.dead_letters.commands.selection import place_of
from ackfloor.dead_letters.rules.cause_groups import CauseGroups
from ackfloor.dead_letters.rules.waiting import count_waiting, due_at_ms
from ackfloor.operations.run_client import address_of, workers_of

if TYPE_CHECKING:
    from ackfloor.core.records.redaction import Redaction
    from ackfloor.dead_letters.kafka.retry_topic import RetryTopics
    from ackfloor.dead_letters.rules.redrive_rules import DeadLetter

_TopicsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TOPIC]...", help="Retry topics.", show_default="all"),
]

retry_app = Commands(name="retry", help="Records in retry topics.", no_args_is_help=True)


@retry_app.command()
def ls(
    topics: _TopicsArgument = None,
    group: OfGroupOption = None,
    listen: ListenOption = None,
    brokers: RunBrokersOption = OF_SETTINGS,
    output: RowsOption = RowsOutput.table,
) -> None:
    """List retry topics: how many records wait, how many are due, the oldest and the next of them.

    As of the group's last commits: a worker commits about once a second. A run that answers at its
    address adds the records that wait in their source topic and block a key or partition: their
    "delay" is "in place". "behind" are records that did not fail: they wait behind
    one of their key or partition that did, and are handled after it. Why records wait,
    `retry groups` says by cause, and whose they are, `retry groups --by key`.
    """
    if listen is not None:
        address_of(listen)
    retry_topics, _ = _open(brokers)
    rows = [
        _tier_row(topic, count_waiting(counted(retry_topics.open(topic), topic), _now_ms()))
        for topic in topics or retry_topics.names(group)
    ]
    state = {} if topics else state_if_any(listen, brokers.source)
    rows += blocked_rows(state, group)
    print_rows(rows, output, spare=("last_due", "group", "delay", "oldest_due", "next_due"))
    for text in (*not_named(state, ["blocked"]), *lane_remarks(state, ["quarantined"])):
        typer.secho(text, fg="yellow", err=True)


@retry_app.command()
def show(
    place: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC[/PARTITION/OFFSET]",
            help="A retry topic, as `retry ls` prints it, or one record of it in full; a record of "
            "a source topic is looked for in its retry topics.",
        ),
    ],
    wanted: FilterOptions,
    group: OfGroupOption = None,
    limit: LimitOption = 100,
    brokers: BrokersOption = OF_SETTINGS,
    output: RowsOption = RowsOutput.table,
) -> None:
    """Show the records that wait in a retry topic, or one of them in full.

    `lanes ls` and `status` name records by their place in the source topic: such a place can be
    given as well. --group says whose retry topics are meant where several groups have the record.
    """
    from ackfloor.dead_letters.kafka.dead_letter_topic import StoredDeadLetter

    retry_topics, rules = _open(brokers)
    if "/" in place:
        topic, partition, offset = place_of(place)
        if parse_topic(topic) is None:
            record = retry_topics.waiting(f"{topic}/{partition}/{offset}", group)
        else:
            record = retry_topics.record(topic, partition, offset)
        found = StoredDeadLetter(record, disposed=False)
        if output is RowsOutput.table:
            typer.echo(dead_letter_text(found, rules))
        else:
            typer.echo(json_text(fields_of(found, rules), indent=2))
        return
    records: list[DeadLetter] = []
    misses, more = Misses(wanted), False
    for record in counted(retry_topics.open(place), place):
        if not misses.matches(record):
            continue
        if len(records) == limit:
            more = True
            break
        records.append(record)
    print_rows(_record_rows(records, rules), output, spare=OPTIONAL_COLUMNS)
    if more:
        typer.secho(f"there are more: raise --limit {limit}, or narrow it down", err=True)
    misses.tell()


class By(StrEnum):
    """What `retry groups` groups by, apart from handler and cause."""

    cause = "cause"
    key = "key"


@retry_app.command()
def groups(
    wanted: FilterOptions,
    topics: _TopicsArgument = None,
    by: Annotated[
        By,
        typer.Option(
            help="cause: by handler and cause; key: each key of these apart, the one with the most "
            "records first: whose records wait."
        ),
    ] = By.cause,
    group: OfGroupOption = None,
    brokers: BrokersOption = OF_SETTINGS,
    output: RowsOption = RowsOutput.table,
) -> None:
    """Records in retry topics by handler and cause: how many, since when, the latest of each.

    As `dlq groups` for dead letters. "first" is when one of them failed for the first time, "last"
    when one of them last failed. The cause "behind" are records that did not fail: they wait
    behind one of their key or partition that did.
    """
    retry_topics, rules = _open(brokers)
    by_key = by is By.key
    found, misses = CauseGroups(by_key=by_key), Misses(wanted)
    for topic in topics or retry_topics.names(group):
        for record in counted(retry_topics.open(topic), topic):
            if misses.matches(record):
                found.add(record)
    rows = group_rows(found.largest_first(), rules, by_key=by_key)
    if output is RowsOutput.table:
        rows = releases_shown(rows)
    print_rows(rows, output, spare=OPTIONAL_GROUP_COLUMNS)
    misses.tell()


retry_app.command()(promote)
retry_app.command()(bury)


def _open(brokers: Brokers) -> tuple[RetryTopics, Redaction]:
    from ackfloor.dead_letters.kafka.retry_topic import RetryTopics

    rules = brokers.settings().redaction.rules()
    return RetryTopics(brokers.options()), rules


def _tier_row(topic: str, count: TierCount) -> dict[str, Any]:
    tier = parse_topic(topic)
    assert tier is not None
    times = (count.oldest_due_ms, count.next_due_ms, count.last_due_ms)
    oldest, next_, last = (None if each is None else moment(each) for each in times)
    return {
        "topic": topic,
        "group": tier.group,
        "delay": format_duration(tier.delay_s or 0.0),
        "waiting": count.waiting,
        "behind": count.behind,
        "due": count.due,
        "oldest_due": oldest,
        "next_due": next_,
        "last_due": last,
    }


def blocked_rows(state: Mapping[str, Any], group: str | None) -> list[dict[str, Any]]:
    """A row for each source topic of a run that has blocked lanes, as far as the run names them."""
    if group not in {None, state.get("group")}:
        return []
    by_topic: dict[str, list[Mapping[str, Any]]] = {}
    for _, worker in workers_of(state):
        for _, blocked in blocked_of(worker):
            for lane in blocked["oldest"]:
                by_topic.setdefault(lane["topic"], []).append(lane)
    return [
        _blocked_row(topic, state, lanes)
        for topic, lanes in sorted(by_topic.items())
        if not is_retry_topic(topic)
    ]


def _blocked_row(
    topic: str, state: Mapping[str, Any], lanes: list[Mapping[str, Any]]
) -> dict[str, Any]:
    due_ms = sorted(lane["next_try_ms"] for lane in lanes if lane["next_try_ms"] is not None)
    late = [each for each in due_ms if each <= state["now_ms"]]
    ahead = due_ms[len(late) :]
    return {
        "topic": topic,
        "group": state["group"],
        "delay": "in place",
        "waiting": len(lanes),
        "behind": sum(lane["behind"] for lane in lanes),
        "due": len(late),
        "oldest_due": moment(late[0]) if late else None,
        "next_due": moment(ahead[0]) if ahead else None,
        "last_due": moment(ahead[-1]) if ahead else None,
    }


def _record_rows(records: list[DeadLetter], rules: Redaction) -> list[dict[str, Any]]:
    rows = [record_row(record, rules) for record in records]
    for row, record in zip(rows, records, strict=True):
        due_ms = due_at_ms(record)
        row["due"] = moment(due_ms) if due_ms else None
    return rows


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
