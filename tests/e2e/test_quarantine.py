"""Quarantined keys while workers are killed, join and leave: order, and nothing lost or held.

A few changes in each way here; in the soak 204 kills and 204 rebalances over all of them, or as
many in each as QUARANTINE_KILLS says. QUARANTINE_SEED=7 for other ones.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.quarantine_account import (
    NEVER,
    OK,
    Facts,
    Letter,
    Line,
    Name,
    find,
)
from tests.e2e.quarantine_kills import AFTER, PARKING, REPOSITORY, quarantine_kills

KILLS = int(os.environ.get("QUARANTINE_KILLS", "34"))
#: Ledger, log and topics of a run in which something is wrong: the next run may not show it.
KEPT = REPOSITORY / "build" / "quarantine_kills"
SEED = int(os.environ.get("QUARANTINE_SEED", "31"))
WAYS = [(after, parking) for after in AFTER for parking in PARKING]
SHORT = [
    ("continue", "transactional"),
    ("dead_letter", "at_least_once"),
    ("hold", "transactional"),
]


@pytest.mark.kafka
@pytest.mark.e2e
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("after", "parking"), SHORT)
def test_keys_stay_in_order_however_workers_come_and_go(
    after: str, parking: str, tmp_path: Path, bootstrap_servers: str
) -> None:
    """Two kills and two rebalances while keys are quarantined."""
    check(tmp_path, bootstrap_servers, after, parking, 2)


@pytest.mark.kafka
@pytest.mark.e2e
@pytest.mark.soak
@pytest.mark.timeout(600 + 30 * KILLS)
@pytest.mark.parametrize(("after", "parking"), WAYS)
def test_keys_stay_in_order_for_long(
    after: str, parking: str, tmp_path: Path, bootstrap_servers: str
) -> None:
    """The same many times, in each way."""
    found = check(tmp_path, bootstrap_servers, after, parking, KILLS)
    assert max(found) > 0, "no key was quarantined at any kill"


def check(folder: Path, servers: str, after: str, parking: str, changes: int) -> list[int]:
    """So many kills and rebalances; returns how many keys were quarantined at each kill."""
    report = quarantine_kills(
        folder, servers, after, parking, kills=changes, rebalances=changes, seed=SEED + changes,
        keep=KEPT / f"{after}-{parking}-{changes}",
    )  # fmt: skip
    sys.stdout.write(report.table() + "\n")
    assert report.wrong == {}, report.table()
    assert report.found.failures > 0
    assert report.found.letters > 0
    assert after == "dead_letter" or report.found.behind == 0
    assert after != "hold" or report.held > 0
    if parking == "transactional":
        assert (report.found.doubled, report.found.doubled_behind) == (0, 0), report.table()
    return report.found.quarantined


# The account itself.


def line(what: str, at_ns: int, number: int, attempt: int = 1) -> Line:
    """A line of the ledger, of key 0."""
    return Line(what, at_ns, 1, Name(0, number), attempt, "orders")


def letter(number: int, at_ns: int, *, is_behind: bool = False, partition: int = 0) -> Letter:
    """A dead letter of key 0."""
    return Letter(Name(0, number), partition, at_ns, is_behind)


def handled(number: int, at_ns: int) -> list[Line]:
    """A record that was handled at once."""
    return [line("S", at_ns, number), line("E", at_ns + 1, number)]


IN_ORDER = Facts(
    "continue", {0: [OK, OK, OK]}, 4, handled(0, 1) + handled(1, 3) + handled(2, 5), ()
)
AFTER_A_LETTER = replace(
    IN_ORDER,
    produced={0: [OK, NEVER, OK]},
    lines=[*handled(0, 1), line("S", 3, 1), line("F", 4, 1), *handled(2, 7)],
    letters=[letter(1, 6)],
)
ALL_DEAD = replace(
    AFTER_A_LETTER,
    after="dead_letter",
    lines=[*handled(0, 1), line("S", 3, 1), line("F", 4, 1)],
    letters=[letter(1, 6), letter(2, 7, is_behind=True)],
)
HELD = replace(ALL_DEAD, after="hold", letters=[letter(1, 6)], parked=frozenset({Name(0, 2)}))


@pytest.mark.parametrize("facts", [IN_ORDER, AFTER_A_LETTER, ALL_DEAD, HELD])
def test_the_account_finds_nothing_where_nothing_is(facts: Facts) -> None:
    """A repeat is permitted."""
    again = replace(facts, lines=[*facts.lines, *handled(0, 20)])
    assert find(facts).wrong == find(again).wrong == {}
    assert find(again).repeated == 1


@pytest.mark.parametrize(
    ("facts", "rule"),
    [
        (replace(IN_ORDER, lines=handled(0, 1) + handled(1, 3)), "lost"),
        (replace(IN_ORDER, lines=handled(0, 1) + handled(2, 3) + handled(1, 5)), "order"),
        (replace(AFTER_A_LETTER, letters=[letter(1, 8)]), "order"),
        (replace(AFTER_A_LETTER, letters=[letter(1, 6, partition=1)]), "displaced"),
        (replace(IN_ORDER, letters=[letter(2, 9)]), "unfounded"),
        (replace(AFTER_A_LETTER, letters=[*ALL_DEAD.letters]), "unfounded"),
        (replace(ALL_DEAD, letters=ALL_DEAD.letters[::-1]), "displaced"),
        (replace(ALL_DEAD, letters=[letter(1, 6), letter(2, 7)]), "unfounded"),
        (replace(HELD, parked=frozenset()), "lost"),
        (replace(HELD, lines=[*HELD.lines, *handled(2, 9)]), "let go"),
        (replace(IN_ORDER, lines=[line("S", 0, 0, 2), *IN_ORDER.lines]), "spent"),
    ],
)  # fmt: skip
def test_the_account_finds(facts: Facts, rule: str) -> None:
    """Each thing that must not be, and only that."""
    assert list(find(facts).wrong) == [rule]


def test_the_account_counts_the_keys_that_are_quarantined_at_a_kill() -> None:
    """From a record's first failure until it is resolved."""
    facts = replace(AFTER_A_LETTER, kills_ns=[3, 5, 7])
    assert find(facts).quarantined == [0, 1, 0]
