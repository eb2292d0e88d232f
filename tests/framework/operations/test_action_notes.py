"""Notes of actions: written and read again, selected, and without what must not be in them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from ackfloor.core.parking.topic_names import check_source_topic, parse_topic
from ackfloor.core.records.redaction import Redaction
from ackfloor.core.values.setting_error import SettingError
from ackfloor.dead_letters.rules.dead_letter_filter import DeadLetterFilter
from ackfloor.operations import TOPIC, ActionFilter, ActionNote, ActionState
from ackfloor.operations.action_notes import (
    LONGEST_ERROR,
    MOST_NAMED,
    latest_of_each,
    masked,
    read_note,
)
from tests.structure.sources import REPOSITORY

NOTE = ActionNote(
    id="20261128-120000-0a1b2c3d",
    at_ms=1_795_000_000_123,
    state=ActionState.PARTIAL,
    by="ann@ops-1",
    host="ops-1",
    program="command line",
    action="dlq replay",
    group="billing",
    targets=("orders--billing--dlq",),
    arguments={"filter": {"handler": "bill"}, "max": 10},
    reason="the bank is back",
    counts={"done": 9, "gone": 1},
    error="",
)


def test_a_note_is_read_as_it_was_written() -> None:
    """Key and value are those of the reference."""
    assert NOTE.key == b"20261128-120000-0a1b2c3d"
    assert read_note(NOTE.to_bytes()) == NOTE
    assert json.loads(NOTE.to_bytes()) == {
        "version": 1, "id": "20261128-120000-0a1b2c3d", "at_ms": 1_795_000_000_123,
        "state": "partial", "by": "ann@ops-1", "host": "ops-1", "program": "command line",
        "action": "dlq replay", "group": "billing", "targets": ["orders--billing--dlq"],
        "arguments": {"filter": {"handler": "bill"}, "max": 10}, "reason": "the bank is back",
        "counts": {"done": 9, "gone": 1}, "error": "",
    }  # fmt: skip


def test_what_a_newer_version_adds_is_no_hindrance() -> None:
    """An older command reads what it knows of."""
    facts = json.loads(NOTE.to_bytes()) | {"version": 2, "approved_by": "bob"}
    assert read_note(json.dumps(facts).encode()) == NOTE


@pytest.mark.parametrize(
    "changed",
    [
        {"at_ms": "yesterday"}, {"at_ms": True}, {"state": "perhaps"}, {"by": None},
        {"targets": [1]}, {"targets": None}, {"arguments": "x"}, {"counts": {"done": "many"}},
        {"counts": []},
    ],
)  # fmt: skip
def test_what_is_no_note_is_left_out(changed: dict[str, object]) -> None:
    """Anybody who may write to the topic may write anything: no reader fails on it."""
    facts = json.loads(NOTE.to_bytes()) | changed
    assert read_note(json.dumps(facts).encode()) is None


@pytest.mark.parametrize("value", [None, b"", b"\xff", b"[]", b"3", b"{}", b"[" * 100_000])
def test_what_is_no_json_of_ours_is_left_out(value: bytes | None) -> None:
    """Nor on bytes of whatever kind."""
    assert read_note(value) is None


def test_a_long_error_is_cut() -> None:
    """A note stays small."""
    found = read_note(replace(NOTE, error="x" * 10_000).to_bytes())
    assert found is not None
    assert len(found.error) == LONGEST_ERROR


@pytest.mark.parametrize(
    ("wanted", "matches"),
    [
        (ActionFilter(), True),
        (ActionFilter(by="ann"), True),
        (ActionFilter(by="ann@ops-1"), True),
        (ActionFilter(by="an"), False),
        (ActionFilter(action="dlq"), True),
        (ActionFilter(action="dlq replay"), True),
        (ActionFilter(action="dlq rep"), False),
        (ActionFilter(action="lanes"), False),
        (ActionFilter(group="billing"), True),
        (ActionFilter(group="shipping"), False),
        (ActionFilter(since_ms=NOTE.at_ms), True),
        (ActionFilter(since_ms=NOTE.at_ms + 1), False),
        (ActionFilter("ann", "dlq", "billing", 0), True),
        (ActionFilter("ann", "dlq", "shipping", 0), False),
    ],
)
def test_notes_are_selected(wanted: ActionFilter, matches: bool) -> None:
    """All conditions are met; an action is named by whole words."""
    assert wanted.matches(NOTE) is matches


def test_a_job_that_has_ended_is_named_once() -> None:
    """Its end is the newer note; a job without one has only begun."""
    begun = replace(NOTE, state=ActionState.BEGUN, at_ms=1)
    other = replace(begun, id="other")
    assert list(latest_of_each([NOTE, other, begun])) == [NOTE, other]


@pytest.mark.parametrize(
    "forged",
    [
        {"by": "eve@ops-1"}, {"action": "dlq cancel"}, {"targets": ("other",)}, {"reason": "mine"},
        {"arguments": {"from": "elsewhere"}}, {"group": "other"}, {"host": "ops-2"},
        {"program": "console"},
    ],
)  # fmt: skip
def test_no_note_hides_another_action(forged: dict[str, Any]) -> None:
    """Of whatever state, under the same id; the true one's beginning is hidden by its own end."""
    begun = replace(NOTE, state=ActionState.BEGUN, at_ms=1)
    for state in (ActionState.BEGUN, ActionState.DONE):
        other = replace(NOTE, state=state, **forged)
        assert list(latest_of_each([other, NOTE, begun])) == [other, NOTE]
        assert list(latest_of_each([other, begun])) == [other, begun]


def test_a_second_end_hides_no_first_one() -> None:
    """One says that it failed and another that it was done: both are seen; written twice, one."""
    failed = replace(NOTE, state=ActionState.FAILED, error="no broker", counts={})
    begun = replace(NOTE, state=ActionState.BEGUN, at_ms=1)
    again = replace(begun, at_ms=NOTE.at_ms + 1)
    assert list(latest_of_each([again, NOTE, failed, begun])) == [again, NOTE, failed]
    assert list(latest_of_each([NOTE, NOTE, begun, begun])) == [NOTE]


def test_headers_and_keys_are_masked() -> None:
    """Of a header the value may be a secret; of keys stays what `[redaction]` leaves."""
    wanted = DeadLetterFilter(key="4711", headers=(("authorization", "Bearer x"), ("tenant", None)))
    given = {"filter": wanted.to_dict(), "keys": ["4711", "a"], "keys_base64": ["NDcxMQ=="]}
    kept = masked(given, Redaction())
    assert kept["filter"] == {"key": "4711", "headers": ["authorization=***", "tenant"]}
    assert kept["keys"] == ["4711", "a"]
    hidden = masked(given, Redaction(key="drop"))
    assert hidden["filter"]["key"] == "***"
    assert (hidden["keys"], hidden["keys_base64"]) == (["***", "***"], ["***"])
    hashed = masked(given, Redaction(key="hash"))
    assert "4711" not in json.dumps(hashed)
    assert hashed["filter"]["key"] == hashed["keys"][0]
    assert masked({"where": "card = '4711'"}, Redaction(patterns=("4711",))) == {
        "where": "card = '***'"
    }


def test_a_key_in_base64_is_hidden_like_the_key_itself() -> None:
    """Its hash is that of the key, not of how it was written; patterns see the key."""
    given = {"keys": ["4711"], "keys_base64": ["NDcxMQ=="]}
    hashed = masked(given, Redaction(key="hash"))
    assert hashed["keys_base64"] == hashed["keys"]
    assert masked(given, Redaction(patterns=("4711",)))["keys_base64"] == ["***"]
    # Bytes that are no text stay as they were given.
    assert masked({"keys_base64": ["/w=="]}, Redaction())["keys_base64"] == ["/w=="]


def test_many_places_are_counted() -> None:
    """The first of them, and how many there were."""
    kept = masked({"places": [f"orders/0/{n}" for n in range(5_000)]}, Redaction())
    assert len(kept["places"]) == MOST_NAMED
    assert kept["places_in_all"] == 5_000


def test_no_source_topic_has_that_name() -> None:
    """So no handler takes it, no pattern matches it, and no group has it for its own."""
    with pytest.raises(SettingError, match="--"):
        check_source_topic(TOPIC)
    assert parse_topic(TOPIC) is None


def test_the_page_says_what_a_note_holds() -> None:
    """All of it, in its order."""
    page = (REPOSITORY / "docs/guide/actions.md").read_text()
    _, _, table = page.partition("## What a note holds")
    rows = re.findall(r"^\| `(\w+)` \|", table.partition("\n## ")[0], re.MULTILINE)
    assert rows == list(json.loads(NOTE.to_bytes()))
