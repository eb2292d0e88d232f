"""Decoders for values written through a schema registry (extra `registry`).

    from ackfloor.schemas import Avro

    @app.handler("orders", decoder=Avro())
    async def bill(order: Order) -> None: ...

The settings name the registry: `[registry]`, `ACKFLOOR_REGISTRY__URL`. Importing this module loads
neither the registry's client nor a format's package.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from ackfloor.declare.codec import without_none
from ackfloor.errors import MissingExtra
from ackfloor.settings import RegistrySettings

if TYPE_CHECKING:
    from ackfloor.declare.codec import Decoder

__all__ = ["Avro", "JsonSchema", "Protobuf"]


@dataclass(frozen=True, slots=True)
class _FromRegistry(ABC):
    """A format; with the registry's settings it makes a decoder."""

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
        settings = self._settings or RegistrySettings()
        settings.check_complete(field)
        try:
            make = self._maker()
        except ImportError as exc:
            purpose = f"decoding with a schema registry (package {exc.name})"
            raise MissingExtra("registry", purpose) from None
        return make(settings, self._wait_s, without_none(value_type), field)

    @abstractmethod
    def _maker(self) -> Callable[[RegistrySettings, float, Any, str], Decoder]:
        """The function that makes this format's decoder; raises ImportError without its package."""


class Avro(_FromRegistry):
    """Avro: the handler takes a model of the record's fields, or a dict."""

    __slots__ = ()

    def _maker(self) -> Callable[[RegistrySettings, float, Any, str], Decoder]:
        from ackfloor.kafka.registry.schema_decoder import avro_decoder

        return avro_decoder


class JsonSchema(_FromRegistry):
    """JSON that is checked against its schema; the handler takes a model, or a dict."""

    __slots__ = ()

    def _maker(self) -> Callable[[RegistrySettings, float, Any, str], Decoder]:
        from ackfloor.kafka.registry.schema_decoder import json_schema_decoder

        return json_schema_decoder


class Protobuf(_FromRegistry):
    """Protobuf: the handler takes the class that protoc has generated."""

    __slots__ = ()

    def _maker(self) -> Callable[[RegistrySettings, float, Any, str], Decoder]:
        from ackfloor.kafka.registry.schema_decoder import protobuf_decoder

        return protobuf_decoder
