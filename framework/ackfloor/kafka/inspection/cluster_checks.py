"""The doctor's checks of the cluster: connection, permissions, clock. Changes nothing.

Permissions are those that the broker reports for this user; nothing is tried out. So two are not
checked because a broker does not report them: the one on a transactional id, and the one to create
topics if it is limited to some names.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import confluent_kafka
from confluent_kafka import (
    ConsumerGroupState,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclOperation,
    AdminClient,
    ConfigResource,
    OffsetSpec,
)

from ackfloor.core.values.doctor_result import CheckResult, State
from ackfloor.kafka.client.admin_client import AdminConnection
from ackfloor.kafka.client.client_errors import DENIED, error_text, kafka_error
from ackfloor.kafka.client.client_options import KafkaOptions
from ackfloor.kafka.groups.coordinator import coordinated
from ackfloor.kafka.topics.permissions import DISPENSABLE, FOR_RESULTS, named, needed

REQUEST_S = 10.0
PROBE_S = 1.0
#: Seconds that a record may be ahead of this machine's clock.
AHEAD_S = 5.0

_MAX_TIMESTAMP: OffsetSpec = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]

_NEW_GROUP = "new: it has had no members yet"
_UNREACHABLE = "start one (ackfloor broker up), or set ACKFLOOR_BOOTSTRAP_SERVERS"


@dataclass(frozen=True, slots=True)
class Connection:
    """The result of connecting.

    Attributes:
        admin: a connected client; None if no broker answered.
        refused: a broker was reached, and refused the client.
        brokers: how many there are.
    """

    admin: AdminClient | None
    result: CheckResult
    refused: bool = False
    brokers: int = 0


def connect(options: KafkaOptions, timeout_s: float) -> Connection:
    """Connect, or find out why not.

    Raises:
        ConfigError: a client property is refused.
    """
    connection, until_s = AdminConnection(options), time.monotonic() + timeout_s
    while True:
        try:
            brokers = len(connection.admin.list_topics(timeout=PROBE_S).brokers)
        except KafkaException as exc:
            refused = connection.refusal()
            if refused is not None:
                found = CheckResult("brokers", "fail", refused.why, refused.fix)
                return Connection(None, found, refused.let_in)
            if time.monotonic() < until_s:
                continue
            why = f"within {timeout_s:g} s: {connection.why(exc)}"
            servers = f"{connection.servers}{' (the default)' * connection.by_default}"
            text = f"no broker has answered at {servers} {why}"
            return Connection(None, CheckResult("brokers", "fail", text, _UNREACHABLE))
        found = CheckResult("brokers", "ok", f"{brokers} known through {connection.servers}")
        return Connection(connection.admin, found, brokers=brokers)


def versions() -> CheckResult:
    """The versions of the Kafka client and of librdkafka."""
    client, library = confluent_kafka.__version__, confluent_kafka.libversion()[0]
    return CheckResult("client", "ok", f"confluent-kafka {client}, librdkafka {library}")


def group_protocol(admin: AdminClient, wanted: str) -> CheckResult:
    """Whether the brokers support the rebalance protocol that the group is to use."""
    check, name = "group protocol", "group.coordinator.rebalance.protocols"
    try:
        broker = next(iter(admin.list_topics(timeout=REQUEST_S).brokers))
        resource = ConfigResource(ConfigResource.Type.BROKER, str(broker))
        (future,) = admin.describe_configs([resource], request_timeout=REQUEST_S).values()
        entry = future.result(REQUEST_S + 1.0).get(name)
    except (KafkaException, TimeoutError) as exc:
        fix = "grant DESCRIBE_CONFIGS on the cluster to have it looked at"
        return CheckResult(
            check, "not tried", f"{wanted}; the brokers don't say: {error_text(exc)}", fix
        )
    supported = "classic" if entry is None else str(entry.value)
    if wanted in supported.split(","):
        return CheckResult(check, "ok", f"{wanted}; the brokers speak {supported}")
    fix = 'leave out kafka.consumer."group.protocol", or use brokers from 4.0 on'
    return CheckResult(
        check, "fail", f"{wanted} is not among what the brokers speak: {supported}", fix
    )


def group_permissions(admin: AdminClient, group: str) -> CheckResult:
    """Whether this user may join the group, and how many members it has."""
    check, fix = f"group {group}", f"grant READ on group {group}"
    try:
        found = _described(admin, group)
    except (KafkaException, TimeoutError) as exc:
        error = kafka_error(exc)
        if error is not None and error.code() == KafkaError.GROUP_ID_NOT_FOUND:
            return CheckResult(check, "ok", _NEW_GROUP)
        if error is not None and error.code() in DENIED:
            return CheckResult(check, "fail", error_text(exc), fix)
        return CheckResult(check, "not tried", error_text(exc), "ask again")
    allowed = found.authorized_operations
    if allowed is not None and AclOperation.READ not in allowed:
        return CheckResult(check, "fail", "this user may not work in it", fix)
    if found.state is ConsumerGroupState.DEAD:
        return CheckResult(check, "ok", _NEW_GROUP)
    return CheckResult(check, "ok", f"{found.state.name.lower()}, members: {len(found.members)}")


def _described(admin: AdminClient, group: str) -> Any:
    """A group as its coordinator describes it."""

    def ask() -> Any:
        futures = admin.describe_consumer_groups(
            [group], include_authorized_operations=True, request_timeout=REQUEST_S
        )
        return futures[group].result(REQUEST_S + 1.0)

    return coordinated(ask, REQUEST_S)


def topic_permissions(
    admin: AdminClient, topics: Collection[str], unseen: Collection[str] = ()
) -> Iterator[CheckResult]:
    """Whether this user has the permissions on each topic that a worker needs.

    Args:
        topics: those that this user sees.
        unseen: those that don't exist or are hidden from the user; only hidden ones are reported.
    """
    asked = sorted(name for name in {*topics, *unseen} if needed(name))
    futures = _permissions(admin, asked)
    for name in asked:
        found = _topic_right(f"rights on {name}", name, needed(name), futures[name])
        if name in topics or found.state == "fail":
            yield found


def result_permissions(admin: AdminClient, topics: Collection[str]) -> Iterator[CheckResult]:
    """Whether this user may write to the topics that results of handlers go to, which exist."""
    futures = _permissions(admin, topics)
    for name in sorted(topics):
        yield _topic_right(f"rights to publish to {name}", name, FOR_RESULTS, futures[name])


def _permissions(admin: AdminClient, topics: Collection[str]) -> Mapping[str, Future[Any]]:
    """What this user may do with topics."""
    if not topics:
        return {}
    futures: Mapping[str, Future[Any]] = admin.describe_topics(
        TopicCollection([*topics]),
        include_authorized_operations=True,
        request_timeout=REQUEST_S,
    )
    return futures


def _topic_right(
    check: str, name: str, wanted: Sequence[AclOperation], future: Future[Any]
) -> CheckResult:
    try:
        allowed = future.result(REQUEST_S + 1.0).authorized_operations
    except (KafkaException, TimeoutError) as exc:
        error = kafka_error(exc)
        state: State = "fail" if error is not None and error.code() in DENIED else "not tried"
        return CheckResult(check, state, error_text(exc), f"grant {named(wanted)} on topic {name}")
    if allowed is None:
        return CheckResult(check, "not tried", "this broker does not report a user's permissions")
    lacking = [operation for operation in wanted if operation not in allowed]
    if not lacking:
        return CheckResult(check, "ok", named(wanted))
    fix = f"grant {named(lacking)} on topic {name}"
    if DISPENSABLE.issuperset(lacking):
        text = "a worker works without; what the topic is like can't be compared with the plan"
        return CheckResult(check, "warn", f"not allowed: {named(lacking)}; {text}", fix)
    return CheckResult(check, "fail", f"not allowed: {named(lacking)}", fix)


def clock(admin: AdminClient, topics: Mapping[str, int]) -> CheckResult:
    """Whether this machine's clock is behind the producers' clocks: then retries come late.

    Args:
        topics: name -> number of partitions.
    """
    asked = {
        TopicPartition(name, number): _MAX_TIMESTAMP
        for name, count in topics.items()
        for number in range(count)
    }
    newest_ms, newest = -1, ""
    futures = admin.list_offsets(asked, request_timeout=REQUEST_S) if asked else {}
    for place, future in futures.items():
        try:
            at_ms = future.result(REQUEST_S + 1.0).timestamp
        except (KafkaException, TimeoutError):
            continue
        if at_ms > newest_ms:
            newest_ms, newest = at_ms, f"{place.topic}/{place.partition}"
    if newest_ms < 0:
        return CheckResult("clock", "not tried", "there are no records to compare it with")
    ahead_s = newest_ms / 1000 - time.time()
    if ahead_s <= AHEAD_S:
        return CheckResult("clock", "ok", "no record is from the future")
    text = f"the newest record of {newest} is {ahead_s:.0f} s ahead of this machine's clock"
    return CheckResult("clock", "warn", text, "set this machine's clock, or the producer's")
