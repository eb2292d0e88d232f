"""The table of all settings: names, variables, defaults, what they accept.

A setting's path is what `[section]` and key are in the file: `("app", "workers")`. Its variable
is `ACKFLOOR_` and the path in capitals, joined by two underscores. Under `("handlers", name)` the
name is the handler's; under the property tables of `[kafka]` it is librdkafka's own.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from ackfloor.declare.registration import HandlerSpec
from ackfloor.settings.app_settings import AppSettings
from ackfloor.settings.handler_overrides import HandlerOverrides
from ackfloor.settings.kafka_settings import PROPERTY_TABLES, KafkaSettings
from ackfloor.settings.redaction_settings import RedactionSettings
from ackfloor.settings.registry_settings import RegistrySettings
from ackfloor.settings.value_types import is_secret_property, spelled

Path = tuple[str, ...]

PREFIX = "ACKFLOOR_"

#: Short names of variables that are often set by hand.
ALIASES = {
    "ACKFLOOR_BOOTSTRAP_SERVERS": ("kafka", "bootstrap_servers"),
    "ACKFLOOR_RELEASE": ("app", "release"),
}
#: Variables that are read elsewhere and are no settings.
OTHER_VARIABLES = ("ACKFLOOR_CONFIG", "ACKFLOOR_STATE_DIR", "ACKFLOOR_GROUP", "ACKFLOOR_OUTPUT")
#: Commands whose flags have twins named `ACKFLOOR_<COMMAND>_<FLAG>`. `handlers` is a section of
#: settings as well: there it takes the second word to tell a twin from a misspelt setting.
COMMANDS = (
    "ACKS", "ACTIONS", "BREAKER", "BROKER", "CONFIG", "DEMO", "DLQ", "DOCTOR", "HANDLERS_LS",
    "HANDLERS_PAUSE", "HANDLERS_RESUME", "INFLIGHT", "LAG", "LANES", "POLICY", "RETRY", "RUN",
    "CONSOLE", "SPARK", "TOPICS",
)  # fmt: skip


#: Variables that Kubernetes sets in every pod for each service.
_SERVICE_LINK = re.compile(
    r"[A-Z0-9_]+_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_\d+_(TCP|UDP|SCTP)(_[A-Z]+)?)="
    r"|[A-Z0-9_]+_PORT=(tcp|udp|sctp)://"
)


def is_service_link(variable: str, value: str) -> bool:
    """Whether Kubernetes made this variable, for a service whose name starts with `ackfloor`.

    https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables
    """
    return "__" not in variable and _SERVICE_LINK.match(f"{variable}={value}") is not None


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    Attributes:
        path: section and key; for handlers `("handlers", "<name>", key)`.
        attribute: the attribute of its model.
        secret: whether it must not be shown.
        default: the built-in value, as it is written.
        accepts: what may be written.
        meaning: one sentence.
    """

    path: Path
    attribute: str
    secret: bool
    default: str
    accepts: str
    meaning: str

    @property
    def name(self) -> str:
        """The path with dots: how messages and `config show` name it."""
        return ".".join(self.path)

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return variable_of(self.path)


def variable_of(path: Path) -> str:
    """The environment variable of a setting."""
    return PREFIX + "__".join(part.replace("<", "").replace(">", "").upper() for part in path)


def _walk(model: type[BaseModel], path: Path) -> Iterator[Setting]:
    for attribute, field in model.model_fields.items():
        own = (*path, field.alias or attribute)
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _walk(inner, own)
            continue
        yield Setting(
            path=own,
            attribute=attribute,
            secret=SecretStr in _choices(field.annotation),
            default="" if field.default_factory else spelled(attribute, field.default),
            accepts=_accepts(attribute, field),
            meaning=field.description or "",
        )


def _choices(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


_SPELLED = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def _accepts(attribute: str, field: FieldInfo) -> str:
    if attribute.endswith(("_rate", "_per_s")):
        return 'a rate ("100/m", "5/s")'
    if attribute.endswith("_s") and get_origin(field.annotation) is tuple:
        return 'durations (["1s", "1m"]), or "none"'
    if attribute.endswith("_s"):
        return 'a duration ("30s", "1h30m")'
    if attribute.endswith("_bytes"):
        return 'a size ("256MiB")'
    if attribute in PROPERTY_TABLES:
        return "a table of librdkafka properties"
    accepted: list[str] = []
    for hint in _choices(field.annotation):
        choice = get_args(hint)[0] if get_origin(hint) is tuple else hint
        if get_origin(choice) is Literal:
            accepted.extend(f"`{each}`" for each in get_args(choice))
        elif choice is SecretStr:
            accepted.append("secret text")
        elif choice is not NoneType:
            accepted.append(_SPELLED.get(choice, "text"))
    return " or ".join(accepted)


KAFKA = tuple(_walk(KafkaSettings, ("kafka",)))
APP = tuple(_walk(AppSettings, ("app",)))
REGISTRY = tuple(_walk(RegistrySettings, ("registry",)))
REDACTION = tuple(_walk(RedactionSettings, ("redaction",)))
HANDLER = tuple(_walk(HandlerOverrides, ("handlers", "<name>")))
#: Without deprecated ones.
CURRENT_HANDLER = tuple(setting for setting in HANDLER if setting.path[2] != "guard")

#: All that is not about one handler, in the order of the reference.
FIXED = (*KAFKA, *APP, *REGISTRY, *REDACTION)

_FIXED = {setting.path: setting for setting in FIXED}
_PER_HANDLER = {setting.path[2:]: setting for setting in HANDLER}
#: Options of a handler that only code can set.
_IN_CODE = frozenset(field.name for field in fields(HandlerSpec)).difference(
    HandlerOverrides.model_fields, ("function", "given")
)


def find(path: Path) -> Setting | None:
    """The setting at a path; None where there is none. Property tables take any key."""
    if path[0] == "handlers":
        return _PER_HANDLER.get(path[2:])
    if len(path) == 3 and path[0] == "kafka" and path[1] in PROPERTY_TABLES:
        table = _FIXED[path[:2]]
        secret = is_secret_property(path[2])
        return Setting(path, path[2], secret, "", "librdkafka's", table.meaning)
    setting = _FIXED.get(path)
    return None if setting and setting.path[-1] in PROPERTY_TABLES else setting


def handler_keys() -> Iterable[Path]:
    """The keys below `[handlers.<name>]`."""
    return _PER_HANDLER


def near(path: Path) -> str:
    """What to do about a name that does not exist."""
    if path in _FIXED:
        return f"set one property of it, such as {variable_of((*path, 'CLIENT_RACK'))}"
    if path[0] == "handlers":
        if path[-1] in _IN_CODE:
            return f"it is said in code: @app.handler(..., {path[-1]}=...)"
        if of_the_table := [keys[1] for keys in _PER_HANDLER if keys[:-1] == path[2:-1] != ()]:
            known = {key: ".".join((*path[:-1], key)) for key in of_the_table}
            return nearest(path[-1], known, f"there are {', '.join(of_the_table)}")
        known = {".".join(keys): ".".join((*path[:2], *keys)) for keys in _PER_HANDLER}
        return nearest(".".join(path[2:]), known, _ALL)
    for start in range(len(path)):
        if path[start:] in _PER_HANDLER:
            name = "<name>" if path[0] in ("app", "kafka") else ".".join(path[:start]) or "<name>"
            return f"it is a handler's: set handlers.{name}.{'.'.join(path[start:])}"
    if path[0] == "kafka" and "." in path[-1]:
        return f"librdkafka's own names belong in one of {', '.join(_TABLES)}"
    return nearest(path[-1], {setting.path[-1]: setting.name for setting in _FIXED.values()}, _ALL)


_TABLES = tuple(f"[kafka.{table}]" for table in PROPERTY_TABLES)
_ALL = "`ackfloor config show` lists all names"


def nearest(name: str, known: Mapping[str, str], otherwise: str) -> str:
    """`did you mean ...?`, or something else to do where nothing is near.

    Args:
        name: what was written, without what all names have in common.
        known: the right names, short as well, and what to say for each.
        otherwise: what to do where nothing is near.
    """
    found = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"did you mean {known[found[0]]}?" if found else otherwise
