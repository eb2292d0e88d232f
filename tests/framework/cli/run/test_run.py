"""`ackfloor run` before any worker starts: what is refused, and the wait for Kafka."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ackfloor.cli.main import cli, main
from ackfloor.operations import Trust, ask_state
from ackfloor.runtime.supervision.exit_codes import Exit
from tests.certificates import Authority
from tests.framework.cli.command import Running, ackfloor

E2E = pytest.mark.e2e
#: Nobody listens there.
NOWHERE = "127.0.0.1:1"
START = "from ackfloor import App, Delivery, RetryPolicy\napp = App('billing')\n"
HANDLER = START + "@app.handler('orders')\nasync def bill(order: bytes) -> None: ...\n"
#: Workers that were forced to end, and a signal while the run closes what else it has.
FORCED = """
import os, signal
from contextlib import contextmanager
from types import SimpleNamespace as Some
import ackfloor.cli.run.supervised_run as run
from ackfloor.launch import Launch

@contextmanager
def lag_watch(*_):
    yield
    os.kill(os.getpid(), signal.{number})

Launch.prepare_topics = lambda *_: None
Launch.lag_watch = lag_watch
run.Supervisor = lambda *_, **__: Some(run=lambda: 6)
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A folder with an app that may be run."""
    (tmp_path / "shop.py").write_text(HANDLER)
    return tmp_path


@pytest.fixture
def start(shop: Path) -> Iterator[Callable[..., Running]]:
    """Starts `ackfloor run` in the background, on any free port and without a broker."""
    runs: list[Running] = []

    def start(*arguments: str, **given: str) -> Running:
        given = {
            "ACKFLOOR_BOOTSTRAP_SERVERS": NOWHERE,
            "ACKFLOOR_RUN_LISTEN": "127.0.0.1:0",
        } | given
        runs.append(Running(*arguments, cwd=shop, **given))
        return runs[-1]

    yield start
    for run in runs:
        run.close()


@E2E
def test_sigterm_while_the_app_is_imported_ends_the_run_in_order(
    shop: Path, start: Callable[..., Running]
) -> None:
    """Nothing is open yet; an end by the signal itself would look like a crash."""
    (shop / "shop.py").write_text(
        "import time\nfrom pathlib import Path\nPath('importing').touch()\ntime.sleep(60)\n"
    )
    run = start("shop:app")
    run.until((shop / "importing").exists, "the import")
    run.signal(signal.SIGTERM)
    assert run.wait() == Exit.OK


@E2E
def test_two_apps_run_from_one_file(shop: Path, start: Callable[..., Running]) -> None:
    """Each with its own section, and with what is common."""
    (shop / "audit.py").write_text(HANDLER.replace("billing", "shop.audit"))
    (shop / "ackfloor.toml").write_text(
        "[app]\nmax_open = 7\n[apps.billing.app]\nworkers = 2\n"
        '[apps."shop.audit".app]\nworkers = 1\nmax_open = 9\n'
    )
    for module, group, workers in (("shop", "billing", 2), ("audit", "shop.audit", 1)):
        run = start(f"{module}:app")
        run.logged(f"group {group}")
        address = run.logged("metrics and health on http://").rpartition("http://")[2]
        with urllib.request.urlopen(f"http://{address}/state", timeout=60) as response:
            state = json.load(response)
        assert (state["group"], state["workers_expected"]) == (group, workers)
        assert not any("no section" in line for line in run.lines)
    (shop / "ackfloor.toml").write_text("[apps.biling.app]\nworkers = 2\n")
    start("shop:app").logged("no section [apps.billing.*]; it has [apps.biling.*]")


@E2E
def test_a_run_is_served_over_tls(shop: Path, start: Callable[..., Running]) -> None:
    """With the certificate of its settings; its log names the scheme, commands find it there."""
    authority = Authority(shop)
    certificate, key = authority.signed("127.0.0.1")
    (shop / "ackfloor.toml").write_text(
        f'[app]\ntls_certificate = "{certificate}"\ntls_key = "{key}"\n'
    )
    run = start("shop:app")
    address = run.logged("metrics and health on https://").rpartition("https://")[2]
    assert ask_state(f"https://{address}", Trust(authority.file))["group"] == "billing"
    told = ackfloor("inflight", "--listen", f"https://{address}", cwd=shop)
    assert "signed by nobody that is trusted" in told.stderr
    run.signal(signal.SIGTERM)
    assert run.wait() == Exit.OK


Refused = Callable[..., str]


@pytest.fixture
def refused(
    shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Refused]:
    """Runs the command in this process; returns the one line it is refused with: it exits 3."""
    monkeypatch.chdir(shop)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in [name for name in os.environ if name.startswith("ACKFLOOR_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ACKFLOOR_BOOTSTRAP_SERVERS", NOWHERE)

    def refused(*arguments: str, **given: str) -> str:
        for name, value in given.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", ["ackfloor", "run", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        told = capsys.readouterr()
        assert (ended.value.code, told.out) == (Exit.START, "")
        (line,) = [line for line in told.err.splitlines() if line.startswith("error: ")]
        return line

    yield refused
    sys.modules.pop("shop", None)


@pytest.mark.parametrize(
    ("app", "named"),
    [
        ("shpo:app", "no module named 'shpo'"),
        ("shop:ap", "module 'shop' has no attribute 'ap'; its apps are: app"),
        ("shop:bill", "shop:bill is a function"),
        ("shop", "MODULE:APP"),
    ],
)
def test_an_app_that_is_not_there_is_named(refused: Refused, app: str, named: str) -> None:
    """The exact module or attribute, and exit 3."""
    assert named in refused(app)


@pytest.mark.parametrize(
    ("code", "named"),
    [
        (
            "@app.handler('orders', name='b')\n@app.handler('orders')\ndef a(v: bytes): ...\n",
            "handlers.b.topics='orders'",
        ),
        ("@app.handler('o', consume_timeout=30)\ndef a(v: bytes) -> None: ...\n", "30"),
        ("@app.handler('o')\ndef a(v) -> None: ...\n", "handlers.a.v"),
        ("@app.handler('o')\ndef a(v: 'Missing') -> None: ...\n", "name 'Missing' is not defined"),
        (
            "async def mw(d, n): ...\n@app.handler('o', middleware=[mw])\ndef a(v: bytes): ...\n",
            "handlers.a.middleware='mw'",
        ),
        ("", "it has no handlers"),
    ],
    ids=["two_handlers", "no_unit", "no_hint", "unknown_hint", "middleware", "no_handlers"],
)
def test_a_wrong_registration_is_one_line(
    shop: Path, refused: Refused, code: str, named: str
) -> None:
    """Before Kafka is asked for anything."""
    (shop / "shop.py").write_text(START + code)
    assert named in refused("shop:app")


@pytest.mark.parametrize(
    ("arguments", "given", "named"),
    [
        ([], {"ACKFLOOR_HANDLERS__BILL__CONSUME_TIMEOUT": "30"}, "consume_timeout='30'"),
        ([], {"ACKFLOOR_HANDLERS__BIIL__CONCURRENCY": "3"}, "biil"),
        ([], {"ACKFLOOR_APP__GROUP": "no such group!"}, "group"),
        (["--config", "no.toml"], {}, "no.toml"),
        (["--tls-key", "shop.py"], {}, "app.tls_key='shop.py': goes with app.tls_certificate"),
        ([], {"ACKFLOOR_APP__TLS_CERTIFICATE": "none.pem"}, "app.tls_certificate='none.pem'"),
    ],
    ids=["timeout", "unknown", "group", "config", "tls_key", "tls_certificate"],
)
def test_a_wrong_setting_is_one_line(
    refused: Refused, arguments: list[str], given: dict[str, str], named: str
) -> None:
    """With its field, its value and where it came from."""
    given = {"ACKFLOOR_RUN_LISTEN": "127.0.0.1:0"} | given
    assert named in refused("shop:app", *arguments, **given)


@pytest.mark.parametrize("arguments", [["shop:app", "--workers", "0"], []])
def test_bad_usage_exits_2(arguments: list[str]) -> None:
    """A number of workers that can't be, or no app at all."""
    assert CliRunner().invoke(cli, ["run", *arguments]).exit_code == Exit.USAGE


def test_a_busy_port_is_named_with_the_way_out(refused: Refused) -> None:
    """Before it waits for anything."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        line = refused("shop:app", "--listen", address)
    assert f"listen='{address}': can't listen there" in line
    assert "--listen" in line


@E2E
def test_a_broker_that_is_away_ends_it_with_4_where_asked_to(shop: Path) -> None:
    """After the time that was given, and not much later."""
    started_s = time.monotonic()
    done = ackfloor(
        "run",
        "shop:app",
        "--connect-timeout",
        "2s",
        cwd=shop,
        ACKFLOOR_BOOTSTRAP_SERVERS=NOWHERE,
        ACKFLOOR_RUN_LISTEN="127.0.0.1:0",
    )
    assert done.returncode == Exit.KAFKA_UNREACHABLE
    assert time.monotonic() - started_s < 60
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"error: kafka.bootstrap_servers='{NOWHERE}'")
    assert "within 2 s" in last
    assert "ACKFLOOR_BOOTSTRAP_SERVERS" in last


@E2E
def test_a_flood_guard_in_the_code_is_warned_of(shop: Path, start: Callable[..., Running]) -> None:
    """Once, with what to write instead: Python shows no deprecation of an imported module."""
    (shop / "shop.py").write_text(HANDLER.replace("'orders'", "'orders', guard=None"))
    run = start("shop:app")
    line = run.logged("handlers.bill.guard: the flood guard gave way")
    assert "write breaker=CircuitBreaker(...), or breaker=None for none" in line
    run.signal(signal.SIGTERM)
    run.wait()


@E2E
def test_a_broker_that_is_away_is_waited_for_and_said(start: Callable[..., Running]) -> None:
    """The run lives, is not ready, says what it waits for, and a signal ends it at once.

    SIGHUP does not: a reload may come while a run is still starting.
    """
    run = start("shop:app", "--workers", "2")
    assert run.logged("group billing").endswith("group billing")
    run.logged(f"waiting for Kafka at {NOWHERE}")
    run.signal(signal.SIGHUP)
    address = run.logged("metrics and health on http://").rpartition("http://")[2]
    live, _ = get(address, "/livez")
    assert live == 200
    why: list[str] = []

    def waits() -> bool:
        why[:] = messages(address)
        return all(each.startswith("waits for Kafka: ") for each in why)

    run.until(waits, "the reason")
    one, other = why
    assert one == other
    assert NOWHERE in one
    run.signal(signal.SIGTERM)
    run.wait()


@E2E
@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
def test_a_signal_after_the_last_worker_changes_no_exit_code(shop: Path, number: str) -> None:
    """The second one forced the run to its end; a third must not make that an end in order."""
    (shop / "shop.py").write_text(HANDLER + FORCED.format(number=number))
    done = ackfloor(
        "run",
        "shop:app",
        cwd=shop,
        ACKFLOOR_BOOTSTRAP_SERVERS=NOWHERE,
        ACKFLOOR_RUN_LISTEN="127.0.0.1:0",
    )
    assert done.returncode == Exit.FORCED, done.stderr


def messages(address: str) -> list[str]:
    """Why the run is not ready."""
    ready, said = get(address, "/readyz")
    assert ready == 503
    return [reason["message"] for reason in said["reasons"]]


def get(address: str, page: str) -> tuple[int, dict[str, list[dict[str, str]]]]:
    """Status and JSON of one of the run's pages."""
    try:
        with urllib.request.urlopen(f"http://{address}{page}", timeout=60) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as refused_:
        with refused_:
            return refused_.code, json.load(refused_)
