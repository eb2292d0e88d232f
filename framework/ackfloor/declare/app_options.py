"""AppOptions: the settings that `App(...)` takes, each by its name and type.

They are those of `[app]`, which `AppSettings` checks, and of `[kafka]` and `[registry]` as one
argument each (tests/framework/test_app_options.py holds them to the settings).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, TypedDict

#: A timedelta, or text with a unit ("30s").
Duration = timedelta | str
#: Bytes, or text with a unit ("256MiB").
Size = int | str


class KafkaArguments(TypedDict, total=False):
    """`App(kafka=...)`: how to reach the brokers."""

    bootstrap_servers: str | Sequence[str]
    client_id: str
    security_protocol: Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"] | None
    sasl_mechanism: (
        Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "OAUTHBEARER"] | None
    )
    sasl_username: str | None
    sasl_password: str | None
    sasl_oauthbearer_method: Literal["default", "oidc"] | None
    sasl_oauthbearer_client_id: str | None
    sasl_oauthbearer_client_secret: str | None
    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_oauthbearer_scope: str | None
    ssl_ca_location: str | None
    ssl_certificate_location: str | None
    ssl_key_location: str | None
    ssl_key_password: str | None
    properties: Mapping[str, Any]
    consumer: Mapping[str, Any]
    producer: Mapping[str, Any]
    admin: Mapping[str, Any]


class RegistryArguments(TypedDict, total=False):
    """`App(registry=...)`: the schema registry."""

    url: str | None
    username: str | None
    password: str | None
    ssl_ca_location: str | None
    ssl_certificate_location: str | None
    ssl_key_location: str | None
    ssl_key_password: str | None
    timeout: Duration
    wait: Duration


class AppOptions(TypedDict, total=False):
    """What a worker does and within which limits; docs/reference/config.md says what each means."""

    workers: int
    start: Literal["earliest", "latest"]
    max_open: int
    max_open_bytes: Size
    partition_open: int
    partition_open_bytes: Size
    partition_span: int
    tier_buffer: int
    commit_interval: Duration
    commit_count: int
    drain_timeout: Duration
    shutdown_timeout: Duration
    cancel_grace: Duration
    max_abandoned_threads: int
    parking: Literal["at_least_once", "transactional"]
    transactional_id_prefix: str | None
    static_membership: bool
    instance_id_prefix: str
    create_topics: bool
    replication_factor: int | None
    dlq_retention: Duration
    pattern_interval: Duration
    max_pattern_topics: int
    listen: str
    tls_certificate: str | None
    tls_key: str | None
    tls_ca: str | None
    look_interval: Duration
    control: Literal["local", "remote", "off"]
    control_token_file: str | None
    plain_token: bool
    log_level: Literal["debug", "info", "warning", "error"]
    log_format: Literal["text", "json"]
    release: str | None
    foreign_headers: Sequence[Literal["spring", "kafka"]]
    kafka: KafkaArguments
    registry: RegistryArguments
