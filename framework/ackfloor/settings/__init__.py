"""Settings of a run, from six sources, each value with the source it came from.

    config set > flag > environment (ACKFLOOR_...) > ackfloor.toml > arguments in code > built-in

`Settings.load` reads them all; `Settings.from_code` reads no file and no variable, for tests.
Handler options in code are not a layer here: they are in each `HandlerSpec`, and `applied`
puts what operators set on top.
"""

from __future__ import annotations

from ackfloor.settings.app_settings import AppSettings
from ackfloor.settings.handler_overrides import HandlerOverrides, RetryOverrides
from ackfloor.settings.kafka_settings import KafkaSettings
from ackfloor.settings.layers import sections_of
from ackfloor.settings.model import Settings
from ackfloor.settings.redaction_settings import RedactionSettings
from ackfloor.settings.registry_settings import RegistrySettings
from ackfloor.settings.show import SettingRow, rows

__all__ = [
    "AppSettings",
    "HandlerOverrides",
    "KafkaSettings",
    "RedactionSettings",
    "RegistrySettings",
    "RetryOverrides",
    "SettingRow",
    "Settings",
    "rows",
    "sections_of",
]
