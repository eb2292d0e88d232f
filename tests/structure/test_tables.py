"""Tables that are looked up by a kind, a reason or a state have a row for each of them.

A row that is missing is a KeyError in a case that is seldom: `doctor` died of one where somebody
had replayed a dead letter. Whoever adds a member finds out here which tables it belongs into.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import get_args

import pytest

from ackfloor.cli import breaker, doctor, headers_reference, redrive_shown, reference, retry_early
from ackfloor.cli.letter_files import _WRITERS, ExportFormat
from ackfloor.core import finding, redrive, topics
from ackfloor.core.dispositions import Disposition
from ackfloor.core.envelope import Reason
from ackfloor.core.events import Event
from ackfloor.kafka.rights import NEEDED
from ackfloor.live import breakers
from ackfloor.live.early import Action
from ackfloor.runtime.exit_codes import Exit
from ackfloor_handlers.demo import seed
from ackfloor_monitoring import exposition
from ackfloor_monitoring.spark import audit
from ackfloor_monitoring.spark import doctor as spark_doctor
from ackfloor_monitoring.spark.cli.doctor import _MARKS
from ackfloor_monitoring.spec import Kind
from ackfloor_monitoring.worker import WorkerMetrics

TABLES: dict[str, tuple[Collection[object], Collection[object]]] = {
    "rights by kind of topic": (NEEDED, {"source", *get_args(topics.Kind)}),
    "colours of findings": (doctor._COLOURS, get_args(finding.State)),
    "colours of Spark's findings": (_MARKS, get_args(spark_doctor.State)),
    "what reasons mean": (headers_reference._REASONS, Reason),
    "what exit codes mean": (reference._EXIT_CODES, Exit),
    "what a job has done": (redrive_shown.DONE, Disposition),
    "what a job is to do": (redrive_shown.TO_DO, Disposition),
    # Counting is a dry run of the others.
    "what was done early": (retry_early._DONE, {*Action} - {Action.COUNT}),
    "what was done to a breaker": (breaker._DONE, {*breakers.Action}),
    "what is wanted of a breaker": (breakers._FORCED, {*breakers.Action}),
    "why a letter was left": (redrive._WORDS, redrive.Left),
    "faults of an audit": (audit._WORDS, audit.Fault),
    "forms of an export": (_WRITERS, ExportFormat),
    "families of metrics": (exposition._FAMILY, Kind),
    "events that are counted": (WorkerMetrics()._told, get_args(Event)),
    "what becomes of orders": (seed.EXPECTED, seed.Kind),
    # Poison has no card.
    "cards of orders": (seed._CARDS, {*seed.Kind} - {seed.Kind.POISON}),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_a_row_for_each(name: str) -> None:
    """And none for what there is not."""
    rows, members = TABLES[name]
    assert set(rows) == set(members)
