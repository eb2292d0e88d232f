"""`ackfloor spark forget`: shown first, then in no file; nothing else goes, nothing comes back."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyarrow.parquet import ParquetFile
from pyspark.errors import PySparkException
from typer.testing import CliRunner, Result

from ackfloor.core.records.redaction import Redaction
from ackfloor_monitoring.spark.cli import spark_app
from ackfloor_monitoring.spark.forget import erasure
from ackfloor_monitoring.spark.forget.erasure_notes import notes_since
from ackfloor_monitoring.spark.report import job
from ackfloor_monitoring.spark.report.build import Since
from ackfloor_monitoring.spark.report.formatting import in_short
from ackfloor_monitoring.spark.spark_errors import StoreFailed, TableRefused, WhereRefused
from ackfloor_monitoring.spark.table import store, upkeep
from ackfloor_monitoring.spark.table.redacted_rows import redacted
from tests.monitoring.spark.failure_rows import NOON, dead, frame
from tests.monitoring.spark.report.samples import REPORT
from tests.monitoring.spark.scene import Scene

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]
# The package has the command of this name where the module would be.
command = import_module("ackfloor_monitoring.spark.cli.forget")
CUSTOMER = b"customer-4711"
HASH = hashlib.sha256(CUSTOMER).hexdigest()[:16].encode()
SECRET = "Erika-Mustermann"
_TWO_DAYS_S = 172_800
_DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A table that each test copies: two days of a partition, with a customer's records, also the
    last one, and others, in files of several versions. What is in a file can be found in its bytes.
    """
    path = tmp_path_factory.mktemp("made") / "failures"
    spark.conf.set("spark.sql.parquet.compression.codec", "uncompressed")
    store.open_table(spark, str(path))
    # The rules that are in force now need not be those of then.
    hashed = redacted(frame(spark, [row(9)]), Redaction(key="hash"))
    # Behind a record of a wrong clock.
    past = [row(0, 1, day=(NOON + _DAY).date()), row(2, 1)]
    for first in range(0, 8, 2):
        rows = frame(spark, [row(first), row(first + 1), *(past if first == 0 else ())])
        store.append((rows.union(hashed) if first == 6 else rows).coalesce(1), str(path))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upkeep, "MANY_FILES", 2)
        upkeep.merge_files(spark, str(path))
    yield path
    spark.conf.unset("spark.sql.parquet.compression.codec")


@pytest.fixture
def table(spark: SparkSession, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A copy of it, for the commands of this session."""

    @contextmanager
    def session(_name: str) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(command, "spark_session", session)
    return str(shutil.copytree(made, tmp_path / "failures"))


def row(offset: int, partition: int = 0, **more: Any) -> dict[str, Any]:
    """A dead letter; of the odd ones the customer's name is in the record and in the error."""
    at = NOON if offset < 4 else NOON + _DAY
    others: dict[str, Any] = {"key": b"other", "payload": b"{}"}
    theirs: dict[str, Any] = {
        "key": CUSTOMER, "payload": f'{{"name": "{SECRET}"}}'.encode(),
        "error_message": f"no such customer {SECRET}",
    }  # fmt: skip
    given: dict[str, Any] = {
        "day": at.date(), "event_time": at, "kafka_time": at, "origin_topic": "orders",
        "origin_partition": partition, "origin_offset": offset,
    }  # fmt: skip
    return dead(offset, partition, **(given | (theirs if offset % 2 else others) | more))


def forget(table: str, *arguments: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(spark_app, ["forget", "--table", table, *arguments])


def told(result: Result) -> dict[str, Any]:
    """Its JSON."""
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def files_with(table: str, *texts: bytes) -> set[str]:
    """The files of the table's folder, hidden ones and the log included, that hold one of them."""
    return {
        str(file.relative_to(table))
        for file in Path(table).rglob("*")
        if file.is_file() and any(text in file.read_bytes() for text in texts)
    }


def stored_keys(table: str) -> set[bytes | None]:
    """In all data files, of whatever version."""
    files = Path(table).glob("day=*/group=*/*.parquet")
    return {key for file in files for key in ParquetFile(file).read(["key"])["key"].to_pylist()}


def offsets(spark: SparkSession, table: str) -> list[int]:
    """Of the first partition's rows, as everybody reads them."""
    found = store.read_failures(spark, table).where("partition = 0").select("offset").collect()
    return sorted(each.offset for each in found)


def test_a_key_is_shown_first_and_then_in_no_file(spark: SparkSession, table: str) -> None:
    """Of the newest version and of older ones, as it is or as its hash; nothing before it is
    confirmed."""
    traces = (CUSTOMER, CUSTOMER.hex().encode(), SECRET.encode(), HASH)
    before = files_with(table, *traces)
    assert len(before) == 6, "two files of each of two days, and the merged ones"
    dry = forget(table, "--key", CUSTOMER.decode(), "--dry-run", "-o", "json")
    expected = {
        "rows": 5, "messages": 5, "dead_letters": 5, "first": str(NOON.date()),
        "last": str((NOON + _DAY).date()), "old_files": 4, "files_left": 0, "erased": False,
    }  # fmt: skip
    assert told(dry) == expected
    unasked = forget(table, "--key", CUSTOMER.decode())
    assert unasked.exit_code == 2
    assert "5 records would be erased: confirm with --yes" in unasked.stderr
    assert files_with(table, *traces) == before
    assert offsets(spark, table) == [0, 1, 2, 3, 4, 5, 6, 7, 9]
    done = forget(table, "--key", "0x" + CUSTOMER.hex(), "--yes", "-o", "json")
    assert told(done) == {**expected, "old_files": 6, "erased": True}
    assert files_with(table, *traces) == set()
    assert offsets(spark, table) == [0, 2, 4, 6]
    again = forget(table, "--key", CUSTOMER.decode(), "--yes")
    assert "would be erased: 0 records of 0 messages, 0 dead letters" in again.stdout
    assert len(notes_since(spark, table, NOON)) == 1, "of what was nothing there is no note"


def test_the_end_of_a_partition_stays_for_ingest(spark: SparkSession, table: str) -> None:
    """Only its place; also where all is erased, and erased again; and where old days go, what is
    of a later day than the end does not come again."""
    store.append(frame(spark, [row(9)]), table)  # twice there, as no ingest leaves it
    assert forget(table, "--where", "true", "--yes").exit_code == 0
    assert forget(table, "--where", "true", "--yes").exit_code == 0
    assert store.read_failures(spark, table).count() == 0
    assert store.next_positions(spark, table, ["id"]) == {("id", 0): 10, ("id", 1): 3}
    places = spark.read.format("delta").load(table).collect()
    assert {(each.partition, each.offset) for each in places} == {(0, 9), (1, 0), (1, 2)}
    for place in places:
        kept = {name for name, value in place.asDict().items() if value is not None}
        assert kept == {
            "topic_id", "topic", "partition", "offset", "group", "day", "stage", "event_time",
            "kafka_time", "ingested_at",
        }  # fmt: skip
        assert place.stage == "forgotten"
    assert files_with(table, b"shop.Boom") == set()
    store.drop_older(spark, table, (NOON + _DAY).date())
    assert store.next_positions(spark, table, ["id"]) == {("id", 0): 10, ("id", 1): 1}


def test_a_condition_names_any_column(spark: SparkSession, table: str) -> None:
    """Those of folders and those that follow from others as well, in old files too."""
    day = (NOON + _DAY).date()
    where = (
        f"kind = 'failure' AND `group` = 'billing' AND day = DATE'{day}' AND "
        f"error_message LIKE '%{SECRET}%' AND message.origin_topic = 'orders'"
    )
    assert told(forget(table, "--where", where, "--yes", "-o", "json"))["rows"] == 3
    assert offsets(spark, table) == [0, 1, 2, 3, 4, 6]
    left = files_with(table, SECRET.encode())
    assert left
    assert not any(f"day={day}" in file for file in left), "of that day, also in older versions"


def test_what_looks_like_hexadecimal_may_be_text() -> None:
    """Keys such as addresses of wallets begin with 0x, as those do that are shown as bytes."""
    assert command._keys("0x6162") == [b"0x6162", b"ab"]
    assert command._keys("0x616") == [b"0x616"]
    assert command._keys("0x") == [b"0x"]
    assert command._keys("käse") == ["käse".encode()]


@pytest.mark.parametrize("options", [[], ["--key", "k", "--where", "true"]])
def test_one_of_key_and_condition_is_given(options: list[str]) -> None:
    """Else it is wrong usage; before Spark starts."""
    refused = forget("t", *options)
    assert (refused.exit_code, "give --key or --where" in refused.stderr) == (2, True)


def test_what_spark_does_not_understand_is_refused(table: str, tmp_path: Path) -> None:
    """One sentence, and nothing was done."""
    before = files_with(table, CUSTOMER)
    for where in ("nosuch = 1", "key =", "raise_error('so')", "offset"):
        refused = forget(table, "--where", where, "--yes")
        assert isinstance(refused.exception, WhereRefused)
        assert "\n" not in str(refused.exception)
    assert isinstance(forget(str(tmp_path), "--key", "k").exception, TableRefused)
    assert files_with(table, CUSTOMER) == before


def test_a_file_of_no_version_stays_while_it_may_be_a_batch(table: str) -> None:
    """One of a killed batch, and a half-written one: they are told, with an exit code; a day later
    they go."""
    folder = next(Path(table).glob("day=*/group=*/*.parquet")).parent
    content = max((each.read_bytes() for each in folder.glob("*.parquet")), key=len)
    strays = [folder / f"part-00000-stray{number}-c000.snappy.parquet" for number in range(2)]
    strays[0].write_bytes(content)
    strays[1].write_bytes(content[:-10])
    key = ("--key", CUSTOMER.decode(), "--yes")
    left = forget(table, *key)
    assert (left.exit_code, [each.exists() for each in strays]) == (5, [True, True])
    assert "2 files in no version of the table and left" in left.stderr
    old = time.time() - _TWO_DAYS_S
    for stray in strays:
        os.utime(stray, (old, old))
    assert (forget(table, *key).exit_code, [each.exists() for each in strays]) == (0, [False] * 2)
    assert files_with(table, CUSTOMER) == set()


def test_the_next_report_says_it(
    spark: SparkSession, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How much, and not what; for a week. One that was killed is said to be without an end."""
    now = datetime.now(UTC)

    def killed(*_: object) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(erasure, "delete_files", killed)
        ended = forget(table, "--key", CUSTOMER.decode(), "--yes")
    assert ended.exit_code != 0
    [first] = job._erased(spark, table, now)
    assert (first.rows, first.messages, first.done) == (5, 5, False)
    assert files_with(table, CUSTOMER), "in files of older versions"
    assert forget(table, "--key", CUSTOMER.decode(), "--yes").exit_code == 0
    assert files_with(table, CUSTOMER) == set()
    monkeypatch.setattr(job, "report_of", lambda *_, **__: REPORT)
    made = job.failure_history(
        spark, table, group=None, since=Since(), clients=None, made_at=now + _DAY
    )
    assert [each.done for each in made.erased] == [False, True]
    sentences = " ".join(in_short(made))
    assert "5 records of 5 messages were erased on request" in sentences
    assert "did not come to its end" not in sentences, "it was run again"
    sentences = " ".join(in_short(replace(made, erased=made.erased[:1])))
    assert "did not come to its end: run `ackfloor spark forget` again" in sentences
    unknown = replace(made.erased[1], rows=0, messages=0)
    assert "Records were erased on request" in " ".join(in_short(replace(made, erased=(unknown,))))
    assert job._erased(spark, table, now + 8 * _DAY) == ()


def test_a_change_of_the_same_files_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few times; another error is told at once."""

    class Session:
        def __init__(self, *errors: str) -> None:
            self.errors = list(errors)

        def sql(self, _: str) -> Session:
            if self.errors:
                raise PySparkException(self.errors.pop(0))
            return self

        def collect(self) -> list[dict[str, int]]:
            return [{"num_affected_rows": 3}]

    monkeypatch.setattr(f"{store.__name__}.time.sleep", lambda _: None)

    def run(*errors: str) -> int:
        done = store.rewrite(Session(*errors), "MERGE")  # type: ignore[arg-type]
        return int(done["num_affected_rows"])

    conflict = "[DELTA_CONCURRENT_DELETE_READ] a file was rewritten"
    assert run(conflict, "[DELTA_METADATA_CHANGED] cleaned") == 3
    with pytest.raises(PySparkException, match="disk full"):
        run(conflict, "disk full")
    with pytest.raises(StoreFailed, match="5 times something else changed the rows"):
        run(*[conflict] * 5)


@pytest.mark.kafka
@pytest.mark.timeout(600)
def test_it_runs_beside_an_ingest(
    spark: SparkSession, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which stores the rest once, merges files meanwhile, and never stores again what is erased,
    not even when it starts anew."""

    @contextmanager
    def session(_name: str) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(command, "spark_session", session)
    monkeypatch.setattr(upkeep, "MANY_FILES", 2)
    scene.create("dlq", partitions=1)
    with scene.running(spark) as work:
        for part in range(1, 3):
            # The last record of each part is of the key that is erased: seven keys in turn.
            scene.produce("dlq", 14, apart_ms=1)
            scene.until(lambda wanted=14 * part: work.stored.records >= wanted)  # type: ignore[misc]
            ended = forget(scene.table, "--key", "k6", "--yes")
            assert ended.exit_code in (0, 5), ended.exception
        assert not scene.ended
    assert told(forget(scene.table, "--key", "k6", "--yes", "-o", "json"))["files_left"] == 0
    assert scene.counts(spark) == {"dlq": 24}
    assert stored_keys(scene.table) == {b"k%d" % number for number in range(6)} | {None}
    work = scene.ingest(spark)
    assert (work.stored.records, scene.counts(spark)) == (0, {"dlq": 24})
