"""The order in which a broker is chosen, and that the choice is told."""

from __future__ import annotations

import logging
import socket
import socketserver
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from ackfloor.testing.local_kafka.bootstrap import docker_answers, open_broker

pytestmark = [pytest.mark.kafka]


def test_given_broker_comes_first(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """ACKFLOOR_BOOTSTRAP_SERVERS is taken as it is, without touching the network."""
    monkeypatch.setenv("ACKFLOOR_BOOTSTRAP_SERVERS", "kafka.example:9092")
    caplog.set_level(logging.INFO, "ackfloor.testing")
    with open_broker() as broker:
        assert (broker.bootstrap_servers, broker.origin) == ("kafka.example:9092", "given")
        assert broker.cluster is None
    assert "kafka.example:9092 (given by ACKFLOOR_BOOTSTRAP_SERVERS)" in caplog.text


def test_local_broker_comes_last(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Without a given broker and without Docker a local one is started, and stopped after."""
    monkeypatch.delenv("ACKFLOOR_BOOTSTRAP_SERVERS", raising=False)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    caplog.set_level(logging.INFO, "ackfloor.testing")
    with open_broker() as broker:
        assert broker.origin == "local"
        assert broker.cluster is not None
        data_dir = broker.cluster.data_dir
        assert broker.bootstrap_servers == broker.cluster.bootstrap_servers
    assert not data_dir.exists()
    assert "a local Kafka 4.3.0" in caplog.text


class _Engine(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/_ping" else 404)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Keep the test's output quiet."""


@pytest.mark.parametrize("scheme", ["unix", "tcp"])
def test_docker_engine_that_answers_is_seen(
    scheme: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An engine that answers a ping counts as there, over a Unix socket and over TCP."""
    path = str(tmp_path / "d.sock")
    server: socketserver.BaseServer
    if scheme == "unix":
        server = socketserver.ThreadingUnixStreamServer(path, _Engine)
    else:
        server = ThreadingHTTPServer(("127.0.0.1", 0), _Engine)
        path = f"127.0.0.1:{server.server_port}"
    monkeypatch.setenv("DOCKER_HOST", f"{scheme}://{path}")
    with server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        answers = docker_answers()
        server.shutdown()
        thread.join()
    assert answers


@pytest.mark.parametrize("host", ["ssh://docker.example", "tcp://127.0.0.1:1", "unix:///none"])
def test_absent_docker_engine(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no engine listens, or one is only to be had over ssh, Docker counts as absent."""
    monkeypatch.setenv("DOCKER_HOST", host)
    assert not docker_answers()


def test_silent_docker_engine_is_given_up_soon(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A Docker socket that accepts but never answers costs a second or two, not the run."""
    with socket.socket(socket.AF_UNIX) as engine:
        engine.bind(str(tmp_path / "d.sock"))
        engine.listen()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/d.sock")
        began = time.monotonic()
        assert not docker_answers()
        assert time.monotonic() - began < 30
