"""Several Kafka clusters in one table: each row has the name of its own, in the column `cluster`.

Topics of two clusters may have the same name, and so may groups and places of records: only the
name of the cluster tells their messages apart. A table that an ingest without a name has filled
holds one cluster. To take up a second one, it is first said which that is (`name_rows`): a property
of the table, so no file is rewritten. From then on every ingest has to name its cluster.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from ackfloor import SettingError
from ackfloor_monitoring.spark.spark_errors import ClusterRefused, NothingToReport
from ackfloor_monitoring.spark.table import store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,100}")
_MIGRATE: Final = "`ackfloor spark migrate --cluster NAME`"


def checked_name(name: str, field: str) -> str:
    """The name.

    Raises:
        SettingError: it is none.
    """
    if not _NAME.fullmatch(name):
        fix = "take up to 100 letters, digits, dots, dashes and underscores, such as eu-1"
        raise SettingError(field, name, "is no name of a cluster", fix)
    return name


def require_cluster(spark: SparkSession, table: str, cluster: str | None) -> None:
    """Before rows of `cluster` are added: the others have names as well, or none has.

    Args:
        table: one that `open_table` has opened.
        cluster: the name that an ingest was given; None for none.

    Raises:
        ClusterRefused: the table's rows would be mixed.
    """
    named = store.unnamed_cluster(spark, table) is not None
    if named and cluster is None:
        raise ClusterRefused(
            f"table {table}: its rows name their clusters ({_named(spark, table)}); name this one "
            "with --cluster"
        )
    if named or cluster is None:
        return
    if not store.is_empty(spark, table):
        raise ClusterRefused(
            f"table {table}: --cluster {cluster!r}, but its rows name no cluster; say which they "
            f"are of with {_MIGRATE}, or ingest without --cluster"
        )
    store.name_unnamed(spark, table, "")


def name_rows(spark: SparkSession, table: str, cluster: str) -> None:
    """Say of which cluster the rows are that name none: all, of a table that never had a name.

    Raises:
        ClusterRefused: they have another name.
    """
    before = store.unnamed_cluster(spark, table)
    if before == cluster:
        return
    if before is not None:
        raise ClusterRefused(
            f"table {table}: --cluster {cluster!r}, but each of its rows names a cluster "
            f"({_named(spark, table)}); leave --cluster out"
        )
    store.name_unnamed(spark, table, cluster)


def failures_of(
    spark: SparkSession, table: str, group: str | None, cluster: str | None
) -> DataFrame:
    """The table's rows of one group and one cluster; None for all.

    Raises:
        TableRefused, StoreFailed: the table cannot be used.
        NothingToReport: there is none of the cluster.
    """
    failures = store.read_failures(spark, table)
    if group is not None:
        failures = failures.where(failures["group"] == group)
    with store.readable_store_errors(table):
        return narrowed(failures, cluster, table)


def narrowed(failures: DataFrame, cluster: str | None, table: str) -> DataFrame:
    """The rows of one cluster, or all.

    Raises:
        NothingToReport: there is none of it.
    """
    if cluster is None:
        return failures
    rows = failures.where(F.col("cluster") == cluster)
    if rows.isEmpty():
        raise NothingToReport(
            f"table {table}: no row of cluster {cluster!r}; it has "
            f"{', '.join(names(failures)) or 'none with a name'}"
        )
    return rows


def require_one(failures: DataFrame, table: str) -> None:
    """Before brokers are asked about rows: those of others' would seem to be lost.

    Raises:
        ClusterRefused: rows name several clusters.
    """
    if len(found := names(failures)) > 1:
        raise ClusterRefused(
            f"table {table}: its rows are of several clusters ({', '.join(found)}); name the one "
            "of these brokers with --cluster"
        )


def names(failures: DataFrame) -> list[str]:
    """Of the clusters that rows name, sorted."""
    found = failures.where("cluster is not null").select("cluster").distinct().collect()
    return sorted(row["cluster"] for row in found)


def _named(spark: SparkSession, table: str) -> str:
    return ", ".join(names(store.read_failures(spark, table))) or "none yet"
