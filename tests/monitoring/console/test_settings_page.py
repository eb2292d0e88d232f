"""The console's settings: what runs go by and from where, where they differ, and what changes."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from ackfloor.live.frames import Overdue
from ackfloor.operations import (
    ActionState,
    EffectiveSettings,
    SettingValue,
    new_note,
)
from ackfloor_monitoring.console.access.roles import Role
from ackfloor_monitoring.console.acts.change_effects import effect_of
from ackfloor_monitoring.console.reads.group_settings import BUILT_IN, sections_of
from tests.monitoring.console.kept_notes import Notes
from tests.monitoring.console.page_text import SCRIPT, Tags, words
from tests.monitoring.console.served_console import (
    NOWHERE,
    Answer,
    Console,
    console_of,
    named_by,
)
from tests.monitoring.console.settings_stage import TOKEN, SettingsRun, console, notes, runs
from tests.monitoring.console.shown_cluster import Run

__all__ = ["notes", "runs"]

SETTINGS, CHANGES = "/c/kafka/settings", "/c/kafka/changes"
CONCURRENCY = (("group", "billing"), ("setting", "handlers.bill.concurrency"))


def confirmed(served: Console, asked: Answer, reason: str = "fewer at once") -> str:
    """What came of a change, after its confirmation."""
    assert asked.status == 303, words(asked.text)
    order = asked.headers["location"]
    answer = served.send(order, ("reason", reason))
    assert answer.status == 303, words(answer.text)
    return html.unescape(words(served.ask(order).text))


# What is shown.


def test_where_runs_differ_is_said_first(runs: tuple[SettingsRun, ...]) -> None:
    """Which value is where, and from where; what each has for itself is no difference."""
    with console(runs, Role.reader) as served:
        page = served.ask(SETTINGS)
    said = words(page.text)
    assert page.status == 200
    assert "billing 3 runs" in said
    differ = said.index("Where its runs differ")
    part = said[differ : said.index("built-in", differ)]
    first, second, last = (run.listen for run in runs)
    assert f"handlers.bill.concurrency 8 {first}, {second} 4 {last} file" in part
    assert "0.toml, file " in part
    assert "app.listen" not in part
    assert "kafka.properties.ssl.key.pem ***" in said
    assert "environment ACKFLOOR_KAFKA__PROPERTIES__SSL_KEY_PEM" in said
    assert "app.workers 2 flag --workers" in said
    assert "hush-hush" not in page.text
    assert TOKEN not in page.text


def test_runs_that_do_not_differ_say_so(runs: tuple[SettingsRun, ...]) -> None:
    """An empty place would leave a doubt; a run alone has nothing to differ from."""
    with console(runs[:2]) as served:
        said = words(served.ask(SETTINGS).text)
    assert "Where its runs differ" not in said
    assert "Its runs have the same settings" in said
    with console(runs[:1]) as served:
        assert "Its runs" not in words(served.ask(SETTINGS).text)


def test_what_a_run_says_of_its_settings_is_there(runs: tuple[SettingsRun, ...]) -> None:
    """A file that was refused: the old ones stay."""
    run = runs[0]
    run.settings.on_state = run.metrics.settings
    run.settings._tell_state(run.settings.state.__class__(error="handlers.bill.rate=x: no rate"))
    with console(runs[:1]) as served:
        said = words(served.ask(SETTINGS).text)
    assert f"{run.listen}: the old settings stay: handlers.bill.rate=x: no rate" in said


def test_a_run_that_does_not_tell_is_named(runs: tuple[SettingsRun, ...]) -> None:
    """One that is away, one whose token is not known; the others are shown."""
    named = [run.listen for run in runs]
    runs[1].metrics.stop()
    files = {named[0]: Path("token")}
    with console_of(*named, token_files=files) as served:
        said = html.unescape(words(served.ask(SETTINGS).text))
    assert f"The run at {named[1]} does not tell its settings: no run answers at" in said
    assert f"The run at {named[2]} does not tell its settings:" in said
    assert "give --run-token-file as it logs them" in said
    assert "handlers.bill.concurrency 8 file" in said


def test_nothing_there_is_no_riddle(notes: Notes) -> None:
    """What is missing is said, and what to do."""
    with console_of(NOWHERE) as served:
        said = words(served.ask(SETTINGS).text)
        assert "No known group 0 runs" in said
        assert "does not tell its settings: no run answers" in said
        assert "Nobody, while runs ran, in the last 30 days" in said
        assert "ackfloor actions ls &#39;--action=config set&#39;" in said
        assert "billing 0 runs" in words(served.ask(f"{SETTINGS}?group=billing").text)
        notes.away = "no broker takes a connection"
        assert "It is not known: no broker takes" in words(served.ask(SETTINGS).text)


@pytest.mark.parametrize("role", [Role.viewer, Role.reader, Role.operator])
def test_who_may_not_change_sees_no_form(
    runs: tuple[SettingsRun, ...], notes: Notes, role: Role
) -> None:
    """And who sends it all the same is refused; a viewer sees no setting at all."""
    with console(runs[:1], role) as served:
        page = served.ask(SETTINGS)
        if role is Role.viewer:
            assert (page.status, "a viewer may not see settings" in page.text) == (403, True)
            assert "concurrency" not in page.text
        else:
            assert (page.status, "<form" in page.text) == (200, False)
        for answer in (
            served.send(CHANGES, *CONCURRENCY, ("value", "3")),
            served.ask(f"{CHANGES}/20260101-000000-00000000"),
            served.send(f"{CHANGES}/20260101-000000-00000000"),
        ):
            assert answer.status == 403
            assert ("only an admin may do that" in answer.text) is (role is Role.operator)
    assert notes.written == []
    assert runs[0].changes == []


def test_what_comes_from_outside_stays_text(runs: tuple[SettingsRun, ...], notes: Notes) -> None:
    """In a value, a reason, and a note that somebody else wrote."""
    odd = new_note(
        "config set", SCRIPT, SCRIPT, targets=[SCRIPT], group=SCRIPT, reason=SCRIPT,
        arguments={"before": {SCRIPT: 1}, "after": SCRIPT},
    )  # fmt: skip
    notes.written.append(odd)
    with console(runs[:1]) as served:
        level = (("group", "billing"), ("setting", "app.log_level"), ("value", SCRIPT))
        refused = served.send(CHANGES, *level)
        pages = [served.ask(SETTINGS), served.ask(f"{SETTINGS}?group={quote(SCRIPT)}"), refused]
    for page in pages:
        tags = Tags(page.text)
        assert not tags.scripts
        assert "img" not in tags.names
        assert "&lt;script&gt;" in page.text


def test_another_settings_page_is_its_groups(runs: tuple[SettingsRun, ...], notes: Notes) -> None:
    """By its address, with its changes alone."""
    for group in ("billing", "other"):
        notes.written.append(new_note("config set", "x", f"of-{group}", group=group, targets=["a"]))
    with console(runs[:1]) as served:
        said = words(served.ask(f"{SETTINGS}?group=billing").text)
        assert "handlers.bill.concurrency" in said
        assert "of-billing" in said
        assert "of-other" not in said
        assert "No run of other answers" in words(served.ask(f"{SETTINGS}?group=other").text)
        chosen = served.ask(f"{SETTINGS}?setting=handlers.bill.rate").text
        assert "<option selected>handlers.bill.rate<" in chosen


def test_a_handler_leads_to_its_settings(run: Run) -> None:
    """Where they may be seen, with its rate chosen."""
    for role, leads in ((Role.viewer, False), (Role.reader, True)):
        with console_of(run.listen, role=role) as served:
            page = served.ask("/c/kafka/handlers").text
        link = f"{SETTINGS}?group=billing&amp;setting=handlers.bill.rate"
        assert (f'href="{link}"' in page) is leads


# What is changed.


def test_a_change_is_shown_confirmed_and_made_in_all_runs(
    runs: tuple[SettingsRun, ...], notes: Notes
) -> None:
    """What it does to what is in flight first; noted before and after; then in the history."""
    runs[0].overdue = tuple(Overdue("bill", "orders", 0, n, 1, 100.0 - n) for n in range(25))
    with console(runs) as served:
        asked = served.send(CHANGES, *CONCURRENCY, ("value", "4"))
        judged = html.unescape(words(served.ask(asked.headers["location"]).text))
        assert "Set handlers.bill.concurrency to 4 billing" in judged
        change = "handlers.bill.concurrency from 8 to 4"
        assert f"{runs[0].listen}: {change}, would be taken by worker 0, 1" in judged
        assert f"{runs[2].listen}: it has this value already" in judged
        assert "none starts until fewer run than allowed" in judged
        assert "25 deliveries would time out at once, as of" in judged
        assert f"orders/0/0 bill 1 1m40s {runs[0].listen}" in judged
        assert "orders/0/20" not in judged
        assert "5 more" in judged
        assert [run.concurrency() for run in runs] == [8, 8, 4]
        assert notes.written == []
        missing = served.send(asked.headers["location"], ("reason", " "))
        assert (missing.status, "say why" in missing.text) == (400, True)
        came = confirmed(served, asked)
        assert "What was done" in came
        assert f"{runs[1].listen}: {change}, taken by worker 0, 1" in came
        assert "25 deliveries in flight timed out by it" in came
        said = words(served.ask(SETTINGS).text)
    assert [run.concurrency() for run in runs] == [4, 4, 4]
    begun, end = notes.written
    assert (begun.state, end.state, begun.id) == (ActionState.BEGUN, ActionState.DONE, end.id)
    assert (end.action, end.group, end.targets, end.reason) == (
        "config set", "billing", ("handlers.bill.concurrency",), "fewer at once",
    )  # fmt: skip
    assert (end.arguments["before"], end.arguments["after"]) == ("8", "4")
    assert end.arguments["runs"] == [run.listen for run in runs]
    assert end.counts == {"done": 6, "parked": 25}
    assert "handlers.bill.concurrency billing 8 4 done fewer at once console on" in said
    assert "Its runs have the same settings" in said
    assert "handlers.bill.concurrency 4 config set" in said


def test_a_change_is_made_once(
    runs: tuple[SettingsRun, ...], notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often its form is sent, and noted with the address that confirmed it."""
    header = named_by(monkeypatch)
    with console(runs[:1]) as served:
        asked = served.send(CHANGES, *CONCURRENCY, ("value", "3"), **{header: "10.0.0.1"})
        order, why = asked.headers["location"], ("reason", "fewer at once")
        for address in ("10.0.0.2", "10.0.0.3"):
            assert served.send(order, why, **{header: address}).status == 303
    assert [each.arguments["from"] for each in notes.written] == ["10.0.0.2"] * 2
    assert len([each for each in runs[0].changes if each.number]) == 2  # one for each worker


def test_a_value_that_is_there_already_is_nothing_to_do(runs: tuple[SettingsRun, ...]) -> None:
    """There is no form to confirm it."""
    with console(runs[:2]) as served:
        asked = served.send(CHANGES, *CONCURRENCY, ("value", "8"))
        page = served.ask(asked.headers["location"]).text
    assert "So there is nothing to do" in words(page)
    assert "Change it" not in page


def test_what_was_changed_meanwhile_is_shown_again(
    runs: tuple[SettingsRun, ...], notes: Notes
) -> None:
    """Whoever confirmed has seen another value."""
    with console(runs[:2]) as served:
        asked = served.send(CHANGES, *CONCURRENCY, ("value", "3"))
        runs[1].settings.change({"handlers.bill.concurrency": 5}, dry_run=False, wait_s=60.0)
        came = confirmed(served, asked)
    assert f"nothing was done: in {runs[1].listen} it is 5 now" in came
    assert "ask again" in came
    assert notes.written == []
    assert [run.concurrency() for run in runs[:2]] == [8, 5]


def test_nothing_is_changed_that_can_not_be_noted(
    runs: tuple[SettingsRun, ...], notes: Notes
) -> None:
    """The console refuses what the command line only warns of."""
    with console(runs[:1]) as served:
        asked = served.send(CHANGES, *CONCURRENCY, ("value", "3"))
        notes.away = "no broker takes a connection"
        came = confirmed(served, asked)
    assert "nothing was done: it can't be noted in ackfloor--actions: no broker takes" in came
    assert runs[0].concurrency() == 8


def test_a_worker_that_does_not_take_it_is_named(
    runs: tuple[SettingsRun, ...], notes: Notes
) -> None:
    """The others have it; what it would end, and has ended, is said of them alone."""
    with console(runs[:1]) as served:
        asked = served.send(CHANGES, *CONCURRENCY, ("value", "3"))
        whole = words(served.ask(asked.headers["location"]).text)
        runs[0].refused = "older code"
        came = confirmed(served, asked)
        again = served.send(CHANGES, *CONCURRENCY, ("value", "5"))
        part = words(served.ask(again.headers["location"]).text)
    assert "None would time out by it, as of" in whole
    assert (
        "None would time out by it, of the workers that answered; what others would end is not "
        "known, as of"
    ) in part
    assert (
        "0 deliveries in flight timed out by it, of the workers that answered; what others ended "
        "is not known."
    ) in came
    assert f"{runs[0].listen} worker 1 does not take it: older code" in came
    assert notes.written[-1].state is ActionState.PARTIAL


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"setting": ""}, "setting='': is missing"),
        ({"value": " "}, "value='': is missing"),
        ({"value": "9" * 1_001}, "too long; write at most 1,000 characters"),
        ({"group": "nobody"}, "no run of nobody can be asked"),
        ({"value": "0"}, "handlers.bill.concurrency='0'"),
        ({"setting": "handlers.bill.concurency"}, "did you mean handlers.bill.concurrency"),
        ({"setting": "app.workers"}, "can't change while the run runs"),
        ({"setting": "kafka.sasl_password", "value": "hunter-2"}, "kafka.sasl_password='***'"),
    ],
)
def test_what_can_not_be_set_is_refused(
    runs: tuple[SettingsRun, ...], notes: Notes, fields: dict[str, str], says: str
) -> None:
    """With field, value and fix; of several runs each says why, and there is nothing to confirm."""
    given: dict[str, Any] = {**dict(CONCURRENCY), "value": "3", **fields}
    with console(runs[:1]) as served:
        refused = served.send(CHANGES, *given.items())
        assert (refused.status, says in html.unescape(words(refused.text))) == (400, True)
        assert "hunter-2" not in refused.text
    if fields.get("value") == "0":
        with console(runs) as served:
            asked = served.send(CHANGES, *given.items())
            page = html.unescape(words(served.ask(asked.headers["location"]).text))
            assert page.count(says) == 3
            assert "Change it" not in page
    assert notes.written == []
    assert runs[0].changes == []


# What is compared.


def told(run: str, *values: SettingValue, **handlers: SettingValue) -> EffectiveSettings:
    """What a run tells."""
    return EffectiveSettings(run, "billing", values, {n: [v] for n, v in handlers.items()})


def test_what_only_some_runs_have_differs() -> None:
    """A property of the client, and a handler; a value from two places does not."""
    rate = SettingValue("handlers.bill.rate", "none", BUILT_IN, live=True)
    release = SettingValue("app.release", "", BUILT_IN, live=False)
    rack = SettingValue("kafka.consumer.client.rack", "a", "file a.toml", live=False)
    from_b = release._replace(source="code")
    sections = list(sections_of([told("a", rack, release, bill=rate), told("b", from_b)]))
    assert [(each.name, each.of_handler, each.without) for each in sections] == [
        ("kafka", False, ()), ("app", False, ()), ("bill", True, ["b"]),
    ]  # fmt: skip
    [rack_row], [release_row], [rate_row] = (each.settings for each in sections)
    assert rack_row.differs
    assert [(each.value, each.sources, each.runs) for each in rack_row.held] == [
        ("a", ["file a.toml"], ["a"]), ("", ["not set"], ["b"]),
    ]  # fmt: skip
    assert not release_row.differs
    assert release_row.held[0].sources == [BUILT_IN, "code"]
    assert (rate_row.differs, rate_row.given, rate_row.live) == (False, False, True)


def test_each_setting_that_changes_says_what_it_does() -> None:
    """A retry policy, a breaker, limits; also what has no sentence of its own."""
    for setting, says in (
        ("handlers.pay.back.retry.jitter", "keeps its time"),
        ("handlers.bill.breaker.failures", "circuit breaker"),
        ("handlers.bill.rate", "rate of the whole group"),
        ("handlers.retry.consume_timeout", "times out at its worker's next turn"),
        ("app.max_open", "partitions are paused"),
        ("app.new_one", "Nothing in flight keeps a copy"),
        ("", "Nothing in flight keeps a copy"),
    ):
        assert says in effect_of(setting), setting
