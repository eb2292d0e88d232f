"""`config show`: every setting with its value and source, secrets as `***`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ackfloor.declare.registration import HandlerSpec, settings_key
from ackfloor.settings import names
from ackfloor.settings.handler_overrides import COMPUTED_DELAYS
from ackfloor.settings.kafka_settings import PROPERTY_TABLES
from ackfloor.settings.model import BUILT_IN, Settings
from ackfloor.settings.names import Setting
from ackfloor.settings.value_types import spelled

CODE = "code"


class SettingRow(NamedTuple):
    """One line of `config show`."""

    name: str
    value: str
    source: str


def rows(settings: Settings, specs: Iterable[HandlerSpec] = ()) -> list[SettingRow]:
    """Every setting, in the order of the reference.

    Args:
        settings: what was loaded.
        specs: the app's handlers as registered; what operators set is applied here.
    """
    shown = list(_section(settings, names.FIXED))
    for spec in settings.applied(specs) if specs else ():
        shown.extend(handler_rows(settings, spec))
    return shown


def _section(settings: Settings, section: tuple[Setting, ...]) -> Iterator[SettingRow]:
    for setting in section:
        model: Any = getattr(settings, setting.path[0])
        value = getattr(model, setting.attribute)
        if setting.path[-1] in PROPERTY_TABLES:
            for name in sorted(value):
                path = (*setting.path, name)
                found = names.find(path)
                text = "***" if found and found.secret else spelled("", value[name])
                yield SettingRow(".".join(path), text, settings.source_of(".".join(path)))
            continue
        yield SettingRow(
            setting.name, spelled(setting.attribute, value), settings.source_of(setting.name)
        )


def handler_rows(settings: Settings, spec: HandlerSpec) -> Iterator[SettingRow]:
    """Every setting of one handler, to which what operators set was applied."""
    key = settings_key(spec.name)
    for setting in names.CURRENT_HANDLER:
        keys = setting.path[2:]
        if spec.retry.delays_s and keys[0] == "retry" and setting.attribute in COMPUTED_DELAYS:
            # Its delays are given one by one.
            continue
        holder: object = getattr(spec, keys[0]) if len(keys) > 1 else spec
        value = getattr(holder, setting.attribute)
        text = spelled(setting.attribute, value)
        if value in (None, ()):
            text = "unlimited" if setting.attribute == "max_redeliveries" else "none"
        built_in = CODE if keys[0] in spec.given else BUILT_IN
        assigned = settings.assigned_to(".".join(("handlers", key, *keys)))
        name = ".".join(("handlers", spec.name, *keys))
        yield SettingRow(name, text, assigned.source if assigned else built_in)
