"""ackfloor: per-message acknowledgement, deadlines, retries and dead letters on Kafka.

    from ackfloor import App, Delivery, RetryPolicy, Retry, DeadLetter

Importing this package loads neither a Kafka client nor a metrics library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ackfloor.core.circuit_breaker import CircuitBreaker
from ackfloor.core.model import Origin
from ackfloor.core.retry import RetryPolicy
from ackfloor.delivery import Delivery
from ackfloor.errors import (
    AckfloorError,
    ConfigError,
    DeadLetter,
    DecodeError,
    DecoderUnavailable,
    Discard,
    KafkaUnreachable,
    MissingExtra,
    Pause,
    PublishFailed,
    Retry,
    SettingError,
    SourceFailed,
    StartError,
)
from ackfloor.flood_guard import FloodGuard

if TYPE_CHECKING:
    from ackfloor.app import App
    from ackfloor.codec import Decoder
    from ackfloor.handler import Router
    from ackfloor.runtime.invoke import current_delivery
    from ackfloor.runtime.logs import DeliveryFilter

__version__ = "0.1.0"

__all__ = [
    "AckfloorError",
    "App",
    "CircuitBreaker",
    "ConfigError",
    "DeadLetter",
    "DecodeError",
    "Decoder",
    "DecoderUnavailable",
    "Delivery",
    "DeliveryFilter",
    "Discard",
    "FloodGuard",
    "KafkaUnreachable",
    "MissingExtra",
    "Origin",
    "Pause",
    "PublishFailed",
    "Retry",
    "RetryPolicy",
    "Router",
    "SettingError",
    "SourceFailed",
    "StartError",
    "__version__",
    "current_delivery",
]

_LAZY = {
    "App": "ackfloor.app",
    "Decoder": "ackfloor.codec",
    "DeliveryFilter": "ackfloor.runtime.logs",
    "Router": "ackfloor.handler",
    "current_delivery": "ackfloor.runtime.invoke",
}


if not TYPE_CHECKING:
    # A type checker that saw this would take every misspelt name for one of these.
    def __getattr__(name: str) -> Any:
        module = _LAZY.get(name)
        if module is None:
            raise AttributeError(f"module 'ackfloor' has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return __all__
