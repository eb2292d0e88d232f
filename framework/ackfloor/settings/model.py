"""Settings: merged from all sources and validated, with the source of each value."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError
from pydantic_core import ErrorDetails

from ackfloor.core.values.setting_error import SettingError
from ackfloor.declare.codec import SchemaDecoder
from ackfloor.declare.registration import HandlerSpec, settings_key
from ackfloor.errors import ConfigError
from ackfloor.settings import layers, names
from ackfloor.settings.app_sections import NOWHERE, Place, file_place, group_of
from ackfloor.settings.app_settings import AppSettings
from ackfloor.settings.handler_overrides import HandlerOverrides
from ackfloor.settings.kafka_settings import KafkaSettings
from ackfloor.settings.layers import Assigned, Layer
from ackfloor.settings.names import Path
from ackfloor.settings.redaction_settings import RedactionSettings
from ackfloor.settings.registry_settings import RegistrySettings
from ackfloor.settings.variables import environment_place

BUILT_IN = "built-in"


class Settings(BaseModel):
    """All settings of a run. Immutable; read again on SIGHUP.

    Attributes:
        kafka: how to reach the brokers.
        registry: how to reach the schema registry, where decoders ask one.
        app: what a worker does and within which limits.
        redaction: what is taken from records before they are stored or shown outside of Kafka.
        handlers: what operators set about single handlers, by `settings_key` of their names.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    kafka: KafkaSettings = Field(default_factory=KafkaSettings)
    registry: RegistrySettings = Field(default_factory=RegistrySettings)
    app: AppSettings = Field(default_factory=AppSettings)
    redaction: RedactionSettings = Field(default_factory=RedactionSettings)
    handlers: dict[str, HandlerOverrides] = Field(default_factory=dict)

    _assigned: Layer = PrivateAttr(default_factory=dict)

    @classmethod
    def from_code(cls, code: Mapping[str, object] | None = None) -> Self:
        """Settings of these sections and the defaults; reads no file and no variable.

        Args:
            code: `{"app": {"group": "billing"}, "kafka": {...}, "handlers": {...}}`.
        """
        return cls._of(layers.code_layer(code or {}))

    @classmethod
    def load(
        cls,
        code: Mapping[str, object] | None = None,
        *,
        flags: Mapping[str, object] | None = None,
        config: FilePath | str | None = None,
        environment: Mapping[str, str] | None = None,
        file: Layer | None = None,
        above: Layer | None = None,
    ) -> Self:
        """Settings from everywhere, the strongest place last.

        The app's group, which code, `[app]`, a variable or a flag names, selects its sections:
        `[apps.<group>]` of the file and `ACKFLOOR_APPS__<GROUP>__...` of the environment.

        Args:
            code: sections as the application's code gives them.
            flags: command-line flags by setting name (`{"app.workers": 4}`); None is not given.
            config: the file; default: ACKFLOOR_CONFIG, or `ackfloor.toml` if it is here.
            environment: variables; default: the process's own.
            file: what the file says for this app, where it was read already.
            above: the strongest layer (`config set`).

        Raises:
            ConfigError: a name is unknown or a value is refused; tells field, value, fix and
                the place.
        """
        variables = os.environ if environment is None else environment
        in_code, given = layers.code_layer(code or {}), layers.flag_layer(flags or {})
        in_environment = environment_place(variables)
        found = layers.find_file(config, variables) if file is None else None
        in_file = file_place(found) if found else Place(file or {}, NOWHERE.section)
        group = group_of(in_code, in_file.top, in_environment.top, given)
        of_file, under_file = in_file.of(group)
        of_environment, under_environment = in_environment.of(group)
        merged, replaced = in_code, [under_file, under_environment]
        for layer in (of_file, of_environment, given, above or {}):
            replaced.append({path: merged[path] for path in layer if path in merged})
            merged = merged | layer
        settings = cls._of(merged)
        for hidden in replaced:
            cls.check_hidden(hidden)
        return settings

    @classmethod
    def check_hidden(cls, hidden: Layer) -> None:
        """Refuse wrong values that something stronger hides: one day they would count.

        Not of `[kafka]` and `[registry]`, whose settings are checked together.

        Raises:
            ConfigError: there is one.
        """
        apart = layers.OF_THEIR_OWN
        cls._of({path: found for path, found in hidden.items() if path[0] not in apart})

    @classmethod
    def _of(cls, assigned: Layer) -> Self:
        nested: dict[str, Any] = {}
        for path, (value, source) in assigned.items():
            _check_truth(path, value, source)
            table = nested
            for part in path[:-1]:
                table = table.setdefault(part, {})
            table[path[-1]] = value
        try:
            return cls.model_validate(nested, context=assigned)
        except ValidationError as exc:
            raise _refusal(exc.errors(include_url=False)[0], assigned) from None

    def model_post_init(self, context: Any, /) -> None:
        """Keep where the values came from."""
        self._assigned = context or {}

    @property
    def group(self) -> str:
        """The consumer group.

        Raises:
            ConfigError: none is set.
        """
        if not self.app.group:
            raise ConfigError("app.group", "", "no consumer group", 'pass App(group="...")')
        return self.app.group

    def source_of(self, name: str) -> str:
        """The place a setting's value came from: `environment ACKFLOOR_APP__WORKERS`."""
        found = self.assigned_to(name)
        return found.source if found else BUILT_IN

    def assigned_to(self, name: str) -> Assigned | None:
        """What was set, and where; None where the built-in value holds."""
        for path, assigned in self._assigned.items():
            if ".".join(path) == name:
                return assigned
        return None

    @property
    def assigned(self) -> Mapping[Path, Assigned]:
        """Everything that is not built in."""
        return self._assigned

    def applied(self, specs: Iterable[HandlerSpec]) -> tuple[HandlerSpec, ...]:
        """The handlers with what operators set about them.

        Raises:
            ConfigError: a value is refused by the handler's rules, or a name is no handler's.
        """
        specs = tuple(specs)
        known = {settings_key(spec.name): spec.name for spec in specs}
        for key in self.handlers:
            if key not in known:
                self._unknown_handler(key, known)
        applied = tuple(self._reaching(self._apply(spec)) for spec in specs)
        for spec in applied:
            self._check_batch(spec)
        return applied

    def _reaching(self, spec: HandlerSpec) -> HandlerSpec:
        """Give a schema decoder the registry's settings."""
        if not isinstance(spec.decoder, SchemaDecoder):
            return spec
        decoder = spec.decoder.reaching(self.registry, spec.consume_timeout_s)
        return replace(spec, decoder=decoder)

    def _check_batch(self, spec: HandlerSpec) -> None:
        """Refuse a batch that can never fill: fetching stops before."""
        for limit in ("max_open", "partition_open", "partition_span"):
            most: int = getattr(self.app, limit)
            if spec.batch is not None and spec.batch > most:
                assigned = self.assigned_to(f"handlers.{settings_key(spec.name)}.batch")
                raise ConfigError(
                    f"handlers.{spec.name}.batch",
                    spec.batch,
                    f"more than app.{limit}={most} ever holds",
                    f"lower it, or raise app.{limit}",
                    source=assigned.source if assigned else "",
                )

    def _unknown_handler(self, key: str, known: Mapping[str, str]) -> None:
        for path, (value, source) in self._assigned.items():
            if path[:2] == ("handlers", key):
                listed = (
                    f"handlers are {', '.join(known.values())}"
                    if known
                    else "there are no handlers"
                )
                of_another = f"; that of another app belongs in [apps.<group>.handlers.{key}]"
                fix = names.nearest(key, known, listed + of_another)
                raise ConfigError(".".join(path), value, "no such handler", fix, source=source)

    def _apply(self, spec: HandlerSpec) -> HandlerSpec:
        key = settings_key(spec.name)
        overrides = self.handlers.get(key)
        if overrides is None:
            return spec
        try:
            return overrides.applied(spec)
        except SettingError as exc:
            # The policy knows its fields as `retry.initial_delay`, the spec in full.
            own = exc.field.removeprefix(f"handlers.{spec.name}.")
            assigned = self.assigned_to(f"handlers.{key}.{own}")
            source = assigned.source if assigned else ""
            field = f"handlers.{spec.name}.{own}"
            raise ConfigError.of(exc, field=field, source=source) from None


def _check_truth(path: names.Path, value: object, source: str) -> None:
    """Refuse true and false where a number belongs: pydantic would take them for 1 and 0."""
    setting = names.find(path) if isinstance(value, bool) else None
    if setting is not None and setting.accepts.startswith(("a whole number", "a number", "a size")):
        fix = f"write {setting.accepts}"
        raise ConfigError(".".join(path), value, "no number", fix, source=source)


def _refusal(problem: ErrorDetails, assigned: Layer) -> ConfigError:
    """pydantic's error as field, value, fix and source."""
    own = problem.get("ctx", {}).get("error")
    loc = tuple(str(part) for part in problem["loc"])
    path = _path_of(loc, own, assigned)
    setting = names.find(path)
    found = assigned.get(path)
    source = found.source if found else ""
    # Never pydantic's own input: of a whole section it would show the secrets.
    value: object = found.value if found else layers.HIDDEN
    if (setting and setting.secret) or (
        isinstance(own, SettingError) and own.value == layers.HIDDEN
    ):
        value = layers.HIDDEN
    if isinstance(own, SettingError):
        return ConfigError(".".join(path), value, own.why, own.fix, source=source)
    literal = problem["type"] == "literal_error"
    why = "not one of the choices" if literal else problem["msg"].removeprefix("Value error, ")
    example = f", such as {setting.default}" if setting and setting.default and not literal else ""
    fix = f"write {setting.accepts}{example}" if setting else "write what the reference says"
    return ConfigError(".".join(path), value, why[:1].lower() + why[1:], fix, source=source)


def _path_of(loc: tuple[str, ...], own: object, assigned: Layer) -> Path:
    """The setting of an error: pydantic's location may continue into unions and lists."""
    if isinstance(own, SettingError) and len(loc) < 2:
        loc = tuple(own.field.split("."))
    for end in range(len(loc), 0, -1):
        if loc[:end] in assigned:
            return loc[:end]
    return loc
