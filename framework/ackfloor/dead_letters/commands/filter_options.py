"""Options of the `dlq` commands that make a filter: handler, error, reason, times."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated

import typer

from ackfloor.cli.shared.command_options import Made
from ackfloor.cli.shared.times import moment, time_of
from ackfloor.core.records.envelope import Reason
from ackfloor.dead_letters.rules.dead_letter_filter import DeadLetterFilter

_ATTEMPTS = re.compile(r"([0-9]{1,9})(?:(\+)|-([0-9]{1,9}))?")

SinceOption = Annotated[
    str | None,
    typer.Option(
        envvar="ACKFLOOR_DLQ_SINCE",
        help="Only what failed since: a date or a time (UTC where it names no zone), or how "
        "long ago (24h, 7d).",
    ),
]


def filter_of_options(
    handler: Annotated[
        str | None, typer.Option(envvar="ACKFLOOR_DLQ_HANDLER", help="Only of this handler.")
    ] = None,
    error: Annotated[
        str | None,
        typer.Option(
            envvar="ACKFLOOR_DLQ_ERROR",
            help="Only with this error: its class, with or without its module, or the cause that "
            "`dlq groups` prints, such as a fingerprint.",
        ),
    ] = None,
    reason: Annotated[
        str | None,
        typer.Option(
            envvar="ACKFLOOR_DLQ_REASON",
            help=f"Only with this reason: {', '.join(Reason)}.",
        ),
    ] = None,
    release: Annotated[
        str | None,
        typer.Option(
            envvar="ACKFLOOR_DLQ_RELEASE", help="Only what this release of the app failed on."
        ),
    ] = None,
    key: Annotated[
        str | None, typer.Option(envvar="ACKFLOOR_DLQ_KEY", help="Only with this key.")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=VALUE]",
            envvar="ACKFLOOR_DLQ_HEADER",
            help="Only with this header, and with this value where one is given. Repeatable (in "
            "the variable: separated by spaces): only what has all of them.",
            show_default=False,
        ),
    ] = None,
    attempts: Annotated[
        str | None,
        typer.Option(
            metavar="N|N+|N-M",
            envvar="ACKFLOOR_DLQ_ATTEMPTS",
            help="Only delivered so often: 7, 3+ or 1-3.",
        ),
    ] = None,
    since: SinceOption = None,
    until: Annotated[
        str | None,
        typer.Option(envvar="ACKFLOOR_DLQ_UNTIL", help="Only what failed before; as --since."),
    ] = None,
) -> DeadLetterFilter:
    """The filter that these options make.

    Raises:
        typer.BadParameter: a value can't be understood.
    """
    if reason is not None and reason not in set(Reason):
        raise typer.BadParameter(
            f"{reason!r} is no reason: there are {', '.join(Reason)}", param_hint="--reason"
        )
    since_ms, until_ms = time_ms("--since", since), time_ms("--until", until)
    if since_ms is not None and until_ms is not None and since_ms >= until_ms:
        raise typer.BadParameter(
            f"{since!r} is not before --until {until!r}: nothing lies between", param_hint="--since"
        )
    _show_times(since_ms, until_ms)
    least, most = _attempts(attempts)
    return DeadLetterFilter(
        handler=handler,
        error=error,
        reason=reason,
        key=key,
        headers=tuple(map(_header, header or ())),
        least_attempts=least,
        most_attempts=most,
        since_ms=since_ms,
        until_ms=until_ms,
        release=release,
    )


FilterOptions = Annotated[DeadLetterFilter, Made(filter_of_options)]


def _show_times(since_ms: int | None, until_ms: int | None) -> None:
    """Show how the times were understood, with their zone."""
    bounds = [
        f"{which} {moment(at_ms)}"
        for which, at_ms in (("from", since_ms), ("before", until_ms))
        if at_ms is not None
    ]
    if bounds:
        typer.secho(f"meant is what failed {' and '.join(bounds)} (UTC)", err=True)


def _header(text: str) -> tuple[str, str | None]:
    name, equals, value = text.partition("=")
    if not name:
        raise typer.BadParameter(
            f"{text!r} names no header: write NAME or NAME=VALUE", param_hint="--header"
        )
    return name, value if equals else None


def _attempts(text: str | None) -> tuple[int | None, int | None]:
    if text is None:
        return None, None
    match = _ATTEMPTS.fullmatch(text)
    least = int(match[1]) if match else 0
    if match is None or (match[3] and int(match[3]) < least):
        raise typer.BadParameter(
            f"{text!r} is no number of attempts: write 7, 3+ or 1-3", param_hint="--attempts"
        )
    if match[2]:
        return least, None
    return least, int(match[3] or least)


def time_ms(option: str, text: str | None) -> int | None:
    """A time as `time_of` takes it, in wall-clock ms.

    Raises:
        typer.BadParameter: it is none.
    """
    if text is None:
        return None
    return round(time_of(option, text, datetime.now(UTC)).timestamp() * 1000)
