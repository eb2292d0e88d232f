"""`ackfloor policy preview`: the deliveries of a retry policy with their times."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING, Annotated

import typer

from ackfloor.cli.config.policy_show import show
from ackfloor.cli.shared.command_options import Commands
from ackfloor.cli.shared.parameters import (
    AppArgument,
    FactoryOption,
    FileOption,
    Output,
    OutputOption,
)
from ackfloor.core.parking.topic_names import tier_topic
from ackfloor.core.records.retry_policy import RetryPolicy, warnings
from ackfloor.core.values.durations import format_duration, parse_duration
from ackfloor.errors import ConfigError
from ackfloor.loading import load_app

if TYPE_CHECKING:
    from ackfloor.declare.registration import HandlerSpec

#: Stands for the name of a topic that a pattern matches.
ANY_TOPIC = "<topic>"

policy_app = Commands(name="policy", help="Retry policies.", no_args_is_help=True)


@policy_app.callback()
def policy() -> None:
    """Retry policies."""


policy_app.command()(show)


@policy_app.command()
def preview(
    app: AppArgument,
    handler: Annotated[str | None, typer.Option(help="Only this handler.")] = None,
    retention: Annotated[
        str | None,
        typer.Option(
            help="The source topic's retention, such as 7d, to compare the schedule with."
        ),
    ] = None,
    factory: FactoryOption = False,
    config: FileOption = None,
    output: OutputOption = Output.table,
) -> None:
    """Show each handler's deliveries with the time of each, if it failed for the first time now."""
    from ackfloor.settings import Settings, sections_of

    loaded = load_app(app, factory=factory)
    settings = Settings.load(sections_of(loaded.group, loaded.options), config=config)
    specs = settings.applied(loaded.handlers)
    if handler is not None:
        known = ", ".join(spec.name for spec in specs)
        specs = tuple(spec for spec in specs if spec.name == handler)
        if not specs:
            raise ConfigError("--handler", handler, "no such handler", f"handlers are {known}")
    retention_s = None if retention is None else parse_duration(retention, field="--retention")
    now = datetime.now(UTC)
    if output is Output.json:
        policies = [_facts(spec, settings.group, retention_s, now) for spec in specs]
        sys.stdout.write(json.dumps(policies, indent=2) + "\n")
        return
    for spec in specs:
        _print(spec, settings.group, retention_s, now)


def _print(spec: HandlerSpec, group: str, retention_s: float | None, now: datetime) -> None:
    from ackfloor.cli.shared.tables import print_table

    policy = spec.retry
    timeout = "none" if spec.consume_timeout_s is None else format_duration(spec.consume_timeout_s)
    title = f"{spec.name}: {', '.join(spec.subjects)} (consume timeout {timeout})"
    rows = [_row(1, "", "", "", _topic(spec))]
    delays = policy.schedule()
    for number, (delay_s, total_s) in enumerate(zip(delays, accumulate(delays), strict=True), 2):
        due = now + timedelta(seconds=total_s)
        rows.append(
            _row(
                number,
                format_duration(delay_s),
                format_duration(total_s),
                f"{due:%Y-%m-%d %H:%M:%S}",
                _tier(spec, group, delay_s) or "its place",
            )
        )
    typer.echo(title)
    print_table(rows, spare=("due (UTC)", "since the\nfirst failure"))
    typer.echo(_end(policy, spec, group))
    for warning in warnings(policy, dead_letter_on=spec.dead_letter_on, retention_s=retention_s):
        typer.echo(f"{typer.style('warning:', fg='yellow')} {warning}", err=True)


def _row(delivery: int, wait: str, since: str, due: str, where: str) -> dict[str, object]:
    return {
        "delivery": delivery,
        "wait": wait,
        "since the\nfirst failure": since,
        "due (UTC)": due,
        "waits in": where,
    }


def _topic(spec: HandlerSpec) -> str:
    """A topic of a handler; of one that has patterns alone, a place for its name."""
    return spec.topics[0] if spec.topics else ANY_TOPIC


def _tier(spec: HandlerSpec, group: str, delay_s: float) -> str | None:
    """The retry topic of one delay; None where the handler retries in place."""
    return None if spec.in_place else tier_topic(_topic(spec), group, delay_s)


def _end(policy: RetryPolicy, spec: HandlerSpec, group: str) -> str:
    if policy.total_s() == inf:
        return f"then every {format_duration(policy.schedule()[-1])}, without end"
    dlq = f"{_topic(spec)}--{group}--dlq"
    if not policy.schedule():
        return f"after the first failure: {dlq}"
    return (
        f"after {len(policy.schedule()) + 1} deliveries and at least "
        f"{format_duration(policy.total_s())} of waiting: {dlq}. Jitter lengthens each wait by up "
        f"to {policy.jitter:.0%}; handler time comes on top."
    )


def _facts(
    spec: HandlerSpec, group: str, retention_s: float | None, now: datetime
) -> dict[str, object]:
    delays = spec.retry.schedule()
    return {
        "handler": spec.name,
        "topics": list(spec.topics),
        "patterns": list(spec.patterns),
        "consume_timeout_s": spec.consume_timeout_s,
        "max_redeliveries": spec.retry.max_redeliveries,
        "jitter": spec.retry.jitter,
        "deliveries": [
            {
                "delivery": number,
                "wait_s": delay_s,
                "since_first_failure_s": total_s,
                "due": (now + timedelta(seconds=total_s)).isoformat(timespec="seconds"),
                "tier": _tier(spec, group, delay_s),
            }
            for number, (delay_s, total_s) in enumerate(
                zip(delays, accumulate(delays), strict=True), 2
            )
        ],
        "total_s": None if spec.retry.total_s() == inf else spec.retry.total_s(),
        "warnings": list(
            warnings(spec.retry, dead_letter_on=spec.dead_letter_on, retention_s=retention_s)
        ),
    }
