"""The reference of all settings as Markdown, generated from the models."""

from __future__ import annotations

from collections.abc import Iterable

from ackfloor.settings import names
from ackfloor.settings.names import Setting

_HEAD = """\
| name | variable | accepts | default | meaning |
|---|---|---|---|---|"""

_TABLES = (
    "The tables `properties` (every client), `consumer`, `producer` and `admin` take any "
    "librdkafka property by its own name; in a variable its dots are underscores: "
    f"`{names.variable_of(('kafka', 'consumer', 'fetch_min_bytes'))}`."
)


def render() -> str:
    """The tables of `[kafka]`, `[app]` and `[handlers.<name>]`."""
    parts = [
        "## `[kafka]`: how to reach the brokers",
        _table(names.KAFKA),
        "A secret can be given as a file: append `_file` to its name, `_FILE` to its variable.",
        _TABLES,
        "## `[app]`: what a worker does and within which limits",
        _table(names.APP),
        "## `[handlers.<name>]`: one handler",
        _table(names.HANDLER),
        "Defaults are those of a handler that says nothing itself.",
        "## Short and other variables",
        *(f"- `{short}` is `{'.'.join(path)}`." for short, path in names.ALIASES.items()),
        "- `ACKFLOOR_CONFIG` names the file to read in place of `./ackfloor.toml`.",
    ]
    text = "\n\n".join(parts)
    # List items belong together.
    return text.replace("\n\n- ", "\n- ").replace("variables\n- ", "variables\n\n- ") + "\n"


def _table(settings: Iterable[Setting]) -> str:
    return "\n".join([_HEAD, *(_line(setting) for setting in settings)])


def _line(setting: Setting) -> str:
    default = f"`{setting.default}`" if setting.default else ""
    cells = (f"`{setting.name}`", f"`{setting.variable}`", setting.accepts, default)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in (*cells, setting.meaning)) + " |"
