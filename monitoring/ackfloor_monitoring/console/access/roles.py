"""Roles, and what each may see and do: a role has all rights of those below it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final

#: A person's name.
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}")


class Role(StrEnum):
    """What somebody is to the console, the least first."""

    viewer = "viewer"
    reader = "reader"
    operator = "operator"
    admin = "admin"


class Right(IntEnum):
    """What somebody may do; each needs at least a certain role."""

    see = 0
    see_payloads = 1
    act = 2
    reveal = 3
    change_settings = 3


#: What a role may do, in words that the login page and the docs use.
MEANINGS: Final = {
    Role.viewer: "sees everything but keys, headers, payloads, settings and the report",
    Role.reader: "also sees these, as [redaction] allows",
    Role.operator: "also acts: retries, redrives, pauses",
    Role.admin: "also reveals what redaction hides, edits payloads and changes settings",
}


def may(role: Role, right: Right) -> bool:
    """Whether a role has a right."""
    return tuple(Role).index(role) >= right


@dataclass(frozen=True, slots=True)
class Person:
    """Who sends a request.

    Attributes:
        name: of the token, or of who reaches a console that asks for none.
    """

    name: str
    role: Role

    def may(self, right: Right) -> bool:
        """Whether they have a right."""
        return may(self.role, right)
