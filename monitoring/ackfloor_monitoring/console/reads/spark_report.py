"""SparkReport: the failure report that `ackfloor spark report --html` has written, one file.

Its path is the operator's alone: no part of a request is in it. What is in the file was made by
another program, so it is shown as a stranger's page: in a frame without an origin.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ackfloor import ConfigError

#: Bytes of a report that is shown: one with its charts' script has some 5 MB.
MOST_BYTES: Final = 64 * 1024 * 1024
_TOO_LARGE: Final = f"it has more than {MOST_BYTES // 1024 // 1024} MiB, so it is no report"


class NoReport(Exception):
    """There is none that can be shown; says why."""


@dataclass(frozen=True, slots=True)
class SparkReport:
    """One.

    Attributes:
        path: of its file, which may come later, and anew.
    """

    path: Path

    def made_ms(self) -> int | None:
        """When it was written, in milliseconds since 1970; None where there is none so far.

        Raises:
            NoReport: there is something else.
        """
        try:
            return _made_ms(self.path.stat())
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise NoReport(exc.strerror or str(exc)) from None

    def read(self) -> bytes:
        """What is in it; raises NoReport."""
        try:
            # What has become a pipe meanwhile has no other end to wait for.
            with open(self.path, "rb", opener=_at_once) as file:
                _made_ms(os.fstat(file.fileno()))
                text = file.read(MOST_BYTES + 1)
        except OSError as exc:
            raise NoReport(exc.strerror or str(exc)) from None
        if len(text) > MOST_BYTES:
            raise NoReport(_TOO_LARGE)
        return text


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _made_ms(found: os.stat_result) -> int:
    if not stat.S_ISREG(found.st_mode):
        raise NoReport("it is no file")
    if found.st_size > MOST_BYTES:
        raise NoReport(_TOO_LARGE)
    return found.st_mtime_ns // 1_000_000


def report_at(field: str, given: Path) -> SparkReport:
    """The report of a file, which may come later; raises ConfigError for what can't be one."""
    fix = "the file that `ackfloor spark report --html FILE` writes"
    if given.is_dir():
        raise ConfigError(field, str(given), "is a folder", fix)
    if not given.parent.is_dir():
        raise ConfigError(field, str(given), f"there is no folder {given.parent}", fix)
    return SparkReport(given.absolute())
