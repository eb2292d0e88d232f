"""The register of promises: complete, and about what exists."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulation.watch import RULES
from tests.structure.promises import PAGE, PROMISES, Promise, found, page, safeguards, suite, wrong
from tests.structure.sources import REPOSITORY


def test_every_promise_is_held_by_what_exists() -> None:
    """Numbers, properties, safeguards and tests, in the page and here."""
    assert found() == []


def test_the_page_is_what_the_register_says() -> None:
    """`make docs` writes it."""
    assert (REPOSITORY / "docs" / "reference" / "promises.md").read_text() == page()


def _wrong(*promises: Promise, text: str | None = None, without: str = "") -> list[str]:
    tests = {name: there for name, there in suite().items() if name != without}
    rules = [rule for rule in RULES if rule != without]
    guards = {name: rule for name, rule in safeguards().items() if name != without}
    return list(wrong(promises or PROMISES, text or PAGE.read_text(), tests, rules, guards))


@pytest.mark.parametrize(
    ("without", "told"),
    [
        (PROMISES[0].tests[0], f"P1: there is no test {PROMISES[0].tests[0]}"),
        ("test_in_doubt_everything_above_the_floor_comes_again", "P19: there is no test test_in_d"),
        ("13", "P17: there is no rule 13"),
        ("a lane starts one at a time", "P7: there is no safeguard 'a lane starts one at a time'"),
    ],
)
def test_what_is_removed_or_renamed_is_missed(without: str, told: str) -> None:
    """A test on a broker, one that stands in for it, a property, a safeguard."""
    assert any(line.startswith(told) for line in _wrong(without=without))


def test_what_is_new_must_be_registered() -> None:
    """A promise in the page, or one here alone; a property and a safeguard that nobody has."""
    text = PAGE.read_text()
    last = PROMISES[-1].number
    assert f"{last} is in the register and not in the page" in _wrong(text=text.replace(last, ""))
    one_more = f"{text} (P{len(PROMISES) + 1})"
    assert _wrong(text=one_more) == [f"P{len(PROMISES) + 1} is in the page and not in the register"]
    assert "the page's numbers are not P1" in _wrong(text=f"{text} (P1)")[0]
    without = [replace(p, rules=(), safeguards=(), but="none") for p in PROMISES]
    told = _wrong(*without)
    assert "no promise has rule 9" in told
    assert "no promise has the safeguard 'a late answer changes nothing'" in told


def test_what_is_not_shown_needs_its_reason() -> None:
    """And a test that talks to no broker does not count for one that does."""
    first = PROMISES[0]
    bare = replace(first, tests=())
    assert _wrong(bare, *PROMISES[1:]) == [
        "P1: it lacks a rule, a safeguard or a test, and does not say why"
    ]
    inside = "test_the_key_stays_over_redeliveries_retries_and_redrives"
    assert _wrong(replace(first, tests=(inside,)), *PROMISES[1:]) == [
        f"P1: {inside} talks to no broker"
    ]
    assert _wrong(replace(first, rules=("1",)), *PROMISES[1:]) == []
    assert _wrong(replace(first, rules=("3",)), *PROMISES[1:])[0] == (
        "P1: 'the floor is the lowest open offset' is for rule 1, which is not one of its own"
    )
