"""Spark without compiled queries, for sessions of tests and for the programs that they start.

Most queries here run once, over a few dozen rows: to compile them takes most of the time. As users
have them they run in `ackfloor demo` (tests/e2e/test_demo.py).

Without adaptive plans nothing joins the 200 parts of a shuffle, so a session that a program makes
by itself has to have as few of them as ours: else a dozen queries start ten thousand tasks.
"""

from __future__ import annotations

from pathlib import Path

INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
_FEW_PARTS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
}


def defaults_in(folder: Path) -> dict[str, str]:
    """The variable by which a command finds these settings, written to `folder`."""
    folder.mkdir()
    text = "".join(f"{name} {value}\n" for name, value in (INTERPRETED | _FEW_PARTS).items())
    (folder / "spark-defaults.conf").write_text(text)
    return {"SPARK_CONF_DIR": str(folder)}
