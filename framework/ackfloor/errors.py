"""The errors ackfloor raises itself, and the outcomes a handler may raise.

    Exception
    ├── AckfloorError              its text can be shown to users; `exit_code` is the process's
    │   ├── ConfigError            (also a SettingError) a setting or a registration is refused: 3
    │   │   └── TopicsMissing      topics do not exist; once they do, a restart works: 7
    │   ├── StartError             the app can't be imported or started: 3
    │   │   └── NotReady           the lifespan failed; a restart may cure it: 7
    │   ├── KafkaUnreachable       no broker answered within the connect timeout: 4
    │   ├── MissingExtra           a package of an optional extra is not installed: 1
    │   ├── WorkerFailed           the worker of `running()` was given up: 1
    │   ├── SourceFailed           the consumer can't go on; the worker restarts: 1
    │   ├── PublishFailed          `publish` was not confirmed by the broker: 1
    │   ├── PublishNotAwaited      a handler returned without having awaited its `publish`
    │   ├── EncodeError            `publish` was given what is no value of its schema: 1
    │   ├── RedriveRefused         dead letters can't be read or sent; nothing was sent: 2
    │   ├── RedriveBusy            another job works on the same dead letters: 1
    │   ├── DecodeError            the bytes are not a valid value: dead-lettered
    │   └── DecoderUnavailable     a decoder's dependency is away: the record stays open
    ├── OutputTooLarge             `delivery.publish` was given more than one transaction may hold
    ├── SettingError               (a ValueError) `field=value: why; fix`, raised by the core
    └── Outcome                    raised by handlers to say how a delivery ends
        ├── Retry                  park it for another delivery
        ├── DeadLetter             no redelivery will help
        ├── Discard                drop it
        └── Pause                  a dependency is away: it stays open, no budget is spent

`except AckfloorError` catches the framework's errors, never a handler's outcome: an `Outcome` is
not an error.
"""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

from ackfloor.core.records.output import OutputTooLarge
from ackfloor.core.values.durations import format_duration, parse_duration
from ackfloor.core.values.setting_error import SettingError

__all__ = [
    "AckfloorError",
    "ConfigError",
    "DeadLetter",
    "DecodeError",
    "DecoderUnavailable",
    "Discard",
    "EncodeError",
    "InstanceFenced",
    "InstanceHeld",
    "KafkaUnreachable",
    "MissingExtra",
    "NotReady",
    "Outcome",
    "OutputTooLarge",
    "Pause",
    "PublishFailed",
    "PublishNotAwaited",
    "RedriveBusy",
    "RedriveRefused",
    "Retry",
    "SettingError",
    "SourceFailed",
    "StartError",
    "TopicAppeared",
    "TopicReplaced",
    "TopicsMissing",
    "WorkerFailed",
]


class AckfloorError(Exception):
    """Base of every error that ackfloor raises on purpose; its text can be shown to users."""

    #: The exit code of a process that ends with this error.
    exit_code: ClassVar[int] = 1


class ConfigError(SettingError, AckfloorError):
    """A setting or a registration is refused: names field, value, fix and where it came from.

    Attributes:
        source: where the value was set, such as `environment ACKFLOOR_APP__GROUP`; empty if it
            was passed to the call that raised.
    """

    exit_code = 3

    def __init__(self, field: str, value: object, why: str, fix: str, *, source: str = "") -> None:
        super().__init__(field, value, why, fix)
        self.source = source

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text} (from {self.source})" if self.source else text

    def __reduce__(self) -> tuple[object, ...]:
        return (
            _config_error,
            (type(self), self.field, self.value, self.why, self.fix, self.source),
        )

    @classmethod
    def of(cls, error: SettingError, *, field: str = "", source: str = "") -> ConfigError:
        """A SettingError with the full name of the field and the place where it was set."""
        return cls(field or error.field, error.value, error.why, error.fix, source=source)


def _config_error(
    kind: type[ConfigError], field: str, value: object, why: str, fix: str, source: str
) -> ConfigError:
    return kind(field, value, why, fix, source=source)


class TopicsMissing(ConfigError):
    """Topics do not exist, or this user may not see them; nothing was handled."""

    exit_code = 7


class StartError(AckfloorError):
    """The app can't be imported or started."""

    exit_code = 3


class NotReady(StartError):
    """The app could not be started now: its lifespan failed. A restart may cure it."""

    exit_code = 7


class KafkaUnreachable(AckfloorError):
    """No broker answered within the connect timeout that was given."""

    exit_code = 4


class MissingExtra(AckfloorError):
    """A package of an optional extra is not installed; the text is the line that installs it."""

    def __init__(self, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs an extra: pip install 'ackfloor[{extra}]'")
        self.extra = extra
        self.purpose = purpose

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.extra, self.purpose))


class SourceFailed(AckfloorError):
    """The consumer can't go on (a fatal error, or a listener raised)."""


class InstanceFenced(SourceFailed):
    """Static membership: another process has taken this worker's instance id in the group."""

    exit_code = 76


class InstanceHeld(SourceFailed):
    """Static membership: the group still has a member with this worker's instance id."""

    exit_code = 77


class TopicReplaced(SourceFailed):
    """A topic was deleted and created anew: only new clients can read it."""

    exit_code = 75


class TopicAppeared(SourceFailed):
    """A retry topic of a worker with other delays, or a topic that a pattern matches, is new.

    Only a new process reads it.
    """

    exit_code = 75


class WorkerFailed(AckfloorError):
    """The worker of `App.running()` was given up, or did not end as it should.

    What it failed with the last time is its cause.
    """


class PublishFailed(AckfloorError):
    """The broker did not confirm a record: it may or may not have been written."""


class EncodeError(AckfloorError):
    """What was to be published is no value of its schema, or the registry has no such schema.

    Nothing was sent, and the same call will fail again. The text names topic and rule, not the
    value; the error that has caused it may quote it.

    Attributes:
        error_type: the name of the underlying error's class, or `UnknownSchema`, `RefusedSchema`.
    """

    def __init__(self, message: str, *, error_type: str = "EncodeError") -> None:
        super().__init__(message)
        self.error_type = error_type


class PublishNotAwaited(AckfloorError):
    """A handler called `App.publish` and did not await it, so nothing was published."""


class RedriveRefused(AckfloorError):
    """Dead letters can't be read, or can't be sent to their target; nothing was sent."""

    exit_code = 2


class RedriveBusy(AckfloorError):
    """Another job works on the same dead-letter topic; nothing was done."""


class DecodeError(AckfloorError):
    """The bytes are not a value of the handler's type, and no redelivery will change that.

    Raise it from a decoder of your own. Neither the text nor `error_type` should contain the
    payload: both are written to headers and logs.

    Attributes:
        error_type: the name of the underlying error's class.
    """

    def __init__(self, message: str, *, error_type: str = "DecodeError") -> None:
        super().__init__(message)
        self.error_type = error_type


class DecoderUnavailable(AckfloorError):
    """A decoder's dependency (a schema registry) is away; the record stays open.

    Raise it from a decoder of your own: the handler then pauses and tries again, without spending
    the record's redeliveries. Any other error from a decoder means that the record can't be
    decoded.
    """


class Outcome(Exception):
    """Raised by a handler to end its delivery. Raise one of the four below."""


class Retry(Outcome):
    """Park the record for another delivery; spends one of its redeliveries.

    Args:
        after: how long to wait, as a timedelta or "1h30m"; None for the policy's own delay.
        reason: why, for the record's headers.
    """

    def __init__(self, after: timedelta | str | None = None, reason: str = "") -> None:
        super().__init__(after, reason)
        self.after_s = None if after is None else parse_duration(after, field="after")
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class DeadLetter(Outcome):
    """Move the record to the dead-letter queue: no redelivery will help."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Discard(Outcome):
    """Settle the record without handling it; explicit, and counted."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Pause(Outcome):
    """A dependency is away: take no records for a while. This one stays open and spends no budget.

    Args:
        duration: how long the handler takes no records, as a timedelta or "30s".
        reason: what is away, for the log and `/readyz`.
    """

    def __init__(self, duration: timedelta | str, reason: str = "") -> None:
        super().__init__(duration, reason)
        self.duration_s = parse_duration(duration, field="duration")
        self.reason = reason

    def __str__(self) -> str:
        return self.reason or f"paused for {format_duration(self.duration_s)}"
