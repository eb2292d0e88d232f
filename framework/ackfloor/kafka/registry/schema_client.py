"""SchemaClient: confluent's registry client; its errors decide whether a record is dead-lettered.

If the registry does not know the schema, the record can't be decoded on any redelivery. Any other
error (no connection, no answer in time, refused credentials, not a registry's answer) is no fault
of the record: it stays open until the registry is back.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from ackfloor.errors import (
    AckfloorError,
    ConfigError,
    DecodeError,
    DecoderUnavailable,
    EncodeError,
)
from ackfloor.settings import RegistrySettings

#: The registry's error codes for: no such subject, no such version, no such schema.
UNKNOWN = frozenset({40401, 40402, 40403})
#: HTTP statuses of a registry that refuses a schema: it is incompatible, or none.
REFUSED = frozenset({409, 422})
#: How many schemas are cached: more than are in use, so that none is requested again.
CACHED = 10_000


def _unusable(settings: RegistrySettings, exc: OSError) -> ConfigError:
    """The error for a file that can't be read; finds out which, as the client does not say."""
    names = ("ssl_ca_location", "ssl_certificate_location", "ssl_key_location")
    given = {name: path for name in names if (path := getattr(settings, name)) is not None}
    lost = [name for name, path in given.items() if not os.access(path, os.R_OK)]
    name = next(iter(lost or given), "url")
    why = exc.strerror or str(exc)
    return ConfigError(
        f"registry.{name}", given.get(name, settings.url), why, "name a PEM file that can be read"
    )


class SchemaClient(SchemaRegistryClient):
    """A registry client that caches answers and raises the framework's errors.

    Args:
        wrong: raised where the registry does not know a schema, or refuses it.
        away: raised where it has given no answer.

    Raises:
        ConfigError: a file of the settings can't be used.
    """

    def __init__(
        self,
        settings: RegistrySettings,
        wrong: type[DecodeError | EncodeError] = DecodeError,
        away: type[AckfloorError] = DecoderUnavailable,
    ) -> None:
        try:
            super().__init__({**settings.client(), "cache.capacity": CACHED})
        except OSError as exc:  # those of TLS are such as well
            raise _unusable(settings, exc) from exc
        self._where = settings.url
        self._wrong, self._away = wrong, away

    # What the deserialisers ask: schemas by id, and those that a schema refers to.

    def get_schema(self, schema_id: int, *args: Any, **named: Any) -> Any:
        """A schema by its id."""
        ask = super().get_schema
        return self._asked(f"schema {schema_id}", lambda: ask(schema_id, *args, **named))

    def get_schema_by_guid(self, guid: str, *args: Any, **named: Any) -> Any:
        """A schema by its GUID, which is the same in every registry."""
        ask = super().get_schema_by_guid
        return self._asked(f"schema {guid}", lambda: ask(guid, *args, **named))

    def get_version(self, subject_name: str, version: Any = "latest", *args: Any) -> Any:
        """A version of a subject."""
        ask = super().get_version
        what = f"version {version} of subject {subject_name}"
        return self._asked(what, lambda: ask(subject_name, version, *args))

    # What the serialisers ask: a subject's newest schema, the number of one, or a number for it.

    def get_latest_version(self, subject_name: str, *args: Any, **named: Any) -> Any:
        """The newest schema of a subject."""
        ask = super().get_latest_version
        return self._asked(f"subject {subject_name}", lambda: ask(subject_name, *args, **named))

    def lookup_schema(self, subject_name: str, *args: Any, **named: Any) -> Any:
        """The number of a schema that a subject has."""
        ask = super().lookup_schema
        what = f"such schema under subject {subject_name}"
        return self._asked(what, lambda: ask(subject_name, *args, **named))

    def register_schema_full_response(self, subject_name: str, *args: Any, **named: Any) -> Any:
        """Register a schema under a subject, where it is not there yet."""
        ask = super().register_schema_full_response
        what = f"the schema for subject {subject_name}"
        return self._asked(what, lambda: ask(subject_name, *args, **named))

    def _asked(self, what: str, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except AckfloorError:
            raise
        except SchemaRegistryError as exc:
            if exc.error_code in UNKNOWN:
                text = f"the schema registry has no {what}"
                raise self._wrong(text, error_type="UnknownSchema") from None
            text = f"HTTP {exc.http_status_code} for {what}: {str(exc.error_message)[:200]}"
            if exc.http_status_code in REFUSED:
                raise self._wrong(
                    f"schema registry {self._where}: {text}", error_type="RefusedSchema"
                ) from None
            raise self._away(f"schema registry {self._where}: {text}") from None
        except Exception as exc:  # noqa: BLE001 -- whatever the HTTP client has
            text = f"{type(exc).__name__}: {str(exc)[:200]}"
            raise self._away(f"schema registry {self._where}: {text}") from None
