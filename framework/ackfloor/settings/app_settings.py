"""AppSettings: `[app]`, a worker's behaviour and limits."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from ackfloor.core.parking.topic_names import check_group
from ackfloor.core.queues.flow_limits import MIB, FlowLimits
from ackfloor.core.values.setting_error import SettingError
from ackfloor.settings.value_types import (
    Duration,
    OptionalDuration,
    PositiveDuration,
    Size,
    listed,
)

ForeignHeaders = Literal["spring", "kafka"]


class AppSettings(BaseModel):
    """What a worker does and within which limits."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    group: str = Field(default="", description="The consumer group; `App(group=...)` gives it.")
    workers: int = Field(default=1, ge=1, le=1024, description="Worker processes of one `run`.")
    start: Literal["earliest", "latest"] = Field(
        default="earliest",
        description="Where a group without commits begins (not in broadcast mode: at the end).",
    )
    max_open: int = Field(
        default=50_000, ge=1, description="Open records a worker holds before it stops fetching."
    )
    max_open_bytes: Size = Field(
        default=256 * MIB,
        ge=1,
        description="Bytes of open records a worker holds before it stops fetching.",
    )
    partition_open: int = Field(
        default=25_000, ge=1, description="Of these, open records of one partition."
    )
    partition_open_bytes: Size = Field(
        default=128 * MIB, ge=1, description="Bytes of the open records of one partition."
    )
    partition_span: int = Field(
        default=100_000, ge=1, description="Offsets between a partition's floor and its position."
    )
    tier_buffer: int = Field(
        default=500, ge=1, description="Waiting records held of one retry-topic partition."
    )
    commit_interval_s: PositiveDuration = Field(
        default=1.0, alias="commit_interval", description="Time between commits."
    )
    commit_count: int = Field(
        default=10_000, ge=1, description="Settled records that bring a commit forward."
    )
    drain_timeout_s: Duration = Field(
        default=10.0,
        alias="drain_timeout",
        description="How long running handlers may finish when partitions are taken away.",
    )
    shutdown_timeout_s: Duration = Field(
        default=30.0,
        alias="shutdown_timeout",
        description="How long running handlers may finish at the end.",
    )
    cancel_grace_s: Duration = Field(
        default=5.0,
        alias="cancel_grace",
        description="How long a cancelled async handler keeps its slot before it is abandoned.",
    )
    max_abandoned_threads: int = Field(
        default=256, ge=1, description="Abandoned threads at which a worker drains and is replaced."
    )
    parking: Literal["at_least_once", "transactional"] = Field(
        default="at_least_once",
        description="Whether a parked record and the commit that settles it are one transaction, "
        "so that no crash can leave the record in two places.",
    )
    transactional_id_prefix: str | None = Field(
        default=None,
        min_length=1,
        description="Begins the transactional ids, before the worker's number; unset means group "
        "and host name. Two runs of a group must not share it.",
    )
    static_membership: bool = Field(
        default=False,
        description="A worker that is restarted within the session timeout gets its partitions "
        "back, and the others keep theirs.",
    )
    instance_id_prefix: str = Field(
        default="ackfloor",
        description="Begins the workers' names in the group under static membership, before host "
        "and worker number. Two runs of a group on one host must not share it.",
    )
    create_topics: bool = Field(
        default=True, description="Create missing retry and dead-letter topics at start."
    )
    replication_factor: int | None = Field(
        default=None, ge=1, description="Of created topics; unset means the source topic's."
    )
    dlq_retention_s: PositiveDuration = Field(
        default=30 * 86_400.0, alias="dlq_retention", description="How long dead letters are kept."
    )
    pattern_interval_s: PositiveDuration = Field(
        default=30.0,
        alias="pattern_interval",
        description="Time between two looks of a worker for new topics that a pattern of a handler "
        "matches; each looks at half to one and a half times of it.",
    )
    max_pattern_topics: int = Field(
        default=100, ge=1, description="How many topics one pattern of a handler may stand for."
    )
    listen: str = Field(
        default="127.0.0.1:9600", description="Where metrics and health are served."
    )
    tls_certificate: str | None = Field(
        default=None,
        description="The file of the certificate, and those it is signed by, with which that "
        "address is served over TLS; unset means plain HTTP.",
    )
    tls_key: str | None = Field(
        default=None, description="The file of its key; unset means in the same file."
    )
    tls_ca: str | None = Field(
        default=None,
        description="Whom commands trust at an https address of a run: a file of certificates; "
        "unset means the system's.",
    )
    look_interval_s: OptionalDuration = Field(
        default=30.0,
        alias="look_interval",
        description="Time between two looks of the run at Kafka, for the metrics of its group's "
        "lag and dead letters; `none` for no look.",
    )
    control: Literal["local", "remote", "off"] = Field(
        default="local",
        description="Who may change settings at that address with the run's token: this machine, "
        "any, or nobody.",
    )
    control_token_file: str | None = Field(
        default=None,
        description="The file of that token; unset means one for each address in the user's "
        "runtime folder.",
    )
    plain_token: bool = Field(
        default=False,
        description="Whether commands send that token to a run on another machine without TLS.",
    )
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        BeforeValidator(lambda value: value.lower() if isinstance(value, str) else value),
    ] = Field(default="info", description="The least severe messages that are logged.")
    log_format: Literal["text", "json"] = Field(
        default="text", description="How log lines are written."
    )
    release: str | None = Field(
        default=None,
        description="The running release, written to parked records; also ACKFLOOR_RELEASE.",
    )
    foreign_headers: Annotated[tuple[ForeignHeaders, ...], BeforeValidator(listed)] = Field(
        default=(),
        description="Also write the headers of `spring` (kafka_dlt-*) or `kafka` (__dlq.errors.*).",
    )

    @field_validator("group")
    @classmethod
    def _legal_group(cls, value: str) -> str:
        if value:
            check_group(value)
        return value

    @field_validator("instance_id_prefix")
    @classmethod
    def _legal_name(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,100}", value):
            why = "not a name that Kafka takes"
            fix = "write 1 to 100 letters, digits, dots, underscores or dashes"
            raise SettingError("instance_id_prefix", value, why, fix)
        return value

    @field_validator("listen")
    @classmethod
    def _host_and_port(cls, value: str) -> str:
        host, _, port = value.rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
            raise SettingError(
                "listen", value, "not an address", 'write host:port, such as "127.0.0.1:9600"'
            )
        return value

    @property
    def address(self) -> str:
        """Where commands find the run."""
        return f"https://{self.listen}" if self.tls_certificate else self.listen

    @property
    def transactional(self) -> bool:
        """Whether parked records are written in transactions."""
        return self.parking == "transactional"

    @property
    def limits(self) -> FlowLimits:
        """How much a worker holds at once."""
        return FlowLimits(
            self.max_open,
            self.max_open_bytes,
            self.partition_span,
            self.tier_buffer,
            self.partition_open,
            self.partition_open_bytes,
        )
