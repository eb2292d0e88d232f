"""The client's errors: which are fatal, fenced, denied or unanswered, and their text."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from ackfloor.errors import (
    AckfloorError,
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
#: The client's text when the broker has no such assignor (KIP-848).
_NO_ASSIGNOR = KafkaError(KafkaError.UNSUPPORTED_ASSIGNOR).str()
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


def ended_for_good(error: KafkaError, instance_id: str | None) -> SourceFailed:
    """The exception for a fatal error of a consumer.

    The client's code is "fatal" for all of them; only the text says which it was.
    """
    text = error.str()
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
    if _NO_ASSIGNOR in text:
        fix = "set kafka.consumer.group.remote.assignor to one of the broker's: uniform or range"
        return SourceFailed(f"{error_text(error)}; {fix}")
    return SourceFailed(error_text(error))


def advice(error: KafkaError) -> str:
    """What to do about an error that does not pass by itself; empty if it does."""
    if error.code() == KafkaError.INCONSISTENT_GROUP_PROTOCOL:
        return (
            "; the group has members with another partition.assignment.strategy: stop all its "
            "workers, and those with static_membership for as long as their session lasts"
        )
    return ""


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
