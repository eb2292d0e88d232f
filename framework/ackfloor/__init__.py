"""ackfloor: per-message acknowledgement, deadlines, retries and dead letters on Kafka.

    from ackfloor import App, Delivery, RetryPolicy, Retry, DeadLetter

Importing this package loads neither a Kafka client nor a metrics library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ackfloor.core.breaker.breaker_settings import CircuitBreaker
from ackfloor.core.records.record import Failure, Origin
from ackfloor.core.records.retry_policy import RetryPolicy
from ackfloor.declare.flood_guard import FloodGuard
from ackfloor.delivery import Delivery
from ackfloor.errors import (
    AckfloorError,
    ConfigError,
    DeadLetter,
    DecodeError,
    DecoderUnavailable,
    Discard,
    EncodeError,
    KafkaUnreachable,
    MissingExtra,
    Pause,
    PublishFailed,
    PublishNotAwaited,
    Retry,
    SettingError,
    SourceFailed,
    StartError,
    WorkerFailed,
)

if TYPE_CHECKING:
    from ackfloor.app import App
    from ackfloor.declare.codec import Decoder
    from ackfloor.declare.handler import Router
    from ackfloor.declare.result_topic import To
    from ackfloor.runtime.calls.invoke import current_delivery
    from ackfloor.runtime.logging.logs import DeliveryFilter

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
    "EncodeError",
    "Failure",
    "FloodGuard",
    "KafkaUnreachable",
    "MissingExtra",
    "Origin",
    "Pause",
    "PublishFailed",
    "PublishNotAwaited",
    "Retry",
    "RetryPolicy",
    "Router",
    "SettingError",
    "SourceFailed",
    "StartError",
    "To",
    "WorkerFailed",
    "__version__",
    "current_delivery",
]

_LAZY = {
    "App": "ackfloor.app",
    "Decoder": "ackfloor.declare.codec",
    "DeliveryFilter": "ackfloor.runtime.logging.logs",
    "Router": "ackfloor.declare.handler",
    "To": "ackfloor.declare.result_topic",
    "current_delivery": "ackfloor.runtime.calls.invoke",
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
