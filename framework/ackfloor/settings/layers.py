"""Layers: the places settings come from, each read into `path -> (value, source)`.

From the weakest: arguments in code, `ackfloor.toml`, the environment, command-line flags, and
`config set`. A layer knows names but no types: the merged result is validated once, and an error
names the source of its value. Unknown names are refused here, where the source is known.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path as FilePath
from typing import Any, NamedTuple

from pydantic import BaseModel

from ackfloor.declare.registration import settings_key
from ackfloor.errors import ConfigError
from ackfloor.settings import names
from ackfloor.settings.handler_overrides import HandlerOverrides
from ackfloor.settings.kafka_settings import PROPERTY_TABLES
from ackfloor.settings.names import PREFIX, Path
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
    return _checked(_tables(sections, "code"))


def sections_of(group: str, options: Mapping[str, object]) -> dict[str, object]:
    """An app's arguments as sections: `kafka=`, `registry=`; all others belong to `[app]`."""
    own = {name: value for name, value in options.items() if name not in OF_THEIR_OWN}
    apart = {name: options[name] for name in OF_THEIR_OWN if name in options}
    return {"app": {"group": group, **own}, **apart}


def file_layer(path: FilePath) -> Layer:
    """The settings of an `ackfloor.toml`."""
    try:
        with path.open("rb") as file:
            tables = tomllib.load(file)
    except OSError as exc:
        reason = exc.strerror or type(exc).__name__
        raise ConfigError("config", str(path), reason, "name a file that can be read") from None
    except (ValueError, RecursionError) as exc:
        raise ConfigError("config", str(path), f"not TOML: {exc}", "mend that line") from None
    return _checked(_tables(tables, f"file {path}"))


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
    return _checked(layer)


def set_layer(values: Mapping[str, object]) -> Layer:
    """What `config set` set, by setting name (`handlers.bill.consume_timeout`)."""
    source = "config set"
    return _checked({path_of(name): Assigned(value, source) for name, value in values.items()})


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


def environment_layer(environment: Mapping[str, str]) -> Layer:
    """The variables named `ACKFLOOR_...`; names are case-insensitive."""
    layer: Layer = {}
    for original, value in sorted(environment.items()):
        variable = original.upper()
        if not variable.startswith(PREFIX) or _is_other(variable, value):
            continue
        path = names.ALIASES.get(variable) or _path_of(variable)
        source = f"environment {original}"
        if path is None:
            raise ConfigError(original, HIDDEN, "no such setting", _near(variable), source=source)
        earlier = layer.get(path)
        if earlier and earlier.value != value:
            name = ".".join(path)
            why = f"{earlier.source} sets {name} to something else"
            raise ConfigError(original, shown(path, value), why, "keep one of the two")
        layer[path] = Assigned(value, source)
    return _checked(layer)


def _is_other(variable: str, value: str) -> bool:
    twins = tuple(f"{PREFIX}{command}_" for command in names.COMMANDS)
    return (
        variable in names.OTHER_VARIABLES
        or variable.startswith(twins)
        or names.is_service_link(variable, value)
    )


def _path_of(variable: str) -> Path | None:
    """`ACKFLOOR_APP__WORKERS` -> `("app", "workers")`; None where no section begins it."""
    section, _, rest = variable.removeprefix(PREFIX).lower().partition("__")
    if section not in SECTIONS or not rest:
        return None
    if section == "handlers":
        return _handler_path(rest)
    table, _, key = rest.partition("__")
    if section == "kafka" and table in PROPERTY_TABLES and key:
        return ("kafka", table, key.replace("_", "."))
    return (section, rest)


def _handler_path(rest: str) -> Path | None:
    # From the end, because a handler's name may hold two underscores itself.
    for keys in names.handler_keys():
        ending = "__" + "__".join(keys)
        if rest.endswith(ending) and len(rest) > len(ending):
            return ("handlers", rest.removesuffix(ending), *keys)
    name, _, key = rest.partition("__")
    return ("handlers", name, *key.split("__")) if key else None


def _near(variable: str) -> str:
    short = (*names.OTHER_VARIABLES, *names.ALIASES)
    long = tuple(setting.variable for setting in (*names.HANDLER, *names.FIXED))
    # The last of one name counts: without a section, the variable without one is suggested.
    known = {
        each.removeprefix(PREFIX).rpartition("__")[2]: each
        for each in ((*short, *long) if "__" in variable else (*long, *short))
    }
    otherwise = f"sections are {', '.join(f'{PREFIX}{s.upper()}__...' for s in SECTIONS)}"
    return names.nearest(variable.removeprefix(PREFIX).rpartition("__")[2], known, otherwise)


def _tables(sections: Mapping[str, object], source: str) -> Layer:
    layer: Layer = {}
    for section, table in sections.items():
        if section not in SECTIONS:
            fix = names.nearest(
                section, {s: s for s in SECTIONS}, f"sections are {', '.join(SECTIONS)}"
            )
            raise ConfigError(section, HIDDEN, "no such section", fix, source=source)
        for path, value in _leaves((section,), _table((section,), table, source), source):
            layer[path] = Assigned(value, source)
    return layer


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


def _checked(layer: Layer) -> Layer:
    """Refuse unknown names, and read what is given as a file (`sasl_password_file`)."""
    checked: Layer = {}
    for path, (value, source) in layer.items():
        if names.find(path) is not None:
            checked[path] = Assigned(value, source)
            continue
        base = (*path[:-1], path[-1].removesuffix(FILE_SUFFIX))
        setting = names.find(base) if path[-1].endswith(FILE_SUFFIX) else None
        if setting is None or not setting.secret:
            why, name = "no such setting", ".".join(path)
            raise ConfigError(name, shown(path, value), why, names.near(path), source=source)
        if base in layer:
            why = f"{'.'.join(base)} is set as well"
            raise ConfigError(".".join(path), value, why, "keep one of the two", source=source)
        checked[base] = Assigned(_read(path, value, source), f"file {value} ({source})")
    return checked


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
