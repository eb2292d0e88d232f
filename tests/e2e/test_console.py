"""`ackfloor console` beside a real run and broker: what it shows, how it starts, how it ends."""

from __future__ import annotations

import datetime as dt
import http.client
import ipaddress
import json
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ackfloor.runtime.supervision.exit_codes import Exit
from tests.e2e.stage import Stage, ready
from tests.framework.cli.command import PATIENCE_S, ackfloor, environment
from tests.framework.kafka.wire import committed_records, until

pytestmark = pytest.mark.e2e

ANY_PORT = ("--listen", "127.0.0.1:0")
BLOCKING = """
app = App("GROUP")


@app.handler("TOPIC", ordering="key", retry=RetryPolicy.fixed("10m", None), breaker=None)
async def bill(delivery: Delivery) -> None:
    if delivery.value == b"bad":
        raise RuntimeError("no price <b>here</b>")
"""

WAITING = """
app = App("GROUP")


@app.handler("TOPIC", retry=RetryPolicy.fixed("1h"))
async def bill(delivery: Delivery) -> None:
    note(started, delivery)
    while not opened("gate"):
        await asyncio.sleep(0.05)
"""


@contextmanager
def console(folder: Path, *arguments: str) -> Iterator[tuple[str, int]]:
    """A console in a process of its own: scheme and port; it has to end in order."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "ackfloor.cli.main",
            "console",
            *ANY_PORT,
            "--index-folder",
            str(folder / "index"),
            *arguments,
        ],
        cwd=folder,
        env=environment({"PYTHONUNBUFFERED": "1", "XDG_RUNTIME_DIR": str(folder)}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        found = re.fullmatch(r"the console is at (https?)://127\.0\.0\.1:(\d+)/\n", line)
        assert found, process.communicate()
        yield found[1], int(found[2])
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, errors) == (Exit.OK, "")
    finally:
        process.kill()
        process.wait()


def page(port: int, path: str, **headers: str) -> str:
    """A page's words."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path, headers=headers)
    text = connection.getresponse().read().decode()
    connection.close()
    return text


@pytest.mark.kafka
def test_what_a_run_and_the_broker_say_is_shown(make_stage: Callable[..., Stage]) -> None:
    """A blocked lane with its error, what waits behind it; then that the run is gone."""
    stage = make_stage(BLOCKING)
    run = stage.run()
    run.until(ready(run), "ready")
    stage.produce(1, b"bad", key=b"a")
    stage.produce(7, key=b"a")
    listen = run.logged("metrics and health on ").rpartition("http://")[2]
    given = ("--run", listen, "--bootstrap-servers", stage.servers)
    with console(stage.folder, *given) as (_, port):

        def says(*texts: str) -> bool:
            found = page(port, "/c/kafka/overview")
            return all(text in found for text in texts)

        until(
            lambda: says(
                "1 blocked lane, 7 records behind", "no price &lt;b&gt;here&lt;/b&gt;", stage.group
            )
        )
        run.process.kill()
        until(lambda: says("no run answers"))


def send(port: int, path: str, **fields: str) -> str:
    """Send a form, as a browser on one of the console's pages does; the page that it leads to."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {
        "Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin",
    }  # fmt: skip
    connection.request("POST", path, urlencode(fields), headers)
    response = connection.getresponse()
    assert response.status == 303, response.read()
    connection.close()
    return response.headers["location"]


@pytest.mark.kafka
def test_an_operator_moves_what_holds_a_key(make_stage: Callable[..., Stage]) -> None:
    """The record is in the dead-letter topic, the rest of its key is handled, and all is noted."""
    stage = make_stage(BLOCKING)
    run = stage.run()
    run.until(ready(run), "ready")
    stage.produce(1, b"bad", key=b"a")
    stage.produce(7, key=b"a")
    listen = run.logged("metrics and health on ").rpartition("http://")[2]
    given = ("--run", listen, "--bootstrap-servers", stage.servers, "--role", "operator")
    of_bill = {"group": stage.group, "handler": "bill", "all": "yes"}
    with console(stage.folder, *given) as (_, port):
        lanes, orders = "/c/kafka/lanes", "/c/kafka/orders"
        until(lambda: "RuntimeError: no price &lt;b&gt;here&lt;/b&gt;" in page(port, lanes))
        order = send(port, orders, action="dead_letter", **of_bill)
        assert "would be on the way to the dead-letter topic: the head of 1 lane" in page(
            port, order
        )
        assert send(port, order, reason="INC-17") == order
        assert "on the way to the dead-letter topic: the head of 1 lane" in page(port, order)
        until(lambda: "No lane waits" in page(port, lanes))
        until(lambda: "INC-17" in page(port, "/c/kafka/actions"))
    dead = committed_records(stage.servers, f"{stage.topic}--{stage.group}--dlq")
    assert [message.value() for message in dead] == [b"bad"]
    listed = ackfloor(
        *("actions", "ls", "-o", "json", "--group", stage.group), cwd=stage.folder,
        ACKFLOOR_BOOTSTRAP_SERVERS=stage.servers,
    )  # fmt: skip
    [note] = json.loads(listed.stdout)
    assert (note["action"], note["state"], note["program"], note["group"], note["counts"]) == (
        "lanes dead-letter", "done", "console", stage.group, {"done": 1},
    )  # fmt: skip


@pytest.mark.kafka
def test_an_admin_shortens_a_deadline(make_stage: Callable[..., Stage]) -> None:
    """What it ends in flight is said before, and parked after; who did it stays on the page."""
    stage = make_stage(WAITING)
    run = stage.run()
    run.until(ready(run), "ready")
    stage.produce(3)
    run.until(lambda: len(stage.noted("started")) == 3, "3 in flight")
    listen = run.logged("metrics and health on ").rpartition("http://")[2]
    given = ("--run", listen, "--bootstrap-servers", stage.servers, "--role", "admin")
    setting = "handlers.bill.consume_timeout"
    with console(stage.folder, *given) as (_, port):
        settings, orders = "/c/kafka/settings", list[str]()
        assert setting in page(port, settings)

        def judged() -> str:
            change = {"group": stage.group, "setting": setting, "value": "1s"}
            orders.append(send(port, "/c/kafka/changes", **change))
            return page(port, orders[-1])

        until(lambda: "3 deliveries would time out at once" in judged())
        assert committed_records(stage.servers, f"{stage.topic}--{stage.group}--retry-1h") == []
        assert send(port, orders[-1], reason="INC-18") == orders[-1]
        assert f"{listen}: {setting} from 1m to 1s, taken by worker 0" in page(port, orders[-1])
        retry = f"{stage.topic}--{stage.group}--retry-1h"
        until(lambda: len(committed_records(stage.servers, retry)) == 3)
        until(lambda: "INC-18" in page(port, settings))
        assert "config set" in page(port, settings)
    stage.open_gate()
    listed = ackfloor(
        *("config", "show", "--running", "--listen", listen, "-o", "json"), cwd=stage.folder
    )
    shown = {row["name"]: (row["value"], row["source"]) for row in json.loads(listed.stdout)}
    assert shown[setting] == ("1s", "config set")
    assert shown["app.group"] == (stage.group, "code")


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate of this machine with its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    file = tmp_path / "console.pem"
    file.write_bytes(
        made.public_bytes(pem) + key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    )
    return file


def test_over_tls_with_a_token_that_the_command_made(tmp_path: Path, certificate: Path) -> None:
    """The token is printed once; browsers are told to come back over TLS alone."""
    tokens = str(tmp_path / "tokens.toml")
    added = ackfloor("console", "--token-file", tokens, "--add-token", "ann:viewer", cwd=tmp_path)
    assert added.returncode == Exit.OK
    token = added.stdout.strip()
    given = ("--token-file", tokens, "--tls-certificate", str(certificate))
    with console(tmp_path, *given, "--bootstrap-servers", "127.0.0.1:1") as (scheme, port):
        assert scheme == "https"
        context = ssl.create_default_context(cafile=str(certificate))
        connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=60)
        connection.request(
            "GET", "/c/kafka/in-flight", headers={"Authorization": f"Bearer {token}"}
        )
        answer = connection.getresponse()
        assert answer.status == 200
        assert "ann" in answer.read().decode()
        assert answer.getheader("Strict-Transport-Security") is not None
        connection.close()
