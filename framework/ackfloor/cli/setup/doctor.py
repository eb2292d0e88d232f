"""`ackfloor doctor`: checks whether a worker can run here, and says what to do if not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from itertools import chain
from typing import TYPE_CHECKING, Annotated

import typer

import ackfloor
from ackfloor.cli.breaker.breaker_checks import of_partitions, of_policies
from ackfloor.cli.setup.run_checks import of_run
from ackfloor.cli.shared.parameters import (
    OF_SETTINGS,
    Brokers,
    FactoryOption,
    Output,
    OutputOption,
    RunBrokersOption,
)
from ackfloor.cli.shared.rows import json_text
from ackfloor.cli.shared.run_address import ListensOption, runs_of
from ackfloor.core.parking.topic_names import dlq_topic, tier_topic
from ackfloor.core.values.doctor_result import CheckResult, passes
from ackfloor.core.values.durations import format_duration, parse_duration
from ackfloor.core.values.printable import plain
from ackfloor.errors import ConfigError
from ackfloor.loading import load_app
from ackfloor.operations.run_client import address_of
from ackfloor.runtime.supervision.exit_codes import Exit

if TYPE_CHECKING:
    from ackfloor.declare.topic_patterns import Matches
    from ackfloor.kafka.inspection.cluster_checks import Connection
    from ackfloor.launch import Launch

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red", "not tried": "yellow"}
_LATER = ("group protocol", "group", "topics", "rights", "clock")


def doctor(
    app: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODULE:APP]",
            envvar="ACKFLOOR_DOCTOR_APP",
            help="Also check what this app needs: its group, its topics, permissions on them.",
        ),
    ] = None,
    factory: FactoryOption = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 for warnings as well.")
    ] = False,
    listen: ListensOption = None,
    connect_timeout: Annotated[str, typer.Option(help="How long to wait for a broker.")] = "10s",
    brokers: RunBrokersOption = OF_SETTINGS,
    output: OutputOption = Output.table,
) -> None:
    """Check whether a worker can run here: brokers, login, permissions, topics, settings.

    Each check that is not ok says what to do. It uses the settings and the user of a worker, and
    changes nothing. It also asks the run of the settings, or those that --listen names: why it is
    not ready, what is to be known of all its workers, and their versions. A run that is named has
    to answer and to be ready; the other one causes warnings only.

    Exit code 1 if a check failed, 4 if no broker answers.
    """
    from ackfloor.kafka.inspection.cluster_checks import connect
    from ackfloor.launch import Launch

    wait_s = parse_duration(connect_timeout, field="--connect-timeout")
    launch = None
    if app is not None:
        of_app = Brokers.of_app(brokers.servers, brokers.config)
        launch = Launch.of(load_app(app, factory=factory), flags=of_app.flags, config=of_app.config)
        brokers.source.refuse_unless_of(launch.settings)
        launch.check_handlers()
    options = brokers.options() if launch is None else launch.kafka_options()
    asked = _of_runs(listen, launch, brokers)
    connection = connect(options, wait_s)
    found = list(_shown(chain(_results(connection, launch), asked), output))
    if connection.admin is None and not connection.refused:
        raise typer.Exit(Exit.KAFKA_UNREACHABLE)
    if not passes(found, strict=strict):
        raise typer.Exit(Exit.FAILURE)


def _of_runs(
    listen: list[str] | None, launch: Launch | None, brokers: Brokers
) -> Iterator[CheckResult]:
    """What the runs say; the addresses are checked before anything is asked.

    Raises:
        NoAddress: one of them is not an address.
    """
    runs = runs_of(listen, brokers.source)
    group = None
    if launch is not None:
        group = launch.settings.group
        runs = runs if listen else [launch.settings.app.address]
    for run in runs:
        address_of(run)
    return chain.from_iterable(
        of_run(run, brokers.source, group, named=bool(listen)) for run in runs
    )


def _results(connection: Connection, launch: Launch | None) -> Iterator[CheckResult]:
    from ackfloor.kafka.inspection.cluster_checks import versions
    from ackfloor.kafka.topics.cluster_topics import Cluster

    python = sys.version.split()[0]
    yield CheckResult("ackfloor", "ok", f"{ackfloor.__version__} on Python {python}")
    yield versions()
    if launch is not None:
        if connection.admin is not None and launch.has_patterns:
            launch = launch.as_matched(Cluster(launch.kafka_options()).names())
        yield from _settings(launch)
        yield from of_policies(launch.handlers)
        yield from _registry(launch)
    yield connection.result
    if connection.admin is None:
        names = _LATER if launch is not None else _LATER[:1]
        yield from (CheckResult(name, "not tried", "no broker to ask") for name in names)
        return
    yield from _of_cluster(connection, launch)


def _settings(launch: Launch) -> Iterator[CheckResult]:
    """Check properties that clients would refuse, and timeouts that don't fit together."""
    from ackfloor.kafka.client.client_options import (
        check_drain,
        consumer_config,
        poll_limit_ms,
        producer_config,
    )

    app, check = launch.settings.app, "settings"
    options = launch.kafka_options()
    try:
        consumer = consumer_config(options, launch.settings.group)
        producer_config(options)
        check_drain(consumer, app.drain_timeout_s)
    except ConfigError as exc:
        yield CheckResult(check, "fail", f"{exc.field}={exc.value!r}: {exc.why}", exc.fix)
        return
    interval_s = poll_limit_ms(consumer) / 1000
    shown = f"max.poll.interval.ms is {format_duration(interval_s)}"
    if app.shutdown_timeout_s >= interval_s:
        text = f"app.shutdown_timeout={format_duration(app.shutdown_timeout_s)}, and {shown}"
        why = "the group may expel a worker that is shutting down before its last commit"
        yield CheckResult(check, "warn", f"{text}: {why}", "lower the one or raise the other")
        return
    yield CheckResult(check, "ok", f"{shown}: handlers may take longer, polling goes on meanwhile")


def _registry(launch: Launch) -> Iterator[CheckResult]:
    """Check the schema registry, if a decoder of the app needs one."""
    from ackfloor.declare.codec import SchemaDecoder

    topics = {
        topic
        for spec in launch.handlers
        if isinstance(spec.decoder, SchemaDecoder)
        for topic in spec.topics
    }
    if topics:
        from ackfloor.kafka.inspection.schema_checks import check_registry

        yield from check_registry(launch.settings.registry, topics)


def _of_cluster(connection: Connection, launch: Launch | None) -> Iterator[CheckResult]:
    from ackfloor.kafka.inspection import cluster_checks as kafka
    from ackfloor.kafka.inspection.topic_checks import check_topics
    from ackfloor.kafka.topics.cluster_topics import Cluster
    from ackfloor.kafka.topics.topic_requirements import result_topics
    from ackfloor.operations.kafka.action_topic import check_action_topic

    admin = connection.admin
    assert admin is not None
    consumer = {} if launch is None else launch.kafka_options().consumer
    yield kafka.group_protocol(admin, str(consumer.get("group.protocol", "classic")).lower())
    yield check_action_topic(admin)
    if launch is None:
        return
    app, group = launch.settings.app, launch.settings.group
    yield kafka.group_permissions(admin, group)
    yield from _patterns(launch.matches)
    sources = [topic for spec in launch.handlers for topic in spec.topics]
    results = result_topics(launch.handlers) - {*sources}
    found = Cluster(launch.kafka_options()).facts(sources, group, results)
    yield from check_topics(
        launch.handlers,
        group,
        found,
        brokers=connection.brokers,
        replication_factor=app.replication_factor,
        dlq_retention_s=app.dlq_retention_s,
        create_topics=app.create_topics,
    )
    facts = {name: topic for name, topic in found.items() if name not in results}
    partitions = {name: topic.partitions for name, topic in facts.items()}
    yield from of_partitions(launch.handlers, partitions)
    ours = {
        name
        for spec in launch.handlers
        for topic in spec.topics
        for name in (dlq_topic(topic, group), *(tier_topic(topic, group, s) for s in spec.tiers()))
    }
    yield from kafka.topic_permissions(admin, facts, {*sources, *ours} - facts.keys())
    yield from kafka.result_permissions(admin, result_topics(launch.handlers) & found.keys())
    yield kafka.clock(admin, partitions)


def _patterns(matches: Matches) -> Iterator[CheckResult]:
    """Check what each pattern stands for."""
    from ackfloor.declare.topic_patterns import listed

    for (handler, pattern), topics in matches.topics.items():
        check, found = f"pattern {pattern}", f"handler {handler} reads {listed(topics)}"
        if topics:
            yield CheckResult(check, "ok", found)
            continue
        text = f"no topic matches that handler {handler} could read, or this user may not see it"
        yield CheckResult(check, "warn", text, "create one, or correct the pattern")
    for topic, left_out in matches.left_out.items():
        yield CheckResult(f"topic {topic}", "fail", left_out.why, left_out.fix)


def _shown(results: Iterator[CheckResult], output: Output) -> Iterator[CheckResult]:
    """Print results as they come; as JSON all at once."""
    if output is Output.json:
        found = list(results)
        typer.echo(json_text([asdict(each) for each in found], indent=2))
        yield from found
        return
    for result in results:
        mark = typer.style(f"{result.state:<9}", fg=_COLOURS[result.state])
        typer.echo(f"{mark}  {plain(result.check)}: {plain(result.detail)}")
        if result.fix and result.state != "ok":
            typer.echo(f"{'':<11}{plain(result.fix)}")
        yield result
