"""Turns the workers' Kafka settings, librdkafka's, into options of Spark's Kafka source.

Spark uses the Java client, which has other names for the same things: a login is one JAAS string,
and certificates are stores. A setting without a counterpart is refused, because a security setting
that is silently left out is worse than an error. Options with Java's names (`kafka.…`) pass as they
are.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ackfloor_monitoring.spark.spark_errors import SecuritySettingRefused

if TYPE_CHECKING:
    from ackfloor.settings import KafkaSettings

_SAME_NAME = {
    "sasl.kerberos.service.name": "kafka.sasl.kerberos.service.name",
    "ssl.cipher.suites": "kafka.ssl.cipher.suites",
    "ssl.key.password": "kafka.ssl.key.password",
}
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def kafka_options(
    bootstrap_servers: str, security: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The connection part of the options that `io.read_topics` takes.

    Args:
        bootstrap_servers: `host:port`, comma-separated.
        security: librdkafka's `security.protocol`, `sasl.*` and `ssl.*` settings.

    Raises:
        SecuritySettingRefused: a setting has no counterpart; the message names what to pass.
    """
    options = {"kafka.bootstrap.servers": bootstrap_servers}
    settings = dict(security or {})
    if protocol := settings.pop("security.protocol", None):
        options["kafka.security.protocol"] = protocol.upper()
    options |= _login(settings)
    options |= _stores(settings)
    for name, value in settings.items():
        if name.startswith("kafka."):
            options[name] = value
        elif name in _SAME_NAME:
            options[_SAME_NAME[name]] = value
        else:
            raise SecuritySettingRefused(
                f"security setting {name}: Spark's Kafka client has no setting of that name; "
                "pass the Java client's own as kafka.<name>"
            )
    return options


def connection_options(settings: KafkaSettings) -> dict[str, str]:
    """The same from the settings that a worker is given, `[kafka]`.

    Of its properties only those for access count; the Java client does not know librdkafka's
    tuning. Raises as `kafka_options` does.
    """
    known = settings.librdkafka("consumer")
    security = {
        name: str(value)
        for name, value in known.items()
        if name.startswith(("security.", "sasl.", "ssl."))
    }
    return kafka_options(settings.bootstrap_servers, security)


def _login(settings: dict[str, str]) -> dict[str, str]:
    # librdkafka takes the name in the plural as well.
    mechanism = settings.pop("sasl.mechanism", None) or settings.get("sasl.mechanisms")
    settings.pop("sasl.mechanisms", None)
    username = settings.pop("sasl.username", None)
    password = settings.pop("sasl.password", None)
    options = {"kafka.sasl.mechanism": mechanism} if mechanism else {}
    if username is None and password is None:
        return options
    if username is None or password is None:
        missing = "sasl.username" if username is None else "sasl.password"
        raise SecuritySettingRefused(f"security setting {missing} is missing: give both or none")
    module = _LOGIN_MODULES.get(mechanism or "")
    if module is None:
        raise SecuritySettingRefused(
            f"sasl.mechanism={mechanism!r} takes no user name: use one of "
            f"{', '.join(_LOGIN_MODULES)}, or pass kafka.sasl.jaas.config"
        )
    options["kafka.sasl.jaas.config"] = (
        f"{module} required username={_quoted(username)} password={_quoted(password)};"
    )
    return options


def _stores(settings: dict[str, str]) -> dict[str, str]:
    """PEM files as Java stores; key and certificate go in by content, being two files."""
    options = {}
    if authority := settings.pop("ssl.ca.location", None):
        options["kafka.ssl.truststore.type"] = "PEM"
        options["kafka.ssl.truststore.location"] = authority
    certificate = settings.pop("ssl.certificate.location", None)
    key = settings.pop("ssl.key.location", None)
    if certificate or key:
        if not (certificate and key):
            missing = "ssl.key.location" if certificate else "ssl.certificate.location"
            raise SecuritySettingRefused(
                f"security setting {missing} is missing: give both or none"
            )
        options["kafka.ssl.keystore.type"] = "PEM"
        options["kafka.ssl.keystore.certificate.chain"] = _pem(
            "ssl.certificate.location", certificate
        )
        options["kafka.ssl.keystore.key"] = _key(key)
    algorithm = settings.pop("ssl.endpoint.identification.algorithm", None)
    if algorithm is not None:
        # Java has no value "none": an empty value switches the check off.
        options["kafka.ssl.endpoint.identification.algorithm"] = (
            "" if algorithm == "none" else algorithm
        )
    return options


def _key(path: str) -> str:
    key = _pem("ssl.key.location", path)
    if "BEGIN PRIVATE KEY" not in key and "BEGIN ENCRYPTED PRIVATE KEY" not in key:
        raise SecuritySettingRefused(
            f"ssl.key.location={path!r} is not in PKCS #8 form, which Java needs: convert it with "
            "`openssl pkcs8 -topk8 -nocrypt -in KEY -out NEW_KEY`"
        )
    return key


def _pem(setting: str, path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except OSError as error:
        raise SecuritySettingRefused(
            f"{setting}={path!r} cannot be read: {error.strerror}"
        ) from None


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
