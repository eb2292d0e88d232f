"""RegistrySettings: `[registry]`, how to reach the schema registry."""

from __future__ import annotations

from typing import Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from ackfloor.core.values.setting_error import SettingError
from ackfloor.errors import ConfigError
from ackfloor.settings.value_types import PositiveDuration


class RegistrySettings(BaseModel):
    """How to reach the schema registry that `ackfloor.schemas` asks."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    url: str | None = Field(
        default=None, description="Where the registry answers; several, comma-separated, in turn."
    )
    username: str | None = Field(default=None, description="User for basic authentication.")
    password: SecretStr | None = Field(default=None, description="Its password.")
    ssl_ca_location: str | None = Field(
        default=None,
        description="Authorities that the registry's certificate is checked against: a file or "
        "folder.",
    )
    ssl_certificate_location: str | None = Field(
        default=None, description="The client's certificate, a PEM file."
    )
    ssl_key_location: str | None = Field(default=None, description="The client's key, a PEM file.")
    ssl_key_password: SecretStr | None = Field(default=None, description="Password of that key.")
    timeout_s: PositiveDuration = Field(
        default=10.0, alias="timeout", description="How long one question may take."
    )
    wait_s: PositiveDuration = Field(
        default=0.5,
        alias="wait",
        description="How long a delivery waits for a schema that is not known yet; after that it "
        "is put back. Async handlers wait with their event loop.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for url in self.url.split(",") if self.url is not None else ():
            _check_url(url.strip())
        if self.password is not None and self.username is None:
            raise SettingError(
                "registry.password", "***", "there is no user whose it is", "set registry.username"
            )
        if self.ssl_certificate_location is None:
            for name in ("ssl_key_location", "ssl_key_password"):
                if getattr(self, name) is not None:
                    raise SettingError(
                        f"registry.{name}", "***", "there is no certificate that it belongs to",
                        "set registry.ssl_certificate_location",
                    )  # fmt: skip
        return self

    def check_complete(self, needed_by: str) -> None:
        """Refuse settings with which the registry can't be used; raises ConfigError.

        Called only before its use: `config show` runs where there are no secrets.
        """
        if self.url is None:
            why = f"{needed_by} with a schema registry, and none is named"
            fix = "set registry.url, or ACKFLOOR_REGISTRY__URL"
            raise ConfigError("registry.url", "", why, fix)
        if self.username is not None and self.password is None:
            fix = "set ACKFLOOR_REGISTRY__PASSWORD, or ACKFLOOR_REGISTRY__PASSWORD_FILE"
            raise ConfigError("registry.password", "", "a username has none", fix)

    def client(self) -> dict[str, object]:
        """The configuration of confluent's registry client, secrets in plain text: never show it.

        Without retries of its own: the worker decides when to ask again.
        """
        given = {
            "url": self.url,
            "ssl.ca.location": self.ssl_ca_location,
            "ssl.certificate.location": self.ssl_certificate_location,
            "ssl.key.location": self.ssl_key_location,
            "ssl.key.password": _open(self.ssl_key_password),
            "basic.auth.user.info": (
                None if self.username is None else f"{self.username}:{_open(self.password)}"
            ),
            "timeout": self.timeout_s,
            "max.retries": 0,
        }
        return {name: value for name, value in given.items() if value is not None}


def _open(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()


def _check_url(url: str) -> None:
    parts = urlsplit(url)
    if parts.username is not None or parts.password is not None:
        raise SettingError(
            "registry.url", "***", "a URL is shown, so no password may be in it",
            "set registry.username and registry.password",
        )  # fmt: skip
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingError(
            "registry.url", url, "no URL of a registry", 'write "https://registry.example:8081"'
        )
