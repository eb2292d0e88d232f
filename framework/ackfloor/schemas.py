"""Decoders and encoders of values with schemas of a registry (extra `registry`).

    from ackfloor.schemas import Avro

    @app.handler("orders", decoder=Avro())
    async def bill(order: Order) -> None:
        await app.publish("invoices", invoice_of(order), encoder=Avro())

The settings name the registry: `[registry]`, `ACKFLOOR_REGISTRY__URL`. Importing this module loads
neither the registry's client nor a format's package.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from ackfloor.declare.codec import without_none
from ackfloor.errors import ConfigError, MissingExtra
from ackfloor.settings import RegistrySettings

if TYPE_CHECKING:
    from ackfloor.declare.codec import Decoder
    from ackfloor.declare.encoders import Encoder

__all__ = ["Avro", "JsonSchema", "Protobuf"]


@dataclass(frozen=True, slots=True)
class _FromRegistry(ABC):
    """A format; with the registry's settings it makes a decoder, or an encoder.

    Attributes:
        register: as an encoder, register the schema where the registry does not have it.
    """

    register: bool = field(default=False, kw_only=True)
    _settings: RegistrySettings | None = field(default=None, kw_only=True, repr=False)
    _wait_s: float = field(default=0.0, kw_only=True, repr=False)

    def reaching(self, registry: RegistrySettings, consume_timeout_s: float | None) -> Self:
        """A copy with the registry's settings; connects to nothing."""
        # A delivery that waits for a schema must give up before its deadline parks the record.
        half_s = registry.wait_s if consume_timeout_s is None else consume_timeout_s / 2
        return replace(self, _settings=registry, _wait_s=min(registry.wait_s, half_s))

    def bind(self, value_type: Any, field: str) -> Decoder:
        """The decoder of a handler whose parameter `field` has this annotation.

        Raises:
            ConfigError: the type does not fit, or no registry is named.
            MissingExtra: the registry's client is not installed.
        """
        self._check_decoding(field)
        settings = self._settings or RegistrySettings()
        settings.check_complete(f"{field} is decoded")
        try:
            make = self._maker()
        except ImportError as exc:
            purpose = f"decoding with a schema registry (package {exc.name})"
            raise MissingExtra("registry", purpose) from None
        return make(settings, self._wait_s, without_none(value_type), field)

    def encoding(self, registry: RegistrySettings, topic: str, value_type: type) -> Encoder:
        """The encoder of a topic's values of this type; connects to nothing.

        Raises:
            ConfigError: the type or the schema does not fit, or no registry is named.
            MissingExtra: the registry's client is not installed.
        """
        registry.check_complete(f"what is published to {topic} is encoded")
        try:
            return self._encoder(registry, topic, value_type)
        except ConfigError:
            raise
        except ImportError as exc:
            purpose = f"encoding with a schema registry (package {exc.name})"
            raise MissingExtra("registry", purpose) from None
        except Exception as exc:
            why = f"the format's package does not take it: {type(exc).__name__}: {exc}"
            raise ConfigError("schema", self._text, why, "write a schema of this format") from exc

    @property
    def _text(self) -> str | None:
        """The schema that was given, as text."""
        return None

    def _check_decoding(self, field: str) -> None:
        """Refuse what is for encoding alone; raises ConfigError."""
        for name, value in (("schema", self._text), ("register", self.register)):
            if value:
                why = f"{field} is decoded with the schema that each value was written with"
                raise ConfigError(name, value, why, "leave it out of decoder=")

    @abstractmethod
    def _maker(self) -> Callable[[RegistrySettings, float, Any, str], Decoder]:
        """The function that makes this format's decoder; raises ImportError without its package."""

    @abstractmethod
    def _encoder(self, registry: RegistrySettings, topic: str, value_type: type) -> Encoder:
        """This format's encoder; raises ImportError without its package."""


@dataclass(frozen=True, slots=True)
class _WithText(_FromRegistry):
    """A format whose schemas are given as text.

    Args:
        schema: as an encoder, the schema to write with, which the registry must have; None for
            the newest one that it has for the topic.

    Raises:
        ConfigError: there is no schema to register.
    """

    schema: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.register and self.schema is None:
            raise ConfigError("register", True, "there is no schema", 'pass it: schema="..."')

    @property
    def _text(self) -> str | None:
        return self.schema


class Avro(_WithText):
    """Avro: the handler takes a model of the record's fields, or a dict; so does `publish`."""

    __slots__ = ()

    def _maker(self) -> Callable[[RegistrySettings, float, Any, str], Decoder]:
        from ackfloor.kafka.registry.schema_decoder import avro_decoder

        return avro_decoder

    def _encoder(self, registry: RegistrySettings, topic: str, value_type: type) -> Encoder:  # noqa: ARG002
        from ackfloor.kafka.registry.schema_encoder import avro_encoder

        return avro_encoder(registry, topic, self.schema, self.register)


class JsonSchema(_WithText):
    """JSON that is checked against its schema: a model, or a dict, in handlers and `publish`."""

    __slots__ = ()

    def _maker(self) -> Callable[[RegistrySettings, float, Any, str], Decoder]:
        from ackfloor.kafka.registry.schema_decoder import json_schema_decoder

        return json_schema_decoder

    def _encoder(self, registry: RegistrySettings, topic: str, value_type: type) -> Encoder:  # noqa: ARG002
        from ackfloor.kafka.registry.schema_encoder import json_schema_encoder

        return json_schema_encoder(registry, topic, self.schema, self.register)


class Protobuf(_FromRegistry):
    """Protobuf: messages of a class that protoc has generated, in handlers and `publish`.

    The schema to write with is that of the class.
    """

    __slots__ = ()

    def _maker(self) -> Callable[[RegistrySettings, float, Any, str], Decoder]:
        from ackfloor.kafka.registry.schema_decoder import protobuf_decoder

        return protobuf_decoder

    def _encoder(self, registry: RegistrySettings, topic: str, value_type: type) -> Encoder:
        from ackfloor.kafka.registry.schema_encoder import protobuf_encoder

        return protobuf_encoder(registry, topic, value_type, self.register)
