"""The address: real requests over loopback."""

from __future__ import annotations

import gzip
import json
import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.client import HTTPConnection, HTTPResponse

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ackfloor import ConfigError
from ackfloor.observe import (
    CONTROL_BYTES,
    BlockedLanes,
    ControlRequest,
    Fault,
    LongSlots,
    PartitionsAssigned,
    RunningDelivery,
    SettingsState,
)
from ackfloor.testing.local_kafka.node import free_ports
from ackfloor_monitoring.metrics.run_metrics import RunMetrics
from ackfloor_monitoring.metrics.worker_metrics import WorkerMetrics
from ackfloor_monitoring.serving.http_server import PageServer, Request, Response, parse_listen
from tests.monitoring.samples import NOW_MS, SNAPSHOT, handler, snapshot
from tests.monitoring.test_worker import COUNTED


def ask(address: str, path: str, method: str = "GET", **headers: str) -> tuple[HTTPResponse, bytes]:
    """One request, with its answer read to the end."""
    host, port = parse_listen(address)
    connection = HTTPConnection(host, port, timeout=60)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, headers=named)
        response = connection.getresponse()
        return response, response.read()
    finally:
        connection.close()


class Clocks:
    """Both of a run's clocks."""

    def __init__(self) -> None:
        self.wall_ms = NOW_MS
        self.monotonic_s = 7.0


@pytest.fixture
def clocks() -> Clocks:
    """They stand still until a test moves one."""
    return Clocks()


@pytest.fixture
def run(clocks: Clocks) -> Iterator[RunMetrics]:
    """A run of one worker that is well."""
    metrics = RunMetrics(
        "billing", 1, now_ms=lambda: clocks.wall_ms, monotonic=lambda: clocks.monotonic_s
    )
    worker = WorkerMetrics()
    worker.observe([event for event, _ in COUNTED])
    worker.observe([PartitionsAssigned(())])
    worker.snapshot(SNAPSHOT)
    metrics.update(0, worker.report())
    yield metrics
    metrics.stop()


@pytest.fixture
def address(run: RunMetrics) -> str:
    """Where it is served."""
    return run.start("127.0.0.1:0")


def test_metrics_are_served_as_text(address: str) -> None:
    """A plain scrape gets the Prometheus text format, whole and parseable."""
    response, body = ask(address, "/metrics")
    assert response.status == 200
    assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    names = {family.name for family in text_string_to_metric_families(body.decode())}
    assert {"ackfloor_floor_position", "ackfloor_handler_duration_seconds"} <= names


def test_metrics_are_served_as_openmetrics_on_request(address: str) -> None:
    """A scraper that prefers OpenMetrics gets it, with its end mark."""
    accept = "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5"
    response, body = ask(address, "/metrics", Accept=accept)
    assert response.headers["Content-Type"].startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")


def test_an_accept_header_without_sense_gets_text(address: str) -> None:
    """A version that is none is no reason to fail a scrape."""
    response, _ = ask(address, "/metrics", Accept="text/plain;version=latest.x")
    assert response.status == 200
    assert response.headers["Content-Type"].startswith("text/plain")


def test_metrics_are_compressed_on_request(address: str) -> None:
    """A scraper that takes gzip gets the same text, smaller."""
    _, plain = ask(address, "/metrics")
    response, packed = ask(address, "/metrics", Accept_Encoding="gzip")
    assert response.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed) == plain
    assert len(packed) < len(plain)


def test_one_metric_can_be_asked_for(address: str) -> None:
    """`name[]` restricts the scrape, as with the client library's own endpoint."""
    _, body = ask(address, "/metrics?name[]=ackfloor_floor_position")
    families = list(text_string_to_metric_families(body.decode()))
    assert [family.name for family in families] == ["ackfloor_floor_position"]


#: What the sample's worker says of its blocked lanes, and of its quarantined keys.
LANES = [
    {
        "check": "lanes",
        "message": "handler bill: 3 lanes are blocked, with 19 records behind; the longest for "
        "5m, by orders/0/90 (shop.Boom: no stock); see `ackfloor lanes ls`",
    },
    {
        "check": "lanes",
        "message": "handler bill: 2 keys are quarantined, with 7 records behind; the longest for "
        "at least 10m, its head now orders/1/41 (held: shop.Boom: no price); "
        "see `ackfloor lanes ls`",
    },
]


def test_a_run_that_is_well_is_live_and_ready(address: str) -> None:
    """Both pages answer 200 without reasons."""
    response, body = ask(address, "/livez")
    assert (response.status, json.loads(body)) == (200, {"live": True, "reasons": []})
    response, body = ask(address, "/readyz")
    assert (response.status, json.loads(body)) == (
        200,
        {"ready": True, "reasons": [], "notes": LANES},
    )
    assert response.headers["Content-Type"] == "application/json"
    assert response.headers["Cache-Control"] == "no-store"


def test_a_handler_that_an_operator_paused_is_a_note(run: RunMetrics, address: str) -> None:
    """The run stays ready; of several workers the one that is paused for longest is told."""
    pauses: list[dict[str, object]] = [
        {"paused": True, "paused_for_s": 600.4, "paused_reason": "a migration"},
        {"paused": True, "paused_for_s": None, "paused_reason": ""},
    ]
    notes = []
    for number, pause in enumerate(pauses):
        worker = WorkerMetrics()
        bill = handler(name="ship", blocked=BlockedLanes(), quarantined=BlockedLanes(), **pause)
        worker.snapshot(snapshot(handlers=(bill,)))
        run.update(number, worker.report())
        response, body = ask(address, "/readyz")
        assert response.status == 200
        notes.append(json.loads(body)["notes"][0])
    assert notes == [
        {
            "check": "paused",
            "message": f"handler ship: an operator paused it {how_long}; "
            "`ackfloor handlers resume ship` ends that",
        }
        for how_long in ("for another 10m (a migration)", "until it is resumed (no reason given)")
    ]


#: A handler whose slots are all held for long, and nothing else to say of it.
FULL = handler(
    name="ship",
    blocked=BlockedLanes(),
    quarantined=BlockedLanes(),
    concurrency=64,
    long_slots=LongSlots(64, 1.2, full=True),
)


def test_slots_that_are_all_held_for_long_are_a_note(run: RunMetrics, address: str) -> None:
    """The run stays ready; of several workers the longest delivery is told."""
    older = RunningDelivery("orders", 3, 77, 1, 131.4, -0.5)
    none = replace(FULL, consume_timeout_s=None, oldest=(replace(older, left_s=None),))
    notes = []
    for shown in (
        [replace(FULL, long_slots=LongSlots(63, 1.2))],
        [FULL],
        [FULL, replace(FULL, oldest=(older,))],
        [none, none],
    ):
        for number, each in enumerate(shown):
            worker = WorkerMetrics()
            worker.snapshot(snapshot(handlers=(each,)))
            run.update(number, worker.report())
        response, body = ask(address, "/readyz")
        assert response.status == 200
        notes.append(json.loads(body)["notes"])
    assert notes == [[]] + [
        [
            {
                "check": "slots",
                "message": f"handler ship: all {of} are held by deliveries that run far longer "
                f"than usual, the longest for {longest}; a shorter "
                f"handlers.ship.consume_timeout ({timeout} now) frees them sooner; see "
                "`ackfloor inflight`",
            }
        ]
        for of, longest, timeout in (
            ("64 slots of a worker", "1s (orders/0/100, 44s before its deadline)", "45s"),
            ("128 slots of 2 workers", "2m11s (orders/3/77, beyond its deadline)", "45s"),
            ("128 slots of 2 workers", "2m11s (orders/3/77, without a deadline)", "none"),
        )
    ]


def test_readyz_says_why_not(run: RunMetrics, address: str) -> None:
    """A fault in force makes /readyz 503 and names worker, check and message; /livez stays."""
    worker = WorkerMetrics()
    fault = Fault("parking", "orders/0/7", "to orders--billing--dlq: no such topic", 5)
    worker.snapshot(snapshot(faults=(fault,)))
    run.update(0, worker.report())
    response, body = ask(address, "/readyz")
    assert response.status == 503
    assert json.loads(body)["reasons"] == [
        {
            "check": "faults.parking",
            "worker": 0,
            "message": "orders/0/7: to orders--billing--dlq: no such topic",
            "since_ms": 5,
            "fails_live": False,
        }
    ]
    assert ask(address, "/livez")[0].status == 200


def test_livez_fails_for_a_loop_that_stands_still(address: str, clocks: Clocks) -> None:
    """A worker without a turn for too long makes /livez 503, and says so."""
    clocks.monotonic_s += 300
    response, body = ask(address, "/livez")
    assert response.status == 503
    [reason] = json.loads(body)["reasons"]
    assert (reason["check"], reason["since_ms"]) == ("loop", NOW_MS - 300_000)


@pytest.mark.parametrize("jump_ms", [3_600_000, -3_600_000])
def test_a_wall_clock_that_jumps_makes_no_turn_older(
    run: RunMetrics, address: str, clocks: Clocks, jump_ms: int
) -> None:
    """Neither is a worker without a turn for an hour, nor is one that is gone gone for as long."""
    clocks.wall_ms += jump_ms
    assert [ask(address, page)[0].status for page in ("/livez", "/readyz")] == [200, 200]
    run.worker_gone(0)
    clocks.wall_ms += jump_ms
    assert [ask(address, page)[0].status for page in ("/livez", "/readyz")] == [200, 503]


def test_a_wall_clock_that_jumps_blocks_no_event_loop_for_longer(
    run: RunMetrics, address: str, clocks: Clocks
) -> None:
    """How long it has stood still is counted from the first report that says so, to the first that
    does not."""

    def report(*faults: Fault) -> None:
        worker = WorkerMetrics()
        worker.snapshot(snapshot(faults=faults))
        run.update(0, worker.report())

    def alive() -> bool:
        return ask(address, "/livez")[0].status == 200

    blocked = Fault("event_loop", "asyncio", "nothing has run on it", NOW_MS)
    report(blocked)
    clocks.wall_ms += 3_600_000
    assert alive()
    for step_s in (100, 0, 100):
        clocks.monotonic_s += step_s
        report(blocked)
    assert not alive()
    report()
    report(blocked)
    assert alive()
    clocks.monotonic_s += 119
    run.worker_gone(0)
    report(blocked)
    clocks.monotonic_s += 119
    assert alive()


def test_state_shows_partitions_handlers_and_faults(run: RunMetrics, address: str) -> None:
    """Floor, gaps, oldest, limits and running deliveries of every worker, as JSON."""
    run.update(1, WorkerMetrics().report())
    response, body = ask(address, "/state")
    tree = json.loads(body)
    assert response.status == 200
    assert (tree["group"], tree["ready"], tree["workers_expected"]) == ("billing", True, 1)
    assert tree["workers"]["1"] is None
    worker = tree["workers"]["0"]
    shown = worker["partitions"][0]
    assert (shown["floor"], shown["position"], shown["committed"]) == (100, 120, 98)
    assert (shown["gap_count"], shown["oldest_open_ms"]) == (8, NOW_MS - 1_500)
    assert (worker["handlers"][0]["running"], worker["handlers"][0]["concurrency"]) == (2, 64)
    assert worker["handlers"][0]["oldest"][0]["offset"] == 100
    shown = worker["handlers"][0]
    assert shown["fairness"] == "key"
    assert shown["noisy_keys"] == {
        "noisy": 1,
        "hanging": 2,
        "behind": 340,
        "newest": [{"key": "customer-3", "hanging": True, "running": 1, "behind": 12}],
        "behind_hanging": 12,
    }
    assert shown["long_slots"] == {"count": 1, "after_s": 1.2, "full": False}
    assert shown["rate"] == {
        "group_per_s": 100.0,
        "worker_per_s": 25.0,
        "waiting": 3,
        "waited_s": 12.5,
    }
    assert worker["faults"] == []
    assert worker["pid"] == os.getpid()


def test_unknown_pages_are_404_and_name_the_known(address: str) -> None:
    """Whoever mistypes is told what there is."""
    response, body = ask(address, "/healthz")
    assert response.status == 404
    assert json.loads(body)["pages"] == ["/livez", "/metrics", "/readyz", "/state"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "BREW"])
def test_other_methods_are_405(address: str, method: str) -> None:
    """Nothing here can be written to."""
    response, _ = ask(address, "/metrics", method)
    assert response.status == 405
    assert response.headers["Allow"] == "GET, HEAD"


def test_head_has_headers_alone(address: str) -> None:
    """HEAD answers as GET without the body."""
    response, body = ask(address, "/readyz", "HEAD")
    assert (response.status, body) == (200, b"")
    assert int(response.headers["Content-Length"]) > 0


def test_a_busy_port_is_refused_with_the_fix(address: str) -> None:
    """The error names the address and the flag that mends it."""
    with pytest.raises(ConfigError) as refused:
        RunMetrics("other", 1).start(address)
    assert address in str(refused.value)
    assert "--listen" in str(refused.value)
    assert "in use" in str(refused.value)


@pytest.mark.parametrize(
    "listen",
    ["9600", ":9600", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "::1:9600"],
)
def test_an_address_that_is_none_is_refused_with_the_fix(listen: str) -> None:
    """Field, value and fix are in the text, and nothing is bound."""
    with pytest.raises(ConfigError, match="--listen") as refused:
        RunMetrics("billing", 1).start(listen)
    assert repr(listen) in str(refused.value)


def test_an_unknown_host_is_refused_with_the_fix() -> None:
    """A host of another machine, or of none, can't be listened on."""
    with pytest.raises(ConfigError, match="can't listen there"):
        RunMetrics("billing", 1).start("192.0.2.1:0")


def has_ipv6() -> bool:
    """Whether this machine has an IPv6 loopback."""
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def test_an_ipv6_literal_is_served_or_refused_by_name(run: RunMetrics) -> None:
    """`[::1]:0` is an address like others; where there is no IPv6 the error says so."""
    if not has_ipv6():
        with pytest.raises(ConfigError, match="can't listen there"):
            run.start("[::1]:0")
        return
    address = run.start("[::1]:0")
    assert address.startswith("[::1]:")
    assert ask(address, "/livez")[0].status == 200


def test_a_stopped_server_gives_its_port_back(run: RunMetrics) -> None:
    """After stop the port is free, no thread is left, and a second stop does nothing."""
    # Of those that the system gives to nobody unasked, as it might while this one is free.
    (port,) = free_ports(1)
    address = run.start(f"127.0.0.1:{port}")
    ask(address, "/livez")
    run.stop()
    run.stop()
    assert "ackfloor-metrics" not in {thread.name for thread in threading.enumerate()}
    again = RunMetrics("billing", 1)
    assert again.start(address) == address
    again.stop()


def test_a_page_that_fails_is_500_and_the_server_lives(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An error in one page is logged and answered; the next request is served."""

    def broken(_request: Request) -> Response:
        raise RuntimeError("broken page")

    server = PageServer({"/broken": broken, "/well": lambda _: Response.of_json({})})
    address = server.start("127.0.0.1:0")
    try:
        assert ask(address, "/broken")[0].status == 500
        assert ask(address, "/well")[0].status == 200
    finally:
        server.stop()
    assert "broken page" in caplog.text


def test_a_client_that_goes_away_is_no_news(address: str, caplog: pytest.LogCaptureFixture) -> None:
    """A connection reset in the middle neither logs nor harms."""
    host, port = parse_listen(address)
    for _ in range(3):
        with socket.create_connection((host, port), timeout=60) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.sendall(b"GET /metrics HTTP/1.0\r\n")
    assert ask(address, "/livez")[0].status == 200
    assert caplog.text == ""


# Settings.


def test_settings_that_were_refused_are_a_note_of_a_run_that_is_ready(
    run: RunMetrics, address: str
) -> None:
    """The old ones work: /readyz says what is the matter and stays 200; /state has all of it."""
    run.settings(
        SettingsState(
            failures=2,
            error="handlers.bill.concurrency=0: too few",
            needs_restart=("app.workers", "kafka.client_id"),
            refused_by={1: "no such handler"},
        )
    )
    response, body = ask(address, "/readyz")
    told = json.loads(body)
    assert (response.status, told["ready"], told["reasons"]) == (200, True, [])
    assert (
        told["notes"]
        == [
            {"check": "settings", "message": f"{message}"}
            for message in (
                "the old settings stay: handlers.bill.concurrency=0: too few",
                "worker 1 kept its old settings: no such handler",
                "changed in the file, and needs a restart: app.workers, kafka.client_id",
            )
        ]
        + LANES
    )
    _, body = ask(address, "/state")
    assert json.loads(body)["settings"]["failures"] == 2


def post(address: str, path: str, body: bytes, **headers: str) -> tuple[int, dict[str, object]]:
    """Post something; status and JSON of the answer."""
    connection = HTTPConnection(address, timeout=60)
    try:
        connection.request("POST", path, body, headers=headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def test_what_is_posted_goes_to_its_control(run: RunMetrics, address: str) -> None:
    """With the address that asks and its authorization; the answer is the control's."""
    asked: list[ControlRequest] = []

    def control(request: ControlRequest) -> tuple[int, object]:
        asked.append(request)
        return 418, {"tea": True}

    run.control("/config", control)
    assert post(address, "/config", b"x", Authorization="Bearer t") == (418, {"tea": True})
    assert post(address, "/config?x=1", b"") == (418, {"tea": True})
    for method in ("GET", "HEAD"):
        assert ask(address, "/config?x=1", method, Authorization="Bearer t")[0].status == 418
    assert asked == [
        ControlRequest("127.0.0.1", "Bearer t", b"x"),
        ControlRequest("127.0.0.1", "", b""),
        *[ControlRequest("127.0.0.1", "Bearer t", b"", "GET")] * 2,
    ]
    assert post(address, "/metrics", b"x")[0] == 405
    assert ask(address, "/handlers")[0].status == 404


def test_a_control_that_only_acts_says_so(run: RunMetrics, address: str) -> None:
    """With the method that it takes, as HTTP wants it."""
    run.control("/handlers", lambda request: (405, {"error": request.method}))
    response, body = ask(address, "/handlers")
    assert (response.status, response.headers["Allow"], json.loads(body)) == (
        405, "POST", {"error": "GET"},
    )  # fmt: skip


def test_a_body_without_bounds_is_not_read(run: RunMetrics, address: str) -> None:
    """Too long by its own word, or of a length that it does not say."""
    run.control("/config", lambda _: pytest.fail("asked"))
    for length, status in (
        (str(CONTROL_BYTES + 1), 413),
        ("9" * 30, 413),
        ("-1", 411),
        ("many", 411),
        ("\u0663", 411),
    ):
        told = post(address, "/config", b"", **{"Content-Length": length.encode().decode("latin1")})
        assert told[0] == status
    headers = {"Transfer-Encoding": "chunked"}
    assert post(address, "/config", b"", **headers)[0] == 411


def test_a_control_that_fails_is_500_and_serving_goes_on(
    run: RunMetrics, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has the traceback, and the answer none of it."""

    def control(_: ControlRequest) -> tuple[int, object]:
        raise LookupError("secret")

    run.control("/config", control)
    status, told = post(address, "/config", b"")
    assert status == 500
    assert "secret" not in str(told)
    assert "LookupError" in caplog.text
    assert ask(address, "/livez")[0].status == 200
