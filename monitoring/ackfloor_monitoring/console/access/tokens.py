"""The token file: who may log in, and as what.

A token is 32 random bytes, so that a plain SHA-256 of it can't be guessed back; the file has only
these. It is read again when it changes: a token that is taken out ends its sessions.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ackfloor import ConfigError
from ackfloor_monitoring.console.access.roles import NAME, Person, Role

FIELD: Final = "--token-file"
#: What tokens begin with: tools that look for secrets in repositories know it by that.
BEGINS: Final = "ackfloor_"
#: As `add_token` makes them, of 32 random bytes.
_MADE: Final = re.compile(rf"{BEGINS}[A-Za-z0-9_-]{{43}}")
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_FIX: Final = "`ackfloor console --add-token NAME:ROLE` writes entries that are right"


def hashed(token: str) -> str:
    """What the file has of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def can_not_be_guessed(token: str) -> bool:
    """Whether a token is like those of `add_token`: nobody finds one by trying."""
    return _MADE.fullmatch(token) is not None


@dataclass(frozen=True, slots=True)
class Tokens:
    """Those of a file: hash -> whose it is."""

    people: Mapping[str, Person]

    def person(self, token: str) -> Person | None:
        """Whose token it is; takes as long for a wrong one as for a right one."""
        found = None
        given = hashed(token)
        for known, person in self.people.items():
            if hmac.compare_digest(known, given):
                found = person
        return found


def read_tokens(path: Path) -> Tokens:
    """The tokens of a file.

    Raises:
        ConfigError: it can't be read, others may write it, or an entry is wrong.
    """
    try:
        with path.open("rb") as file:
            mode, text = os.fstat(file.fileno()).st_mode, file.read()
        tree = tomllib.loads(text.decode())
    except OSError as exc:
        fix = "`ackfloor console --add-token NAME:ROLE` makes one"
        raise ConfigError(FIELD, str(path), exc.strerror or str(exc), fix) from None
    except ValueError as exc:  # no TOML, or not UTF-8
        raise ConfigError(FIELD, str(path), f"is not TOML: {exc}", _FIX) from None
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        why = f"others may write it (mode {mode & 0o777:o}), and so log in as anybody"
        raise ConfigError(FIELD, str(path), why, f"chmod 600 {path}")
    if not tree:
        raise ConfigError(FIELD, str(path), "has no tokens: nobody could log in", _FIX)
    people: dict[str, Person] = {}
    for name, entry in tree.items():
        person, known = _entry(path, name, entry)
        if known in people:
            why = f"{name} and {people[known].name} have the same token"
            raise ConfigError(FIELD, str(path), why, "give each their own")
        people[known] = person
    return Tokens(people)


def _entry(path: Path, name: str, entry: Any) -> tuple[Person, str]:
    def refused(why: str, fix: str = _FIX) -> ConfigError:
        return ConfigError(FIELD, str(path), f"[{name}]: {why}", fix)

    if not isinstance(entry, dict) or set(entry) != {"role", "sha256"}:
        raise refused('an entry has "role" and "sha256", nothing else')
    if entry["role"] not in tuple(Role):
        raise refused(f"no such role: {entry['role']!r}", f"one of: {', '.join(Role)}")
    if not isinstance(entry["sha256"], str) or not _HASH.fullmatch(entry["sha256"]):
        raise refused("sha256 is not 64 hexadecimal digits")
    return Person(_checked_name(name), Role(entry["role"])), entry["sha256"]


def add_token(path: Path, given: str) -> str:
    """Add a token of somebody to a file, which is made where there is none; returns the token.

    Args:
        given: NAME:ROLE.

    Raises:
        ConfigError: that is not a name and a role, the name has a token, or the file can't be
            written.
    """
    name, _, role = given.partition(":")
    if role not in tuple(Role):
        why = f"no such role: {role!r}" if role else "no role"
        raise ConfigError(
            "--add-token", given, why, f"NAME:ROLE with one of the roles {', '.join(Role)}"
        )
    _checked_name(name)
    if path.exists() and any(name == each.name for each in read_tokens(path).people.values()):
        fix = f"take its entry out of {path} first, or choose another name"
        raise ConfigError("--add-token", given, f"{name} has a token", fix)
    token = BEGINS + secrets.token_urlsafe(32)
    entry = f'[{json.dumps(name)}]\nrole = "{role}"\nsha256 = "{hashed(token)}"\n'
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(entry)
    except OSError as exc:
        why = f"can't be written: {exc.strerror or exc}"
        raise ConfigError(FIELD, str(path), why, "name a file in a folder of your own") from None
    return token


def _checked_name(name: str) -> str:
    if not NAME.fullmatch(name):
        fix = "letters, digits and . _ @ -, at most 63 of them"
        raise ConfigError("--add-token", name, "is no name", fix)
    return name
