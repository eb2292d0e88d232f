"""`ackfloor spark prepare`: an archive of Spark's classes, which each local session takes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from ackfloor.testing.local_kafka.class_archive import ArchiveFailed, ClassArchive
from ackfloor.testing.local_kafka.java import find_java
from ackfloor_monitoring.spark.cli import spark_app
from ackfloor_monitoring.spark.report.kept.kept_days import KeptDays
from ackfloor_monitoring.spark.setup import spark_preparation as prepare
from ackfloor_monitoring.spark.table import store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SESSION = """
import sys
from ackfloor_monitoring.spark.setup.session import local_session

loaded = f"-Xlog:class+load=info:file={sys.argv[1]}"
with local_session(java_options=[loaded]) as spark:
    print(spark.range(3).count())
"""


@pytest.mark.spark
@pytest.mark.e2e
@pytest.mark.xdist_group("cluster")
@pytest.mark.timeout(900)
def test_a_session_takes_its_classes_from_the_archive(tmp_path: Path) -> None:
    """Where it was made once it is there: the one that is kept in the user's own folder."""
    command = [sys.executable, "-m", "ackfloor.cli.main", "spark", "prepare"]
    made = subprocess.run(command, capture_output=True, text=True, check=False, timeout=800)
    assert made.returncode == 0, made.stderr
    assert made.stdout.endswith(".jsa\n")
    assert Path(made.stdout.strip()).is_file()
    assert len(made.stdout.splitlines()) == 1
    done = CliRunner().invoke(spark_app, ["prepare"])
    assert (done.exit_code, done.stdout) == (0, made.stdout)
    assert "was there already" in done.stderr
    loaded = tmp_path / "loaded"
    session = [sys.executable, "-c", _SESSION, str(loaded)]
    ran = subprocess.run(session, capture_output=True, text=True, check=True, timeout=300)
    assert ran.stdout == "3\n", "Java says nothing of it on standard output"
    told = loaded.read_text("utf-8")
    assert "org.apache.spark.SparkContext source: shared objects file" in told


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_the_training_run_stores_and_reports(spark: SparkSession, tmp_path: Path) -> None:
    """What it does is what others do later: made-up failures come to rows, none unreadable."""
    table = str(tmp_path / "failures")
    prepare._use(spark, table)
    rows = store.read_failures(spark, table).collect()
    # Of several days, in whichever order their files are.
    assert sorted(row["offset"] for row in rows) == list(range(len(rows)))
    assert len({row["day"] for row in rows}) > 1
    assert KeptDays(spark, table).runs()
    assert {(row["group"], row["stage"], len(row["unreadable"])) for row in rows} == {
        ("prepare", "retry", 0)
    }


def test_a_training_run_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the last that it said, and there is no archive."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    archive = ClassArchive.of(find_java("installed"), "spark", [])
    failed = pytest.raises(ArchiveFailed, match=r"the training run failed: .*'no-such-java'")
    with failed, archive.training() as options:
        prepare._train(["no-such-java", *options])
    assert archive.path is None
