"""Plots of the last hour from a Prometheus: what is asked, what is believed, what is shown."""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from ackfloor_monitoring.console.reads import history, prometheus
from ackfloor_monitoring.console.reads.history import History, Point
from ackfloor_monitoring.console.reads.plots import OLD, PrometheusHistory
from ackfloor_monitoring.console.reads.prometheus import (
    NoFigures,
    Prometheus,
    place_of,
    points_of,
    query_of,
)
from tests.e2e.prometheus import Prometheus as Server
from tests.e2e.prometheus import needs_prometheus
from tests.framework.kafka.wire import until
from tests.monitoring.alerts.test_rules import needs_promtool
from tests.monitoring.console.page_text import OVERVIEW, words
from tests.monitoring.console.served_console import console_of
from tests.monitoring.console.shown_cluster import Kafka, Run, progress
from tests.monitoring.console.test_console_pages import quick

__all__ = ["quick"]

STEP_S = history.EVERY_S
NOW_S = STEP_S * 1000 + 3


def matrix(**figures: Sequence[tuple[float, str]]) -> Mapping[str, Any]:
    """An answer of Prometheus."""
    found = [{"metric": {"figure": name}, "values": list(each)} for name, each in figures.items()]
    return {"status": "success", "data": {"resultType": "matrix", "result": found}}


def test_points_are_those_of_an_answer() -> None:
    """From the first one that it has; what it does not have is a gap, and no zero."""
    step = STEP_S
    answer = matrix(
        lag=[(step * 997, "4"), (step * 998, "NaN"), (step * 1000, "6.0")],
        dead=[(step * 1000, "1")],
    )
    found = points_of(answer, step * 1000, step)
    assert [each.at_ms for each in found] == [round(step * n * 1000) for n in range(997, 1001)]
    assert [each.figures for each in found] == [{"lag": 4}, {}, {}, {"lag": 6, "dead": 1}]
    assert points_of(matrix(), step * 1000, step) == []


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        {"data": {}},
        {"data": {"result": [{"metric": {}, "values": []}]}},
        {"data": {"result": [{"metric": {"figure": "lag"}, "values": [[1, "many"]]}]}},
        {"data": {"result": [{"metric": {"figure": "lag"}, "values": [[1]]}]}},
        {"data": {"result": 5}},
    ],
)
def test_what_are_no_figures_is_refused(answer: object) -> None:
    """Whatever a server sends, the page stands."""
    with pytest.raises(NoFigures, match="no figures"):
        points_of(answer, NOW_S, STEP_S)


def test_a_name_of_a_group_is_no_expression() -> None:
    """It comes from Kafka, where anybody may have made it."""
    asked = query_of(['a"} or vector(1) #', "b.c|d\\"])
    assert r'group=~"a\"\\}\\ or\\ vector\\(1\\)\\ \\#|b\\.c\\|d\\\\"' in asked
    assert asked.count('"figure"') == 6


@needs_promtool
def test_each_partition_counts_once(tmp_path: Path) -> None:
    """Each run of a group says what Kafka says; what is in a worker, that worker says alone."""
    of = 'group="billing",topic="orders"'
    series = {
        f'ackfloor_kafka_lag_messages{{{of},partition="{n}",kind="{kind}",instance="{run}"}}': value
        for n, kind, value in ((0, "source", 5), (1, "source", 7), (0, "retry", 100))
        for run in ("a", "b")
    }
    series |= {
        f'ackfloor_kafka_open_messages{{{of},partition="0",kind="{kind}",instance="{run}"}}': value
        for kind, value in (("source", 3), ("retry", 11), ("dlq", 13))
        for run in ("a", "b")
    }
    series |= {
        f'{name}{{group="{group}",handler="h",worker="{worker}",instance="a"}}': value
        for name, value in (
            ("ackfloor_inflight_messages", 2),
            ("ackfloor_lanes_blocked", 4),
            ("ackfloor_quarantined_keys", 5),
        )
        for group in ("billing", "b.lling", "other")
        for worker in (0, 1)
    }
    figures = {"lag": 12, "open": 3, "retry": 11, "dead": 13, "running": 8, "waiting": 36}
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": f"{n} {n}"} for name, n in series.items()],
        "promql_expr_test": [
            {
                "expr": query_of(["billing", "b.lling"]),
                "eval_time": "1m",
                "exp_samples": [
                    {"labels": f'{{figure="{name}"}}', "value": value}
                    for name, value in figures.items()
                ],
            }
        ],
    }
    file = tmp_path / "test.yml"
    file.write_text(json.dumps({"tests": [test]}))
    told = subprocess.run(
        ["promtool", "test", "rules", file],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert told.returncode == 0, told.stdout + told.stderr


class Web:
    """A server that answers as a test says."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, list[str]]]] = []
        self.answer: Callable[[BaseHTTPRequestHandler], None] = lambda _: None
        web = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                web.asked.append((self.path, parse_qs(body)))
                web.answer(self)

            def do_GET(self) -> None:
                web.asked.append((self.path, {}))

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self.server.server_port}"

    def says(self, status: int, body: bytes, **headers: str) -> None:
        """What it answers from now on."""

        def answer(request: BaseHTTPRequestHandler) -> None:
            request.send_response(status)
            for name, value in headers.items():
                request.send_header(name, value)
            request.end_headers()
            request.wfile.write(body)

        self.answer = answer


@pytest.fixture
def web() -> Iterator[Web]:
    """One at a port of this machine."""
    made = Web()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


def at(address: str) -> Prometheus:
    """The server there."""
    return Prometheus(place_of("--prometheus", address))


def test_the_hour_is_asked_for_below_the_path(web: Web) -> None:
    """In one question, with a bound of its time."""
    web.says(200, json.dumps(matrix(lag=[(STEP_S * 1000, "4")])).encode())
    [point] = at(f"{web.address}/behind/").last_hour({"billing"}, NOW_S)
    assert point == Point(round(STEP_S * 1000 * 1000), {"lag": 4})
    [(path, form)] = web.asked
    assert path == "/behind/api/v1/query_range"
    assert form["end"] == [f"{STEP_S * 1000:.3f}"]
    assert form["step"] == [f"{STEP_S:g}"]
    assert 'group=~"billing"' in form["query"][0]
    assert "timeout" in form


def test_no_answer_says_why(web: Web) -> None:
    """A refusal, a redirect, no JSON, nothing of these groups, too much, nobody."""
    ours = at(web.address)
    for status, body, more, why in (
        (400, b"parse error", {}, "answered 400"),
        (302, b"", {"Location": f"{web.address}/elsewhere"}, "answered 302"),
        (200, b"<html>", {}, "no JSON"),
        (200, b"[" * 100_000, {}, "no JSON"),
        (200, json.dumps(matrix()).encode(), {}, "does it scrape their runs"),
        (200, b" " * (prometheus.MOST_BYTES + 1), {}, "more than 1,048,576 bytes"),
    ):
        web.says(status, body, **more)
        with pytest.raises(NoFigures, match=why):
            ours.last_hour({"billing"}, NOW_S)
    assert {path for path, _ in web.asked} == {"/api/v1/query_range"}
    with pytest.raises(NoFigures, match="refused"):
        at("http://127.0.0.1:1").last_hour({"billing"}, NOW_S)
    with pytest.raises(NoFigures, match="no group"):
        ours.last_hour((), NOW_S)
    with pytest.raises(NoFigures, match="200 groups at most"):
        ours.last_hour({str(n) for n in range(201)}, NOW_S)


def test_one_that_takes_too_long_is_left(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it goes on sending."""
    monkeypatch.setattr(prometheus, "ANSWER_S", 0.3)
    over = threading.Event()

    def slowly(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        while not over.wait(0.02):
            try:
                request.wfile.write(b" ")
            except OSError:
                return

    web.answer = slowly
    try:
        with pytest.raises(NoFigures, match=r"takes more than 0\.3 s"):
            at(web.address).last_hour({"billing"}, NOW_S)
        web.answer = lambda _: over.wait(60) and None
        with pytest.raises(NoFigures, match="timed out"):
            at(web.address).last_hour({"billing"}, NOW_S)
    finally:
        over.set()


class Figures:
    """What a Prometheus would have."""

    def __init__(self) -> None:
        self.fails: Exception | None = None

    def last_hour(self, groups: Collection[str], now_s: float) -> Sequence[Point]:
        """Two points."""
        del groups, now_s
        if self.fails is not None:
            raise self.fails
        return [Point(0, {"lag": 5}), Point(15_000, {"lag": 7})]


def test_the_console_s_own_are_shown_while_it_does_not_answer() -> None:
    """And why; an answer that is old is none."""
    figures, own, now_s = Figures(), History(), [1000.0]
    own.add(0, {"lag": 1})
    own.add(1, {"lag": 2})
    with ThreadPoolExecutor(1) as asking:
        ours = PrometheusHistory(figures, asking, lambda: now_s[0])

        def shown() -> tuple[int | None, bool, str]:
            found = ours.plots(own)
            return found.plots[0].newest, found.of_prometheus, found.late

        assert shown() == (2, False, "it has not answered yet")
        asyncio.run(ours.renew({"billing"}))
        assert shown() == (7, True, "")
        now_s[0] += OLD * STEP_S + 1
        assert shown() == (2, False, "it has not answered for 61 s")
        for fails, why in ((NoFigures("away"), "away"), (KeyError("x"), "KeyError")):
            figures.fails = fails
            asyncio.run(ours.renew({"billing"}))
            assert shown()[:2] == (2, False)
            assert why in shown()[2]


def test_a_page_says_that_prometheus_is_away(run: Run, kafka: Kafka) -> None:
    """It has what the console has kept."""
    del kafka
    with console_of(run.listen, prometheus=at("http://127.0.0.1:1")) as served:

        def told() -> bool:
            page = words(served.ask(OVERVIEW).text)
            return "Prometheus has no figures" in page and "refused" in page

        until(told)


@needs_prometheus
def test_plots_are_there_after_a_restart_of_the_console(
    run: Run, kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real Prometheus scrapes a run; a console that starts afterwards shows what was."""
    del kafka
    monkeypatch.setattr(history, "EVERY_S", 1.0)
    run.show(running=3)
    run.metrics.progress([progress(end=400)])
    server = Server(tmp_path, run.listen, tmp_path / "no-rules")
    try:
        until(server.ready)
        count = "count_over_time(ackfloor_inflight_messages[1m])"
        until(lambda: (server.value(f"max({count})") or 0) >= 4)
        with console_of(run.listen, prometheus=at(server.address)) as served:

            def of_prometheus() -> bool:
                return "as Prometheus has them" in words(served.ask(OVERVIEW).text)

            until(of_prometheus)
            page = words(served.ask(OVERVIEW).text)
            assert "3 In flight" in page
            assert "300 Behind" in page
            assert "0 Lanes that wait" in page
    finally:
        server.close()
