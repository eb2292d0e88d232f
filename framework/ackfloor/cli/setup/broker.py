"""`ackfloor broker up|down|status|topic|prepare`: a local Kafka in the background."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ackfloor.cli.shared.command_options import Commands
from ackfloor.cli.shared.parameters import Output, OutputOption
from ackfloor.errors import AckfloorError, SettingError

if TYPE_CHECKING:
    from ackfloor.testing.local_kafka.background import BackgroundBroker

broker_app = Commands(name="broker", help="A local Kafka in the background.", no_args_is_help=True)


_Name = Annotated[
    str, typer.Option(envvar="ACKFLOOR_BROKER_NAME", help="Its name, if you want several.")
]


@broker_app.command()
def up(
    nodes: Annotated[int, typer.Option(help="1 or 3 (three replicas).")] = 1,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65_535, help="Port of the first node; without it, a free one."),
    ] = None,
    name: _Name = "default",
) -> None:
    """Start a local Kafka that stays until `down`; prints its bootstrap servers.

    If it is already running, this only prints them again.
    """
    from ackfloor.testing.local_kafka.background import bring_up

    if nodes not in (1, 3):
        raise typer.BadParameter(f"{nodes}: a local cluster has 1 or 3 nodes", param_hint="--nodes")
    with _failures_shown():
        broker, started = bring_up(name, nodes, port)
    typer.echo(broker.bootstrap_servers)
    state = "is up" if started else "was already up"
    typer.echo(f"broker {name!r} {state}; for this shell:", err=True)
    typer.echo(f"  export ACKFLOOR_BOOTSTRAP_SERVERS={broker.bootstrap_servers}", err=True)


@broker_app.command()
def down(
    name: _Name = "default",
    every: Annotated[bool, typer.Option("--all", help="Stop all.")] = False,
) -> None:
    """Stop a broker that `up` started and remove its data."""
    from ackfloor.testing.local_kafka.background import background_brokers, take_down

    with _failures_shown():
        names = [broker.name for broker in background_brokers()] if every else [name]
        for one in names:
            gone = take_down(one)
            state = "there is none" if gone is None else f"stopped, {gone.data_dir} removed"
            typer.echo(f"broker {one!r}: {state}", err=True)


@broker_app.command()
def status(
    name: Annotated[
        str | None, typer.Option(help="Only this one; exit code 1 unless it runs.")
    ] = None,
    output: OutputOption = Output.table,
) -> None:
    """List the brokers that `up` started, and whether they run."""
    from ackfloor.testing.local_kafka.background import background_brokers

    with _failures_shown():
        brokers = [broker for broker in background_brokers() if name in (None, broker.name)]
    rows = [_row(broker) for broker in brokers]
    if output is Output.json:
        typer.echo(json.dumps(rows, indent=2))
    elif rows:
        _print_table(rows)
    else:
        typer.echo("no local broker; start one: ackfloor broker up", err=True)
    if name is not None and not any(broker.running for broker in brokers):
        raise typer.Exit(1)


@broker_app.command()
def topic(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Its name.")],
    partitions: Annotated[int, typer.Option(min=1, max=10_000, help="How many it has.")] = 1,
    name: Annotated[
        str, typer.Option(envvar="ACKFLOOR_BROKER_NAME", help="The broker, as `up` named it.")
    ] = "default",
) -> None:
    """Create a topic on a broker that `up` started, to write records to; prints its name.

    If it is already there with as many partitions, this only prints its name.
    """
    from ackfloor.cli.setup.source_topics import create_source_topic
    from ackfloor.testing.local_kafka.background import running_broker

    with _failures_shown():
        broker = running_broker(name)
        made = create_source_topic(broker, topic, partitions)
    typer.echo(topic)
    counted = "1 partition" if partitions == 1 else f"{partitions} partitions"
    state = "created" if made else "was already there"
    typer.echo(f"topic {topic} with {counted} {state} on broker {name!r}", err=True)


@broker_app.command()
def prepare() -> None:
    """Fetch a broker's jars and make an archive of its classes, so that it starts in half the time.

    Once for each Java is enough, for instance in the image that runs tests. Prints the path of the
    archive, which all later brokers of this user use, including those of `ackfloor.testing`.
    """
    from ackfloor.testing.local_kafka.prepare import prepare_broker

    with _failures_shown():
        archive, made = prepare_broker()
    typer.echo(archive.path)
    state = "made" if made else "was there already"
    typer.echo(f"archive of classes {state}, for {archive.java.executable}", err=True)


def _row(broker: BackgroundBroker) -> dict[str, Any]:
    return {
        "name": broker.name,
        "state": "running" if broker.running else "gone",
        "bootstrap_servers": broker.bootstrap_servers,
        "nodes": broker.nodes,
        "nodes_running": broker.nodes_running,
        "kafka_version": broker.kafka_version,
        "started_at": broker.started_at,
        "pids": [process.pid for process in broker.processes],
        "data_dir": broker.data_dir,
    }


def _print_table(rows: list[dict[str, Any]]) -> None:
    from ackfloor.cli.shared.tables import print_table

    shown = [
        {
            "name": row["name"],
            "state": row["state"],
            "nodes": f"{row['nodes_running']}/{row['nodes']}",
            "bootstrap servers": row["bootstrap_servers"].split(","),
            "started": row["started_at"],
        }
        for row in rows
    ]
    print_table(shown, spare=("started", "nodes"))


@contextmanager
def _failures_shown() -> Iterator[None]:
    """Print an ackfloor error to stderr without a traceback; exit with 2 for bad usage, else 1."""
    try:
        yield
    except (AckfloorError, SettingError) as error:
        from ackfloor.testing.local_kafka.background import BrokerNameRefused

        typer.echo(f"error: {error}", err=True)
        usage = isinstance(error, BrokerNameRefused | SettingError)
        raise typer.Exit(2 if usage else 1) from None
