"""What an operator does in the console: judged first, noted, carried out by the runs, and once."""

from __future__ import annotations

import html
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ackfloor.core.messages.lane_order import Action
from ackfloor.errors import KafkaUnreachable
from ackfloor.live.breaker_requests import PATH as BREAKER_PATH
from ackfloor.live.breaker_requests import BreakerControl
from ackfloor.live.pause_orders import PATH as HANDLERS_PATH
from ackfloor.live.pause_orders import PauseAction, PauseControl
from ackfloor.live.requests import Change
from ackfloor.operations import (
    TOPIC,
    ActionState,
    BreakerAction,
    LaneMove,
    lane_moves,
    new_note,
    run_client,
    runs,
)
from ackfloor.operations.run_client import NotKnown
from ackfloor.redrive import operator
from ackfloor_monitoring.console.access.gate import Refused
from ackfloor_monitoring.console.access.roles import Role
from ackfloor_monitoring.console.access.tokens import add_token
from ackfloor_monitoring.console.acts import retry_forms
from ackfloor_monitoring.console.reads import searches, waiting_records
from ackfloor_monitoring.console.reads.runs.run_names import RunNames
from ackfloor_monitoring.metrics.run_metrics import RunMetrics
from ackfloor_monitoring.metrics.worker_metrics import WorkerMetrics
from tests.certificates import Authority
from tests.framework.cli.lanes.test_lanes import TOKEN, Stage
from tests.framework.core.scheduling.test_lane_orders import BOOM
from tests.monitoring.console.acting_stage import OF_BILL, console, notes, stages
from tests.monitoring.console.kept_notes import Notes
from tests.monitoring.console.page_text import OVERVIEW, words
from tests.monitoring.console.served_console import (
    NOWHERE,
    Answer,
    Console,
    console_of,
    named_by,
)
from tests.monitoring.samples import OPEN, handler, snapshot

__all__ = ["notes", "stages"]

LANES, HANDLERS, ACTIONS, ORDERS = (
    f"/c/kafka/{name}" for name in ("lanes", "handlers", "actions", "orders")
)


def confirmed(served: Console, asked: Answer, reason: str = "") -> Answer:
    """What came of an order, after its confirmation."""
    order = asked.headers["location"]
    answer = served.send(order, ("reason", reason))
    assert (answer.status, answer.headers["location"]) == (303, order), answer.text
    return served.ask(order)


def test_failed_records_are_tried_now_in_all_runs(
    stages: tuple[Stage, Stage], notes: Notes
) -> None:
    """Ticked, judged without an effect, confirmed, noted before and after."""
    with console(stages) as served:
        page = words(served.ask(LANES).text)
        assert "wait for a record that failed: 4." in page
        assert "shop.Boom: no stock for 4711" in page
        places = [("place", "orders/0/0"), ("place", "orders/0/1"), ("place", "orders/9/9")]
        asked = served.send(ORDERS, ("action", "retry"), *OF_BILL, *places)
        assert asked.status == 303
        judged = words(served.ask(asked.headers["location"]).text)
        assert "Try now: 3 failed records that lanes of bill wait for" in judged
        assert "would be tried now: the heads of" in judged
        assert "wait in no worker that answered: orders/9/9" in judged
        first = stages[0].run.workers[0]
        first.tick()
        assert first.offsets_started() == []
        assert notes.written == []
        came = words(confirmed(served, asked, "stock is\nthere again").text)
        assert "What was done tried now: the heads of" in came
        first.tick()
        assert {0, 1} <= set(first.offsets_started())
    assert notes.states == [ActionState.BEGUN, ActionState.PARTIAL]
    begun, end = notes.written
    assert begun.id == end.id
    assert (end.action, end.program, end.group, end.by) == (
        "lanes retry", "console", "billing", operator(),
    )  # fmt: skip
    assert (end.targets, end.reason) == (("bill",), "stock is there again")
    assert end.arguments["from"] == "127.0.0.1"
    assert end.arguments["places"] == [place for _, place in places]


def test_a_note_says_from_where_an_order_was_confirmed(
    stages: tuple[Stage, Stage], notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asked may have moved since, or it was somebody else with the same name."""
    header = named_by(monkeypatch)
    with console(stages) as served:
        fields = (("action", "retry"), *OF_BILL, ("place", "orders/0/0"))
        order = served.send(ORDERS, *fields, **{header: "10.0.0.1"}).headers["location"]
        served.ask(order, **{header: "10.0.0.2"})
        assert served.send(order, ("reason", ""), **{header: "10.0.0.3"}).status == 303
    assert [each.arguments["from"] for each in notes.written] == ["10.0.0.3"] * 2


def test_the_token_of_a_name_is_that_of_its_runs(
    stages: tuple[Stage, Stage], notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name leads to one of the two runs: that one is asked, with the token of the name."""
    address, _, port = stages[0].listen.rpartition(":")
    monkeypatch.setattr(RunNames.__init__, "__defaults__", (lambda *_: [address],))
    name = f"dns+workers:{port}"
    files = {name: Path("token")}
    with console_of(name, role=Role.operator, token_files=files) as served:
        asked = served.send(ORDERS, ("action", "retry"), *OF_BILL, ("all", "yes"))
        assert "What was done tried now" in words(confirmed(served, asked).text)
    assert notes.states == [ActionState.BEGUN, ActionState.DONE]


def test_an_order_is_carried_out_once(stages: tuple[Stage, Stage], notes: Notes) -> None:
    """However often its form is sent, and by how many browsers at once."""
    with console(stages) as served:
        asked = served.send(ORDERS, ("action", "delay"), ("delay", "1h"), *OF_BILL, ("all", "yes"))
        again = [
            threading.Thread(target=confirmed, args=(served, asked, "later")) for _ in range(6)
        ]
        for each in again:
            each.start()
        for each in again:
            each.join(60)
        came = words(served.ask(asked.headers["location"]).text)
        assert "Try in 1h: all failed records that lanes of bill wait for" in came
        assert "given another time: the heads of 4 lanes" in came
    assert notes.states == [ActionState.BEGUN, ActionState.DONE]


def test_nothing_is_done_that_can_not_be_noted(stages: tuple[Stage, Stage], notes: Notes) -> None:
    """And what was done is said although its end is not noted."""
    with console(stages) as served:
        for many in range(2):
            notes.written, notes.refuse_from = [], many
            fields = (("action", "delay"), ("delay", "1h"), *OF_BILL, ("all", "yes"))
            came = words(confirmed(served, served.send(ORDERS, *fields)).text)
            said = "nothing was done" if many == 0 else "how it ended is not noted"
            assert said in came
            assert f"in {TOPIC}: no broker takes a connection" in came
            waits = [row["next_try_s"] for row in served_lanes(stages)]
            assert (min(waits) > 3_000) is (many == 1)


def served_lanes(stages: tuple[Stage, ...]) -> list[Any]:
    """The lanes of all runs."""
    from ackfloor.cli.lanes.lane_list import lane_rows
    from ackfloor.operations import ask_state

    return [row for s in stages for row in lane_rows(ask_state(s.listen), s.listen)]


@pytest.mark.parametrize("role", [Role.viewer, Role.reader])
def test_who_may_not_act_does_not(stages: tuple[Stage, Stage], notes: Notes, role: Role) -> None:
    """No form is shown, and one that is sent all the same is refused."""
    with console(stages, role) as served:
        for path in (LANES, HANDLERS):
            assert "<button" not in served.ask(path).text
        fields = (("action", "retry"), *OF_BILL, ("all", "yes"))
        refused = served.send(ORDERS, *fields)
        assert (refused.status, f"a {role} may look, not act" in words(refused.text)) == (403, True)
        assert served.ask(f"{ORDERS}/20260101-000000-00000000").status == 403
        assert served.send(f"{ORDERS}/20260101-000000-00000000").status == 403
    assert notes.written == []


def test_another_sites_form_is_refused(stages: tuple[Stage, Stage], notes: Notes) -> None:
    """The browser says where it comes from; where it does not, the session's secret is missing."""
    fields = (("action", "retry"), *OF_BILL, ("all", "yes"))
    with console(stages) as served:
        asked = served.send(ORDERS, *fields)
        for path, sent in ((ORDERS, fields), (asked.headers["location"], ())):
            for headers in (
                {"Sec_Fetch_Site": "cross-site"},
                {"Sec_Fetch_Site": "", "Origin": "https://evil.example"},
                {"Sec_Fetch_Site": ""},
            ):
                assert served.send(path, *sent, **headers).status == 403
    assert notes.written == []


def test_a_role_is_looked_at_with_each_request(
    stages: tuple[Stage, Stage], tmp_path: Path, notes: Notes
) -> None:
    """An operator's order is nothing that a reader could confirm."""
    file = tmp_path / "tokens.toml"
    operator_, reader = (add_token(file, each) for each in ("ann:operator", "bob:reader"))
    runs = [stage.listen for stage in stages]
    files = dict.fromkeys(runs, Path("token"))
    with console_of(*runs, token_file=file, token_files=files) as served:
        ann, bob = (f"Bearer {each}" for each in (operator_, reader))
        fields = (("action", "retry"), *OF_BILL, ("all", "yes"))
        asked = served.send(ORDERS, *fields, Authorization=ann)
        order = asked.headers["location"]
        assert served.send(order, Authorization=bob).status == 403
        assert served.ask(order, Authorization=bob).status == 403
        assert notes.written == []
        assert served.send(order, Authorization=ann).status == 303
    assert notes.written[-1].by == "ann"


def test_what_can_not_be_undone_needs_a_reason(stages: tuple[Stage, Stage], notes: Notes) -> None:
    """A record that is dropped; the reason reaches the workers' logs and the note."""
    with console(stages) as served:
        asked = served.send(ORDERS, ("action", "discard"), *OF_BILL, ("place", "orders/0/0"))
        order = asked.headers["location"]
        missing = served.send(order, ("reason", " "))
        assert (missing.status, "say why" in missing.text) == (400, True)
        long = served.send(order, ("reason", "x" * 201))
        assert (long.status, "at most 200 characters" in words(long.text)) == (400, True)
        assert notes.written == []
        came = words(confirmed(served, asked, "a test order").text)
        assert "discarded: the head of 1 lane" in came
    assert notes.written[-1].reason == "a test order"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ((*OF_BILL, ("all", "yes")), "action"),
        ((("action", "explode"), *OF_BILL, ("all", "yes")), "no such action"),
        ((("action", "retry"), ("handler", "bill"), ("all", "yes")), "group"),
        ((("action", "retry"), *OF_BILL), "tick lanes"),
        ((("action", "retry"), *OF_BILL, ("all", "yes"), ("place", "orders/0/0")), "tick lanes"),
        ((("action", "delay"), *OF_BILL, ("all", "yes"), ("delay", "soon")), "delay"),
        ((("action", "retry"), *OF_BILL, ("place", "../../x")), "topic/partition/offset"),
        ((("action", "retry"), ("group", "nobody"), ("handler", "bill"), ("all", "yes")), "nobody"),
        ((("action", "retry"), ("group", "billing"), ("handler", "x"), ("all", "yes")), "handler"),
        ((("action", "pause"), *OF_BILL, ("for", "0s")), "for"),
    ],
)
def test_a_form_that_asks_for_nothing_sensible_is_refused(
    stages: tuple[Stage, Stage], notes: Notes, fields: tuple[tuple[str, str], ...], says: str
) -> None:
    """With what is wrong; nothing is asked of a worker that could do it."""
    with console(stages) as served:
        answer = served.send(ORDERS, *fields)
        text = words(answer.text if answer.status == 400 else "")
        if answer.status == 303:
            text = words(served.ask(answer.headers["location"]).text)
            assert "Do it" not in text, "there is nothing to confirm"
        assert says in text
    assert notes.written == []


def test_a_run_that_is_away_is_named(stages: tuple[Stage, Stage], notes: Notes) -> None:
    """Before the order is confirmed, and the others do it."""
    with console(stages) as served:
        served.ask(LANES)
        stages[1].metrics.stop()
        asked = served.send(ORDERS, ("action", "delay"), ("delay", "2h"), *OF_BILL, ("all", "yes"))
        judged = words(served.ask(asked.headers["location"]).text)
        assert f"{stages[1].listen} is not asked: no run answers" in judged
        came = words(confirmed(served, asked).text)
        assert "given another time: the heads of 3 lanes" in came
    assert notes.states[-1] is ActionState.PARTIAL


def test_a_run_without_a_token_says_so(stages: tuple[Stage, Stage], notes: Notes) -> None:
    """There is nothing that the console could do."""
    with console_of(*(stage.listen for stage in stages), role=Role.operator) as served:
        refused = served.send(ORDERS, ("action", "retry"), *OF_BILL, ("all", "yes"))
        assert refused.status == 400
        assert "no run of billing can be asked" in words(refused.text)
        assert "give --run-token-file as it logs them" in words(refused.text)
    assert notes.written == []


def test_an_order_that_nobody_gave_is_not_there(stages: tuple[Stage, Stage]) -> None:
    """Nor that of another cluster."""
    with console(stages) as served:
        for path in (f"{ORDERS}/nothing", "/c/elsewhere/orders/nothing"):
            assert served.ask(path).status == 404
            assert served.send(path).status == 404


def test_a_handler_is_paused_and_goes_on(stages: tuple[Stage, Stage], notes: Notes) -> None:
    """In all workers of all runs, for a while, with a reason."""
    asked: list[tuple[PauseAction, str, float | None, str]] = []

    def order(action: PauseAction, handler: str, for_s: float | None, why: str, _: float) -> Change:
        asked.append((action, handler, for_s, why))
        return Change((), (0,), {}, (), 0, ())

    for stage in stages:
        stage.metrics.control(HANDLERS_PATH, PauseControl(TOKEN, order, anywhere=False))
    with console(stages) as served:
        page = served.ask(HANDLERS).text
        assert "Pause for" in words(page)
        pause = served.send(ORDERS, ("action", "pause"), ("for", "30m"), *OF_BILL)
        assert "Pause bill for 30m" in words(served.ask(pause.headers["location"]).text)
        assert asked == []
        came = words(confirmed(served, pause, "a migration").text)
        assert f"paused by worker 0 of {stages[0].listen}" in came
        resume = served.send(ORDERS, ("action", "resume"), *OF_BILL)
        confirmed(served, resume)
        listed = words(served.ask(ACTIONS).text)
    assert asked == [
        *[(PauseAction.PAUSE, "bill", 1800.0, "a migration")] * 2,
        *[(PauseAction.RESUME, "bill", None, "")] * 2,
    ]
    assert [note.action for note in notes.written[1::2]] == ["handlers pause", "handlers resume"]
    assert "handlers pause bill billing done done 2 a migration console on" in listed


def test_a_circuit_breaker_is_kept_open_and_returned(
    stages: tuple[Stage, Stage], notes: Notes
) -> None:
    """In all workers of all runs, for a while; not without a reason, which is noted."""
    asked: list[tuple[BreakerAction, str, float | None, str]] = []

    def order(
        action: BreakerAction, handler: str, for_s: float | None, why: str, _: float
    ) -> Change:
        asked.append((action, handler, for_s, why))
        return Change((), (0,), {}, (), 0, ())

    for stage in stages:
        stage.metrics.control(BREAKER_PATH, BreakerControl(TOKEN, order, anywhere=False))
    with console(stages) as served:
        assert "Keep its breaker" in words(served.ask(HANDLERS).text)
        keep = served.send(ORDERS, ("action", "close"), ("keep", "30m"), *OF_BILL)
        judged = words(served.ask(keep.headers["location"]).text)
        assert "Keep the circuit breaker of bill closed for 30m" in judged
        assert "at the end of its policy, to the dead-letter topic" in judged
        refused = served.send(keep.headers["location"], ("reason", " "))
        assert (refused.status, "say why" in refused.text) == (400, True)
        assert asked == []
        came = words(confirmed(served, keep, "the bank is back").text)
        assert f"kept closed by worker 0 of {stages[0].listen}" in came
        confirmed(served, served.send(ORDERS, ("action", "auto"), *OF_BILL))
        wrong = served.send(ORDERS, ("action", "open"), ("keep", "soon"), *OF_BILL)
        assert wrong.status == 400
    assert asked == [
        *[(BreakerAction.CLOSE, "bill", 1800.0, "the bank is back")] * 2,
        *[(BreakerAction.AUTO, "bill", None, "")] * 2,
    ]
    assert [note.action for note in notes.written[1::2]] == ["breaker close", "breaker auto"]
    assert notes.written[1].reason == "the bank is back"


def test_an_open_circuit_breaker_says_what_it_does(
    stages: tuple[Stage, Stage], notes: Notes
) -> None:
    """How much may be in flight, what is withheld, the next trial, and who keeps it."""
    del notes
    kept = replace(OPEN, forced="open", forced_reason="<b>the bank</b>", forced_for_s=600.0)
    worker = WorkerMetrics()
    worker.snapshot(snapshot(handlers=(handler(breaker=kept),), faults=()))
    stages[1].metrics.update(0, worker.report())
    with console(stages, Role.viewer) as served:
        page = served.ask(HANDLERS).text
    said = words(page)
    assert "Worker 0: its circuit breaker is open; an operator keeps it open for" in said
    assert "1 of 64 may be in flight; 70 withheld" in said
    assert "the last error: OSError: the bank is away" in said
    assert "&lt;b&gt;the bank&lt;/b&gt;" in page
    assert "Keep its breaker" not in said


def test_a_run_with_tls_is_asked_and_told(tmp_path: Path, notes: Notes) -> None:
    """By whoever trusts what has signed its certificate; else its page says what is missing."""
    told = list[str]()

    def order(action: PauseAction, *_: Any) -> Change:
        told.append(action)
        return Change((), (0,), {}, (), 0, ())

    authority = Authority(tmp_path)
    run = RunMetrics("billing", 1)
    run.control(HANDLERS_PATH, PauseControl(TOKEN, order, anywhere=False))
    listen = f"https://{run.start('127.0.0.1:0', *authority.signed('127.0.0.1'))}"
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    given: Any = {"role": Role.operator, "token_files": {listen: token}}
    with console_of(listen, tls_ca=authority.file, **given) as served:
        assert f"{listen}: group billing, 1 worker" in words(served.ask(OVERVIEW).text)
        asked = served.send(ORDERS, ("action", "pause"), ("for", "30m"), *OF_BILL)
        came = words(confirmed(served, asked, "a migration").text)
        assert f"paused by worker 0 of {listen}" in came
    with console_of(listen, **given) as served:
        said = words(served.ask(OVERVIEW).text)
        assert "is signed by nobody that is trusted" in said
        refused = served.send(ORDERS, ("action", "resume"), *OF_BILL)
        assert (refused.status, "signed by nobody" in refused.text) == (400, True)
    run.stop()
    assert (told, notes.states) == (["pause"], [ActionState.BEGUN, ActionState.DONE])


def test_an_order_that_is_not_answered_in_time_is_not_told_as_not_done(
    tmp_path: Path, notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page says that it is not known, and where to look; so does the note."""
    over, told = threading.Event(), list[str]()

    def order(action: PauseAction, *_: Any) -> Change:
        told.append(action)
        over.wait(60)
        return Change((), (0,), {}, (), 0, ())

    run = RunMetrics("billing", 1)
    run.control(HANDLERS_PATH, PauseControl(TOKEN, order, anywhere=False))
    listen = run.start("127.0.0.1:0")
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    monkeypatch.setattr(run_client, "POST_S", 0.3)
    with console_of(listen, role=Role.operator, token_files={listen: token}) as served:
        asked = served.send(ORDERS, ("action", "pause"), ("for", "30m"), *OF_BILL)
        came = words(confirmed(served, asked, "a migration").text)
    over.set()
    run.stop()
    assert "whether it was done is not known; look at ackfloor handlers ls" in came
    assert (told, notes.states) == (["pause"], [ActionState.BEGUN, ActionState.UNKNOWN])


def test_of_several_runs_one_that_has_not_answered_is_named(
    stages: tuple[Stage, Stage], notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has not refused anything: the note counts it apart, and the page says where to look."""
    ask = runs.post

    def post(run: str, token: str, path: str, body: Any, trust: Any) -> Any:
        if run == stages[1].listen and not body["dry_run"]:
            raise NotKnown(f"the run at {run} has not answered; look at `ackfloor lanes ls`")
        return ask(run, token, path, body, trust)

    monkeypatch.setattr(runs, "post", post)
    with console(stages) as served:
        asked = served.send(ORDERS, ("action", "retry"), *OF_BILL, ("all", "yes"))
        came = words(confirmed(served, asked).text)
    assert f"the run at {stages[1].listen} has not answered; look at ackfloor lanes ls" in came
    assert notes.written[-1].state is ActionState.PARTIAL
    assert notes.written[-1].counts == {"done": 3, "missing": 1, "unknown": 1}


def test_a_note_is_shown_with_its_number_and_from_where(
    stages: tuple[Stage, Stage], notes: Notes
) -> None:
    """The address of the browser, beside the machine of the console."""
    with console(stages) as served:
        asked = served.send(ORDERS, ("action", "retry"), *OF_BILL, ("all", "yes"))
        confirmed(served, asked)
        page = words(served.ask(ACTIONS).text)
    assert f"console on {notes.written[-1].host}, from 127.0.0.1" in page
    assert notes.written[-1].id in page


def test_what_others_wrote_stays_text(stages: tuple[Stage, Stage], notes: Notes) -> None:
    """In reasons, names and orders."""
    script = "<script>alert(1)</script>"
    with console(stages) as served:
        asked = served.send(ORDERS, ("action", "delay"), ("delay", "1h"), *OF_BILL, ("all", "yes"))
        came = confirmed(served, asked, script).text
        assert script not in came
        assert script not in served.ask(ACTIONS).text
        assert notes.written[-1].reason == script
        odd = (("action", "retry"), ("group", script), ("handler", script), ("all", "yes"))
        assert script not in served.send(ORDERS, *odd).text


def test_all_is_what_was_shown(notes: Notes) -> None:
    """As many others, or more, have failed since: whoever confirmed has not seen these."""
    stage = Stage((b"a", b"b"))
    Path("token").write_text(TOKEN)
    Path("token").chmod(0o600)
    [worker] = stage.run.workers
    with console((stage,)) as served:
        asked = served.send(ORDERS, ("action", "discard"), *OF_BILL, ("all", "yes"))
        order = asked.headers["location"]
        assert "would be discarded: the heads of 2 lanes" in words(served.ask(order).text)
        # Another operator drops the head of `a`, and the record behind it fails as well.
        assert worker.does(Action.DISCARD, b"a").done == 1
        behind = worker.start()
        worker.finish(behind, BOOM)
        worker.leave(behind)
        stage.show()
        assert sorted(each.offset for each in worker.blocked.oldest) == [1, 3]
        came = words(confirmed(served, asked, "test orders").text)
        assert "discarded: the head of 1 lane" in came
        assert "wait in no worker that answered: orders/0/0" in came
    stage.metrics.stop()
    assert [each.offset for each in worker.blocked.oldest] == [3]
    assert notes.states == [ActionState.BEGUN, ActionState.PARTIAL]


def test_of_more_than_can_be_named_no_more_is_done(
    stages: tuple[Stage, Stage], notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of an older run, which names none: their number is all that was shown."""
    monkeypatch.setattr(lane_moves, "MOST_NAMED", 0)
    with console(stages[:1]) as served:
        asked = served.send(ORDERS, ("action", "discard"), *OF_BILL, ("all", "yes"))
        order = asked.headers["location"]
        assert "would be discarded: the heads of 3 lanes" in words(served.ask(order).text)
        judge = LaneMove.judge
        more = lambda move, runs: replace(judge(move, runs), done=4)  # noqa: E731 -- another failed
        monkeypatch.setattr(LaneMove, "judge", more)
        came = html.unescape(words(confirmed(served, asked, "test orders").text))
        assert "nothing was done: 4 lanes of 1 runs are meant now, and 3 of 1 were shown" in came
    assert notes.written == []


def test_who_asked_confirms(stages: tuple[Stage, Stage], tmp_path: Path, notes: Notes) -> None:
    """The note names who acts: another operator asks for it again."""
    file = tmp_path / "tokens.toml"
    ann, bob = (f"Bearer {add_token(file, each)}" for each in ("ann:operator", "bob:operator"))
    runs = [stage.listen for stage in stages]
    files = dict.fromkeys(runs, Path("token"))
    with console_of(*runs, token_file=file, token_files=files) as served:
        fields = (("action", "retry"), *OF_BILL, ("all", "yes"))
        order = served.send(ORDERS, *fields, Authorization=ann).headers["location"]
        assert served.ask(order, Authorization=bob).status == 200
        refused = served.send(order, Authorization=bob)
        assert (refused.status, "ann has asked for this" in words(refused.text)) == (403, True)
        assert notes.written == []
        assert served.send(order, Authorization=ann).status == 303
    assert {note.by for note in notes.written} == {"ann"}


def test_a_viewer_sees_no_keys(stages: tuple[Stage, Stage]) -> None:
    """Neither when the page is loaded nor in what is sent later."""
    for role, sees in ((Role.viewer, False), (Role.reader, True)):
        with console(stages, role) as served:
            assert (">Key</th>" in served.ask(LANES).text) is sees
            with served.events(f"{LANES}/events") as events:
                assert (">Key</th>" in next(events)[1]) is sees


def test_a_fault_of_ours_ends_an_order_as_well(
    stages: tuple[Stage, Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its page says what it was."""
    with console(stages) as served:
        asked = served.send(ORDERS, ("action", "retry"), *OF_BILL, ("place", "orders/0/0"))

        def act(*_: object) -> None:
            raise KeyError("counts")

        monkeypatch.setattr(LaneMove, "act", act)
        came = words(confirmed(served, asked).text)
        assert "KeyError: &#39;counts&#39;; the console&#39;s log has more" in came


def test_too_many_fields_are_named(stages: tuple[Stage, Stage]) -> None:
    """With what to do instead."""
    many = [("place", f"orders/0/{n}") for n in range(1_001)]
    with console(stages) as served:
        refused = served.send(ORDERS, ("action", "retry"), *OF_BILL, *many)
        assert (refused.status, "tick fewer" in words(refused.text)) == (400, True)
        odd = served.send(ORDERS, ("csrf", "\xe9"), Sec_Fetch_Site="")
        assert odd.status == 403


def test_what_no_calendar_has_is_shown_as_it_is(stages: tuple[Stage, Stage], notes: Notes) -> None:
    """Whoever may write the topic can write any number."""
    notes.written.append(replace(new_note("lanes retry", "other", "eve"), at_ms=10**18))
    with console(stages) as served:
        page = served.ask(ACTIONS)
        assert (page.status, f"{10**18} ms" in page.text) == (200, True)


def test_an_order_on_waiting_records_is_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads as much as one, so it is refused where too many are asked for; others are not."""
    asked = list[str]()

    def look(_options: object, topic: str) -> str:
        asked.append(topic)
        raise KafkaUnreachable("no broker has answered")

    monkeypatch.setattr(retry_forms, "retry_topic_id", look)
    tier = "orders--billing--retry-5s"
    order = (("action", "promote"), ("topic", tier), ("all", "yes"))
    with console_of(NOWHERE, role=Role.operator) as served:
        assert (served.send(ORDERS, *order).status, asked) == (400, [tier])
        monkeypatch.setattr(searches, "MOST_WAITING", 0)
        answer = served.send(ORDERS, *order)
        assert (answer.status, asked) == (503, [tier])
        assert "too many searches at once" in answer.text
        assert served.send(ORDERS, *OF_BILL, ("action", "pause")).status == 400


def test_an_order_on_waiting_records_reads_for_no_longer_than_a_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else one of the few that may run would be taken for minutes."""
    monkeypatch.setattr(waiting_records, "LOOK_S", 0.0)
    record: Any = object()
    with pytest.raises(Refused, match="orders--b--retry-5s could not be read within 0 s") as late:
        next(waiting_records._few([record], "orders--b--retry-5s"))
    assert late.value.status == 503
