"""Forms that were judged: confirmed once, forgotten in the end, never while they are under way."""

from __future__ import annotations

from dataclasses import dataclass

from ackfloor_monitoring.console.acts.kept_forms import LONGEST_S, KeptForms


@dataclass
class Carried:
    """What came of one."""

    error: str = ""
    over: bool = False


def test_what_is_under_way_is_not_forgotten() -> None:
    """However many others are asked for; what is over goes with what was judged."""
    kept = KeptForms[str, Carried](most=2)
    kept.keep("a", "first")
    running = Carried()
    assert kept.begin("a", running)
    for number in range(5):
        kept.keep(f"b{number}", "other")
    assert kept.judged("a") == "first"
    assert kept.carried("a") is running
    assert kept.judged("b3") is None
    running.over = True
    for number in range(2):
        kept.keep(f"c{number}", "other")
    assert kept.judged("a") is None
    assert kept.carried("a") is None
    assert kept.judged("c1") == "other"


def test_it_begins_once() -> None:
    """And goes on being so while it can be confirmed at all."""
    kept = KeptForms[str, Carried](most=2)
    for id_ in ("b", "x"):
        kept.keep(id_, id_)
    assert kept.begin("x", Carried(over=True))
    assert kept.begin("b", Carried(over=True))
    kept.keep("c", "c")
    assert kept.begin("c", Carried(over=True))
    assert kept.judged("b") is None
    assert kept.judged("x") == "x"
    assert not kept.begin("x", Carried())


def test_what_nobody_confirmed_in_time_can_not_be_confirmed() -> None:
    """What came of the rest can be looked at."""
    now_s = 0.0
    kept = KeptForms[str, Carried](clock=lambda: now_s)
    for id_ in ("a", "b"):
        kept.keep(id_, id_)
    kept.begin("a", Carried(over=True))
    now_s = LONGEST_S + 1
    assert kept.judged("a") == "a"
    assert kept.judged("b") is None


def test_what_is_kept_for_longer_is_there_for_longer() -> None:
    """And no longer than that."""
    now_s = 0.0
    kept = KeptForms[str, Carried](clock=lambda: now_s, longest_s=LONGEST_S * 2)
    kept.keep("a", "a")
    now_s = LONGEST_S + 1
    assert kept.judged("a") == "a"
    now_s = LONGEST_S * 2 + 1
    assert kept.judged("a") is None
