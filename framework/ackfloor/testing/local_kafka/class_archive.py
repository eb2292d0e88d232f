"""An archive of the classes that a Java program loads: made once, each later start takes half.

Until a broker answers Java has read, checked and linked some ten thousand classes, most of the
seconds that it takes. It can keep what came of that in a file, which later processes map into their
memory (class data sharing, JEP 350; from Java 25 on with what lambdas come to, JEP 514). A
*training run* writes the file when it ends in order, so it holds the classes of what that run did.

A file is good for one Java and one class path, so its name is made of the Java and the jars. Java
itself looks at them again: where something differs it goes on without the file, and says nothing.
What it does not survive is a file that lacks something. So a training run writes beside the place,
Java tries what came, it is brought to the disk and only then moved there; and its size is in its
name, so that half of one, from a copy that was cut short, is none.
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
from ackfloor.testing.local_kafka.java import Java

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
        folder: where it is, or will be.
        stem: what its name begins with.
    """

    java: Java
    folder: Path
    stem: str

    @classmethod
    def of(cls, java: Java, program: str, jars: Iterable[Path]) -> ClassArchive:
        """The archive of a program; its name tells the program, and hashes the rest.

        Args:
            java: what runs it.
            program: a name for a file.
            jars: every one that it loads classes from.
        """
        digest = hashlib.sha256()
        base = _base_of(java)
        for file in (java.executable.resolve(), *([base] if base.is_file() else []), *jars):
            about = file.stat()
            # Images and archives keep whole seconds, and so does Java.
            digest.update(f"{file}\n{about.st_size}\n{int(about.st_mtime)}\n".encode())
        return cls(java, cache_folder(), f"{program}-{digest.hexdigest()[:16]}")

    @property
    def path(self) -> Path | None:
        """The archive, whole; None where there is none."""
        for path in self.folder.glob(f"{self.stem}-*.jsa"):
            with suppress(OSError):
                if path.name == self._name(path.stat().st_size) and os.access(path, os.R_OK):
                    return path
        return None

    def options(self, beside: Iterable[str] = ()) -> tuple[str, ...]:
        """What Java is given to start with the archive; nothing where there is none.

        Args:
            beside: its other options. Where these, or those that Java takes from the environment,
                choose an archive themselves, that one counts.
        """
        path = self.path
        if path is None or _choose(beside) or _chosen_around() is not None:
            return ()
        with suppress(OSError):
            os.utime(path)  # it is of use: `_forget_others` leaves it
        return self._options_for(path)

    def works(self) -> bool:
        """Whether there is one that Java starts with."""
        path = self.path
        return path is not None and self._trouble_with(path) is None

    @contextmanager
    def training(self) -> Iterator[tuple[str, ...]]:
        """What Java is given for a training run, which has ended in order when the block is left.

        Raises:
            ArchiveFailed: the folder can't be written, this Java can't make archives or is told
                about them elsewhere, or the run wrote none that works.
        """
        self._check()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            aside = TemporaryDirectory(prefix=_MAKING, dir=self.folder)
        except OSError as error:
            raise ArchiveFailed(f"{self.folder}: {error.strerror or error}") from error
        with aside as making:
            written, java_log = Path(making, "archive"), Path(making, "said")
            flag = "AOTCacheOutput" if self._caches else "ArchiveClassesAtExit"
            # Java writes of archives on standard output, which is the program's.
            tell = "aot*=error,cds*=error" if self._caches else "cds*=error"
            yield (f"-XX:{flag}={written}", f"-Xlog:{tell}:file={java_log}")
            if not written.is_file():
                raise ArchiveFailed(
                    f"Java {self.java.version} wrote no archive{_last_line(java_log)}"
                )
            trouble = self._trouble_with(written)
            if trouble is not None:
                raise ArchiveFailed(f"the archive that Java wrote is no good: {trouble}")
            with written.open("rb") as file:
                os.fsync(file.fileno())
            path = self.folder / self._name(written.stat().st_size)
            written.replace(path)
        self._forget_others(path)

    def _check(self) -> None:
        """Raise ArchiveFailed where no training run could end well."""
        chosen = _chosen_around()
        if chosen is not None:
            raise ArchiveFailed(f"{chosen} chooses an archive for each Java: unset it first")
        if not self._caches and not _base_of(self.java).is_file():
            raise ArchiveFailed(
                f"Java {self.java.version} ({self.java.executable}) has no archive of its own "
                "classes, so it can't make another one: take one that has (packages of Linux "
                "distributions do), or Java 25 (pip install 'ackfloor[broker]')"
            )
        if self._caches and os.pathsep in str(self.folder):
            raise ArchiveFailed(
                f"{self.folder}: Java takes a folder with {os.pathsep!r} in its name for two; set "
                "XDG_CACHE_HOME to another one"
            )

    def _name(self, size: int) -> str:
        return f"{self.stem}-{size}.jsa"

    @property
    def _caches(self) -> bool:
        return self.java.version >= _FIRST_WITH_CACHE

    def _options_for(self, path: Path) -> tuple[str, ...]:
        if self._caches:
            return (f"-XX:AOTCache={path}", "-Xlog:aot*=off,cds*=off")
        return (f"-XX:SharedArchiveFile={path}", "-Xlog:cds*=off")

    def _trouble_with(self, path: Path) -> str | None:
        """What comes of a start with this file, where that is no good."""
        command = [str(self.java.executable), *self._options_for(path), "-version"]
        with TemporaryDirectory() as dying:  # what Java leaves of itself when it dies
            try:
                subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=_TRY_TIMEOUT_S,
                    check=True,
                    cwd=dying,
                )
            except (OSError, subprocess.SubprocessError) as error:
                return str(error)
        return None

    def _forget_others(self, path: Path) -> None:
        """Remove what this one takes the place of, and what nobody has used for long."""
        oldest_s = time.time() - _KEPT_S
        for other in (*self.folder.glob("*.jsa"), *self.folder.glob(f"{_MAKING}*")):
            with suppress(OSError):
                replaced = other != path and other.name.startswith(f"{self.stem}-")
                if not replaced and other.stat().st_mtime >= oldest_s:
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


def _base_of(java: Java) -> Path:
    """Java's own archive, of the classes that it brings."""
    return java.executable.resolve().parents[1] / "lib" / "server" / "classes.jsa"


def _choose(options: Iterable[str]) -> bool:
    """Whether options of Java choose an archive."""
    return any(option.startswith(_CHOOSING) for option in options)


def _chosen_around() -> str | None:
    """The variable whose options for each Java choose an archive; None where none does."""
    for name in _JAVA_READS:
        if _choose(os.environ.get(name, "").split()):
            return name
    return None


def _last_line(java_log: Path) -> str:
    """The last that Java has said of it, as the end of a sentence."""
    try:
        *_, last = java_log.read_text("utf-8", "replace").splitlines() or [""]
    except OSError:
        last = ""
    return f": {last}" if last else ""
