"""What is new, what is a surge, and what is neither."""

from __future__ import annotations

import math
import random

import pytest

from ackfloor import SettingError
from ackfloor_monitoring.spark.watch import detection
from ackfloor_monitoring.spark.watch.detection import (
    Alert,
    Cause,
    Detection,
    NewCause,
    Rules,
    Sighting,
    Surge,
)

DAY = 86_400.0
NOW = 20_000 * DAY
RULES = Rules()


def seen(at_s: float, count: int = 1, fingerprint: str = "f", handler: str = "bill") -> Sighting:
    """Failures of one cause."""
    return Sighting(Cause("billing", handler, fingerprint), at_s, count, "shop.Boom", "dlq/0/1")


def watched(*history: Sighting, rules: Rules = RULES, live_from_s: float = NOW) -> Detection:
    """A detection that knows a week before `NOW`, and then what is given."""
    made = Detection(rules, live_from_s)
    made.learn([seen(NOW - rules.look_back_s + 1, 1, "known"), *history], NOW)
    return made


def kinds(alerts: list[Alert]) -> list[type]:
    """What was found."""
    return [type(each) for each in alerts]


def test_the_first_failure_of_a_cause_is_new_and_the_next_is_not() -> None:
    """One finding, which names the first; another handler's is another cause."""
    watch = watched()
    first = seen(NOW + 5)
    assert watch.take([seen(NOW + 9), first], NOW + 10) == [NewCause(first)]
    assert watch.take([seen(NOW + 20)], NOW + 21) == []
    assert kinds(watch.take([seen(NOW + 20, handler="ship")], NOW + 21)) == [NewCause]


def test_a_cause_is_new_again_after_the_look_back_and_not_within_it() -> None:
    """At the very end of it, it is still known."""
    watch = watched(seen(NOW - 1))
    later = NOW - 1 + RULES.look_back_s
    assert watch.take([seen(later)], later) == []
    assert kinds(watch.take([seen(later + RULES.look_back_s + 1)], later + 8 * DAY)) == [NewCause]


def test_what_was_there_at_the_begin_is_history() -> None:
    """Nothing is raised for it, however late it is read and however much it is."""
    watch = Detection(RULES, NOW)
    backlog = [seen(NOW - hours * 3_600, 500) for hours in range(100)]
    assert watch.take(backlog, NOW + 60) == []
    assert watch.take([seen(NOW + 61)], NOW + 62) == []


def test_what_is_older_than_the_look_back_is_nothing() -> None:
    """Neither new nor known."""
    watch = watched(live_from_s=NOW - 30 * DAY)
    assert watch.take([seen(NOW - 8 * DAY, 1_000)], NOW) == []
    assert kinds(watch.take([seen(NOW)], NOW)) == [NewCause]


@pytest.mark.parametrize(("count", "surges"), [(19, False), (20, True)])
def test_a_quiet_cause_surges_from_the_minimum_on(count: int, surges: bool) -> None:
    """One a day is usual; twice that is nothing, the minimum is a surge."""
    watch = watched(*(seen(NOW - days * DAY) for days in range(1, 7)))
    found = watch.take([seen(NOW + 5, count)], NOW + 5)
    assert kinds(found) == ([Surge] if surges else [])


@pytest.mark.parametrize(("count", "surges"), [(490, False), (510, True)])
def test_a_busy_cause_surges_by_the_factor(count: int, surges: bool) -> None:
    """A hundred in every window are usual; five times that is a surge, and it says so."""
    steady = [seen(NOW - windows * 300, 100) for windows in range(1, 7 * 288 + 1)]
    watch = watched(*steady)
    found = watch.take([seen(NOW + 299, count)], NOW + 299)
    assert kinds(found) == ([Surge] if surges else [])
    for each in found:
        assert isinstance(each, Surge)
        assert each.count == count
        assert each.usual == pytest.approx(100, rel=0.05)


def test_failures_spread_over_more_than_the_window_are_no_surge() -> None:
    """Twenty within it are; thirty over two windows are not."""
    watch = watched(seen(NOW - DAY))
    slow = [seen(NOW + 20 * number) for number in range(30)]
    assert watch.take(slow, NOW + 600) == []
    fast = [seen(NOW + 2_000 + 10 * number) for number in range(30)]
    assert kinds(watch.take(fast, NOW + 2_400)) == [Surge]


def test_a_surge_is_raised_once_and_again_after_two_windows_without() -> None:
    """While it goes on it is shown, and one that comes back is another."""
    watch = watched(seen(NOW - DAY))
    assert kinds(watch.take([seen(NOW, 0), seen(NOW + 1, 40)], NOW + 1)) == [Surge]
    assert watch.surging(NOW + 2) == {("billing", "bill"): 1}
    assert watch.take([seen(NOW + 200, 40)], NOW + 200) == []
    assert watch.surging(NOW + 799) == {("billing", "bill"): 1}
    assert watch.surging(NOW + 801) == {}
    assert kinds(watch.take([seen(NOW + 3_600, 40)], NOW + 3_600)) == [Surge]


def test_a_surge_that_is_stored_late_is_found_as_late() -> None:
    """An hour behind, it is judged by its own time and shown from now on."""
    watch = watched(seen(NOW - DAY), live_from_s=NOW - 2 * DAY)
    assert kinds(watch.take([seen(NOW - 3_600, 40)], NOW)) == [Surge]
    assert watch.surging(NOW + 1) == {("billing", "bill"): 1}


def test_what_is_learned_of_a_whole_step_is_no_surge() -> None:
    """However many it sums up: one more that is stored late does not make them one."""
    watch = watched(seen(NOW - 2 * DAY, 500), live_from_s=NOW - 9 * DAY)
    assert watch.take([seen(NOW - 2 * DAY + 1)], NOW) == []


def test_what_goes_on_becomes_usual() -> None:
    """After a fifth of the look-back and a bit it is no surge any more."""
    watch = watched(seen(NOW - DAY))
    surges = 0
    for window in range(int(1.6 * 288)):
        at = NOW + window * 300 + 1
        surges += len(watch.take([seen(at, 40)], at))
    assert surges == 1
    assert watch.surging(NOW + 1.6 * DAY) == {}


def test_nothing_surges_before_it_is_known_what_is_usual() -> None:
    """The first four windows of a history say nothing; the fifth does."""
    watch = Detection(RULES, NOW)
    assert kinds(watch.take([seen(NOW + 1, 1_000)], NOW + 1)) == [NewCause]
    assert watch.take([seen(NOW + 1_000, 1_000)], NOW + 1_000) == []
    found = watch.take([seen(NOW + 3_000, 20_000)], NOW + 3_000)
    assert kinds(found) == [Surge]


def test_a_restart_that_learns_the_table_goes_on_as_if_it_had_not_happened() -> None:
    """Whatever the failures were: the same findings, once a surge's window is over."""
    random.seed(7)
    past = sorted(NOW + random.random() * 2 * DAY for _ in range(3_000))
    failures = [seen(at, random.choice((1, 1, 1, 30)), random.choice("abc")) for at in past]
    later = [seen(NOW + 2 * DAY + 600 + number * 40, 5, "abcd"[number % 4]) for number in range(90)]
    one, other = watched(), watched()
    one.take(failures, NOW + 2 * DAY)
    other.learn(failures, NOW + 2 * DAY)
    now_s = NOW + 2 * DAY + 7_200
    assert one.take(later, now_s) == other.take(later, now_s)


def test_steady_chance_is_no_surge() -> None:
    """Four a window on the mean, independent, for a week: nothing reaches the minimum of 20."""
    random.seed(11)
    watch = watched(*(seen(NOW - 75 * number) for number in range(1, 8_000)))
    at, found = NOW, []
    while at < NOW + 7 * DAY:
        at += -math.log(1 - random.random()) * 75
        found += watch.take([seen(at)], at)
    assert found == []


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The causes that were not seen for the longest time go first, counts by their age."""
    monkeypatch.setattr(detection, "MOST_CAUSES", 100)
    watch = watched()
    watch.take([seen(NOW + number, 1, f"f{number}") for number in range(1_000)], NOW + 1_000)
    assert len(watch._causes) <= 100
    assert watch.take([seen(NOW + 1_001, 1, "f999")], NOW + 1_001) == []
    for number in range(5_000):
        watch.learn([seen(NOW + number * 300, 1, "f999")], NOW + number * 300)
    history = watch._causes[seen(0, 1, "f999").cause]
    assert len(history.slices) <= 25
    assert len(history.steps) <= 26


@pytest.mark.parametrize(
    ("rules", "sentence"),
    [
        ({"window_s": 0.5}, "--window='500ms': too short to count in; at least 1s"),
        ({"look_back_s": 600.0}, "--look-back='10m': too short to say what is usual; at least ten"),
        ({"factor": 1.0}, "--surge-factor=1.0: a usual count would be a surge; more than 1"),
        ({"factor": math.nan}, "--surge-factor=nan: "),
        ({"minimum": 1}, "--surge-minimum=1: one failure is no surge; 2 or more"),
    ],
)
def test_bad_rules_name_the_option(rules: dict[str, float], sentence: str) -> None:
    """And what to write instead."""
    with pytest.raises(SettingError) as caught:
        Rules(**rules)  # type: ignore[arg-type]
    assert str(caught.value).startswith(sentence)
