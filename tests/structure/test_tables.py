"""Tables that are looked up by a kind, a reason or a state have a row for each of them.

A row that is missing is a KeyError in a case that is seldom: `doctor` died of one where somebody
had replayed a dead letter. Whoever adds a member finds out here which tables it belongs into.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import get_args

import pytest

from ackfloor.cli.breaker import breaker_commands as breaker
from ackfloor.cli.handlers import handler_commands
from ackfloor.cli.reference import cli_reference as reference
from ackfloor.cli.reference import headers_reference
from ackfloor.cli.setup import doctor
from ackfloor.core.messages.events import Event
from ackfloor.core.parking import topic_names as topics
from ackfloor.core.records.envelope import Reason
from ackfloor.core.values import doctor_result as finding
from ackfloor.dead_letters.commands import redrive_views as redrive_shown
from ackfloor.dead_letters.commands.export_files import _WRITERS, ExportFormat
from ackfloor.dead_letters.rules import redrive_rules as redrive
from ackfloor.dead_letters.rules.dispositions import Disposition
from ackfloor.kafka.topics.permissions import NEEDED
from ackfloor.live import breaker_orders as breakers
from ackfloor.live.pause_orders import PauseAction
from ackfloor.live.retry_orders import Action
from ackfloor.operations import retry_moves
from ackfloor.runtime.supervision.exit_codes import Exit
from ackfloor_handlers.demo import seeded_orders as seed
from ackfloor_monitoring.metrics import exposition
from ackfloor_monitoring.metrics.metric_spec import Kind
from ackfloor_monitoring.metrics.worker_metrics import WorkerMetrics
from ackfloor_monitoring.spark.audit import audit
from ackfloor_monitoring.spark.cli.doctor import _COLOURS
from ackfloor_monitoring.spark.setup import spark_checks as spark_doctor

TABLES: dict[str, tuple[Collection[object], Collection[object]]] = {
    "rights by kind of topic": (NEEDED, {"source", *get_args(topics.Kind)}),
    "colours of findings": (doctor._COLOURS, get_args(finding.State)),
    "colours of Spark's findings": (_COLOURS, get_args(spark_doctor.State)),
    "what reasons mean": (headers_reference._REASONS, Reason),
    "what exit codes mean": (reference._EXIT_CODES, Exit),
    "what a job has done": (redrive_shown.DONE, Disposition),
    "what a job is to do": (redrive_shown.TO_DO, Disposition),
    # Counting is a dry run of the others.
    "what was done early": (retry_moves.DONE, {*Action} - {Action.COUNT}),
    "what is left by what is done early": (retry_moves.LEAVES, {*Action} - {Action.COUNT}),
    "why it is left": (retry_moves.LEFT, {*Action} - {Action.COUNT}),
    "what was done to a handler": (handler_commands._DONE, {*PauseAction}),
    "what was done to a breaker": (breaker._DONE, {*breakers.Action}),
    "what is wanted of a breaker": (breakers._FORCED, {*breakers.Action}),
    "why a dead letter was left": (redrive._REASONS, redrive.Left),
    "faults of an audit": (audit._DESCRIPTIONS, audit.Fault),
    "forms of an export": (_WRITERS, ExportFormat),
    "families of metrics": (exposition._FAMILY, Kind),
    "events that are counted": (WorkerMetrics()._counters, get_args(Event)),
    "what becomes of orders": (seed.EXPECTED, seed.Kind),
    # Poison has no card.
    "cards of orders": (seed._CARDS, {*seed.Kind} - {seed.Kind.POISON}),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_a_row_for_each(name: str) -> None:
    """And none for what there is not."""
    rows, members = TABLES[name]
    assert set(rows) == set(members)
