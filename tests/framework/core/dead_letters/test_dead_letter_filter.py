"""Which dead letters a filter means, and that it comes back from a note as it was."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ackfloor.dead_letters.rules.dead_letter_filter import DeadLetterFilter
from tests.framework.core.dead_letters.test_cause_groups import FOREIGN, letter


@pytest.mark.parametrize(
    ("wanted", "ours", "foreign"),
    [
        ({}, True, True),
        ({"handler": "bill"}, True, False),
        ({"handler": "ship"}, False, False),
        ({"reason": "exhausted"}, True, False),
        ({"reason": "decode"}, False, False),
        ({"release": "v7"}, True, False),
        ({"release": "v8"}, False, False),
        ({"key": "k"}, True, False),
        ({"key": ""}, False, False),
        ({"headers": (("h", None),)}, False, True),
        ({"headers": (("h", "1"),)}, False, True),
        ({"headers": (("h", "2"),)}, False, False),
        ({"headers": (("h", "1"), ("h", "2"))}, False, False),
        ({"headers": (("h", "1"), ("h", None))}, False, True),
        ({"headers": (("ackfloor.group", "billing"),)}, True, False),
        ({"least_attempts": 3, "most_attempts": 3}, True, False),
        ({"least_attempts": 4}, False, False),
        ({"most_attempts": 2}, False, True),
        ({"error": "shop.errors.Boom"}, True, False),
        ({"error": "Boom"}, True, False),
        ({"error": "abc123"}, True, False),
        ({"error": "oom"}, False, False),
        ({"error": ""}, False, False),
        ({"error": "not said"}, False, True),
        ({"since_ms": 5_000}, True, True),
        ({"since_ms": 5_001}, False, True),
        ({"until_ms": 5_000}, False, False),
        ({"until_ms": 5_001}, True, False),
        ({"until_ms": 9_001}, True, True),
        ({"handler": "bill", "error": "Boom", "key": "other"}, False, False),
    ],
)
def test_each_condition_must_be_met(wanted: dict[str, Any], ours: bool, foreign: bool) -> None:
    """By our headers; a time that none of them tells is the record's own."""
    meant = DeadLetterFilter(**wanted)
    assert (meant.matches(letter()), meant.matches(FOREIGN)) == (ours, foreign)
    assert DeadLetterFilter.from_dict(json.loads(json.dumps(meant.to_dict()))) == meant


def test_a_letter_whose_headers_cannot_be_read_has_none() -> None:
    """It is meant only where nothing is asked of them."""
    unreadable = type(FOREIGN)("t", 0, 0, b"k", b"v", None, 9_000)
    assert DeadLetterFilter(key="k").matches(unreadable)
    assert not DeadLetterFilter(headers=(("h", None),)).matches(unreadable)


def test_the_cause_is_what_groups_print() -> None:
    """Where there is neither fingerprint nor class, the reason is."""
    decode = letter(error_fingerprint=None, error_type=None)
    assert DeadLetterFilter(error="exhausted").matches(decode)


def test_a_condition_of_a_newer_version_is_refused() -> None:
    """Left out, it would let more through."""
    with pytest.raises(ValueError, match="tenant"):
        DeadLetterFilter.from_dict({"key": "k", "tenant": "a"})


@pytest.mark.parametrize(
    "told",
    [{"key": 5}, {"headers": "h"}, {"headers": ["h"]}, {"headers": [[1, "v"]]},
     {"headers": [["h"]]}, {"headers": [["h", 5]]}, {"headers": None},
     {"since_ms": 1.5}, {"least_attempts": True}, {"error": ["a"]}],
)  # fmt: skip
def test_a_condition_that_is_not_of_its_type_is_refused(told: dict[str, Any]) -> None:
    """A note of a job may hold anything."""
    with pytest.raises(ValueError, match="not of its type"):
        DeadLetterFilter.from_dict(told)
