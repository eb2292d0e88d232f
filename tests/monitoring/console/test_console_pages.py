"""The console's pages, asked for over HTTP: what they show, and what they keep from a browser."""

from __future__ import annotations

import asyncio
import html
import re
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from ackfloor.cli.shared.parameters import Brokers
from ackfloor.cli.status.group_look import GroupLook
from ackfloor.core.acks.progress import Progress
from ackfloor.core.acks.tier_counts import TierCount
from ackfloor.core.records.outcomes import CONSUME_TIMEOUT
from ackfloor.observe import BreakerSnapshot, RunningDelivery
from ackfloor_monitoring.console import looking_endpoints
from ackfloor_monitoring.console.access.roles import Role
from ackfloor_monitoring.console.access.tokens import add_token
from ackfloor_monitoring.console.forms import FORM_BYTES, LONGEST_ADDRESS
from ackfloor_monitoring.console.looking_endpoints import LookingEndpoints
from ackfloor_monitoring.console.reads import cluster_facts, history
from ackfloor_monitoring.console.reads.cluster_facts import Cluster
from ackfloor_monitoring.console.reads.kafka_facts import OfKafka
from ackfloor_monitoring.console.reads.runs import last_answers
from ackfloor_monitoring.serving.http_server import Response
from tests.framework.kafka.wire import until
from tests.monitoring.console.page_text import IN_FLIGHT, OVERVIEW, SCRIPT, Tags, words
from tests.monitoring.console.served_console import NOWHERE, Console, console_of
from tests.monitoring.console.shown_cluster import Kafka, Run, progress
from tests.monitoring.samples import HANDLER, OPEN

#: A circuit breaker that deliveries which hang have opened.
HANGING = replace(OPEN, error=f"{CONSUME_TIMEOUT}: 45 s are over")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Answers are asked for often; no settings file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cluster_facts, "RUNS_EVERY_S", 0.05)
    monkeypatch.setattr(cluster_facts, "KAFKA_EVERY_S", 0.05)


def test_what_is_wrong_is_on_the_first_page(run: Run, kafka: Kafka) -> None:
    """The same that `ackfloor status` says, with the command; then groups, handlers and runs."""
    run.show(breaker=OPEN, blocked=HANDLER.blocked)
    dead = Progress("billing", "orders--billing--dlq", 0, "dlq", start=0, end=12, floor=0)
    kafka.looks = [GroupLook("billing", 1, [progress(end=400), dead])]
    with console_of(run.listen) as console:
        assert console.ask("/").headers["location"] == OVERVIEW
        page = console.ask(OVERVIEW)
    assert page.status == 200
    said = words(page.text)
    assert "70 records withheld" in said
    assert "also blocked" in said
    assert f"ackfloor breaker show --listen {run.listen}" in said
    assert '<a href="/c/kafka/lanes">Lanes</a>' in page.text
    assert '<a href="/c/kafka/handlers">Handlers</a>' in page.text
    assert "billing 1 300 300 0 12" in said
    assert 'href="/c/kafka/dead-letters?group=billing">12<' in page.text
    assert "bill billing" in said
    assert f"{run.listen}: group billing, 1 worker, ready" in said
    assert kafka.asked >= 1


def test_what_waits_in_retry_topics_leads_to_them(run: Run, kafka: Kafka) -> None:
    """As a note while it is in time, and as something that is wrong where it is overdue."""
    topic = "orders--billing--retry-1m"
    waits = Progress("billing", topic, 0, "retry", start=0, end=7, floor=0)
    for tier in (TierCount(waiting=7), TierCount(due=7, oldest_due_ms=1)):
        kafka.looks = [GroupLook("billing", 1, [waits], tiers={topic: tier})]
        with console_of(run.listen) as console:
            page = console.ask(OVERVIEW)
        assert ("7 are due" if tier.due else "7 wait") in words(page.text)
        assert '<a href="/c/kafka/retry">Retry topics</a>' in page.text


def test_where_nothing_is_wrong_it_says_so(run: Run, kafka: Kafka) -> None:
    """An empty page would leave a doubt."""
    kafka.looks = []
    with console_of(run.listen) as console:
        said = words(console.ask(OVERVIEW).text)
    assert "What is wrong Nothing." in said
    assert "ackfloor run starts one" in said
    assert "plots come within a minute" in said


def test_what_hangs_is_named_with_the_line_of_its_handler(run: Run, kafka: Kafka) -> None:
    """The longest-running first; frames of the standard library are not where it is."""
    del kafka
    frames = ("/app/shop.py:12 pay", "/usr/lib/python3.11/asyncio/locks.py:213 Event.wait")
    deliveries = [
        RunningDelivery("orders", 0, 5, 1, running_s=7.0, left_s=-2.0, behind=3),
        RunningDelivery("orders", 1, 9, 2, running_s=90.0, left_s=None, stack=frames),
    ]
    run.show(running=5, oldest=tuple(deliveries))
    with console_of(run.listen) as console:
        page = console.ask(IN_FLIGHT).text
    said = words(page)
    assert said.index("orders/1/9") < said.index("orders/0/5")
    assert "Where it is: /app/shop.py:12 pay" in said
    assert "over 3" in said
    assert "5 records in flight; shown are the 2" in said
    with console_of(NOWHERE) as console:
        said = words(console.ask(IN_FLIGHT).text)
    assert "No record is in flight" in said


@pytest.mark.parametrize("breaker", [BreakerSnapshot(), HANGING])
def test_a_viewer_is_not_told_which_keys_hang(
    run: Run, kafka: Kafka, breaker: BreakerSnapshot
) -> None:
    """On a line of their own, and under the circuit breaker that they opened; a reader is."""
    del kafka
    run.show(noisy_keys=HANDLER.noisy_keys, breaker=breaker)
    said = "bill: 1 noisy key, 2 hanging keys, 340 records behind (12 of hanging keys)"
    for role, sees in ((Role.viewer, False), (Role.reader, True)):
        with console_of(run.listen, role=role) as console:
            page = console.ask(OVERVIEW).text
            with console.events(f"{OVERVIEW}/events") as events:
                _, part = next(events)
        for text in (page, part):
            assert said in words(text)
            assert ("also keys" in words(text)) is (breaker is HANGING)
            assert (f"{said}; the newest: customer-3 (hanging)" in words(text)) is sees
            assert ("customer-3" in text) is sees


def test_a_slow_cluster_shows_what_it_has_and_says_what_is_late(
    run: Run, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runs are shown at once; an answer that fails leaves the one before it."""
    monkeypatch.setattr(cluster_facts, "PATIENCE_S", 0.2)
    kafka.answers.clear()
    with console_of(run.listen) as console:
        said = words(console.ask(OVERVIEW).text)
        assert "Kafka has not answered yet" in said
        assert "group billing, 1 worker, ready" in said
        kafka.answers.set()
        with console.events(f"{OVERVIEW}/events") as events:
            assert any("billing 1 300" in words(text) for _, text in events)
            kafka.error = "no broker has answered within 10 s"
            text = next(text for _, text in events if kafka.error in text)
    assert f"Kafka has not answered: {kafka.error}" in words(text)
    assert "billing 1 300" in words(text)


def test_a_run_that_misses_an_answer_stays_for_a_while(
    run: Run, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it said last is still there, and marked as old; then it is gone."""
    del kafka
    delivery = RunningDelivery("orders", 0, 5, 1, running_s=7.0, left_s=3.0)
    run.show(running=1, oldest=(delivery,), breaker=OPEN)
    with console_of(run.listen) as console, console.events(f"{IN_FLIGHT}/events") as events:
        assert any("orders/0/5" in text and "does not answer" not in text for _, text in events)
        run.metrics.stop()
        text = next(text for _, text in events if "does not answer" in text)
        assert f"The run at {run.listen} does not answer: what is shown of it is as of" in text
        assert "orders/0/5" in text
        overview = words(console.ask(OVERVIEW).text)
        assert "70 records withheld" in overview
        assert "does not answer: what is shown" in overview
        monkeypatch.setattr(last_answers, "KEPT_MS", 0)
        assert any("No record is in flight" in words(text) for _, text in events)
        assert "70 records withheld" not in words(console.ask(OVERVIEW).text)


def test_the_last_hour_is_drawn(run: Run, kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where nobody looked when it began; what does not answer leaves a gap."""
    monkeypatch.setattr(history, "EVERY_S", 0.02)
    run.show(running=2)
    with console_of(run.listen) as console:
        until(lambda: kafka.asked >= 5)
        with console.events(f"{OVERVIEW}/events") as events:
            text = next(text for _, text in events if 'aria-label="Behind, at most 300"' in text)
            assert "300 Behind" in words(text)
            assert "2 In flight" in words(text)
            monkeypatch.setattr(last_answers, "KEPT_MS", 0)
            run.metrics.stop()
            assert any("- In flight" in words(text) for _, text in events)


def test_groups_without_a_run_are_asked_about_as_well(run: Run, kafka: Kafka) -> None:
    """All that have topics of ours, and those of the runs: a run's group may have none yet."""
    kafka.looks.append(GroupLook("forgotten", 0, [progress(end=150)]))
    with console_of(run.listen) as console:
        until(lambda: console.ask(OVERVIEW).status == 200 and kafka.groups[1])
        said = words(console.ask(OVERVIEW).text)
    assert kafka.groups == (None, ["billing"])
    assert "forgotten 0 50" in said


def test_a_run_whose_answer_has_another_shape_is_named(
    run: Run, kafka: Kafka, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The page is shown, the plots go on, and the log has it once."""
    monkeypatch.setattr(history, "EVERY_S", 0.02)
    odd = {"group": "billing", "version": "9.1.0", "workers_expected": 1, "workers": {"0": {}}}
    run.metrics._pages["/state"] = lambda _request: Response.of_json(odd)
    with console_of(run.listen) as console:
        until(lambda: kafka.asked >= 5)
        page = console.ask(OVERVIEW)
        assert page.status == 200
        assert f"{run.listen} answers what can't be read: " in html.unescape(words(page.text))
        with console.events(f"{OVERVIEW}/events") as events:
            assert any('aria-label="Behind, at most 300"' in text for _, text in events)
    assert caplog.text.count("answers what can't be read") == 1


def test_a_point_of_the_plots_that_can_t_be_made_is_named(
    run: Run, kafka: Kafka, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On the page, and once in the log; the next ones are made."""
    del kafka
    monkeypatch.setattr(history, "EVERY_S", 0.02)
    figures = OfKafka.figures

    def fail(_self: OfKafka) -> dict[str, int]:
        raise KeyError("lag")

    monkeypatch.setattr(OfKafka, "figures", fail)
    with console_of(run.listen) as console, console.events(f"{OVERVIEW}/events") as events:
        assert any("one answer can't be read (KeyError: " in words(x) for _, x in events)
        monkeypatch.setattr(OfKafka, "figures", figures)
        assert any("300 Behind" in words(x) and "is missing" not in x for _, x in events)
    assert caplog.text.count("the console's plots lack a point") == 1


def test_a_point_of_the_plots_is_of_its_time(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for what Kafka says now: what it said at the point before is old."""
    monkeypatch.setattr(history, "EVERY_S", 0.01)

    async def first_lag(cluster: Cluster) -> int:
        await cluster.kafka.look()
        kafka.looks = [GroupLook("billing", 1, [progress(end=900)])]
        await asyncio.sleep(0.1)
        added, add = asyncio.Event(), cluster.history.add

        def noticed(at_ms: int, figures: Mapping[str, int]) -> None:
            add(at_ms, figures)
            added.set()

        monkeypatch.setattr(cluster.history, "add", noticed)
        keeping = asyncio.create_task(cluster.keep_history())
        await added.wait()
        keeping.cancel()
        return cluster.history._points[0].figures["lag"]

    with ThreadPoolExecutor(4) as asking:
        cluster = Cluster("kafka", Brokers(servers=NOWHERE), [NOWHERE], asking)
        assert asyncio.run(first_lag(cluster)) == 800


def test_a_question_that_fails_is_logged_and_shown(
    run: Run, kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    """A bug of ours leaves a page that says so, not one that waits."""
    kafka.looks = [GroupLook("billing", 1, [None])]  # type: ignore[list-item]
    with console_of(run.listen) as console:
        said = words(console.ask(OVERVIEW).text)
    assert "AttributeError" in said
    assert "a question of the console failed" in caplog.text


def test_a_page_is_sent_again_when_there_is_something_newer(run: Run, kafka: Kafka) -> None:
    """And not while all stays as it was, but for the time."""
    del kafka
    run.show(running=0, oldest=())
    with console_of(run.listen) as console, console.events(f"{IN_FLIGHT}/events") as events:
        name, text = next(events)
        assert name == "facts"
        assert "No record is in flight" in text
        delivery = RunningDelivery("orders", 0, 5, 1, running_s=7.0, left_s=3.0)
        run.show(running=1, oldest=(delivery,))
        assert any("orders/0/5" in text for _, text in events)


def test_a_look_costs_runs_and_brokers_the_same_for_any_number_of_people(
    run: Run, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are asked once, and not again before the time is over."""
    monkeypatch.setattr(cluster_facts, "RUNS_EVERY_S", 60.0)
    monkeypatch.setattr(cluster_facts, "KAFKA_EVERY_S", 60.0)
    with console_of(run.listen) as console:
        looks = [threading.Thread(target=lambda: console.ask(OVERVIEW)) for _ in range(20)]
        for look in looks:
            look.start()
        for look in looks:
            look.join()
    assert kafka.asked == 1


# What comes from outside stays text, and nothing is loaded from elsewhere.


@pytest.mark.parametrize("path", [OVERVIEW, IN_FLIGHT])
def test_a_stored_script_stays_text(run: Run, kafka: Kafka, path: str) -> None:
    """In a handler's name, a topic, a group, an error and a stack."""
    delivery = RunningDelivery(SCRIPT, 0, 5, 1, running_s=7.0, left_s=3.0, stack=(SCRIPT,))
    run.show(name=SCRIPT, running=1, oldest=(delivery,), paused=True, paused_reason=SCRIPT)
    place = Progress(SCRIPT, SCRIPT, 0, "source", start=0, end=400, floor=100, note=SCRIPT)
    kafka.looks = [GroupLook(SCRIPT, 1, [place], errors=[SCRIPT])]
    with console_of(run.listen) as console:
        page = console.ask(path).text
        with console.events(f"{path}/events") as events:
            _, part = next(events)
    for text in (page, part):
        tags = Tags(text)
        assert not tags.scripts
        assert tags.sources in ([], ["/static/console.js"])
        assert "img" not in tags.names
        assert "&lt;script&gt;" in text


def test_each_answer_forbids_what_no_page_needs(run: Run, kafka: Kafka) -> None:
    """Pages, files, errors: no inline script, no frame, no copy in a cache."""
    del kafka
    with console_of(run.listen) as console:
        answers = [console.ask(path) for path in (OVERVIEW, "/login", "/none", "/livez", "/")]
        answers.append(console.ask(OVERVIEW, Host="evil.example"))
        script = console.ask("/static/console.js")
    for each in (*answers, script):
        policy = each.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "frame-ancestors 'none'" in policy
        assert each.headers["x-content-type-options"] == "nosniff"
        assert each.headers["referrer-policy"] == "same-origin"
        assert "access-control-allow-origin" not in each.headers
        assert "server" not in each.headers
    assert {each.headers["cache-control"] for each in answers} == {"no-store"}
    assert script.headers["content-type"].startswith("text/javascript")


@pytest.mark.parametrize(
    "path",
    [
        "/static/../web.py", "/static/..%2fweb.py", "/static/%2e%2e/web.py", "/static/web.py",
        "/static//etc/passwd", "/c/other/overview", "/c/kafka/none", "/c/kafka/overview/events/x",
    ],
)  # fmt: skip
def test_what_is_not_there_is_not_found(run: Run, path: str) -> None:
    """No path leads out of the folder of static files."""
    with console_of(run.listen) as console:
        answer = console.ask(path)
    assert answer.status == 404
    assert "import" not in answer.text


def test_a_page_of_another_name_is_refused(run: Run, kafka: Kafka) -> None:
    """DNS rebinding: a name of another site that leads here; nothing is shown there."""
    with console_of(run.listen) as console:
        for path in ("/", OVERVIEW, "/login", "/static/console.js", f"{OVERVIEW}/events"):
            answer = console.ask(path, Host="evil.example")
            assert answer.status == 421
            assert "evil.example" in answer.text
            assert "billing" not in answer.text
    assert kafka.asked == 0


def test_with_a_token_file_one_logs_in_and_out(run: Run, kafka: Kafka, tmp_path: Path) -> None:
    """The cookie is out of reach of scripts and of other sites; an open page ends with it."""
    del kafka
    token = add_token(tmp_path / "tokens.toml", "alice:operator")
    with console_of(run.listen, token_file=tmp_path / "tokens.toml") as console:
        led = console.ask(OVERVIEW).headers["location"]
        assert led == f"/login?next={OVERVIEW}"
        assert console.ask(OVERVIEW, Accept="*/*").status == 401
        assert console.ask(f"{OVERVIEW}/events", Accept="text/event-stream").status == 401
        wrong = console.log_in("guess")
        assert wrong.status == 401
        assert "no such token" in wrong.text
        assert "guess" not in wrong.text
        entered = console.log_in(token)
        assert entered.status == 303
        cookie = entered.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        given = {"Cookie": cookie.partition(";")[0]}
        page = console.ask(OVERVIEW, **given)
        assert "alice" in words(page.text)
        assert "operator" in words(page.text)
        assert console.ask(OVERVIEW, Authorization=f"Bearer {token}").status == 200
        with console.events(f"{OVERVIEW}/events", **given) as events:
            next(events)
            foreign = console.ask("/logout", "POST", Sec_Fetch_Site="cross-site", **given)
            assert foreign.status == 403
            assert console.ask("/logout", "POST", **given).headers["location"] == "/login"
            assert list(events)[-1] == ("over", "log in again")
        assert console.ask(OVERVIEW, **given).headers["location"] == led


def test_the_login_leads_to_what_was_asked_for(run: Run, kafka: Kafka, tmp_path: Path) -> None:
    """With its filters; to a page of the console alone, whatever a link to the login says."""
    del kafka
    token = add_token(tmp_path / "tokens.toml", "alice:operator")
    asked = "/c/kafka/partitions?group=b%26c&x=a+b"
    with console_of(run.listen, token_file=tmp_path / "tokens.toml") as console:
        login = console.ask(asked).headers["location"]
        form = console.ask(login).text
        [then] = re.findall('name="next" value="([^"]*)"', form)
        assert html.unescape(then) == asked
        assert "logged in already" not in form
        # A link of another site comes without the cookie; its page goes on with it.
        by_link = console.ask(login, Sec_Fetch_Site="cross-site").text
        assert f'<a href="{then}">I am logged in already: go on</a>' in by_link
        wrong = console.send("/login", ("token", "guess"), ("next", asked))
        assert (wrong.status, f'value="{then}"' in wrong.text) == (401, True)
        came = console.send("/login", ("token", token), ("next", asked))
        assert (came.status, came.headers["location"]) == (303, asked)
        for odd in (
            "https://evil.example/", "//evil.example/c/", "/\\evil.example/c/", "/login",
            "/c/../login", "/c/%2e%2e/x", "/c/kafka\n/x", "/c\\..\\x", f"/c/{'x' * 4_000}", SCRIPT,
        ):  # fmt: skip
            assert 'name="next"' not in console.ask(f"/login?{urlencode({'next': odd})}").text, odd
            came = console.send("/login", ("token", token), ("next", odd))
            assert came.headers["location"] == "/", odd


def test_an_open_page_ends_with_its_token(run: Run, kafka: Kafka, tmp_path: Path) -> None:
    """Also where nobody asks for anything else: the token file is looked at."""
    del kafka
    file, fresh = tmp_path / "tokens.toml", tmp_path / "fresh.toml"
    token = add_token(file, "alice:operator")
    with console_of(run.listen, token_file=file) as console:
        cookie = console.log_in(token).headers["set-cookie"].partition(";")[0]
        for given in ({"Cookie": cookie}, {"Authorization": f"Bearer {token}"}):
            before = file.read_bytes()
            with console.events(f"{OVERVIEW}/events", **given) as events:
                next(events)
                add_token(fresh, "bob:operator")
                fresh.replace(file)
                assert list(events)[-1] == ("over", "log in again")
            fresh.touch(mode=0o600)
            fresh.write_bytes(before)
            fresh.replace(file)


def test_what_is_gathered_while_a_session_ends_is_not_sent(
    run: Run, kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may take seconds to know: whoever is logged out by then gets none of it."""
    del kafka
    file, fresh, ends = tmp_path / "tokens.toml", tmp_path / "fresh.toml", threading.Event()
    token = add_token(file, "alice:operator")
    add_token(fresh, "bob:operator")
    changed = LookingEndpoints._changed

    async def slow(endpoints: LookingEndpoints, *of_page: Any) -> str:
        found = await changed(endpoints, *of_page)
        if ends.is_set() and fresh.exists():
            fresh.replace(file)
            return "gathered meanwhile"
        return found

    monkeypatch.setattr(LookingEndpoints, "_changed", slow)
    with console_of(run.listen, token_file=file) as console:
        bearer = {"Authorization": f"Bearer {token}"}
        with console.events(f"{OVERVIEW}/events", **bearer) as events:
            next(events)
            ends.set()
            *before, last = events
    assert last == ("over", "log in again")
    assert not fresh.exists()
    assert not any("gathered meanwhile" in text for _, text in before)


def test_an_old_browser_sends_the_secret_of_its_form(run: Run, tmp_path: Path) -> None:
    """One that says nothing of where a request comes from; of another session it does not help."""
    token = add_token(tmp_path / "tokens.toml", "alice:operator")
    with console_of(run.listen, token_file=tmp_path / "tokens.toml") as console:
        cookies = [console.log_in(token).headers["set-cookie"].partition(";")[0] for _ in range(2)]
        pages = [console.ask(OVERVIEW, Cookie=cookie).text for cookie in cookies]
        secrets = [re.findall('name="csrf" value="([^"]+)"', page)[0] for page in pages]
        old = {"Sec_Fetch_Site": "", "Cookie": cookies[0]}
        for body, status in (("", 403), (f"csrf={secrets[1]}", 403), (f"csrf={secrets[0]}", 303)):
            assert console.ask("/logout", "POST", body, **old).status == status


def test_a_form_is_bounded(run: Run) -> None:
    """What is too large is not read to its end; what is none is refused."""
    with console_of(run.listen) as console:
        assert console.ask("/login", "POST", "token=" + "x" * FORM_BYTES).status == 413
        assert console.ask("/login", "POST", "&".join(f"a{n}=1" for n in range(2000))).status == 400
        assert console.ask("/login", "PUT", "token=x").status == 405


def test_an_address_is_bounded(run: Run, kafka: Kafka) -> None:
    """Whatever the server in front takes; what is below the bound is a search as any other."""
    with console_of(run.listen) as console:
        within, beyond = (f"{OVERVIEW}?of={'x' * n}" for n in (30_000, LONGEST_ADDRESS))
        assert console.ask(within).status == 200
        refused = console.ask(beyond)
        assert (refused.status, "at most 32,768 characters" in words(refused.text)) == (414, True)


def test_open_pages_are_bounded(run: Run, kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """One too many is told to load its page by hand; one that is closed makes room."""
    del kafka
    monkeypatch.setattr(looking_endpoints, "MOST_STREAMS", 1)
    with console_of(run.listen) as console:
        with console.events(f"{OVERVIEW}/events") as events:
            next(events)
            refused = console.ask(f"{OVERVIEW}/events")
            assert refused.status == 503
            assert "load this one again" in refused.text

        for _ in range(200):
            if _status(console) == 200:
                break
        else:
            pytest.fail("no room was made")


def test_one_person_leaves_open_pages_to_others(
    run: Run, kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever opens very many is told so, and nobody else."""
    del kafka
    monkeypatch.setattr(looking_endpoints, "EACH_STREAMS", 1)
    file = tmp_path / "tokens.toml"
    ann, bob = (
        {"Authorization": f"Bearer {add_token(file, f'{name}:viewer')}"} for name in ("ann", "bob")
    )
    with console_of(run.listen, token_file=file) as console:
        with console.events(f"{OVERVIEW}/events", **ann) as events:
            next(events)
            refused = console.ask(f"{OVERVIEW}/events", **ann)
            assert (refused.status, "ann has 1 pages" in refused.text) == (429, True)
            assert console.ask(OVERVIEW, **ann).status == 200
            with console.events(f"{OVERVIEW}/events", **bob) as others:
                next(others)
        until(lambda: _status(console, **ann) == 200)


def _status(console: Console, **headers: str) -> int:
    connection = console.connection()
    connection.request("GET", f"{OVERVIEW}/events", headers=headers)
    status = connection.getresponse().status
    connection.close()
    return status


def test_an_open_page_does_not_keep_the_console_from_ending(
    run: Run, kafka: Kafka, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its stream of news is ended in order, not cancelled."""
    del kafka
    with ExitStack() as pages:
        with console_of(run.listen) as console:
            events = pages.enter_context(console.events(f"{OVERVIEW}/events"))
            next(events)
        assert {name for name, _ in events} <= {"facts"}
    assert capfd.readouterr().err == ""


def test_several_clusters_have_pages_of_their_own(run: Run, kafka: Kafka) -> None:
    """Each with its name in the address, and a link to the same page of the other."""
    del kafka
    with console_of(run.listen, names=("blue", "green"), role=Role.viewer) as console:
        page = console.ask("/c/green/in-flight")
        assert 'href="/c/blue/in-flight"' in page.text
        assert console.ask("/").headers["location"] == "/c/blue/overview"
    assert page.status == 200
