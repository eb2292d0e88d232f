"""What `ackfloor doctor` says of the schema registry: each failure with its fix."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ackfloor.cli.main import cli
from ackfloor.core.values.doctor_result import CheckResult
from ackfloor.kafka.inspection.schema_checks import check_registry
from ackfloor.settings import RegistrySettings
from ackfloor.testing import SchemaRegistry

SECRET = "hush-4711"
APP = """
from ackfloor import App
from ackfloor.schemas import Avro

app = App(group="billing")


@app.handler("orders", decoder=Avro())
async def bill(order: dict) -> None: ...


@app.handler("plain")
async def plain(order: bytes) -> None: ...
"""


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    """One that knows its reader."""
    with SchemaRegistry(username="reader", password=SECRET) as running:
        running.register("orders-value", '{"type": "string"}')
        yield running


def found(url: str, **more: object) -> CheckResult:
    """What is found for one topic."""
    settings = RegistrySettings(url=url, timeout="60s", **more)  # type: ignore[arg-type]
    [result] = check_registry(settings, ["orders"])
    return result


def test_what_it_knows_and_what_not_yet_is_told(registry: SchemaRegistry) -> None:
    """Neither is a fault: subjects may be named otherwise."""
    settings = RegistrySettings(url=registry.url, username="reader", password=SECRET)
    [result] = check_registry(settings, ["orders", "bills"])
    assert result.state == "ok"
    assert "it has orders-value; no bills-value yet, or under another name" in result.detail


def test_a_refused_login_names_itself_and_not_the_password(registry: SchemaRegistry) -> None:
    """With the settings that it comes from."""
    result = found(registry.url, username="reader", password="wrong-0815")
    assert (result.state, "HTTP 401" in result.detail) == ("fail", True)
    assert "ACKFLOOR_REGISTRY__PASSWORD" in result.fix
    assert "0815" not in str(result)


@pytest.mark.parametrize(
    ("fault", "fix"),
    [
        (403, "grant this user to read the subject orders-value"),
        (404, "this is no schema registry"),
        (500, "its log says why"),
    ],
)
def test_a_refusal_has_its_fix(registry: SchemaRegistry, fault: int, fix: str) -> None:
    """By the status of the answer."""
    registry.fault = fault
    result = found(registry.url)
    assert (result.state, f"HTTP {fault}" in result.detail) == ("fail", True)
    assert fix in result.fix


def test_who_is_not_there_or_speaks_otherwise_is_told(registry: SchemaRegistry) -> None:
    """No TLS where TLS is asked for, and nobody at all."""
    assert "ssl_ca_location" in found(registry.url.replace("http:", "https:")).fix
    url = registry.url
    registry.close()
    result = found(url)
    assert (result.state, "no answer" in result.detail) == ("fail", True)
    assert result.fix == "start it, or mend registry.url"


def test_a_page_for_people_is_no_registry() -> None:
    """As a proxy in front of it may answer."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>")

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        result = found(f"http://127.0.0.1:{server.server_address[1]}")
        server.shutdown()
    assert (result.state, "no JSON" in result.detail) == ("fail", True)
    assert result.fix == "mend registry.url"


def test_the_doctor_asks_for_what_the_app_decodes(
    registry: SchemaRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where no broker answers; topics without a schema are not asked for."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "registry_shop.py").write_text(APP)
    monkeypatch.setenv("ACKFLOOR_REGISTRY__URL", registry.url)
    monkeypatch.setenv("ACKFLOOR_REGISTRY__USERNAME", "reader")
    monkeypatch.setenv("ACKFLOOR_REGISTRY__PASSWORD", SECRET)
    words = ["doctor", "registry_shop:app", "--bootstrap-servers", "127.0.0.1:1"]
    done = CliRunner().invoke(cli, [*words, "--connect-timeout", "1s", "-o", "json"])
    notes = {each["check"]: each for each in json.loads(done.stdout)}
    assert notes["schema registry"]["state"] == "ok"
    assert registry.asked == ["GET /subjects/orders-value/versions/latest"]
