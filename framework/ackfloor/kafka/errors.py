"""What the client's errors mean to us."""

from __future__ import annotations

from confluent_kafka import KafkaError

#: A seek target that the log does not hold.
OUT_OF_RANGE = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})  # noqa: SLF001
#: The client's public names for its own errors start with an underscore.
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
#: What an abort takes out of the client's queues.
PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})  # noqa: SLF001


def kafka_error(exc: BaseException) -> KafkaError | None:
    """The client's error inside an exception, if there is one."""
    if exc.args and isinstance(exc.args[0], KafkaError):
        return exc.args[0]
    return None


def is_fatal(error: KafkaError | None) -> bool:
    """Whether the client is of no more use."""
    return error is not None and (error.fatal() or error.code() == FATAL)


def told(error: KafkaError | BaseException) -> str:
    """An error in one line: its name and what the client says of it."""
    if isinstance(error, KafkaError):
        return f"{error.name()}: {error.str()}"
    inner = kafka_error(error)
    return told(inner) if inner is not None else f"{type(error).__name__}: {error}"
