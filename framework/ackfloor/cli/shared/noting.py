"""Noting: how a command notes what it does in the actions topic, and warns where it can't."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ackfloor.cli.shared.parameters import Brokers, SettingsSource
from ackfloor.cli.shared.run_address import checked_reason
from ackfloor.core.values.printable import plain
from ackfloor.core.values.setting_error import SettingError
from ackfloor.errors import AckfloorError
from ackfloor.operations import TOPIC, ActionLog, new_note, noted, redacted
from ackfloor.operations.noted import counts_of
from ackfloor.redrive import operator

if TYPE_CHECKING:
    from ackfloor.operations import ActionNote, Ending

PROGRAM: Final = "command line"

#: `--because` where `--reason` means something else: a condition on dead letters.
ReasonOption = Annotated[
    str | None, typer.Option(help="Why you do it; `actions ls` shows it to others.")
]


@dataclass(frozen=True, slots=True)
class Noting:
    """What a command notes of what it does.

    Attributes:
        source: where the settings are that name the brokers.
        action: the command, such as "dlq replay".
        reason: why, in the operator's words.
        arguments: what it was asked for; keys and headers in it are masked. What is added within
            counts as well.

    Raises:
        SettingError: the reason is too long.
    """

    source: Brokers | SettingsSource | None
    action: str
    reason: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        filters = self.action.startswith(("dlq", "retry", "spark"))
        checked_reason("--because" if filters else "--reason", self.reason)

    @contextmanager
    def of(self, targets: Sequence[str], group: str = "", job: str = "") -> Iterator[Ending]:
        """Note what is done within; see `operations.noted`. A warning says why nothing was noted.

        Args:
            targets: the handlers, topics or settings that it is done to.
            group: theirs, where the command knows it.
            job: the name of the job that it is, which has a note when it begins as well.
        """
        arguments = {**self.arguments, "job": job} if job else self.arguments
        reason = " ".join((self.reason or "").split())
        note = new_note(
            self.action, PROGRAM, operator(), targets=targets, group=group, arguments=arguments,
            reason=reason,
        )  # fmt: skip
        warned: list[str] = []

        def write(each: ActionNote) -> None:
            # Of a job one warning is enough, and one wait for a broker that is away.
            if not warned and (why := self._why_unwritten(each)):
                warned.append(why)
                text = f"warning: this action is not noted in {TOPIC}: {plain(why)}"
                typer.secho(text, fg="yellow", err=True)

        with noted(note, write, job=bool(job)) as ending:
            yield ending

    def _why_unwritten(self, note: ActionNote) -> str:
        """Write it; returns why it could not be written, "" where it was."""
        from ackfloor.kafka.client.client_options import KafkaOptions
        from ackfloor.settings import Settings

        source = self.source or SettingsSource()
        try:
            settings = Settings.load(flags=source.flags, config=source.config)
            kept = redacted(note, settings.redaction.rules())
            kept = replace(kept, group=note.group or settings.app.group or "")
            ActionLog(KafkaOptions.of(settings.kafka)).write(kept)
        except (AckfloorError, SettingError) as exc:
            return str(exc)
        return ""


def end_by_workers(ending: Ending, workers: Mapping[str, Any]) -> None:
    """An action ends as a run's answer says of its workers: applied, refused, silent."""
    ending.whole = not (workers["refused"] or workers["silent"])
    others = {name: len(workers[name]) for name in ("refused", "silent")}
    ending.counts = counts_of(len(workers["applied"]), **others)
