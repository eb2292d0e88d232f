"""`dlq replay --edit|--edit-with`: edits from a file of corrected lines, or a user's function."""

from __future__ import annotations

import base64
import json
from array import array
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from ackfloor.core.records.redaction import Redaction
from ackfloor.dead_letters.commands.json_lines import DISPOSITION, dead_letter_facts
from ackfloor.dead_letters.rules.redrive_edit import Edit, with_own_headers
from ackfloor.dead_letters.rules.redrive_rules import DeadLetter
from ackfloor.errors import RedriveRefused
from ackfloor.loading import error_with_place, load_function
from ackfloor.redrive import select

#: Kafka counts partitions in 32 bits and offsets in 64.
_PARTITIONS, _OFFSETS = range(2**31), range(2**63)
#: Not compared: may have changed since the line was written.
_FREE = frozenset({"value", "value_base64", "headers", "disposed", *DISPOSITION})


class EditedLines:
    """A file of lines as `dlq export` writes them, some of them corrected; an `Edit`.

    One line at a time is in memory, and where each line begins.

    Raises:
        RedriveRefused: a line is not understood; it is named.
    """

    def __init__(self, path: Path, topic: str) -> None:
        self._path = path
        #: (partition, offset) -> where its line begins, and its number.
        self._lines: dict[tuple[int, int], tuple[int, int]] = {}
        begin = 0
        try:
            with path.open("rb") as file:
                for number, line in enumerate(file, 1):
                    if line.strip():
                        self._note(number, begin, self._facts(number, line), topic)
                    begin += len(line)
        except OSError as exc:
            raise RedriveRefused(f"--edit={str(path)!r}: {exc.strerror}") from exc

    def wanted(self) -> dict[int, array[int]]:
        """The dead letters that the file names."""
        return dict(select(self._lines))

    def __call__(self, dead_letter: DeadLetter) -> DeadLetter:
        """The dead letter as its line has it.

        Raises:
            RedriveRefused: the line changes what can't be edited.
        """
        from ackfloor.dead_letters.kafka.dead_letter_topic import StoredDeadLetter

        begin, number = self._lines[dead_letter.partition, dead_letter.offset]
        with self._path.open("rb") as file:
            file.seek(begin)
            facts = self._facts(number, file.readline())
        was = json.loads(
            json.dumps(
                dead_letter_facts(StoredDeadLetter(dead_letter, disposed=False), Redaction())
            )
        )
        for name, value in facts.items():
            if name not in _FREE and (name not in was or was[name] != value):
                raise self._refused(number, f"{name} can't be edited: only value and headers can")
        value = self._bytes(number, facts, dead_letter.value)
        own = dead_letter.headers or ()
        if facts.get("headers", was["headers"]) != was["headers"]:
            edited = self._headers(number, facts["headers"])
            own = with_own_headers(dead_letter, edited).headers or ()
        return replace(dead_letter, value=value, headers=own)

    def _note(self, number: int, begin: int, facts: dict[str, Any], topic: str) -> None:
        partition, offset = facts.get("partition"), facts.get("offset")
        if facts.get("topic") != topic:
            raise self._refused(number, f"is not of {topic}: topic is {facts.get('topic')!r}")
        what = "has no partition and offset: keep those of dlq export"
        if type(partition) is not int or type(offset) is not int:
            raise self._refused(number, what)
        if partition not in _PARTITIONS or offset not in _OFFSETS:
            raise self._refused(number, what)
        if (other := self._lines.get((partition, offset))) is not None:
            raise self._refused(number, f"names the dead letter of line {other[1]}: leave one out")
        self._bytes(number, facts, None)
        self._headers(number, facts.get("headers", []))
        self._lines[partition, offset] = begin, number

    def _facts(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            facts = json.loads(line)
        except (ValueError, RecursionError) as exc:
            raise self._refused(number, f"is no JSON: {exc}") from exc
        if not isinstance(facts, dict):
            raise self._refused(number, "is no JSON object: write a line as dlq export does")
        return facts

    def _bytes(self, number: int, facts: dict[str, Any], default: bytes | None) -> bytes | None:
        """The bytes under `value` or `value_base64`; `default` where there is neither."""
        names = [name for name in ("value", "value_base64") if name in facts]
        if not names:
            return default
        if len(names) > 1:
            raise self._refused(number, "has value and value_base64: leave one out")
        value = facts[names[0]]
        if value is None:
            return None
        if not isinstance(value, str):
            kind = type(value).__name__
            raise self._refused(number, f"has a value of type {kind}: make it text, also of JSON")
        try:
            return value.encode() if names == ["value"] else base64.b64decode(value, validate=True)
        except ValueError as exc:
            raise self._refused(number, f"has a {names[0]} that can't be read: {exc}") from exc

    def _headers(self, number: int, value: Any) -> list[tuple[str, bytes | None]]:
        found = []
        for each in value if isinstance(value, list) else [value]:
            name = each.get("name") if isinstance(each, dict) else None
            if not isinstance(name, str) or each.keys() - {"name", "value", "value_base64"}:
                raise self._refused(
                    number,
                    f"has {each!r} for a header: write "
                    '"headers": [{"name": "tenant", "value": "acme"}]',
                )
            found.append((name, self._bytes(number, each, None)))
        return found

    def _refused(self, number: int, why: str) -> RedriveRefused:
        return RedriveRefused(f"--edit={str(self._path)!r}: line {number} {why}")


def function_edit(path: str, rules: Redaction) -> Edit:
    """A function of the user's, as an edit.

    Args:
        path: `package.module:function`; given a `DeadLetter`, it returns one.
        rules: what of its errors is not shown.

    Raises:
        StartError: it can't be imported.
    """
    function = load_function(path, "--edit-with")

    def edit(dead_letter: DeadLetter) -> DeadLetter:
        try:
            # The caller checks its type.
            return cast("DeadLetter", function(dead_letter))
        except Exception as exc:
            place = f"{dead_letter.topic}/{dead_letter.partition}/{dead_letter.offset}"
            why = rules.of_text(error_with_place(exc))
            raise RedriveRefused(f"--edit-with={path!r}: {place} {why}") from exc

    return edit
