"""The client's errors: which are fatal, fenced, denied or unanswered, and their text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException

from ackfloor.errors import (
    AckfloorError,
    ConfigError,
    InstanceFenced,
    InstanceHeld,
    KafkaUnreachable,
    SourceFailed,
)

#: A seek target that the log does not hold.
OUT_OF_RANGE = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})  # noqa: SLF001
#: An error that ends a client for good arrives as a message with this code, and its `fatal()` is
#: false: a worker that only logged it would idle for ever. Names of the client's own errors begin
#: with an underscore.
FATAL = KafkaError._FATAL  # noqa: SLF001

TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})

#: A transactional id belongs to another producer now, or its transaction was ended by the broker.
FENCED = frozenset(
    {
        KafkaError._FENCED,  # noqa: SLF001
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
    }
)
#: The client's text when a static member was replaced, and when it can't join yet (KIP-848).
_FENCED_MEMBER = KafkaError(KafkaError.FENCED_INSTANCE_ID).str()
_HELD_MEMBER = KafkaError(KafkaError.UNRELEASED_INSTANCE_ID).str()
#: The user may not do this.
DENIED = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)
#: No broker answered a request in time.
NO_ANSWER = frozenset(
    {KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}  # noqa: SLF001
)
#: What an abort takes out of the client's queues.
PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})  # noqa: SLF001


class _Refused(NamedTuple):
    """A property whose value only the broker can judge; why it refuses one, and the fix."""

    role: str
    name: str
    why: str
    fix: str
    #: The value where it is not set; None if the broker then has nothing to refuse.
    default: object = None


_NO_KIP_848 = _Refused(
    "consumer",
    "group.protocol",
    "the brokers don't have this group protocol, or not enabled",
    "leave it out (classic), or have brokers of Kafka 4.0 or later whose "
    "group.coordinator.rebalance.protocols name it",
)
#: What the broker, or the client for it, answers to a setting that it refuses. No retry helps.
_REFUSED: Mapping[int, _Refused] = {
    KafkaError.UNSUPPORTED_ASSIGNOR: _Refused(
        "consumer",
        "group.remote.assignor",
        "the broker has no such assignor",
        "set one that the broker's group.consumer.assignors name (uniform or range, unless "
        "somebody changed them), or leave it out",
    ),
    KafkaError.INVALID_SESSION_TIMEOUT: _Refused(
        "consumer",
        "session.timeout.ms",
        "the broker refuses it",
        "set it within the broker's group.min.session.timeout.ms and "
        "group.max.session.timeout.ms (6000 and 1800000, unless somebody changed them)",
        45_000,
    ),
    KafkaError.UNSUPPORTED_VERSION: _NO_KIP_848,
    KafkaError._UNSUPPORTED_FEATURE: _NO_KIP_848,  # noqa: SLF001
    KafkaError.INVALID_TRANSACTION_TIMEOUT: _Refused(
        "producer",
        "transaction.timeout.ms",
        "the broker refuses it",
        "set it to at most the broker's transaction.max.timeout.ms (900000, unless somebody "
        "changed it), or leave it out",
    ),
}
#: Of other errors that need somebody: what to do.
_ADVICE: Mapping[int, str] = {
    KafkaError.INCONSISTENT_GROUP_PROTOCOL: (
        "; the group has members with another partition.assignment.strategy: stop all its "
        "workers, and those with static_membership for as long as their session lasts"
    ),
    KafkaError.GROUP_MAX_SIZE_REACHED: (
        "; lower app.workers, or raise the broker's group.max.size (with group.protocol=consumer "
        "its group.consumer.max.size)"
    ),
    KafkaError.GROUP_AUTHORIZATION_FAILED: "; grant this user READ on the group",
}


#: A fatal error may be raised while delivery reports are handed out; the next report's callback
#: then turns it into a SystemError with the client's exception as its cause.
CLIENT_RAISES = (KafkaException, SystemError)


def kafka_error(exc: BaseException) -> KafkaError | None:
    """The client's error inside an exception, if there is one."""
    if isinstance(exc, SystemError) and exc.__cause__ is not None:
        return kafka_error(exc.__cause__)
    if exc.args and isinstance(exc.args[0], KafkaError):
        return exc.args[0]
    return None


def is_fatal(error: KafkaError | None) -> bool:
    """Whether the client can't be used any more."""
    return error is not None and (error.fatal() or error.code() == FATAL)


def ended_for_good(error: KafkaError, config: Mapping[str, Any]) -> AckfloorError:
    """The exception for a fatal error of a consumer with these properties.

    The client's code is "fatal" for all of them; only the text says which it was.
    """
    text = error.str()
    instance_id = config.get("group.instance.id")
    if _FENCED_MEMBER in text:
        return InstanceFenced(
            f"another process has joined the group as {instance_id!r}, so Kafka has expelled this "
            "one; two runs of a group on one host need an app.instance_id_prefix each"
        )
    if _HELD_MEMBER in text:
        return InstanceHeld(
            f"the group still has a member {instance_id!r}: this worker's predecessor, whose "
            "session has to time out first, or another run with the same app.instance_id_prefix"
        )
    for code in (*_REFUSED, *_ADVICE):
        if KafkaError(code).str() in text:
            refused = refused_setting(KafkaError(code), config)
            return refused or SourceFailed(error_text(error) + advice(KafkaError(code)))
    return SourceFailed(error_text(error))


def refused_setting(error: KafkaError | None, config: Mapping[str, Any]) -> ConfigError | None:
    """The error of a client with these properties, if it is that the broker refuses one of them."""
    refused = None if error is None else _REFUSED.get(error.code())
    if refused is None:
        return None
    value = config.get(refused.name, refused.default)
    if value is None or (refused is _NO_KIP_848 and str(value).lower() != "consumer"):
        # The broker objects to something else.
        return None
    field = f"kafka.{refused.role}.{refused.name}"
    return ConfigError(field, value, refused.why, refused.fix)


def advice(error: KafkaError) -> str:
    """What to do about an error that does not pass by itself; empty if it does."""
    return _ADVICE.get(error.code(), "")


def look_failed(what: str, exc: BaseException) -> AckfloorError:
    """The error of a command whose request for `what` failed."""
    error = kafka_error(exc)
    if error is not None and error.code() in DENIED:
        return AckfloorError(f"no permission: {what} ({error_text(error)})")
    return KafkaUnreachable(f"{what}: {error_text(exc)}")


def error_text(error: KafkaError | BaseException) -> str:
    """An error in one line: its name and the client's text."""
    if isinstance(error, KafkaError):
        return f"{error.name()}: {error.str()}"
    inner = kafka_error(error)
    return error_text(inner) if inner is not None else f"{type(error).__name__}: {error}"
