"""The token of a run: whoever can read its file may change the run's settings.

There is one file for each address that is served, readable by its owner alone, written when the run
starts and removed when it ends. `ackfloor config set` finds it by the same address.
`app.control_token_file` names another file; one that exists (a mounted secret) is used as it is.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ackfloor.errors import ConfigError

FIELD = "app.control_token_file"
#: Anything shorter than this is no secret.
SHORTEST = 16


def token_path(listen: str, named: str | None, environment: Mapping[str, str] = os.environ) -> Path:
    """The token file of the run at an address: the named one, or one named after the address.

    Named after the address: `ackfloor/run-127.0.0.1-9600.token` in XDG_RUNTIME_DIR, else in
    XDG_CACHE_HOME, else in `~/.cache`; ACKFLOOR_STATE_DIR takes precedence. Commands may write
    https:// in front of the address, and #NAME behind it.
    """
    if named:
        return Path(named).expanduser()
    bare = listen.rpartition("://")[2].partition("#")[0]
    name = f"run-{re.sub(r'[^A-Za-z0-9.]+', '-', bare).strip('-')}.token"
    own = environment.get("ACKFLOOR_STATE_DIR")
    if own:
        return Path(own).expanduser() / name
    home = environment.get("XDG_RUNTIME_DIR") or environment.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "ackfloor" / name


class TokenFile:
    """The token of a run, and its file.

    Args:
        path: of the file.
        keep: use a file that exists, and do not remove it.

    Raises:
        ConfigError: the file can't be used.
    """

    def __init__(self, path: Path, *, keep: bool) -> None:
        self.path = path
        self._ours = not (keep and path.exists())
        self.token = self._write() if self._ours else read_token(path)

    def remove(self) -> None:
        """Remove the file if it still holds our token."""
        with suppress(OSError):
            if self._ours and self.path.read_text("ascii").strip() == self.token:
                self.path.unlink()

    def _write(self) -> str:
        token = secrets.token_urlsafe(32)
        fresh = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FileNotFoundError):
                fresh.unlink()
            handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "w") as file:
                file.write(token + "\n")
            fresh.replace(self.path)
        except OSError as exc:
            why = f"can't be written: {exc.strerror or exc}"
            fix = 'name a file in a folder of your own, or set app.control = "off"'
            raise ConfigError(FIELD, str(self.path), why, fix) from None
        return token


def read_token(path: Path, field: str = FIELD) -> str:
    """The token in a file that the setting `field` names.

    Raises:
        ConfigError: the file can't be read, others can read it, or it holds no token.
    """
    mode, token = 0, ""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            token = file.read(4096).decode("ascii").strip()
    except OSError as exc:
        fix = "is the run on this machine, and yours? give --listen or --token-file as it logs them"
        raise ConfigError(field, str(path), exc.strerror or str(exc), fix) from None
    except UnicodeDecodeError:
        pass
    if not stat.S_ISREG(mode) or mode & 0o077:
        fix = f"chmod 600 {path}"
        raise ConfigError(field, str(path), f"others may read it (mode {mode & 0o777:o})", fix)
    if len(token) < SHORTEST or not token.isprintable() or " " in token:
        why = f"no token: one line of at least {SHORTEST} characters"
        raise ConfigError(field, str(path), why, "openssl rand -hex 32 makes one")
    return token
