"""IndexPlace: where the file of an index is, and that no other console writes the same one."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from ackfloor import ConfigError

OPTION: Final = "--index-folder"


def state_folder() -> Path:
    """Where indexes are unless somebody says otherwise.

    `console` in ACKFLOOR_STATE_DIR, else in `ackfloor` in XDG_STATE_HOME, else in
    `~/.local/state/ackfloor`.
    """
    if named := os.environ.get("ACKFLOOR_STATE_DIR"):
        return Path(named) / "console"
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "ackfloor" / "console"


@contextmanager
def index_place(folder: Path | None, cluster: str) -> Iterator[Path]:
    """The path of a cluster's index; of a second console at the same time one that ends with it.

    Args:
        folder: where it is to be; None for `state_folder`.

    Raises:
        ConfigError: the folder can't be made, or is open to others.
    """
    own = own_folder(folder)
    lock = os.open(own / f"{cluster}.lock", os.O_CREAT | os.O_RDWR, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with TemporaryDirectory(prefix="ackfloor-index-") as other:
                yield Path(other) / f"{cluster}.sqlite"
        else:
            yield own / f"{cluster}.sqlite"
    finally:
        os.close(lock)


def own_folder(named: Path | None) -> Path:
    """Where indexes are to be, which nobody else can change; raises ConfigError for another."""
    folder = state_folder() if named is None else named
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError as exc:
        why = exc.strerror or str(exc)
        raise ConfigError(OPTION, str(folder), why, "name a folder that can be written") from None
    if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        why = "others can write there, and change what the console shows"
        raise ConfigError(OPTION, str(folder), why, "name a folder of your own, with mode 0700")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(OPTION, str(folder), "can't be written", "name another folder")
    return folder
