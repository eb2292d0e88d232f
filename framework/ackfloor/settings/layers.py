"""Layers: the places settings come from, each read into `path -> (value, source)`.

From the weakest: arguments in code, `ackfloor.toml`, the environment, command-line flags, and
`config set`. A layer knows names but no types: the merged result is validated once, and an error
names the source of its value. Unknown names are refused here, where the source is known.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any, NamedTuple

from pydantic import BaseModel

from ackfloor.declare.registration import settings_key
from ackfloor.errors import ConfigError
from ackfloor.settings import names
from ackfloor.settings.handler_overrides import HandlerOverrides
from ackfloor.settings.kafka_settings import PROPERTY_TABLES
from ackfloor.settings.names import Path
from ackfloor.settings.value_types import is_secret_property

CONFIG_VARIABLE = "ACKFLOOR_CONFIG"
CONFIG_FILE = "ackfloor.toml"
SECTIONS = ("kafka", "app", "registry", "redaction", "handlers")
#: Sections that are one argument of `App`.
OF_THEIR_OWN = ("kafka", "registry")
FILE_SUFFIX = "_file"
#: The settings of a handler that are tables themselves.
HANDLER_TABLES = frozenset(
    name
    for name, field in HandlerOverrides.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
)
HIDDEN = "***"


class Assigned(NamedTuple):
    """A value and the place it was set."""

    value: Any
    source: str


Layer = dict[Path, Assigned]


def code_layer(sections: Mapping[str, object]) -> Layer:
    """The application's code: nested mappings, or models of the sections."""
    return tables_layer(sections, "code")


def sections_of(group: str, options: Mapping[str, object]) -> dict[str, object]:
    """An app's arguments as sections: `kafka=`, `registry=`; all others belong to `[app]`."""
    own = {name: value for name, value in options.items() if name not in OF_THEIR_OWN}
    apart = {name: options[name] for name in OF_THEIR_OWN if name in options}
    return {"app": {"group": group, **own}, **apart}


def find_file(given: FilePath | str | None, environment: Mapping[str, str]) -> FilePath | None:
    """The file to read: the one given, the variable's, or one in the working directory."""
    named = given or environment.get(CONFIG_VARIABLE)
    if named:
        return FilePath(named)
    here = FilePath(CONFIG_FILE)
    return here if here.is_file() else None


def flag_layer(flags: Mapping[str, object]) -> Layer:
    """Command-line flags by setting name (`app.workers`); None means not given."""
    layer: Layer = {}
    for name, value in flags.items():
        if value is not None:
            path = tuple(name.split("."))
            layer[path] = Assigned(value, f"flag --{path[-1].replace('_', '-')}")
    return checked(layer)


def set_layer(values: Mapping[str, object]) -> Layer:
    """What `config set` set, by setting name (`handlers.bill.consume_timeout`)."""
    source = "config set"
    return checked({path_of(name): Assigned(value, source) for name, value in values.items()})


def path_of(name: str) -> Path:
    """The path of a setting named with dots; a handler's name may hold some itself."""
    section, _, rest = name.partition(".")
    if section != "handlers":
        return tuple(name.split("."))
    for keys in names.handler_keys():
        ending = "." + ".".join(keys)
        if rest.endswith(ending) and len(rest) > len(ending):
            return (section, settings_key(rest.removesuffix(ending)), *keys)
    handler, _, key = rest.rpartition(".")
    owner, _, table = handler.rpartition(".")
    if owner and table in HANDLER_TABLES:
        return (section, settings_key(owner), table, key)
    return (section, settings_key(handler), key)


def tables_layer(
    sections: Mapping[str, object], source: str, known: Sequence[str] = SECTIONS
) -> Layer:
    """The settings of tables or models, by their sections.

    Args:
        sections: name -> table or model.
        source: where they are.
        known: the sections there may be, for messages.

    Raises:
        ConfigError: a section or a name is unknown, or a section is no table.
    """
    layer: Layer = {}
    for section, table in sections.items():
        if section not in SECTIONS:
            fix = names.nearest(section, {s: s for s in known}, f"sections are {', '.join(known)}")
            raise ConfigError(section, HIDDEN, "no such section", fix, source=source)
        for path, value in _leaves((section,), _table((section,), table, source), source):
            layer[path] = Assigned(value, source)
    return checked(layer)


def _table(path: Path, value: object, source: str) -> Mapping[str, object]:
    if isinstance(value, BaseModel):
        return value.model_dump(by_alias=True, exclude_unset=True)
    if isinstance(value, Mapping):
        return value
    fix = f"write a table: [{'.'.join(path)}]"
    raise ConfigError(".".join(path), value, "not a table", fix, source=source)


def _leaves(path: Path, table: Mapping[str, object], source: str) -> Iterator[tuple[Path, object]]:
    for key, value in table.items():
        own = (*path, key)
        if len(own) == 2 and path[0] == "handlers":
            own = ("handlers", settings_key(key))
            yield from _leaves(own, _table(own, value, source), source)
        elif len(own) == 2 and own[0] == "kafka" and key in PROPERTY_TABLES:
            for name, each in _dotted((), _table(own, value, source)):
                yield (*own, name), each
        elif own[0] == "kafka" and isinstance(value, Mapping):
            # Not one of our tables: a librdkafka property in the wrong place.
            for name, each in _dotted((key,), value):
                yield ("kafka", name), each
        elif own[0] == "handlers" and len(own) == 3 and key in HANDLER_TABLES:
            yield from _leaves(own, _table(own, value, source), source)
        else:
            yield own, value


def _dotted(path: Path, table: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """TOML reads `fetch.min.bytes = 1` as three tables: back to librdkafka's name."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _dotted((*path, key), value)
        else:
            yield ".".join((*path, key)), value


def checked(layer: Layer) -> Layer:
    """Refuse unknown names, and read what is given as a file (`sasl_password_file`)."""
    found: Layer = {}
    for path, (value, source) in layer.items():
        if names.find(path) is not None:
            found[path] = Assigned(value, source)
            continue
        base = (*path[:-1], path[-1].removesuffix(FILE_SUFFIX))
        setting = names.find(base) if path[-1].endswith(FILE_SUFFIX) else None
        if setting is None or not setting.secret:
            why, name = "no such setting", ".".join(path)
            raise ConfigError(name, shown(path, value), why, names.near(path), source=source)
        if base in layer:
            why = f"{'.'.join(base)} is set as well"
            raise ConfigError(".".join(path), value, why, "keep one of the two", source=source)
        found[base] = Assigned(_read(path, value, source), f"file {value} ({source})")
    return found


def _read(path: Path, value: object, source: str) -> str:
    try:
        return FilePath(os.fspath(value)).read_text("utf-8").removesuffix("\n")  # type: ignore[call-overload]
    except (OSError, UnicodeDecodeError, TypeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
        fix = "name a text file that can be read"
        raise ConfigError(".".join(path), value, reason, fix, source=source) from None


def shown(path: Path, value: object) -> object:
    """A value as a message may show it: a misspelled or misplaced one may be a password."""
    setting = names.find(path)
    guessed = path[0] in OF_THEIR_OWN or is_secret_property(path[-1])
    hidden = setting.secret if setting else guessed
    return HIDDEN if hidden else value
