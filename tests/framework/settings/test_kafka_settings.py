"""KafkaSettings: one description for all clients, and secrets that never show."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackfloor.errors import ConfigError
from ackfloor.settings import Settings

LOGIN = {"security_protocol": "sasl_ssl", "sasl_mechanism": "PLAIN", "sasl_username": "u"}


def load(environment: dict[str, str] | None = None, **kafka: object) -> Settings:
    """Settings of `[kafka]` alone."""
    return Settings.load({"kafka": kafka}, environment=environment or {})


def test_login_and_encryption_reach_all_clients_alike() -> None:
    """By librdkafka's names, secrets in the open."""
    kafka = load(**LOGIN, sasl_password="pw", ssl_ca_location="/ca", ssl_key_password="kp").kafka

    for role in ("consumer", "producer", "admin"):
        configuration = kafka.librdkafka(role)  # type: ignore[arg-type]
        assert configuration == {
            "bootstrap.servers": "localhost:9092",
            "client.id": "ackfloor",
            "security.protocol": "sasl_ssl",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "u",
            "sasl.password": "pw",
            "ssl.ca.location": "/ca",
            "ssl.key.password": "kp",
        }


def test_any_librdkafka_property_can_be_passed_and_the_clients_own_wins() -> None:
    """From code, from the file's nested tables, and from variables."""
    kafka = load(
        {"ACKFLOOR_KAFKA__PRODUCER__LINGER_MS": "7"},
        properties={"socket.timeout.ms": 1, "client.rack": "a"},
        consumer={"client": {"rack": "b"}, "fetch.min.bytes": 10},
    ).kafka

    consumer, producer = kafka.librdkafka("consumer"), kafka.librdkafka("producer")
    assert (consumer["client.rack"], producer["client.rack"]) == ("b", "a")
    assert consumer["fetch.min.bytes"] == 10
    assert producer["linger.ms"] == "7"
    assert consumer["socket.timeout.ms"] == producer["socket.timeout.ms"] == 1


def test_callbacks_can_be_passed_in_code() -> None:
    """Token callbacks are functions, which no file can hold."""

    def token(configuration: str) -> tuple[str, float]:
        return ("t", 0.0)

    assert load(properties={"oauth_cb": token}).kafka.librdkafka("admin")["oauth_cb"] is token


def test_a_default_gives_way_to_a_property_but_a_setting_does_not() -> None:
    """Setting one thing in two places is refused."""
    assert load(properties={"client.id": "x"}).kafka.librdkafka("admin")["client.id"] == "x"
    with pytest.raises(ConfigError, match=r"kafka\.client_id='a': is set as kafka\.consumer\.clie"):
        load(client_id="a", consumer={"client.id": "b"})


@pytest.mark.parametrize("protocol", [None, "ssl", "plaintext"])
def test_credentials_that_would_not_be_used_are_refused(protocol: str | None) -> None:
    """Forgetting the protocol would otherwise connect without a login, or time out."""
    with pytest.raises(ConfigError, match=r"kafka\.sasl_username='u': no login happens"):
        load(security_protocol=protocol, sasl_username="u")


def test_the_protocol_may_also_be_passed_as_a_property() -> None:
    """The check looks at what librdkafka will see."""
    assert load(properties={"security.protocol": "SASL_SSL"}, sasl_username="u").kafka


@pytest.mark.parametrize("content", ["s3cret", "s3cret\n"])
def test_a_secret_can_be_given_as_a_file(tmp_path: Path, content: str) -> None:
    """As mounted secrets are: by variable or in the settings file; one line end is dropped."""
    file = tmp_path / "pw"
    file.write_text(content, "utf-8")

    by_variable = load({"ACKFLOOR_KAFKA__SASL_PASSWORD_FILE": str(file)})
    in_code = load(sasl_password_file=file)

    for settings in (by_variable, in_code):
        assert settings.kafka.librdkafka("admin")["sasl.password"] == "s3cret"
    assert by_variable.source_of("kafka.sasl_password") == (
        f"file {file} (environment ACKFLOOR_KAFKA__SASL_PASSWORD_FILE)"
    )


def test_a_secrets_file_must_be_readable_and_alone(tmp_path: Path) -> None:
    """A missing mount is told by its path."""
    with pytest.raises(ConfigError, match=r"kafka\.sasl_password_file='/none': No such file"):
        load(sasl_password_file="/none")
    with pytest.raises(ConfigError, match="a text file"):
        load(sasl_password_file=3.5)
    (tmp_path / "pw").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="a text file"):
        load(sasl_password_file=tmp_path / "pw")
    with pytest.raises(ConfigError, match=r"kafka\.sasl_password is set as well"):
        load(sasl_password_file="/none", sasl_password="x")
    with pytest.raises(ConfigError, match=r"kafka\.client_id_file=.*no such setting"):
        load(client_id_file="/none")


@pytest.mark.parametrize(
    "kafka",
    [
        {"sasl_password": ["s3cret"]},
        {"sasl_passwrd": "s3cret"},
        {"sasl_password": "s3cret", "properties": {"sasl.password": "s3cret"}},
        {"security_protocol": "s3cret"} | {"sasl_password": "s3cret2"},
    ],
)
def test_no_message_shows_a_secret(kafka: dict[str, object]) -> None:
    """Not even one under a misspelled name."""
    with pytest.raises(ConfigError) as caught:
        load(**kafka)

    shown = str(caught.value).replace("kafka.security_protocol='s3cret'", "")
    assert "s3cret" not in shown


URL_PROPERTY = {"sasl.oauthbearer.token.endpoint.url": "https://me:s3cret@idp.example/token"}


@pytest.mark.parametrize(
    "kafka",
    [
        *(
            {"sasl_oauthbearer_token_endpoint_url": url}
            for url in ("https://me:s3cret@idp.example/", "https://s3cret@idp", "me:s3cret@idp")
        ),
        *({table: URL_PROPERTY} for table in ("properties", "consumer", "producer", "admin")),
        {"sasl_oauthbearer_token_endpoint_url": "https://idp.example", "admin": URL_PROPERTY},
        {"properties": {"sasl": {"oauthbearer.token.endpoint.url": "http://me:s3cret@idp:1"}}},
    ],
)
def test_the_address_of_a_token_has_no_password(kafka: dict[str, object]) -> None:
    """Settings are shown, and URLs are no secrets; told with the settings for it."""
    with pytest.raises(ConfigError) as caught:
        load(**kafka)
    said = str(caught.value)
    assert "token" in said
    assert "='***': a URL is shown, so no password may be in it" in said
    assert "kafka.sasl_oauthbearer_client_secret" in said
    assert "s3cret" not in said


@pytest.mark.parametrize("url", ["https://idp.example:8443/a@b/token?for=a@b", "http://[::1]:80"])
def test_other_addresses_of_tokens_are_taken(url: str) -> None:
    """A sign of a user in the path is none."""
    kafka = load(sasl_oauthbearer_token_endpoint_url=url).kafka
    assert kafka.librdkafka("admin")["sasl.oauthbearer.token.endpoint.url"] == url


def test_misspelled_variables_and_sections_do_not_show_their_values() -> None:
    """What they hold may be a password."""
    for environment in (
        {"ACKFLOOR_KAFKA__SASL_PASWORD": "s3cret"},
        {"ACKFLOOR_SASL_PASSWORD": "s3cret"},
    ):
        with pytest.raises(ConfigError) as caught:
            load(environment)
        assert "s3cret" not in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        Settings.from_code({"kafak": {"sasl_password": "s3cret"}})
    assert "s3cret" not in str(caught.value)


def test_a_settings_repr_shows_no_secret() -> None:
    """Settings end up in tracebacks and logs."""
    assert "s3cret" not in repr(load(**LOGIN, sasl_password="s3cret"))
