"""A standalone Spark cluster of this machine: a master and workers, real processes, one to kill."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyspark

from ackfloor.testing.local_kafka.java import find_java
from ackfloor_monitoring.spark.setup.session import class_archive, write_java_home
from ackfloor_monitoring.spark.setup.spark_jars import spark_jars
from tests.monitoring.spark.interpreted import INTERPRETED

HOME = Path(pyspark.__file__).parent
_PATIENCE_S = 600
# What a user may set, too; small and quick to start, because it is for a few hundred records.
_QUICK = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData "
    # Of which a session of ours says why.
    "-XX:ReservedCodeCacheSize=240m -XX:-DontCompileHugeMethods"
)
_CONF = {
    "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
}


@dataclass
class Submitted:
    """A program that `spark-submit` runs, and where it writes."""

    process: subprocess.Popen[bytes]
    output: Path
    errors: Path

    @property
    def told(self) -> str:
        """What the program has said; `spark-submit` makes one stream of both of its own."""
        return self.output.read_text("utf-8", "replace")

    @property
    def trouble(self) -> str:
        """The end of all that was said, for when something is wrong."""
        return self.told[-3_000:] + self.errors.read_text("utf-8", "replace")[-3_000:]

    def until(self, reached: Callable[[], bool]) -> None:
        """Wait for it while the program runs."""
        end = time.monotonic() + _PATIENCE_S
        while not reached():
            assert self.process.poll() is None, self.trouble
            assert time.monotonic() < end, self.trouble
            time.sleep(0.05)

    def succeeded(self) -> str:
        """Wait for its end and return what it has said."""
        assert self.process.wait(_PATIENCE_S) == 0, self.trouble
        return self.told

    def end(self) -> None:
        """SIGTERM, as a supervisor sends it; then nothing of it is left."""
        self.process.terminate()
        self.process.wait(_PATIENCE_S)
        _kill(self.process)


@dataclass
class Cluster:
    """A running one."""

    folder: Path
    environment: dict[str, str]
    quick: str  # options for each Java
    conf: Mapping[str, str]
    ends: ExitStack
    master: str = ""
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)  # and the master
    submitted: int = 0

    def submit(self, *arguments: str | Path, **options: str) -> Submitted:
        """`spark-submit` with these arguments and settings (`_` for a dot)."""
        command = [str(HOME / "bin" / "spark-submit"), "--master", self.master]
        started = {
            f"spark.{which}.extraJavaOptions": self.quick for which in ("driver", "executor")
        }
        more = {name.replace("_", "."): value for name, value in options.items()}
        given = {**_CONF, **self.conf, **started, **more}
        for name, value in given.items():
            command += ["--conf", f"{name}={value}"]
        self.submitted += 1
        paths = [self.folder / f"submitted-{self.submitted}.{end}" for end in ("out", "err")]
        with paths[0].open("wb") as output, paths[1].open("wb") as errors:
            process = subprocess.Popen(
                [*command, *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                env=self.environment,
                start_new_session=True,
            )
        self.ends.callback(_kill, process)
        return Submitted(process, *paths)

    def cpu_s(self) -> float:
        """What master, workers and all executors that have ended have used of cores."""
        end = time.monotonic() + _PATIENCE_S
        while any(map(_has_executor, self.workers)):
            assert time.monotonic() < end, "an executor outlives its program"
            time.sleep(0.05)
        return sum(sum(psutil.Process(each.pid).cpu_times()[:4]) for each in self.processes)

    def kill_worker(self) -> None:
        """SIGKILL for a worker that has started an executor, and for that one."""
        end = time.monotonic() + _PATIENCE_S
        # One that is lost is started anew, and a worker has other children for a moment.
        while (busy := next(filter(_has_executor, self.workers), None)) is None:
            assert time.monotonic() < end, "no worker has an executor"
            time.sleep(0.05)
        self.workers.remove(busy)
        _kill(busy)


@contextmanager
def standalone(
    folder: Path, workers: int, *, cores: int = 4, conf: Mapping[str, str] = INTERPRETED
) -> Iterator[Cluster]:
    """Workers with a gigabyte for each of their cores; ended with whatever they have started.

    Args:
        folder: of logs and what workers write; there.
        conf: settings of what is submitted, over those that make Spark small.
    """
    java = find_java()
    quick = " ".join((_QUICK, *class_archive(java, spark_jars()).options()))
    environment = os.environ | {
        "JAVA_HOME": str(write_java_home(folder / "java", java)),
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": quick,
    }
    with ExitStack() as stack:
        cluster = Cluster(folder, environment, quick, conf, stack)
        run = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        _start(cluster, "master", ["org.apache.spark.deploy.master.Master", *run])
        cluster.master = _said(folder / "master.log", r"Starting Spark master at (spark://\S+)")
        for number in range(workers):
            name = f"worker-{number}"
            room = ["-c", str(cores), "-m", f"{cores}g"]
            more = [*room, "-d", str(folder / name), cluster.master]
            command = ["org.apache.spark.deploy.worker.Worker", *run, *more]
            cluster.workers.append(_start(cluster, name, command))
        for number in range(workers):
            _said(folder / f"worker-{number}.log", r"Successfully registered with (master)")
        yield cluster


def _has_executor(worker: subprocess.Popen[bytes]) -> bool:
    for child in psutil.Process(worker.pid).children():
        with suppress(psutil.NoSuchProcess):
            if any("ExecutorBackend" in each for each in child.cmdline()):
                return True
    return False


def _start(cluster: Cluster, name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
    with (cluster.folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [str(HOME / "bin" / "spark-class"), *command],
            stdout=log,
            stderr=subprocess.STDOUT,
            env=cluster.environment,
            start_new_session=True,
        )
    cluster.ends.callback(_kill, process)
    cluster.processes.append(process)
    return process


def _kill(process: subprocess.Popen[bytes]) -> None:
    """The whole group, which may outlive the process that it is named after."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(60)


def _said(log: Path, pattern: str) -> str:
    end = time.monotonic() + _PATIENCE_S
    # In a line that has ended: an address of which half is written looks like one.
    whole = re.compile(rf"{pattern}.*\n")
    while (found := whole.search(log.read_text("utf-8", "replace"))) is None:
        assert time.monotonic() < end, log.read_text("utf-8", "replace")[-2_000:]
        time.sleep(0.05)
    return found[1]
