"""Views for plain SQL: the table, and the figures that follow from it, by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import StructField, StructType

from ackfloor_monitoring.spark.analysis.cause_frames import costs, delivery_rows, fingerprints
from ackfloor_monitoring.spark.analysis.described import described
from ackfloor_monitoring.spark.analysis.life_frames import funnel, funnel_by_cause, message_lives
from ackfloor_monitoring.spark.analysis.release_rates import release_rates
from ackfloor_monitoring.spark.table.column_meanings import OF_DISPOSITIONS, of_failures
from ackfloor_monitoring.spark.table.columns import DERIVED, FAILURE
from ackfloor_monitoring.spark.table.disposition_rows import DISPOSITION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ackfloor.commits import Settled

#: Their names; the last one needs brokers.
VIEWS: Final = (
    "failures", "deliveries", "fingerprints", "costs", "release_rates", "lives", "funnel",
    "funnel_by_cause", "dispositions",
)  # fmt: skip


def views(
    failures: DataFrame, commits: Iterable[Settled], dispositions: DataFrame | None
) -> Mapping[str, DataFrame]:
    """The frame of each view; nothing is counted before one is read.

    Args:
        failures: from `store.read_failures`.
        commits: of the groups' tiers; none where they are not known.
        dispositions: rows of `DISPOSITION`; None where no broker is named.
    """
    lived = message_lives(failures, commits)
    found = {
        "failures": described(failures, _commented((*FAILURE, *DERIVED), of_failures())),
        "deliveries": delivery_rows(failures),
        "fingerprints": fingerprints(failures),
        "costs": costs(failures),
        "release_rates": release_rates(failures),
        "lives": lived,
        "funnel": funnel(lived),
        "funnel_by_cause": funnel_by_cause(lived),
    }
    if dispositions is not None:
        found["dispositions"] = described(dispositions, _commented(DISPOSITION, OF_DISPOSITIONS))
    return found


def register(spark: SparkSession, found: Mapping[str, DataFrame]) -> None:
    """Give them their names in the session, instead of what had these names before."""
    for name in VIEWS:
        if name in found:
            found[name].createOrReplaceTempView(name)
        else:
            spark.catalog.dropTempView(name)


def _commented(columns: Iterable[StructField], meanings: Mapping[str, str]) -> StructType:
    return StructType(
        [
            StructField(each.name, each.dataType, metadata={"comment": meanings[each.name]})
            for each in columns
        ]
    )
