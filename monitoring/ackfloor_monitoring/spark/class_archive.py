"""The class archive: Spark's and Delta's classes as Java can map them, read and checked before.

At each start Java reads some 20,000 classes from 260 jars and checks them. It can write those that
a run has loaded to a file when it ends, and map that file the next time (class data sharing): then
a session and the first ingest in it take two thirds of the time. Java looks itself whether the file
fits its version, the class path and the times of the jars. Where it does not, or where there is
none, Spark starts as ever.

`python -m ackfloor_monitoring.spark.class_archive FILE` is the run that an archive is made from.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from ackfloor import AckfloorError
from ackfloor.testing.java import Java

_MAKE_TIMEOUT_S = 600
# Java would tell of an archive that does not fit on stdout, where data belongs.
_QUIET = "-Xlog:cds*=error"


class ArchiveNotMade(AckfloorError):
    """There is no class archive; Spark works without it."""


def spark_home() -> Path:
    """PySpark's folder, by the one name that an archive knows it by."""
    spark = find_spec("pyspark")
    assert spark is not None
    assert spark.origin is not None
    return Path(spark.origin).resolve().parent


def archive_file(java: Java, jars: Iterable[Path]) -> Path:
    """Where the archive is for this Java and these jars, made or not: in the user's cache."""
    parts = [java.executable, *jars, *sorted(spark_home().glob("jars/*.jar"))]
    told = "\n".join(f"{part} {part.stat().st_size} {part.stat().st_mtime_ns}" for part in parts)
    digest = hashlib.sha256(told.encode()).hexdigest()[:16]
    home = os.environ.get("XDG_CACHE_HOME")
    cache = Path(home) if home else Path.home() / ".cache"
    return cache / "ackfloor" / f"spark-classes-{digest}.jsa"


def java_options(archive: Path) -> str:
    """What Java is told to map the archive; nothing where it is not there."""
    return f'"-XX:SharedArchiveFile={archive}" {_QUIET} ' if archive.is_file() else ""


def making_options(archive: Path) -> str:
    """What Java is told to write the archive when it ends."""
    return f'"-XX:ArchiveClassesAtExit={archive}" {_QUIET} '


def make_archive(archive: Path) -> None:
    """Make it where it is not there yet: a minute of a core, 200 MB.

    Raises:
        ArchiveNotMade: why there is none.
    """
    if archive.is_file():
        return
    made = archive.with_suffix(f".{os.getpid()}")
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        # Java holds these pipes as well, so this waits until it has ended and written the file.
        run = subprocess.run(
            [sys.executable, "-m", __spec__.name, str(made)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_MAKE_TIMEOUT_S,
            check=False,
        )
        if run.returncode or not made.is_file():
            said = (run.stderr + run.stdout).strip().rpartition("\n")[2]
            raise ArchiveNotMade(said or "Java wrote none")
        with made.open("rb") as file:
            os.fsync(file)  # cut short by a loss of power, it would end every Java that maps it
        made.replace(archive)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ArchiveNotMade(str(error)) from error
    finally:
        with suppress(OSError):
            made.unlink()


def _rehearse(archive: str) -> None:
    """Load what commands load: a batch of an ingest and a report, on a table that is deleted."""
    from tempfile import TemporaryDirectory

    from ackfloor_monitoring.spark.rehearsal import rehearse
    from ackfloor_monitoring.spark.session import local_session

    with (
        TemporaryDirectory(prefix="ackfloor-rehearsal-") as folder,
        local_session("rehearsal", archived_to=Path(archive)) as spark,
    ):
        rehearse(spark, folder)


if __name__ == "__main__":
    _rehearse(sys.argv[1])
