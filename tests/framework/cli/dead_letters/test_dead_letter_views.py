"""How one dead letter reads for people."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from ackfloor.core.records.envelope import Envelope, write_headers
from ackfloor.core.records.redaction import Redaction
from ackfloor.dead_letters.commands.dead_letter_views import (
    dead_letter_rows,
    dead_letter_text,
    fields_of,
    group_rows,
    what_came_of,
)
from ackfloor.dead_letters.commands.export_files import COLUMNS, ExportFormat, written
from ackfloor.dead_letters.commands.json_lines import dead_letter_facts
from ackfloor.dead_letters.kafka.dead_letter_topic import StoredDeadLetter
from ackfloor.dead_letters.rules.cause_groups import CauseGroup, CauseGroups
from ackfloor.dead_letters.rules.dispositions import Disposition, DispositionNote
from ackfloor.dead_letters.rules.redrive_rules import DeadLetter
from tests.compatibility.cases import FOLLOWER, HELD


def test_what_can_not_be_read_of_a_letter_is_told_in_words() -> None:
    """Names with commas between them, and a question mark for a part of the origin."""
    headers = [
        ("ackfloor.origin.topic", b"orders"),
        ("ackfloor.origin.partition", b"three"),
        ("ackfloor.origin.offset", b"41927"),
        ("ackfloor.attempt", b"many"),
    ]
    letter = DeadLetter("orders--billing--dlq", 0, 7, None, b"v", headers, 1)
    text = dead_letter_text(StoredDeadLetter(letter, disposed=False), Redaction())
    told = dict(line.split(maxsplit=1) for line in text.splitlines() if " " in line)
    assert told["origin"] == "orders/?/41927"
    assert told["unreadable"] == "ackfloor.origin.partition, ackfloor.attempt"


def waits(envelope: Envelope, offset: int = 0) -> StoredDeadLetter:
    """A record that waits behind one of its key, written at a time of its own."""
    topic = "orders--billing--retry-1s"
    headers = write_headers(envelope, [])
    letter = DeadLetter(topic, 3, offset, b"k", b"v", headers, 1_700_000_020_000)
    return StoredDeadLetter(letter, disposed=False)


@pytest.mark.parametrize(
    ("disposition", "target", "offset", "is_told"),
    [
        ("replayed", "orders--billing--retry-1s", b"417", True),
        ("replayed", "orders", b"417", False),  # there it is a new record
        ("replayed", "orders--billing--retry-1s", b"many", False),
        ("archived", "old.jsonl", b"417", False),
        ("discarded", "", b"417", False),
    ],
)
def test_of_a_replayed_letter_it_is_told_where_to_look_on(
    disposition: str, target: str, offset: bytes, is_told: bool
) -> None:
    """By the place it came from, if it went where such a place is kept."""
    headers = [
        ("ackfloor.origin.topic", b"orders"),
        ("ackfloor.origin.partition", b"3"),
        ("ackfloor.origin.offset", offset),
    ]
    letter = DeadLetter("orders--billing--dlq", 0, 7, None, b"v", headers, 1)
    note = DispositionNote(Disposition(disposition), 1, "ann@shop", "job", target)
    told = what_came_of(StoredDeadLetter(letter, disposed=True, note=note))
    assert (told is not None) is is_told
    if told is not None:
        assert "`ackfloor dlq show orders/3/417`" in told
        assert "`ackfloor retry show orders/3/417`" in told


@pytest.mark.parametrize(("told", "attempt"), [(FOLLOWER, None), (HELD, 7)])
def test_what_waits_behind_another_record_did_not_fail(told: Envelope, attempt: int | None) -> None:
    """It has a reason, and no error, no time of a failure, and no time at which it is due."""
    found = waits(told)
    (row,) = dead_letter_rows([found], Redaction())
    assert (row["reason"], row["error"], row["failed"], row["attempt"]) == (
        told.reason, None, None, attempt,
    )  # fmt: skip
    text = dead_letter_text(found, Redaction())
    lines = {line[:20].strip(): line[21:] for line in text.splitlines()}
    assert lines["reason"] == told.reason
    assert lines["origin"] == f"orders/3/{told.origin_offset}"
    assert not lines.keys() & {"not_before", "retry_at", "failed_at", "first_failed_at", "cause"}
    assert "1970" not in str(lines)
    facts = json.loads(json.dumps(fields_of(found, Redaction())))
    assert (facts["reason"], facts["error_type"], facts["failed_at_ms"]) == (
        told.reason,
        None,
        None,
    )
    # A program is told what is in Kafka.
    assert facts["retry_at_ms"] == told.retry_at_ms


def test_what_was_given_up_behind_another_record_is_a_group_of_its_own() -> None:
    """By its reason, with the times at which it was written, and a word for its cause."""
    groups = CauseGroups()
    for offset in range(3):
        groups.add(waits(FOLLOWER, offset).dead_letter)
    (row,) = group_rows(groups.largest_first(), Redaction())
    assert (row["handler"], row["error"], row["cause"], row["count"], row["message"]) == (
        "bill", "behind", "behind", 3, "",
    )  # fmt: skip
    assert row["first"] == row["last"] == "2023-11-14T22:13:40Z"


def test_a_group_begins_when_its_first_record_first_failed() -> None:
    """Before its retries; a record that does not say so counts from when it was given up."""
    groups = CauseGroups()
    died = Envelope(origin_topic="orders", handler="bill", error_type="Boom")
    groups.add(waits(retried_for_6s(died, 1_700_000_010_000)).dead_letter)
    groups.add(waits(died._replace(failed_at_ms=1_700_000_012_000)).dead_letter)
    (row,) = group_rows(groups.largest_first(), Redaction())
    assert (row["count"], row["first"], row["last"]) == (
        2, "2023-11-14T22:13:30Z", "2023-11-14T22:13:36Z",
    )  # fmt: skip


def retried_for_6s(died: Envelope, first_ms: int) -> Envelope:
    """The same failure, which first failed then and was given up 6 s later."""
    return died._replace(first_failed_at_ms=first_ms, failed_at_ms=first_ms + 6_000)


def test_an_export_leaves_empty_what_is_not_known(tmp_path: Path) -> None:
    """In lines and in columns: no word and no number in place of what is not there."""
    line, table = tmp_path / "dead.jsonl", tmp_path / "dead.csv"
    for format_, path in ((ExportFormat.jsonl, line), (ExportFormat.csv, table)):
        with written(format_, path, Redaction()) as writer:
            writer.write(waits(FOLLOWER))
    facts = json.loads(line.read_text())
    absent = ("error_type", "error_message", "failed_at_ms", "first_failed_at_ms", "duration_ms")
    assert [facts[name] for name in absent] == [None] * len(absent)
    (row,) = csv.DictReader(table.read_text().splitlines())
    assert [row[name] for name in absent] == [""] * len(absent)
    assert (row["reason"], row["attempt"], list(row)) == ("behind", "0", list(COLUMNS))


@pytest.mark.parametrize(
    ("error", "stack", "told"),
    [("ConsumeTimeout", None, True), ("ConsumeTimeout", "line 4", False), ("Boom", None, False)],
)
def test_a_timeout_without_a_stack_says_where_to_find_one(
    error: str, stack: str | None, told: bool
) -> None:
    """What was raised has one, unless it was too large."""
    died = Envelope(origin_topic="orders", handler="bill", error_type=error, error_stack=stack)
    text = dead_letter_text(waits(died), Redaction())
    assert ("`ackfloor inflight --trace`" in text) is told


def test_rules_hide_the_hash_of_a_payload() -> None:
    """In the views and in exports; without rules it is there."""
    was = "0123456789abcdef" * 4
    found = waits(Envelope(origin_topic="orders", edited=f"{was} 1790000000000 ann"))
    for rules, mark in ((Redaction(), was), (Redaction(payload="drop"), "***")):
        for facts in (fields_of(found, rules), dead_letter_facts(found, rules)):
            assert facts["edited"] == f"{mark} 1790000000000 ann"
        assert (was in dead_letter_text(found, rules)) is (mark == was)


def test_groups_by_key_have_a_row_for_each_key() -> None:
    """Of one cause; without, they are one group."""
    found = CauseGroups(by_key=True)
    letter = waits(FOLLOWER).dead_letter
    for key in (b"a", b"b", b"a", None):
        found.add(replace(letter, key=key))
    made = group_rows(found.largest_first(), Redaction(), by_key=True)
    assert [(row["key"], row["count"]) for row in made] == [("a", 2), (None, 1), ("b", 1)]
    assert [each.count for each in plain_groups(letter, 4)] == [4]


def plain_groups(letter: DeadLetter, times: int) -> list[CauseGroup]:
    """The groups of one dead letter that is added so often, whatever its key."""
    found = CauseGroups()
    for n in range(times):
        found.add(replace(letter, key=b"%d" % n))
    return found.largest_first()
