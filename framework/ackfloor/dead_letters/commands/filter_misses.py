"""Warnings for filter values that no dead letter has, with the values that there are.

A misspelt handler matches nothing, which must not read as "no dead letters".
"""

from __future__ import annotations

import typer

from ackfloor.core.values.printable import plain
from ackfloor.core.values.suggestions import there_are
from ackfloor.dead_letters.rules.dead_letter_filter import DeadLetterFilter, cause_of
from ackfloor.dead_letters.rules.redrive_rules import DeadLetter

#: So many different values of a kind are remembered.
MOST = 1_000


class Misses:
    """A filter, and the values of the dead letters that it left out."""

    def __init__(self, wanted: DeadLetterFilter) -> None:
        self._wanted = wanted
        self._found = False
        #: Option that was given -> the values that there are.
        self._there: dict[str, set[str]] = {
            option: set() for option, value in _asked(wanted).items() if value is not None
        }

    def matches(self, dead_letter: DeadLetter) -> bool:
        """Whether the filter selects this one."""
        if self._wanted.matches(dead_letter):
            self._found = True
            return True
        if self._there and not self._found:
            self._note(dead_letter)
        return False

    def _note(self, dead_letter: DeadLetter) -> None:
        envelope = dead_letter.envelope
        has: dict[str, set[str | None]] = {
            "--handler": {envelope.handler},
            "--reason": {envelope.reason},
            "--error": {envelope.error_type, cause_of(envelope)},
            "--release": {envelope.release},
        }
        for option, there in self._there.items():
            if len(there) < MOST:
                there |= {each for each in has[option] if each}

    def tell(self) -> None:
        """Warn where nothing matched: the values that nothing has, and those that there are."""
        if self._found:
            return
        for option, there in self._there.items():
            value = _asked(self._wanted)[option]
            if value is not None and not self._has(option, value, there):
                text = f"nothing has {option} {value!r}: {there_are(value, there)}"
                typer.secho(plain(text), fg="yellow", err=True)

    @staticmethod
    def _has(option: str, value: str, there: set[str]) -> bool:
        short = {each.rpartition(".")[2] for each in there} if option == "--error" else set()
        return value in there | short


def _asked(wanted: DeadLetterFilter) -> dict[str, str | None]:
    return {
        "--handler": wanted.handler,
        "--reason": wanted.reason,
        "--error": wanted.error,
        "--release": wanted.release,
    }
