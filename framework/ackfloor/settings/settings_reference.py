"""The reference of all settings as Markdown, generated from the models.

    python -m ackfloor.settings.settings_reference > docs/reference/config.md

A test compares the file with what this prints.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from ackfloor.settings import names
from ackfloor.settings.live_settings import is_live
from ackfloor.settings.names import Setting

_PAGE = """\
# Configuration

<!-- Written by `python -m ackfloor.settings.settings_reference`; change the models. -->

Code states defaults, operators override them. The strongest first:

1. the command line of `ackfloor run` (`--workers`, `--listen`, `--log-level`, `--log-format`);
2. the environment: `ACKFLOOR_` and the setting's path in capitals, joined by two underscores;
3. `ackfloor.toml` in the working directory, with the tables `[kafka]`, `[app]`, `[registry]`,
   `[redaction]` and `[handlers.<name>]`;
4. arguments in code: `App(group=..., kafka={...}, commit_interval="1s")` for `[kafka]` and `[app]`,
   the options of `@app.handler(...)` for a handler;
5. what is built in.

Several apps share a file: `[apps.<group>.app]`, `[apps.<group>.handlers.<name>]` and so on hold
what counts for the app of that consumer group alone, and there more than the top level. The twin of
`ACKFLOOR_APP__WORKERS` for the app of the group `shop.audit` is
`ACKFLOOR_APPS__SHOP_AUDIT__APP__WORKERS`. See
[several apps in one file](../guide/running.md#several-apps-in-one-file).

`ackfloor config show MODULE:APP` prints every setting with its value and the place it came from.
An unknown name is refused, with the nearest one that exists. Durations are written with units
(`"250ms"`, `"30s"`, `"1h30m"`); a bare number is refused.

Settings marked in the column "live" may change while a run runs: by a change of the file, by
SIGHUP, or by `ackfloor config set`, which counts more than all of the above until the run ends. The
others need a restart. See [running](../guide/running.md#changing-settings-while-it-runs).

What a handler means (topics, ordering, acknowledgement, decoder, middleware) is code alone and
has no setting."""
_HEAD = """\
| name | variable | accepts | default | live | meaning |
|---|---|---|---|---|---|"""

_GUARD = (
    "`[handlers.<name>.guard]` gave way to `[handlers.<name>.breaker]`. For one release it is "
    "accepted with a warning and ignored, but for `enabled = false`: then the breaker never opens."
)
_TABLES = (
    "The tables `properties` (every client), `consumer`, `producer` and `admin` take any "
    "librdkafka property by its own name; in a variable its dots are underscores: "
    f"`{names.variable_of(('kafka', 'consumer', 'fetch_min_bytes'))}`."
)


def render() -> str:
    """The whole page: a table for each section."""
    parts = [
        _PAGE,
        "## `[kafka]`: how to reach the brokers",
        _table(names.KAFKA),
        "A secret can be given as a file: append `_file` to its name, `_FILE` to its variable.",
        _TABLES,
        "## `[app]`: what a worker does and within which limits",
        _table(names.APP),
        "## `[registry]`: how to reach the schema registry",
        _table(names.REGISTRY),
        "## `[redaction]`: what is taken from records before they are stored outside of Kafka",
        _table(names.REDACTION),
        "## `[handlers.<name>]`: one handler",
        _table(names.CURRENT_HANDLER),
        "Defaults are those of a handler that says nothing itself.",
        _GUARD,
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
    live = "yes" if is_live(setting.path) else ""
    cells = (f"`{setting.name}`", f"`{setting.variable}`", setting.accepts, default, live)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in (*cells, setting.meaning)) + " |"


if __name__ == "__main__":
    sys.stdout.write(render())
