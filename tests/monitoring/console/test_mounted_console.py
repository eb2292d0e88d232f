"""The console as a part of another web app: below a path, with the same rules of who comes in."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import HTTPConnection, Request

from ackfloor import SettingError
from ackfloor_monitoring.console import (
    ConsoleApp,
    ConsoleCluster,
    Person,
    Role,
    console_app,
    mounting,
)
from ackfloor_monitoring.console.access.gate import Gate
from ackfloor_monitoring.console.access.tokens import add_token
from ackfloor_monitoring.console.forms import root_of
from ackfloor_monitoring.console.index.dead_letter_index import DeadLetterIndex
from ackfloor_monitoring.console.pages.menu import MENU
from ackfloor_monitoring.console.reads.runs.run_names import RunNames
from ackfloor_monitoring.console.rendering import TEMPLATES
from ackfloor_monitoring.metrics.run_metrics import RunMetrics
from tests.certificates import Authority
from tests.framework.cli.lanes.test_lanes import Stage
from tests.monitoring.console.acting_stage import OF_BILL, notes, stages
from tests.monitoring.console.kept_notes import Notes
from tests.monitoring.console.mounted_console import PREFIX, cluster, outer_app, served
from tests.monitoring.console.page_text import words
from tests.monitoring.console.served_console import NOWHERE, Answer, Console
from tests.monitoring.console.shown_cluster import Kafka, Run

__all__ = ["notes", "stages"]

URL = "http://localhost:8000"
#: What leads somewhere: addresses of links, forms, files and events.
LEADS = re.compile(r'(?:href|action|src|data-events)="(/[^"]*)"')


@pytest.fixture(autouse=True)
def followed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """When the index was begun to be followed, and when that ended; no broker is asked."""
    found = list[str]()

    @contextmanager
    def following(_index: DeadLetterIndex) -> Iterator[None]:
        found.append("begun")
        yield
        found.append("ended")

    monkeypatch.setenv("ACKFLOOR_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setattr(DeadLetterIndex, "following", following)
    monkeypatch.setattr(mounting, "EVENTS_S", 0.5)
    return found


async def ann(_request: HTTPConnection) -> Person:
    """The outer app has let an operator in."""
    return Person("ann@ops", Role.operator)


def with_tokens(tmp_path: Path, *runs: str) -> tuple[ConsoleApp, str]:
    """A console that asks for tokens, and that of an operator."""
    file = tmp_path / "tokens.toml"
    token = add_token(file, "ann@ops:operator")
    return console_app(cluster(*runs), public_url=URL, token_file=file), token


def logged_in(console: Console, token: str) -> str:
    """The cookie of who has logged in."""
    page = "/c/kafka/lanes"
    login = f"{PREFIX}/login?next={page}"
    assert console.ask(f"{PREFIX}{page}").headers["location"] == login
    answer = console.send(f"{PREFIX}/login", ("token", token), ("next", page))
    assert answer.headers["location"] == f"{PREFIX}{page}"
    answer = console.send(f"{PREFIX}/login", ("token", token))
    assert (answer.status, answer.headers["location"]) == (303, f"{PREFIX}/")
    assert re.search(rf"; Path={PREFIX}(;|$)", answer.headers["set-cookie"])
    return answer.headers["set-cookie"].partition(";")[0]


def test_all_that_pages_lead_to_is_below_the_path(run: Run, kafka: Kafka, tmp_path: Path) -> None:
    """Each page is asked for as the one before names it, its files and its news as well."""
    del kafka
    console, token = with_tokens(tmp_path, run.listen)
    with served(outer_app(console)) as web:
        first = web.ask(f"{PREFIX}/")
        assert (first.status, first.headers["location"]) == (303, f"{PREFIX}/login")
        cookie = logged_in(web, token)
        wanted = web.ask(f"{PREFIX}/", Cookie=cookie).headers["location"]
        assert wanted == f"{PREFIX}/c/kafka/overview"
        seen, waiting = set[str](), [wanted]
        while waiting:
            wanted = waiting.pop()
            seen.add(wanted)
            answer = web.ask(wanted, Cookie=cookie)
            assert answer.status == 200, wanted
            if answer.headers["content-type"].startswith("text/html"):
                found = {unescape(each) for each in LEADS.findall(answer.text)}
                assert {each for each in found if not each.startswith(f"{PREFIX}/")} == set()
                forms = {f"{PREFIX}/logout"} | {
                    f"{PREFIX}/c/kafka/{each}"
                    for each in ("orders", "redrives", "resumes", "cancels", "changes")
                }
                waiting += found - seen - forms - set(waiting)
        assert {f"{PREFIX}/c/kafka/{each.path}" for each in MENU} <= seen
        assert {f"{PREFIX}/static/{each}" for each in ("console.js", "console.css")} <= seen
        assert f"{PREFIX}/c/kafka/overview/events" in seen
        out = web.send(f"{PREFIX}/logout", Cookie=cookie)
        assert out.headers["location"] == f"{PREFIX}/login"
        assert f"Path={PREFIX};" in out.headers["set-cookie"]
        assert web.ask(f"{PREFIX}/c/kafka/overview", Cookie=cookie).status == 303
        assert web.ask("/").text == "the outer app"


def test_runs_of_a_name_are_asked_over_tls(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At their addresses, by whoever trusts what has signed the certificate of the name."""
    del kafka
    authority = Authority(tmp_path)
    run = RunMetrics("billing", 1)
    port = run.start("127.0.0.1:0", *authority.signed("workers.example")).rpartition(":")[2]
    monkeypatch.setattr(RunNames.__init__, "__defaults__", (lambda *_: ["127.0.0.1"],))
    name = f"dns+https://workers.example:{port}"
    for tls_ca, says in ((authority.file, "group billing"), (None, "signed by nobody")):
        shown = replace(cluster(name), tls_ca=tls_ca)
        with served(outer_app(console_app(shown, public_url=URL, who=ann))) as web:
            said = words(web.ask(f"{PREFIX}/c/kafka/overview").text)
        assert f"https://127.0.0.1:{port}#workers.example" in said
        assert says in said
    run.stop()


def test_no_template_leads_to_the_host() -> None:
    """Of all pages, also those that need something to show."""
    found = {each.name: LEADS.findall(each.read_text()) for each in TEMPLATES.iterdir()}
    assert {name: leads for name, leads in found.items() if leads} == {}
    assert sum('"{{ root }}/' in each.read_text() for each in TEMPLATES.iterdir()) > 10


def test_an_order_is_carried_out_below_the_path(stages: tuple[Stage, Stage], notes: Notes) -> None:
    """Asked, judged and confirmed at addresses of the outer app, by whom that app names."""
    first = stages[0].listen
    files = {first: "token"}
    console = console_app(cluster(first), public_url=URL, who=ann, run_token_files=files)
    with served(outer_app(console)) as web:
        fields = (("action", "delay"), ("delay", "1h"), *OF_BILL, ("all", "yes"))
        asked = web.send(f"{PREFIX}/c/kafka/orders", *fields)
        order = asked.headers["location"]
        assert order.startswith(f"{PREFIX}/c/kafka/orders/")
        assert "would be" in words(web.ask(order).text)
        confirmed = web.send(order, ("reason", "later"))
        assert (confirmed.status, confirmed.headers["location"]) == (303, order)
        assert "given another time: the heads of 3 lanes" in words(web.ask(order).text)
    assert notes.written[-1].counts["done"] == 3
    assert "ann@ops" in notes.written[-1].by


def test_news_end_and_begin_again(run: Run, kafka: Kafka) -> None:
    """So that a server that waits for its answers comes to its end."""
    del kafka
    console = console_app(cluster(run.listen), public_url=URL, who=ann)
    with served(outer_app(console)) as web:
        with web.events(f"{PREFIX}/c/kafka/overview/events") as events:
            names = [name for name, _ in events]
        assert names[0] == "facts"
        assert names[-1] == "again"


def test_a_server_ends_while_a_page_waits_for_news(run: Run, kafka: Kafka) -> None:
    """uvicorn asks nobody to leave: the answer has to end by itself."""
    del kafka
    console = console_app(cluster(run.listen), public_url=URL, who=ann)
    with served(outer_app(console)) as web:
        connection = web.connection()
        connection.request("GET", f"{PREFIX}/c/kafka/overview/events")
        assert connection.getresponse().status == 200
    connection.close()


def test_what_runs_beside_ends_with_the_block(followed: list[str]) -> None:
    """It is the outer app's lifespan that enters it, and once."""
    console = console_app(cluster(), public_url=URL, who=ann)
    for _ in range(2):  # a server may be started again
        followed.clear()
        with served(outer_app(console)):
            assert followed == ["begun"]
        assert followed == ["begun", "ended"]


def test_a_console_that_is_not_running_says_so(followed: list[str]) -> None:
    """Starlette does not run the lifespan of what it mounts."""
    console = console_app(cluster(), public_url=URL, who=ann)
    with served(outer_app(console, enters=False)) as web:
        answer = web.ask(f"{PREFIX}/c/kafka/overview")
    assert answer.status == 503
    assert "enters its `running()`" in unescape(answer.text)
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert followed == []


def test_it_runs_once(followed: list[str]) -> None:
    """Twice at a time would be two of everything."""
    console = console_app(cluster(), public_url=URL, who=ann)

    async def twice() -> None:
        async with console.running():
            with pytest.raises(RuntimeError, match="once"):
                async with console.running():
                    pass
            assert followed == ["begun"]

    asyncio.run(twice())
    assert followed == ["begun", "ended"]


def test_a_server_may_have_the_console_alone(run: Run, kafka: Kafka, followed: list[str]) -> None:
    """Then its own lifespan is run; a proxy may take a path away before."""
    del kafka
    console = console_app(cluster(run.listen), public_url=URL, who=ann)
    with served(console, root_path="/behind") as web:
        assert followed == ["begun"]
        assert web.ask("/").headers["location"] == "/behind/c/kafka/overview"
        page = web.ask("/c/kafka/overview")
        assert 'href="/behind/static/console.css"' in page.text
        assert web.ask("/static/console.css").status == 200
    assert followed == ["begun", "ended"]


@pytest.mark.parametrize(
    ("root", "found"),
    [
        ("", ""),
        ("/", ""),
        ("/ops/", "/ops"),
        ("ops", "/ops"),
        ("//evil.example", "/evil.example"),
        ('/a"><script>', "/a%22%3E%3Cscript%3E"),
        ("/a b\\é", "/a%20b%5C%C3%A9"),
    ],
)
def test_a_path_is_never_another_host(root: str, found: str) -> None:
    """Whatever the outer app has in the paths that it mounts."""
    assert root_of(Request({"type": "http", "root_path": root, "headers": []})) == found


class Outer:
    """The authentication of an outer app."""

    def __init__(self) -> None:
        self.answer: Any = None
        self.asked: list[str] = []

    async def __call__(self, request: HTTPConnection) -> Person | None:
        """Who sends a request."""
        self.asked.append(request.headers.get("authorization", ""))
        found: Person | None = self.answer
        return found


def test_only_whom_the_outer_app_names_comes_in(run: Run, kafka: Kafka) -> None:
    """With the role that it says, and by nothing else."""
    del kafka
    outer, order = Outer(), f"{PREFIX}/c/kafka/orders"
    console = console_app(cluster(run.listen), public_url=URL, who=outer)
    with served(outer_app(console)) as web:

        def looked(answer: Any, **headers: str) -> Answer:
            outer.answer = answer
            return web.ask(f"{PREFIX}/c/kafka/overview", **headers)

        nobody = looked(None)
        assert (nobody.status, "names nobody" in nobody.text) == (403, True)
        page = looked(Person("bob", Role.viewer), Authorization="Bearer of-the-outer-app")
        assert page.status == 200
        assert "bob viewer" in words(page.text)
        assert outer.asked[-1] == "Bearer of-the-outer-app"
        assert "Log out" not in page.text
        assert web.send(order, ("action", "retry"), *OF_BILL, ("all", "yes")).status == 403
        for wrong in ("bob", Person("bob; drop", Role.admin), Person("bob", "root")):  # type: ignore[arg-type]
            refused = looked(wrong)
            assert (refused.status, "no Person" in refused.text) == (403, True)


def test_another_site_is_refused_below_the_path(run: Run, kafka: Kafka) -> None:
    """Neither its forms nor its names of this host count."""
    del kafka
    console = console_app(cluster(run.listen), public_url=URL, who=ann)
    order, fields = f"{PREFIX}/c/kafka/orders", (("action", "retry"), *OF_BILL, ("all", "yes"))
    with served(outer_app(console)) as web:
        assert web.send(order, *fields, Sec_Fetch_Site="cross-site").status == 403
        assert web.send(order, *fields, Origin="http://evil.example").status == 403
        assert web.send(order, *fields, Sec_Fetch_Site="").status == 403
        assert web.ask(f"{PREFIX}/c/kafka/overview", Host="evil.example").status == 421


def test_the_cookie_of_a_path_belongs_to_it(tmp_path: Path) -> None:
    """Over TLS as well; of two with one name the browser has that of the longer path first."""
    file = tmp_path / "tokens.toml"
    token = add_token(file, "ann@ops:operator")
    gate = Gate(frozenset({"ops.example"}), secure=True, token_file=file)
    assert gate.cookie("") == "__Host-ackfloor"
    assert gate.cookie("/ops") == "__Secure-ackfloor"
    own = {"host": "ops.example", "sec-fetch-site": "same-origin"}
    secret = gate.log_in(own, "10.0.0.1", token)
    cookies = {**own, "cookie": f"__Secure-ackfloor={secret}; __Secure-ackfloor=of-another-path"}
    assert gate.identify("GET", cookies, "", root="/ops").person.name == "ann@ops"


def test_what_the_host_promises_is_the_outer_app_s(tmp_path: Path) -> None:
    """A console below a path does not say for all of its host that it is reached over TLS alone."""
    file = tmp_path / "tokens.toml"
    add_token(file, "ann@ops:operator")
    console = console_app(cluster(), public_url="https://localhost", token_file=file)
    with served(outer_app(console)) as web:
        answer = web.ask(f"{PREFIX}/login")
    assert answer.status == 200
    assert "strict-transport-security" not in answer.headers
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]


async def nobody(_request: HTTPConnection) -> None:
    """The outer app has let nobody in."""


def not_async(_request: HTTPConnection) -> None:
    """It could not be waited for."""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "token_file=None: everybody who reaches the app could come in"),
        ({"who": nobody, "token_file": "tokens.toml"}, "there are two; pass token_file or who"),
        ({"token_file": "none.toml"}, "token_file='none.toml': No such file"),
        ({"who": not_async}, "is no async function"),
        ({"who": "ann"}, "who='ann': is no async function"),
        ({"who": nobody, "public_url": "ops.example"}, "public_url='ops.example': is not a scheme"),
        ({"who": nobody, "public_url": "https://ops.example/ops"}, "is not a scheme and a host"),
        ({"who": nobody, "public_url": "http://ops.example"}, "without TLS"),
        ({"who": nobody, "clusters": ()}, "clusters=(): there is nothing to show"),
        ({"who": nobody, "clusters": ("ackfloor.toml",)}, "is no ConsoleCluster"),
        ({"who": nobody, "clusters": (ConsoleCluster("none.toml"),)}, "none.toml"),
        ({"who": nobody, "clusters": (ConsoleCluster(name="a/b"),)}, "name='a/b': can't be a part"),
        ({"who": nobody, "clusters": (ConsoleCluster(), ConsoleCluster())}, "two clusters have it"),
        (
            {"who": nobody, "clusters": (ConsoleCluster(), ConsoleCluster(name="b"))},
            "kafka and b are one",
        ),
        ({"who": nobody, "clusters": (ConsoleCluster(runs="h:1"),)}, "write ['h:1']"),
        ({"who": nobody, "clusters": (ConsoleCluster(runs=["h"]),)}, "runs='h': not an address"),
        ({"who": nobody, "run_token_files": {"h": "f"}}, "run_token_files='h': not an address"),
        ({"who": nobody, "clusters": (ConsoleCluster(report="/"),)}, "report='/': is a folder"),
        (
            {"who": nobody, "clusters": (ConsoleCluster(prometheus="h:1"),)},
            "prometheus='h:1': is no",
        ),
        ({"who": nobody, "clusters": (ConsoleCluster(tls_ca="none.pem"),)}, "tls_ca='none.pem'"),
        (
            {"who": nobody, "clusters": (ConsoleCluster(tls_ca=__file__),)},
            "holds no certificate; name a PEM file",
        ),
        ({"who": nobody, "index_rows": 5}, "index_rows=5: is too few"),
        ({"who": nobody, "index_folder": __file__}, "File exists"),
    ],
)
def test_a_wrong_argument_is_refused_at_once(
    arguments: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is open by accident, and the message has the argument and the fix."""
    monkeypatch.setenv("ACKFLOOR_BOOTSTRAP_SERVERS", NOWHERE)
    given = {"public_url": URL, **arguments}
    clusters = given.pop("clusters", (ConsoleCluster(),))
    with pytest.raises(SettingError) as refused:
        console_app(*clusters, **given)
    assert says in str(refused.value)
