"""An archive of the classes that a Java program loads: made once, each later start takes half.

Until a broker answers Java has read, checked and linked some ten thousand classes, most of the
seconds that it takes. It can keep what came of that in a file, which later processes map into their
memory (class data sharing, JEP 350; from Java 25 on with what lambdas come to, JEP 514). A
*training run* writes the file when it ends in order, so it holds the classes of what that run did.

A file is good for one Java and one class path, so both make its name, and Java itself looks at them
again: where something differs it goes on without the file, and says nothing. What it does not
survive (before 25) is half a file. So a training run writes beside the place, Java tries what came,
and only then it is moved there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from ackfloor.errors import AckfloorError
from ackfloor.testing.java import Java

#: The first Java that writes its archive (a "cache") in one run, and builds on none of its own.
_FIRST_WITH_CACHE = 25
_TRY_TIMEOUT_S = 60
#: The home of a user that has none, on Debian: there never is an archive there.
_NO_HOME = Path("/nonexistent")
#: Variables that Java takes options from.
_JAVA_READS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
#: Java does not take these together with ours.
_CHOOSING = ("-Xshare:", "-XX:SharedArchiveFile=", "-XX:ArchiveClassesAtExit=", "-XX:AOT")
_MAKING = ".making-"
#: What was not used for so long is of another Java, or of packages that are gone.
_KEPT_S = 30 * 86_400


class ArchiveFailed(AckfloorError):
    """No archive of classes could be made; everything works without."""


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive of one program on one Java, there or not yet.

    Attributes:
        java: what it is of.
        path: where it is, or will be.
    """

    java: Java
    path: Path

    @classmethod
    def of(cls, java: Java, program: str, jars: Iterable[Path]) -> ClassArchive:
        """The archive of a program; its name tells the program, and hashes the rest.

        Args:
            java: what runs it.
            program: a name for a file.
            jars: every one that it loads classes from.
        """
        told = hashlib.sha256()
        for file in (java.executable.resolve(), *jars):
            about = file.stat()
            told.update(f"{file}\n{about.st_size}\n{about.st_mtime_ns}\n".encode())
        return cls(java, cache_folder() / f"{program}-{told.hexdigest()[:16]}.jsa")

    def options(self, beside: Iterable[str] = ()) -> tuple[str, ...]:
        """What Java is given to start with the archive; nothing where there is none.

        Args:
            beside: its other options. Where these, or those that Java takes from the environment,
                choose an archive themselves, that one counts.
        """
        around = " ".join(os.environ.get(name, "") for name in _JAVA_READS)
        if any(option.startswith(_CHOOSING) for option in (*beside, *around.split())):
            return ()
        try:
            os.utime(self.path)  # it is of use: `_forget_unused` leaves it
        except OSError:
            return ()
        return self._options_for(self.path)

    @contextmanager
    def training(self) -> Iterator[tuple[str, ...]]:
        """What Java is given for a training run, which has ended in order when the block is left.

        Raises:
            ArchiveFailed: the folder can't be written, this Java can't make archives, or the run
                wrote none that works.
        """
        if not self._caches and not self._has_base():
            raise ArchiveFailed(
                f"Java {self.java.version} ({self.java.executable}) has no archive of its own "
                "classes, so it can't make another one: take one that has (packages of Linux "
                "distributions do), or Java 25 (pip install 'ackfloor[broker]')"
            )
        try:
            folder = self.path.parent
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            aside = TemporaryDirectory(prefix=_MAKING, dir=folder)
        except OSError as error:
            raise ArchiveFailed(f"{self.path.parent}: {error.strerror or error}") from error
        with aside as making:
            written = Path(making, self.path.name)
            flag = "AOTCacheOutput" if self._caches else "ArchiveClassesAtExit"
            yield (f"-XX:{flag}={written}", self._quiet)
            self._try(written)
            written.replace(self.path)
        self._forget_unused()

    @property
    def _caches(self) -> bool:
        return self.java.version >= _FIRST_WITH_CACHE

    @property
    def _quiet(self) -> str:
        """Java writes of archives on standard output, which is the program's."""
        return "-Xlog:aot*=off,cds*=off" if self._caches else "-Xlog:cds*=off"

    def _options_for(self, path: Path) -> tuple[str, ...]:
        flag = "AOTCache" if self._caches else "SharedArchiveFile"
        return (f"-XX:{flag}={path}", self._quiet)

    def _has_base(self) -> bool:
        home = self.java.executable.resolve().parents[1]
        return (home / "lib" / "server" / "classes.jsa").is_file()

    def _try(self, written: Path) -> None:
        """Have Java start with what was written."""
        if not written.is_file():
            raise ArchiveFailed(f"Java {self.java.version} wrote no archive")
        command = [str(self.java.executable), *self._options_for(written), "-version"]
        try:
            subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_TRY_TIMEOUT_S,
                check=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise ArchiveFailed(f"the archive that Java wrote is no good: {error}") from error

    def _forget_unused(self) -> None:
        oldest_s = time.time() - _KEPT_S
        folder = self.path.parent
        for other in (*folder.glob("*.jsa"), *folder.glob(f"{_MAKING}*")):
            with suppress(OSError):
                if other.stat().st_mtime >= oldest_s:
                    continue
                if other.is_dir():  # of a training run that was killed
                    shutil.rmtree(other)
                else:
                    other.unlink()


def cache_folder() -> Path:
    """Where archives are kept: in the user's cache folder (`XDG_CACHE_HOME`, else `~/.cache`)."""
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not named.is_absolute():
        try:
            named = Path.home() / ".cache"
        except RuntimeError:
            named = _NO_HOME
    return named / "ackfloor" / "java"
