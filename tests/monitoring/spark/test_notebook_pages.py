"""The blocks of the Spark pages are true: programs run as one notebook, commands exist."""

from __future__ import annotations

import shlex
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ackfloor.core.records.envelope import Envelope
from ackfloor.settings import Settings
from ackfloor.testing.local_kafka.java import find_java
from ackfloor_monitoring.spark.setup.kafka_options import kafka_options
from ackfloor_monitoring.spark.setup.session import write_java_home
from ackfloor_monitoring.spark.table import kafka_reads as io
from ackfloor_monitoring.spark.table.ingest import Ingest, IngestPlan
from tests.monitoring.spark.interpreted import defaults_in
from tests.monitoring.spark.test_cluster import JOB
from tests.redrive_stage import Stage
from tests.structure.pages import SHELLS, Block, blocks, check_options, commands, run
from tests.structure.sources import REPOSITORY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGES = ("docs/spark.md", "docs/spark-analysis.md", "docs/spark-report.md")
# Of other tools: the cluster tests run the first one, and a line of Python is run here.
NOT_OURS = {"spark-submit", "pip"}


def page_blocks() -> list[Block]:
    """Those of all pages, in order."""
    return [block for page in PAGES for block in blocks((REPOSITORY / page).read_text("utf-8"))]


def test_each_block_is_of_a_kind_that_is_tested() -> None:
    """A new kind needs a test here."""
    assert {block.language for block in page_blocks()} == {"console", "python", "sql", "toml"}


def test_every_command_exists(tmp_path: Path) -> None:
    """With each of its options; a line of Python runs."""
    found = [
        words
        for block in page_blocks()
        if block.language in SHELLS
        for words in commands(block.text)
    ]
    assert len(found) > 5
    for words in found:
        match words:
            case ["ackfloor", *rest]:
                check_options(rest)
            case ["python", "-c", _]:
                assert Path(run(words, tmp_path).strip()).is_file()
            case [tool, *_]:
                assert tool in NOT_OURS, shlex.join(words)


def test_settings_exist() -> None:
    """And take the values that the page gives them."""
    for block in page_blocks():
        if block.language == "toml":
            Settings.model_validate(tomllib.loads(block.text))


def test_the_program_of_a_cluster_is_the_one_that_is_tested() -> None:
    """tests/monitoring/spark/test_cluster.py submits it."""
    (file,) = [block for block in page_blocks() if block.file is not None]
    assert file.text == f"# {file.file}\n{JOB}"


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(900)
def test_the_notebook_runs(spark: SparkSession, bootstrap_servers: str, tmp_path: Path) -> None:
    """As one program, on a table with replays. The SQL is another, in the session that the page
    makes from settings and jars."""
    stage = Stage(bootstrap_servers)
    stage.died = Envelope(
        stage.source, 0, group=stage.group, handler="bill", attempt=1, error_type="shop.Declined"
    )
    stage.bury([(None, b"v", [])] * 3)
    assert stage.job(limit=2).run(stage.everything()).sent == 2
    table, group = str(tmp_path / "failures"), io.group_pattern(stage.group)
    Ingest(spark, IngestPlan(table, kafka_options(stage.servers), group, once=True)).run()
    pages = page_blocks()
    # Views that are kept are a test of their own, in analysis/test_page_queries.py.
    cells = "\n# next\n".join(
        each.text
        for each in pages
        if each.language == "python" and not each.file and "cacheTable" not in each.text
    )
    queries = [
        f'spark.sql("""{each.text}""").show(truncate=False)'
        for each in pages
        if each.language == "sql"
    ]
    for said, here in (
        ("/data/failures", table), ("kafka-1:9092", stage.servers),
        ('"billing"', f'"{stage.group}"'), ("'billing'", f"'{stage.group}'"),
    ):  # fmt: skip
        assert said in cells
        cells = cells.replace(said, here)
    each_cell = cells.split("\n# next\n")
    [own] = [cell for cell in each_cell if "SparkSession.builder" in cell]
    first, *rest = [cell for cell in each_cell if cell != own]
    [views] = [cell for cell in rest if "register_views" in cell]
    java = write_java_home(tmp_path / "java", find_java(None))
    variables = {
        "JAVA_HOME": str(java), "PYSPARK_PYTHON": sys.executable,
        **defaults_in(tmp_path / "conf"),
    }  # fmt: skip
    python = [sys.executable, "-c"]
    rows = shown(run([*python, "\n".join([first, *rest])], tmp_path, **variables))
    assert "bill 1 3 0 3 0 0" in [row.partition(" ")[2] for row in rows], rows
    assert any(row.startswith("3 shop.Declined 20") for row in rows), rows
    without = "commits = []"
    rows = shown(
        run([*python, "\n".join([own, first, without, views, *queries])], tmp_path, **variables)
    )
    assert sum("shop.Declined replayed me" in row for row in rows) == 2, rows
    assert sum("shop.Declined NULL NULL" in row for row in rows) == 1


def shown(told: str) -> list[str]:
    """The lines of tables, a blank between two values."""
    return [" ".join(line.replace("|", " ").split()) for line in told.splitlines()]
