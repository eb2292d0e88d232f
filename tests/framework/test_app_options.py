"""App's typed options are the settings, name by name, with the same choices."""

from __future__ import annotations

from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from pydantic import BaseModel

from ackfloor import App
from ackfloor.declare.app_options import AppOptions, KafkaArguments, RegistryArguments
from ackfloor.settings.app_settings import AppSettings
from ackfloor.settings.kafka_settings import KafkaSettings
from ackfloor.settings.layers import sections_of
from ackfloor.settings.model import Settings
from ackfloor.settings.registry_settings import RegistrySettings

SECTIONS = [
    (AppOptions, AppSettings, {"kafka", "registry"}, {"group"}),
    (KafkaArguments, KafkaSettings, set(), set()),
    (RegistryArguments, RegistrySettings, set(), set()),
]


def choices(hint: Any) -> set[object]:
    """The literals that a type has room for, and None."""
    if hint is NoneType:
        return {None}
    if get_origin(hint) is Literal:
        return set(get_args(hint))
    if get_origin(hint) in (Union, UnionType, tuple) or get_origin(hint) is not None:
        return {choice for part in get_args(hint) for choice in choices(part)}
    return set()


@pytest.mark.parametrize(("typed", "model", "more", "fewer"), SECTIONS)
def test_each_setting_is_an_argument_with_its_choices(
    typed: Any, model: type[BaseModel], more: set[str], fewer: set[str]
) -> None:
    """None is missing, none is left over; what one takes, the other one does."""
    settings = {field.alias or name: field for name, field in model.model_fields.items()}
    hints = get_type_hints(typed)
    assert hints.keys() - more == settings.keys() - fewer
    for name, field in settings.items():
        if name in fewer or str(hints[name]).startswith("datetime"):
            continue
        wanted = choices(field.annotation) - ({None} if "Duration" in str(hints[name]) else set())
        assert choices(hints[name]) >= wanted - {None}, name
        assert (None in choices(hints[name])) == (None in wanted), name


def test_typed_options_are_what_a_worker_loads() -> None:
    """The three kinds of arguments reach their sections."""
    app = App(
        "shop",
        workers=3,
        commit_interval="250ms",
        foreign_headers=["spring"],
        kafka={"bootstrap_servers": ["a:1", "b:2"], "consumer": {"fetch.min.bytes": 1}},
        registry={"url": "http://registry:8081", "timeout": "2s"},
    )
    found = Settings.from_code(sections_of(app.group, app.options))
    assert (found.app.workers, found.app.commit_interval_s) == (3, 0.25)
    assert found.app.foreign_headers == ("spring",)
    assert found.kafka.bootstrap_servers == "a:1,b:2"
    assert (found.registry.url, found.registry.timeout_s) == ("http://registry:8081", 2.0)
