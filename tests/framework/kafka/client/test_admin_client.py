"""Why nobody answers, in words; with logins and certificates it is in the tests of the doctor."""

from __future__ import annotations

import re
from typing import Any

import pytest
from confluent_kafka import KafkaError

from ackfloor.errors import KafkaUnreachable
from ackfloor.kafka.client import admin_client as contact
from ackfloor.kafka.client.admin_client import AdminConnection
from ackfloor.kafka.client.client_options import KafkaOptions
from ackfloor.kafka.client.login_failures import refusal
from ackfloor.settings import Settings
from tests.framework.kafka.wire import until

NOWHERE = "127.0.0.1:1"


def told(by_default: bool = False, **config: Any) -> str:
    """The error of a contact with these brokers."""
    admin = {"bootstrap.servers": NOWHERE, **{k.replace("_", "."): v for k, v in config.items()}}
    with pytest.raises(KafkaUnreachable) as silent:
        AdminConnection(KafkaOptions(admin=admin, by_default=by_default)).metadata()
    return str(silent.value)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is there who might answer."""
    monkeypatch.setattr(contact, "PATIENCE_S", 1.0)
    monkeypatch.setattr(contact, "REFUSED_S", 0.5)


def test_a_refused_connection_is_told_with_the_address() -> None:
    """And what to do; who looks closer comes last."""
    until(lambda: "Connection refused" in told())
    assert re.match(
        rf"kafka\.bootstrap_servers='{NOWHERE}': no broker has answered within \d+ s: ", told()
    )
    assert told().endswith(
        "; start one (ackfloor broker up), or set ACKFLOOR_BOOTSTRAP_SERVERS; "
        "`ackfloor doctor` looks closer"
    )


def test_an_address_that_nobody_has_set_says_so() -> None:
    """In any of the places where it may be set."""
    assert told(by_default=True).startswith(f"kafka.bootstrap_servers='{NOWHERE}' (the default): ")
    assert Settings.load(environment={}).kafka.by_default
    for name in ("BOOTSTRAP_SERVERS", "KAFKA__BOOTSTRAP_SERVERS"):
        assert not Settings.load(environment={f"ACKFLOOR_{name}": "h:1"}).kafka.by_default
    code = {"kafka": {"properties": {"bootstrap.servers": "h:1"}}}
    assert not Settings.load(code=code, environment={}).kafka.by_default


def test_a_host_without_an_address_is_told() -> None:
    """A broker need not be started for that."""
    text = ""

    def unknown() -> bool:
        nonlocal text
        text = told(bootstrap_servers="no-such-host.invalid:9092")
        return "mend the host's name in kafka.bootstrap_servers" in text

    until(unknown)
    assert "broker up" not in text


def test_a_listener_without_logins_names_the_protocol() -> None:
    """What it says itself is about its state."""
    words = "Broker: Request not valid in current SASL state: broker's supported mechanisms:"
    found = refusal([KafkaError(KafkaError._AUTHENTICATION, words)])
    assert found is not None
    assert found.fix == "this listener takes no logins: mend kafka.security_protocol"


def test_a_mended_refusal_gives_way_to_the_next_one() -> None:
    """The client repeats no error, so that a mended one would stay among the last for long."""
    here = "sasl_ssl://here:9092/bootstrap: "
    certificate = KafkaError(KafkaError._SSL, f"{here}SSL handshake failed")
    password = KafkaError(KafkaError._AUTHENTICATION, f"{here}Authentication failed")
    down = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")
    elsewhere = KafkaError(KafkaError._SSL, "sasl_ssl://there:9092/bootstrap: SSL handshake failed")

    def why(*errors: KafkaError) -> str:
        found = refusal(errors)
        assert found is not None
        return found.why

    assert "Authentication failed" in why(certificate, down, password)
    assert "handshake failed" in why(password, certificate, down)
    assert "there:9092" in why(elsewhere, password)
