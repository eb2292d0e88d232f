"""`ackfloor topics plan|apply`: the retry and dead-letter topics an app needs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from ackfloor.cli.shared.command_options import Commands
from ackfloor.cli.shared.confirmation import confirm
from ackfloor.cli.shared.parameters import (
    OF_SETTINGS,
    AppArgument,
    AppBrokersOption,
    Brokers,
    DryRunOption,
    FactoryOption,
    Output,
    OutputOption,
    YesOption,
)
from ackfloor.core.values.durations import format_duration, parse_duration
from ackfloor.loading import load_app
from ackfloor.runtime.supervision.exit_codes import Exit

if TYPE_CHECKING:
    from ackfloor.kafka.topics.cluster_topics import Cluster
    from ackfloor.kafka.topics.topic_requirements import TopicPlan

topics_app = Commands(name="topics", help="Retry and dead-letter topics.", no_args_is_help=True)


_Actions = Annotated[
    bool,
    typer.Option(
        "--actions",
        help="Also the topic in which the actions of operators are noted; without it, the first "
        "action creates it.",
    ),
]
_Timeout = Annotated[str, typer.Option(help="How long to wait for a broker.")]


@topics_app.command()
def plan(
    app: AppArgument,
    detailed_exitcode: Annotated[
        bool,
        typer.Option("--detailed-exitcode", help="Exit with 2 when something is to be created."),
    ] = False,
    actions: _Actions = False,
    factory: FactoryOption = False,
    connect_timeout: _Timeout = "30s",
    brokers: AppBrokersOption = OF_SETTINGS,
    output: OutputOption = Output.table,
) -> None:
    """Show which topics exist, which would be created, and what differs. Changes nothing.

    For a handler with a pattern: the topics that match now.
    """
    from ackfloor.kafka.topics.topic_requirements import Action

    _, plans = _plan(app, factory, connect_timeout, brokers, actions=actions)
    _show(plans, output)
    if detailed_exitcode and any(p.action is Action.CREATE for p in plans):
        raise typer.Exit(Exit.USAGE)


@topics_app.command()
def apply(
    app: AppArgument,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    actions: _Actions = False,
    factory: FactoryOption = False,
    connect_timeout: _Timeout = "30s",
    brokers: AppBrokersOption = OF_SETTINGS,
    output: OutputOption = Output.table,
) -> None:
    """Create the missing topics. Existing ones are never changed or deleted."""
    from ackfloor.kafka.topics.topic_requirements import Action

    cluster, plans = _plan(app, factory, connect_timeout, brokers, actions=actions)
    _show(plans, output)
    missing = [p.topic for p in plans if p.action is Action.CREATE]
    if dry_run or not missing:
        return
    if not yes:
        confirm(f"Create {len(missing)} topics?", f"{len(missing)} topics would be created")
    for name in cluster.create(plans):
        typer.echo(f"created {name}", err=True)


def _plan(
    app: str, factory: bool, connect_timeout: str, brokers: Brokers, *, actions: bool
) -> tuple[Cluster, tuple[TopicPlan, ...]]:
    from ackfloor.kafka.topics.cluster_topics import Cluster
    from ackfloor.launch import Launch
    from ackfloor.operations.kafka.action_topic import find_action_topic

    loaded = load_app(app, factory=factory)
    launch = Launch.of(loaded, flags=brokers.flags, config=brokers.config)
    cluster = Cluster(launch.kafka_options())
    cluster.wait(parse_duration(connect_timeout, field="--connect-timeout"))
    plans = launch.matched_on(cluster).plan_topics(cluster)
    if actions:
        replication_factor = launch.settings.app.replication_factor
        plans = (*plans, find_action_topic(launch.kafka_options(), replication_factor))
    return cluster, plans


def _show(plans: tuple[TopicPlan, ...], output: Output) -> None:
    if output is Output.json:
        facts = [
            {
                "topic": p.topic,
                "action": p.action.value,
                "source": p.source,
                "handler": p.handler,
                "partitions": p.partitions,
                "replication_factor": p.replication_factor,
                "config": dict(p.config),
                "notes": list(p.notes),
            }
            for p in plans
        ]
        typer.echo(json.dumps(facts, indent=2))
        return
    from ackfloor.cli.shared.tables import print_table

    rows = [
        {
            "topic": p.topic,
            "action": p.action.value,
            "partitions": p.partitions,
            "replicas": p.replication_factor,
            "retention": _retention(int(p.config.get("retention.ms", "-1"))),
            "notes": "; ".join(p.notes),
        }
        for p in plans
    ]
    print_table(rows, spare=("replicas", "retention", "partitions", "notes"))


def _retention(ms: int) -> str:
    return "unlimited" if ms < 0 else format_duration(ms / 1000)
