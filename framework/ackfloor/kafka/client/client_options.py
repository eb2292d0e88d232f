"""Client options: librdkafka configurations from the settings.

Any librdkafka property can be passed, except a few on which a guarantee rests: who commits and
when, where reading starts, that parked records are confirmed by all replicas, that a missing topic
is an error and not created. Those are refused with the reason and the fix.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import Consumer, KafkaException

from ackfloor.errors import ConfigError
from ackfloor.kafka.client.client_errors import error_text

if TYPE_CHECKING:
    from ackfloor.settings import KafkaSettings

MIB = 1024 * 1024
#: What the producer accepts locally; brokers and topics have limits of their own.
LARGEST_REQUEST = 100 * MIB
COOPERATIVE = "cooperative-sticky"
EAGER = ("range", "roundrobin")
#: Properties of a producer that sends each record in a request of its own.
ONE_PER_REQUEST = {"batch.num.messages": 1, "linger.ms": 0}
#: How much a consumer reads ahead at most.
PREFETCH_KIB = 64 * 1024
#: How long a broker holds a fetch that finds nothing. A resumed partition waits for its end.
FETCH_WAIT_MS = 100
#: librdkafka's default.
MAX_POLL_INTERVAL_MS = 300_000
#: Properties of a consumer that reads a few records of each partition and closes. With so little
#: read ahead the queue is soon full, after which the client waits for a second by default; and a
#: broker sends large batches of one partition at a time.
A_FEW_RECORDS: Mapping[str, Any] = {
    "fetch.message.max.bytes": 64 * 1024,
    "queued.min.messages": 1,
    "fetch.queue.backoff.ms": 1,
}
#: After this a broker aborts a transaction that its producer has not ended.
TRANSACTION_TIMEOUT_MS = 10_000
_SECRET = ("password", "secret", "key", "token", "oauthbearer", "pem")

Client = TypeVar("Client")


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """The librdkafka properties of each client, from the settings.

    They include secrets in plain text, so `repr` shows none of them.

    Attributes:
        by_default: the bootstrap servers are the built-in default.
    """

    consumer: Mapping[str, Any] = field(default_factory=dict, repr=False)
    producer: Mapping[str, Any] = field(default_factory=dict, repr=False)
    admin: Mapping[str, Any] = field(default_factory=dict, repr=False)
    by_default: bool = False

    @classmethod
    def of(cls, kafka: KafkaSettings, client_suffix: str = "") -> KafkaOptions:
        """From the settings; the suffix is appended to the client id."""
        own = {"client.id": f"{kafka.client_id}-{client_suffix}"} if client_suffix else {}
        return cls(
            consumer={**kafka.librdkafka("consumer"), **own},
            producer={**kafka.librdkafka("producer"), **own},
            admin={**kafka.librdkafka("admin"), **own},
            by_default=kafka.by_default,
        )


@dataclass(frozen=True, slots=True)
class _Ours:
    """A property with a fixed value; why the user can't set it, and what to do instead."""

    value: object
    why: str
    fix: str


_CONSUMER_OURS = {
    "enable.auto.commit": _Ours(
        False,
        "the client would commit records whose handlers still run",
        "leave it out: floors are committed for you",
    ),
    "enable.auto.offset.store": _Ours(
        False, "the client would decide what is settled", "leave it out"
    ),
    "auto.offset.reset": _Ours(
        "error",
        "a reset would skip or repeat records without the tracker's knowledge",
        'set app.start to "earliest" or "latest" for groups without commits',
    ),
    "allow.auto.create.topics": _Ours(
        False, "a misspelt topic would be created", "create the topic first"
    ),
    "enable.partition.eof": _Ours(False, "it is not used", "leave it out"),
    "isolation.level": _Ours(
        "read_committed", "records of aborted transactions would be handled", "leave it out"
    ),
}
_PRODUCER_OURS = {
    "acks": _Ours("all", "a parked record could be lost with one broker", "leave it out"),
    "enable.idempotence": _Ours(
        True, "a retried request could write a parked record twice", "leave it out"
    ),
    "delivery.report.only.error": _Ours(
        False, "no park would ever be confirmed", "leave it out: delivery reports settle records"
    ),
    "allow.auto.create.topics": _Ours(
        False, "a missing retry topic must be a failed park", "create it: ackfloor topics apply"
    ),
}
_ALIASES = {
    "auto.commit.enable": "enable.auto.commit",
    "compression.codec": "compression.type",
    "queue.buffering.max.ms": "linger.ms",
    "request.required.acks": "acks",
    "metadata.broker.list": "bootstrap.servers",
    "message.timeout.ms": "delivery.timeout.ms",
}
_CALLBACKS = ("on_commit", "error_cb", "stats_cb", "on_delivery", "dr_cb", "rebalance_cb")
_FORBIDDEN = {
    "group.id": ("the group is part of every retry topic's name", "set it with App(group=...)"),
    "group.instance.id": (
        "every worker would claim this one identity and expel the others",
        "set app.static_membership, which names each worker",
    ),
    "default.topic.config": ("what is inside would go unchecked", "set its properties directly"),
    "transactional.id": (
        "each worker has its own, so that its successor can abort its transaction",
        "set app.transactional_id_prefix",
    ),
}
_NOT_WITH_KIP_848 = (
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "partition.assignment.strategy",
    "group.protocol.type",
)


def consumer_config(
    options: KafkaOptions, group: str, instance_id: str | None = None
) -> dict[str, Any]:
    """The consumer's configuration; `instance_id` makes it a static member of the group.

    Raises:
        ConfigError: a property is dangerous or conflicts; names property, value and fix.
    """
    given = _checked("consumer", options.consumer, _CONSUMER_OURS)
    kip_848 = broker_assigns(given)
    if kip_848:
        for name in _NOT_WITH_KIP_848:
            if name in given:
                raise ConfigError(
                    f"kafka.consumer.{name}",
                    given[name],
                    "the broker decides it with group.protocol=consumer",
                    "leave it out, or set group.protocol=classic",
                )
    _check_strategy(given)
    defaults: dict[str, Any] = {
        # The prefetch is part of the worker's memory, so it has a bound.
        "queued.max.messages.kbytes": PREFETCH_KIB,
        # By default the client stops fetching for a second once its queue is full, and runs dry.
        "fetch.queue.backoff.ms": 20,
        "fetch.wait.max.ms": FETCH_WAIT_MS,
        "fetch.error.backoff.ms": 100,
    }
    if not kip_848:
        defaults["partition.assignment.strategy"] = COOPERATIVE
    static = {} if instance_id is None else {"group.instance.id": instance_id}
    return {**defaults, **given, **_values(_CONSUMER_OURS), "group.id": group, **static}


def reader_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of the client that reads the retry topics beside such a consumer.

    It is a member of no group, and reads less ahead unless the settings say how much.
    """
    reader = {name: value for name, value in config.items() if name != "group.instance.id"}
    if reader["queued.max.messages.kbytes"] == PREFETCH_KIB:
        reader["queued.max.messages.kbytes"] = PREFETCH_KIB // 4
    if reader["fetch.wait.max.ms"] == FETCH_WAIT_MS:
        # For a fetch that finds nothing the broker checks every tier: ten a second were enough to
        # delay one record of a hundred.
        reader["fetch.wait.max.ms"] = 250
    if "reconnect.backoff.ms" in reader:
        return reader
    # The default reconnects up to ten seconds after a broker is back, long after the member.
    return {"reconnect.backoff.max.ms": 1_000, **reader}


def _check_strategy(given: Mapping[str, Any]) -> None:
    """Require one strategy: with several, members of a group may agree on either protocol."""
    name = "partition.assignment.strategy"
    if name in given and given[name] not in (*EAGER, COOPERATIVE):
        mixed = "eager and cooperative strategies can't be mixed, and one must be named"
        raise ConfigError(
            f"kafka.consumer.{name}",
            given[name],
            mixed if "," in str(given[name]) else "no such strategy",
            f"set one of {', '.join((COOPERATIVE, *EAGER))}",
        )


def poll_limit_ms(config: Mapping[str, Any]) -> int:
    """How long a consumer may go without a poll, in milliseconds.

    Raises:
        ConfigError: `max.poll.interval.ms` is no whole number.
    """
    return _whole("consumer", "max.poll.interval.ms", config, MAX_POLL_INTERVAL_MS)


def check_drain(config: Mapping[str, Any], drain_s: float) -> None:
    """Refuse a drain so long that the group would expel the worker during a rebalance.

    Raises:
        ConfigError: it takes more than a third of `max.poll.interval.ms`.
    """
    interval_ms = poll_limit_ms(config)
    if drain_s * 3000 > interval_ms:
        raise ConfigError(
            "app.drain_timeout",
            f"{drain_s:g}s",
            f"over a third of kafka.consumer.max.poll.interval.ms={interval_ms}, after which the "
            "group expels a worker",
            f"lower it to {interval_ms / 3000:g}s, or raise the interval to "
            f"{round(drain_s * 3000)}",
        )


def quiet_consumer(
    options: KafkaOptions, group: str, more: Mapping[str, Any] | None = None
) -> Consumer:
    """A consumer that joins no group and logs nothing.

    Args:
        more: properties beside those of the group's consumers.

    Raises:
        ConfigError: a property is refused.
    """
    config = {"log_level": 2, **consumer_config(options, group), **(more or {})}
    return make_client(Consumer, "consumer", config)


def make_client(
    kind: Callable[..., Client], role: str, config: Mapping[str, Any], **given: Any
) -> Client:
    """Make a client.

    Raises:
        ConfigError: librdkafka does not know a property or does not take its value.
    """
    try:
        return kind(dict(config), **given)
    except KafkaException as exc:
        text = error_text(exc)
        if "GSSAPI" in text and not {"sasl.mechanism", "sasl.mechanisms"} & config.keys():
            raise ConfigError(
                "kafka.sasl_mechanism", "", "not set: the default, GSSAPI, is not in this client",
                "set it: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER",
            ) from None  # fmt: skip
        # Longest first: `acks` is part of other words.
        names = sorted((n for n in config if n in text), key=len, reverse=True)
        name = names[0] if names else ""
        secret = any(word in name for word in _SECRET)
        raise ConfigError(
            f"kafka.{role}.{name}" if name else f"kafka.{role}",
            "***" if secret else config.get(name, ""),
            "the client refuses it" if secret else text,
            "see librdkafka's CONFIGURATION.md for names and values",
        ) from None


def broker_assigns(config: Mapping[str, Any]) -> bool:
    """Whether the broker assigns a consumer its partitions: the protocol of KIP-848."""
    return str(config.get("group.protocol", "classic")).lower() == "consumer"


def incremental(config: Mapping[str, Any]) -> bool:
    """Whether a consumer's partitions come and go one by one, not all at once."""
    # Absent under KIP-848, which is incremental as well.
    return bool(config.get("partition.assignment.strategy", COOPERATIVE) == COOPERATIVE)


def leaves_in_silence(config: Mapping[str, Any]) -> bool:
    """Whether closing a member may fail to tell its group that it left; see `leave_group`."""
    return bool(config.get("partition.assignment.strategy") == COOPERATIVE)


def producer_config(options: KafkaOptions) -> dict[str, Any]:
    """The configuration of a producer; raises ConfigError as above."""
    given = _checked("producer", options.producer, _PRODUCER_OURS)
    defaults: dict[str, Any] = {
        # The client's own default refuses records near 1 MB before the broker sees them.
        "message.max.bytes": LARGEST_REQUEST,
        "linger.ms": 2,
        "compression.type": "lz4",
        # A missing topic or an absent broker must become a failed park soon, not in 5 minutes.
        "delivery.timeout.ms": 30_000,
        "topic.metadata.propagation.max.ms": 3_000,
    }
    return {**defaults, **given, **_values(_PRODUCER_OURS)}


def transactional_config(options: KafkaOptions, transactional_id: str) -> dict[str, Any]:
    """The configuration of a producer whose writes are transactions; raises ConfigError as above.

    A record's delivery timeout is at most the transaction's timeout.
    """
    defaults: dict[str, Any] = {
        "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
        # A transaction that begins while the last one's markers are written is retried after this
        # time; with the client's default of 100 ms, four fifths of the time is spent waiting.
        "retry.backoff.ms": 10,
    }
    config = {**defaults, **producer_config(options), "transactional.id": transactional_id}
    names = ("delivery.timeout.ms", "transaction.timeout.ms")
    limits_ms = [_whole("producer", name, config) for name in names]
    return {**config, "delivery.timeout.ms": min(limits_ms)}


def admin_config(options: KafkaOptions) -> dict[str, Any]:
    """The admin client's configuration."""
    return {"allow.auto.create.topics": False, **_checked("admin", options.admin, {})}


def _whole(
    role: str,
    name: str,
    config: Mapping[str, Any],
    default: int | None = None,
    what: str = "milliseconds",
) -> int:
    """The number that a property holds; raises ConfigError if it is no whole number."""
    value = config.get(name, default)
    try:
        return int(str(value))
    except ValueError:
        why, fix = f"not a number of {what}", "write a whole number, without a unit"
        raise ConfigError(f"kafka.{role}.{name}", value, why, fix) from None


def whole_bytes(config: Mapping[str, Any], name: str) -> int:
    """The bytes that a producer's property holds; raises ConfigError if it is no whole number."""
    return _whole("producer", name, config, what="bytes")


def _values(ours: Mapping[str, _Ours]) -> dict[str, Any]:
    return {name: own.value for name, own in ours.items()}


def _checked(role: str, given: Mapping[str, Any], ours: Mapping[str, _Ours]) -> dict[str, Any]:
    checked: dict[str, Any] = {}
    for raw_name, value in given.items():
        name = _ALIASES.get(raw_name, raw_name)
        field_name = f"kafka.{role}.{raw_name}"
        if name in _FORBIDDEN:
            raise ConfigError(field_name, value, *_FORBIDDEN[name])
        if name in _CALLBACKS:
            raise ConfigError(
                field_name, value, "this callback is used by ackfloor", "leave it out"
            )
        if name in ours and not _same(value, ours[name].value):
            raise ConfigError(field_name, value, ours[name].why, ours[name].fix)
        if name in checked:
            raise ConfigError(field_name, value, f"is the same as {name}", "set it once")
        checked[name] = value
    return checked


def _same(value: object, own: object) -> bool:
    if isinstance(own, bool):
        return str(value).lower() in (("true", "1") if own else ("false", "0"))
    text = str(value).lower()
    return text == str(own) or (own == "all" and text == "-1")
