"""KafkaSettings: `[kafka]`, brokers, security and librdkafka properties.

Named settings are librdkafka's own under names with underscores (`sasl_password` is
`sasl.password`), and reach consumer, producer and admin client alike. Anything else that
librdkafka knows can be passed by its own name through `properties` (all clients) or `consumer`,
`producer`, `admin`; what is dangerous there is refused where clients are made
(`kafka/client/client_options.py`).
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from ackfloor.core.values.setting_error import SettingError
from ackfloor.settings.value_types import Joined

Role = Literal["consumer", "producer", "admin"]
_OIDC_URL: Final = "sasl.oauthbearer.token.endpoint.url"
#: The host's part of a URL, with or without a scheme, where it has a user in front of it.
_USER_IN_URL: Final = re.compile(r"\s*(?:[^/?#]*:)?/*[^/?#]*@")
PROPERTY_TABLES = ("properties", "consumer", "producer", "admin")


class KafkaSettings(BaseModel):
    """How to reach the brokers."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    bootstrap_servers: Joined = Field(
        default="localhost:9092",
        min_length=1,
        description="Brokers to ask first: host:port, comma-separated.",
    )
    client_id: str = Field(default="ackfloor", description="The name that brokers log.")
    security_protocol: Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"] | None = Field(
        default=None, description="How to connect; unset means plaintext."
    )
    sasl_mechanism: (
        Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "OAUTHBEARER"] | None
    ) = Field(default=None, description="How to log in.")
    sasl_username: str | None = Field(default=None, description="User for PLAIN and SCRAM.")
    sasl_password: SecretStr | None = Field(default=None, description="Its password.")
    sasl_oauthbearer_method: Literal["default", "oidc"] | None = Field(
        default=None, description="Where tokens come from; `oidc` asks the endpoint below."
    )
    sasl_oauthbearer_client_id: str | None = Field(default=None, description="Client id for OIDC.")
    sasl_oauthbearer_client_secret: SecretStr | None = Field(
        default=None, description="Client secret for OIDC."
    )
    sasl_oauthbearer_token_endpoint_url: str | None = Field(
        default=None, description="Where OIDC tokens are issued."
    )
    sasl_oauthbearer_scope: str | None = Field(default=None, description="Scope of the OIDC token.")
    ssl_ca_location: str | None = Field(
        default=None,
        description="Authorities that brokers' certificates are checked against: a file or folder.",
    )
    ssl_certificate_location: str | None = Field(
        default=None, description="The client's certificate, a PEM file."
    )
    ssl_key_location: str | None = Field(default=None, description="The client's key, a PEM file.")
    ssl_key_password: SecretStr | None = Field(default=None, description="Password of that key.")
    properties: dict[str, Any] = Field(
        default_factory=dict,
        description="librdkafka properties of every client, by their own names.",
    )
    consumer: dict[str, Any] = Field(
        default_factory=dict, description="librdkafka properties of the consumer."
    )
    producer: dict[str, Any] = Field(
        default_factory=dict, description="librdkafka properties of the producers."
    )
    admin: dict[str, Any] = Field(
        default_factory=dict, description="librdkafka properties of the admin client."
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        self._check_token_url()
        self._check_twice()
        self._check_login()
        return self

    def _check_token_url(self) -> None:
        tables = [(f"{table}.{_OIDC_URL}", getattr(self, table)) for table in PROPERTY_TABLES]
        given = [(name, table.get(_OIDC_URL)) for name, table in tables]
        setting = _OIDC_URL.replace(".", "_")
        for name, url in [(setting, getattr(self, setting)), *given]:
            if url is not None and _USER_IN_URL.match(str(url)):
                raise SettingError(
                    f"kafka.{name}", "***", "a URL is shown, so no password may be in it",
                    "set kafka.sasl_oauthbearer_client_id and "
                    "kafka.sasl_oauthbearer_client_secret",
                )  # fmt: skip

    def _check_twice(self) -> None:
        named = self._named()
        for table in PROPERTY_TABLES:
            for name in named.keys() & getattr(self, table).keys():
                setting = name.replace(".", "_")
                value = "***" if isinstance(getattr(self, setting), SecretStr) else named[name]
                raise SettingError(
                    f"kafka.{setting}", value, f"is set as kafka.{table}.{name} as well",
                    "set it in one place",
                )  # fmt: skip

    def _check_login(self) -> None:
        protocol = self.security_protocol or str(self.properties.get("security.protocol", ""))
        if protocol.lower().startswith("sasl"):
            return
        for setting in ("sasl_mechanism", "sasl_username"):
            value = getattr(self, setting)
            if value is not None:
                raise SettingError(
                    f"kafka.{setting}", value,
                    f"no login happens with security_protocol={protocol or 'plaintext'!r}",
                    'set kafka.security_protocol to "sasl_ssl" or "sasl_plaintext"',
                )  # fmt: skip

    def _named(self) -> dict[str, object]:
        """The named settings that are set, by librdkafka's names; secrets in plain text."""
        named: dict[str, object] = {}
        for field in type(self).model_fields:
            value = getattr(self, field)
            if field in PROPERTY_TABLES or value is None:
                continue
            plain = value.get_secret_value() if isinstance(value, SecretStr) else value
            # A property table may override a default, but not a value that was set.
            if field in self.model_fields_set or not self._in_tables(field.replace("_", ".")):
                named[field.replace("_", ".")] = plain
        return named

    def _in_tables(self, name: str) -> bool:
        return any(name in getattr(self, table) for table in PROPERTY_TABLES)

    @property
    def by_default(self) -> bool:
        """Whether the brokers' address is the built-in default."""
        named = "bootstrap_servers" in self.model_fields_set
        return not named and not self._in_tables("bootstrap.servers")

    def librdkafka(self, role: Role) -> dict[str, Any]:
        """The configuration of one client, secrets in plain text: never log or show it."""
        own: dict[str, Any] = getattr(self, role)
        return {**self._named(), **self.properties, **own}
