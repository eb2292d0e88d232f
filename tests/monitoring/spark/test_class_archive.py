"""The class archive: sessions map it, and what stands in its way is told."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ackfloor_monitoring.spark import doctor
from ackfloor_monitoring.spark.class_archive import (
    ArchiveNotMade,
    archive_file,
    java_options,
    make_archive,
)
from ackfloor_monitoring.spark.jars import spark_jars
from ackfloor_monitoring.spark.session import chosen_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.skipif(sys.platform != "linux", reason="reads what Linux says of a process")
def test_a_session_maps_the_archive(spark: SparkSession) -> None:
    """Java has it in its memory, so it fits the class path that Spark's launcher has made."""
    jvm: Any = spark.sparkContext._jvm
    pid = jvm.java.lang.ProcessHandle.current().pid()
    archive = archive_file(chosen_java(), spark_jars())
    assert str(archive) in Path(f"/proc/{pid}/maps").read_text()


def test_where_there_is_none_java_is_told_nothing(tmp_path: Path) -> None:
    """So it starts as ever; a file that is there is named."""
    archive = tmp_path / "two words.jsa"
    assert java_options(archive) == ""
    archive.touch()
    assert f'"-XX:SharedArchiveFile={archive}"' in java_options(archive)


def test_another_java_or_jar_has_another_archive(tmp_path: Path) -> None:
    """An archive fits the files that it was made from, and no others."""
    jar = tmp_path / "one.jar"
    jar.write_bytes(b"1")
    before = archive_file(chosen_java(), [jar])
    assert archive_file(chosen_java(), [jar]) == before
    jar.write_bytes(b"12")
    assert archive_file(chosen_java(), [jar]) != before


@pytest.mark.parametrize("folder", ["in-a-file", "writable"])
def test_one_that_cannot_be_made_is_told(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache that can't be written and a run that fails: the doctor says why, and goes on."""
    (tmp_path / "in-a-file").touch()
    (tmp_path / "writable").mkdir()
    archive = tmp_path / folder / "spark-classes-new.jsa"
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ArchiveNotMade):
        make_archive(archive)
    assert list((tmp_path / "writable").iterdir()) == []
    monkeypatch.setattr(doctor.class_archive, "archive_file", lambda *_: archive)
    assert doctor._class_archive().startswith("none, Spark starts without it: ")


def test_one_that_is_written_is_moved_to_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In whole, and once: what is there is not made again."""
    program = tmp_path / "python"
    program.write_text('#!/bin/sh\necho archive > "$3"\n')
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    archive = tmp_path / "cache" / "spark-classes-new.jsa"
    make_archive(archive)
    assert archive.read_text() == "archive\n"
    program.unlink()
    make_archive(archive)
    assert list(archive.parent.iterdir()) == [archive]
