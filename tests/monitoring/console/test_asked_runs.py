"""The runs of a cluster: each once, silent for a while where it is gone, and never unreadable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ackfloor.cli.shared.parameters import SettingsSource
from ackfloor.cli.status.next_commands import NextCommands
from ackfloor.cli.status.run_answers import RunAnswer
from ackfloor_monitoring.console.reads.runs import asked_runs
from ackfloor_monitoring.console.reads.runs.asked_runs import AskedRuns
from ackfloor_monitoring.console.reads.runs.last_answers import KEPT_MS
from ackfloor_monitoring.console.reads.runs.run_facts import OfRuns
from ackfloor_monitoring.console.reads.runs.run_identities import RunIdentities
from ackfloor_monitoring.console.reads.runs.run_names import Named, RunNames

NAME = "dns+workers:9600"
IPV4, OTHER, IPV6, OTHER_IPV6 = "10.0.0.1:9600", "10.0.0.2:9600", "[fd00::1]:9600", "[fd00::2]:9600"


class Network:
    """Addresses, the runs that answer there, and a name that leads to some."""

    def __init__(self, *found: str) -> None:
        self.found: Sequence[str] = found
        self.states: dict[str, dict[str, Any]] = {}

    def resolve(self, _name: str, _port: int) -> Sequence[str]:
        """What the name leads to."""
        if not self.found:
            raise OSError("no name server")
        return [each.rpartition(":")[0].strip("[]") for each in self.found]

    def ask(self, listen: Sequence[str], _source: object) -> list[RunAnswer]:
        """What the runs answer."""
        return [
            RunAnswer(each, named=True, state=self.states[each], readiness={"ready": True})
            if each in self.states
            else RunAnswer(each, named=True, error=f"no run answers at {each}")
            for each in listen
        ]

    def serve(self, run: str, *listen: str, **changes: Any) -> None:
        """A run answers at these addresses."""
        state = {
            "group": "billing", "run": run, "now_ms": 0, "workers_expected": 1, "workers": {},
            **changes,
        }  # fmt: skip
        self.states |= dict.fromkeys(listen, state)


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Network:
    """With a name that leads to IPv4 and IPv6 of one machine."""
    made = Network(IPV4, IPV6)
    monkeypatch.setattr(asked_runs, "answers_of", made.ask)
    monkeypatch.setattr(asked_runs, "RunNames", lambda given: RunNames(given, resolve=made.resolve))
    return made


def asked(*listen: str) -> AskedRuns:
    """Runs that are given so."""
    return AskedRuns(listen, SettingsSource(), NextCommands())


def answering(found: OfRuns) -> list[str]:
    """Where runs answer."""
    return sorted(each.run for each in found.answers if not each.error)


def silent(found: OfRuns) -> list[str]:
    """What does not answer."""
    return [each.run for each in found.answers if each.error]


def test_a_run_with_ipv4_and_ipv6_is_one(network: Network) -> None:
    """Also while it answers at one of them alone, and while it is away."""
    network.serve("a", IPV4, IPV6)
    runs = asked(NAME)
    assert (answering(runs.now(0)), silent(runs.now(0))) == ([IPV4], [])
    del network.states[IPV4]
    found = runs.now(1_000)
    assert (answering(found), silent(found), found.silent) == ([IPV6], [], [])
    del network.states[IPV6]
    found = runs.now(2_000)
    assert (answering(found), len(silent(found)), len(found.silent)) == ([], 1, 1)


def test_two_runs_behind_a_name_are_two(network: Network) -> None:
    """Which of its addresses belong together is what they say."""
    network.found = [IPV4, OTHER, IPV6, OTHER_IPV6]
    network.serve("a", IPV4, OTHER_IPV6)
    network.serve("b", OTHER, IPV6)
    assert answering(asked(NAME).now(0)) == [IPV4, OTHER]


def test_runs_that_listen_on_ipv4_alone_are_not_missed_at_ipv6(network: Network) -> None:
    """`--listen 0.0.0.0:9600`. One that does not answer is named once, and is missed."""
    network.found = [IPV4, OTHER, IPV6, OTHER_IPV6]
    network.serve("a", IPV4)
    found = asked(NAME).now(0)
    assert (answering(found), silent(found)) == ([IPV4], [OTHER])


def test_an_address_that_was_given_is_missed_in_any_case(network: Network) -> None:
    """Whoever names it expects a run there; a name that can't be resolved is named as well."""
    network.serve("a", IPV4)
    runs = asked(IPV4, "[fd00::9]:9600")
    assert silent(runs.now(0)) == ["[fd00::9]:9600"]
    network.serve("b", IPV6)
    network.found = [IPV6]
    names = asked(NAME)
    names.now(0)
    network.found = []
    found = names.now(1)
    assert (answering(found), silent(found)) == ([IPV6], [NAME])


def test_runs_of_a_version_that_does_not_say_which_are_told_by_their_address(
    network: Network,
) -> None:
    """As they were before."""
    network.found = [IPV4, OTHER]
    network.serve("", IPV4, OTHER)
    assert answering(asked(NAME).now(0)) == [IPV4, OTHER]


def test_a_run_that_its_name_has_left_goes_away_slowly(network: Network) -> None:
    """As long as it answers it is shown; then for a while what it said last, with why."""
    network.serve("a", IPV4)
    network.serve("b", OTHER)
    network.found = [IPV4, OTHER]
    runs = asked(NAME)
    runs.now(0)
    network.found = [OTHER]
    assert answering(runs.now(KEPT_MS)) == [IPV4, OTHER]
    del network.states[IPV4]
    found = runs.now(KEPT_MS + 1_000)
    assert answering(found) == [OTHER]
    [error] = (each.error for each in found.answers if each.error)
    assert error == f"no run answers at {IPV4} ({NAME} does not lead there any more)"
    [last] = found.silent
    assert (last.answer.run, last.taken_ms, found.given[IPV4]) == (IPV4, KEPT_MS, NAME)
    found = runs.now(2 * KEPT_MS + 1)
    assert (answering(found), silent(found), found.silent) == ([OTHER], [], [])


def test_what_has_got_the_address_of_a_run_that_left_is_not_taken_for_it(network: Network) -> None:
    """Addresses are given again, to runs of whoever comes."""
    network.serve("a", IPV4)
    network.serve("b", OTHER)
    network.found = [IPV4, OTHER]
    runs = asked(NAME)
    runs.now(0)
    network.found = [OTHER]
    network.serve("of another name", IPV4)
    assert answering(runs.now(1_000)) == [OTHER]
    assert answering(runs.now(2_000)) == [OTHER]


def test_two_looks_at_once_do_not_take_it_for_that_run_either(network: Network) -> None:
    """Both had their addresses before the first of them refused what answers there."""
    runs = RunIdentities()
    network.serve("a", IPV4)
    runs.once(network.ask([IPV4], None), Named({IPV4: NAME}, frozenset(), ()))
    network.serve("of another name", IPV4)
    left = Named({IPV4: NAME}, frozenset({IPV4}), ())
    looks = [network.ask([IPV4], None) for _ in range(2)]
    assert [runs.once(each, left) for each in looks] == [[], []]
    # The run itself is known there all the same.
    network.serve("a", IPV4)
    [found] = runs.once(network.ask([IPV4], None), left)
    assert found.state["run"] == "a"


def test_an_answer_that_no_page_could_show_is_none(
    network: Network, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said with the version, and logged once; what the run said before stays."""
    network.serve("a", IPV4)
    runs = asked(IPV4)
    runs.now(0)
    for odd in ({"workers": {"0": {"handlers": 3}}}, {"now_ms": None, "workers": {"0": {}}}):
        network.serve("a", IPV4, version="9.1.0", **odd)
        found = runs.now(1_000)
        [answer] = found.answers
        assert f"{IPV4} answers what can't be read: " in answer.error
        assert answer.error.endswith("; its version is 9.1.0")
        assert [each.taken_ms for each in found.silent] == [0]
    assert caplog.text.count("answers what can't be read") == 1
    network.serve("a", IPV4)
    assert answering(runs.now(2_000)) == [IPV4]
