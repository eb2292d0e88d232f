"""Variables: the settings in the environment, `ACKFLOOR_<SECTION>__<NAME>`.

Those of one app begin with its group, `ACKFLOOR_APPS__<GROUP>__<SECTION>__<NAME>`: in capitals,
with an underscore for a dot or a dash, as the names of handlers.
"""

from __future__ import annotations

from collections.abc import Mapping

from ackfloor.declare.registration import settings_key
from ackfloor.errors import ConfigError
from ackfloor.settings import names
from ackfloor.settings.app_sections import APPS, Place
from ackfloor.settings.kafka_settings import PROPERTY_TABLES
from ackfloor.settings.layers import (
    FILE_SUFFIX,
    HIDDEN,
    SECTIONS,
    Assigned,
    Layer,
    checked,
    shown,
)
from ackfloor.settings.names import PREFIX, Path

OF_APPS = f"{PREFIX}{APPS.upper()}__"


def environment_place(environment: Mapping[str, str]) -> Place:
    """The variables named `ACKFLOOR_...`; names are case-insensitive.

    Raises:
        ConfigError: a variable is unknown, or two say different things about one setting.
    """
    top: Layer = {}
    apps: dict[str, Layer] = {}
    for original, value in sorted(environment.items()):
        variable = original.upper()
        if not variable.startswith(PREFIX) or _is_other(variable, value):
            continue
        group, path = _read(variable)
        source = f"environment {original}"
        if path is None:
            raise ConfigError(original, HIDDEN, "no such setting", _near(variable), source=source)
        layer = top if group is None else apps.setdefault(group, {})
        earlier = layer.get(path)
        if earlier and earlier.value != value:
            name = ".".join(path)
            why = f"{earlier.source} sets {name} to something else"
            raise ConfigError(original, shown(path, value), why, "keep one of the two")
        layer[path] = Assigned(value, source)
    return Place(checked(top), lambda group: checked(apps.get(settings_key(group), {})))


def _is_other(variable: str, value: str) -> bool:
    twins = tuple(f"{PREFIX}{command}_" for command in names.COMMANDS)
    return (
        variable in names.OTHER_VARIABLES
        or variable.startswith(twins)
        or names.is_service_link(variable, value)
    )


def _read(variable: str) -> tuple[str | None, Path | None]:
    """The group's key, None for the top level, and the path; None where it can be no setting's."""
    if variable in names.ALIASES:
        return None, names.ALIASES[variable]
    if variable.startswith(OF_APPS):
        return _of_app(variable.removeprefix(OF_APPS).lower())
    return None, _path_of(variable.removeprefix(PREFIX).lower())


def _of_app(rest: str) -> tuple[str | None, Path | None]:
    """`billing__app__workers` -> the group's key, and the path.

    A group may hold two underscores, and a part of it may be named as a section: so the first
    section counts that makes a setting of the rest.
    """
    parts = rest.split("__")
    starts = [at for at, part in enumerate(parts) if at and part in SECTIONS]
    for at in starts:
        path = _path_of("__".join(parts[at:]))
        if path is not None and _is_setting(path):
            return "__".join(parts[:at]), path
    # A misspelt one: its app refuses it.
    return ("__".join(parts[: starts[0]]), tuple(parts[starts[0] :])) if starts else (None, None)


def _is_setting(path: Path) -> bool:
    in_file = (*path[:-1], path[-1].removesuffix(FILE_SUFFIX))
    return names.find(path) is not None or names.find(in_file) is not None


def _path_of(variable: str) -> Path | None:
    """`app__workers` -> `("app", "workers")`; None where no section begins it."""
    section, _, rest = variable.partition("__")
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
    if variable.startswith(OF_APPS):
        sections = ", ".join(section.upper() for section in SECTIONS)
        return f"write {OF_APPS}<GROUP>__<SECTION>__<NAME>; sections are {sections}"
    short = (*names.OTHER_VARIABLES, *names.ALIASES)
    long = tuple(setting.variable for setting in (*names.HANDLER, *names.FIXED))
    # The last of one name counts: without a section, the variable without one is suggested.
    known = {
        each.removeprefix(PREFIX).rpartition("__")[2]: each
        for each in ((*short, *long) if "__" in variable else (*long, *short))
    }
    otherwise = f"sections are {', '.join(f'{PREFIX}{s.upper()}__...' for s in SECTIONS)}"
    return names.nearest(variable.removeprefix(PREFIX).rpartition("__")[2], known, otherwise)
