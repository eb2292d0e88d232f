"""Security settings in librdkafka's words reach Spark's Java client in its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackfloor_monitoring.spark.setup.kafka_options import kafka_options
from ackfloor_monitoring.spark.spark_errors import SecuritySettingRefused

PEM = "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\nMII\n-----END PRIVATE KEY-----\n"


def test_without_security_only_the_address_is_set() -> None:
    """A plaintext broker needs nothing else."""
    assert kafka_options("h:1,h:2") == {"kafka.bootstrap.servers": "h:1,h:2"}


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [
        ("PLAIN", "org.apache.kafka.common.security.plain.PlainLoginModule"),
        ("SCRAM-SHA-512", "org.apache.kafka.common.security.scram.ScramLoginModule"),
    ],
)
@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
def test_a_login_becomes_one_jaas_string(mechanism: str, module: str, name: str) -> None:
    """User and password are quoted the way Java's parser takes them."""
    options = kafka_options(
        "h:1",
        {
            "security.protocol": "sasl_ssl",
            name: mechanism,
            "sasl.username": "bo",
            "sasl.password": 'a"b\\c; d',
        },
    )
    assert options == {
        "kafka.bootstrap.servers": "h:1",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": mechanism,
        "kafka.sasl.jaas.config": f'{module} required username="bo" password="a\\"b\\\\c; d";',
    }


def test_certificates_become_pem_stores(tmp_path: Path) -> None:
    """The authority goes in by path, the client's own certificate and key by content."""
    certificate, key = tmp_path / "client.pem", tmp_path / "client.key"
    certificate.write_text(PEM)
    key.write_text(KEY)
    options = kafka_options(
        "h:1",
        {
            "security.protocol": "ssl",
            "ssl.ca.location": "/etc/ca.pem",
            "ssl.certificate.location": str(certificate),
            "ssl.key.location": str(key),
            "ssl.key.password": "secret",
            "ssl.endpoint.identification.algorithm": "none",
        },
    )
    assert options == {
        "kafka.bootstrap.servers": "h:1",
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": "/etc/ca.pem",
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": PEM,
        "kafka.ssl.keystore.key": KEY,
        "kafka.ssl.key.password": "secret",
        "kafka.ssl.endpoint.identification.algorithm": "",
    }


def test_javas_own_options_pass_as_they_are() -> None:
    """What is already in the words of Spark's source needs no translation."""
    assert kafka_options("h:1", {"kafka.client.id": "x"})["kafka.client.id"] == "x"


@pytest.mark.parametrize(
    ("security", "told"),
    [
        ({"enable.ssl.certificate.verification": "false"}, "enable.ssl.certificate.verification"),
        ({"sasl.mechanism": "PLAIN", "sasl.username": "bo"}, "sasl.password is missing"),
        ({"sasl.mechanism": "PLAIN", "sasl.password": "x"}, "sasl.username is missing"),
        ({"sasl.mechanism": "GSSAPI", "sasl.username": "bo", "sasl.password": "x"}, "GSSAPI"),
        ({"ssl.key.location": "k"}, "ssl.certificate.location is missing"),
        ({"ssl.certificate.location": "c"}, "ssl.key.location is missing"),
        ({"ssl.certificate.location": "gone", "ssl.key.location": "gone"}, "cannot be read"),
    ],
)
def test_what_has_no_counterpart_is_refused(security: dict[str, str], told: str) -> None:
    """A security setting is translated or refused by its name, never left out."""
    with pytest.raises(SecuritySettingRefused, match=told) as caught:
        kafka_options("h:1", security)
    assert "'x'" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_key_in_the_older_form_is_refused_with_the_command(tmp_path: Path) -> None:
    """Java reads PKCS #8 only; the message has the line that converts."""
    key = tmp_path / "client.key"
    key.write_text("-----BEGIN RSA PRIVATE KEY-----\n")
    security = {"ssl.certificate.location": str(key), "ssl.key.location": str(key)}
    with pytest.raises(SecuritySettingRefused, match="openssl pkcs8 -topk8"):
        kafka_options("h:1", security)
