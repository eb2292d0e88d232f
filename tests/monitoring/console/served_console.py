"""A console that is served on a port of this machine, and a browser that reads its answers."""

from __future__ import annotations

import asyncio
import http.client
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlencode

import pytest

from ackfloor.cli.shared.parameters import Brokers
from ackfloor_monitoring.console.access.gate import Gate
from ackfloor_monitoring.console.access.hosts import own_names
from ackfloor_monitoring.console.access.roles import Role
from ackfloor_monitoring.console.index.dead_letter_index import DeadLetterIndex
from ackfloor_monitoring.console.reads.cluster_facts import Cluster
from ackfloor_monitoring.console.reads.prometheus import Prometheus
from ackfloor_monitoring.console.reads.spark_report import SparkReport
from ackfloor_monitoring.console.serving import Place, server_of

#: Nobody answers there.
NOWHERE = "127.0.0.1:1"


@dataclass(frozen=True)
class Answer:
    """What the console answered."""

    status: int
    headers: Mapping[str, str]
    text: str


@dataclass(frozen=True)
class Console:
    """One that is served."""

    port: int

    @property
    def host(self) -> str:
        """As a browser names it."""
        return f"127.0.0.1:{self.port}"

    @property
    def home(self) -> str:
        """Its address, without a path."""
        return f"http://{self.host}"

    def connection(self) -> http.client.HTTPConnection:
        """To it."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)

    def ask(self, path: str, method: str = "GET", body: str = "", **headers: str) -> Answer:
        """Ask for a page, as a browser on one of its pages does; `headers` come on top."""
        given = {"Host": self.host, "Accept": "text/html", "Sec-Fetch-Site": "same-origin"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        given = {name: value for name, value in given.items() if value}
        connection = self.connection()
        connection.request(method, path, body.encode(), given)
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        found = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, found, text)

    def send(self, path: str, *fields: tuple[str, str], **headers: str) -> Answer:
        """Send a form, as a browser on one of the console's pages does."""
        form = {"Content_Type": "application/x-www-form-urlencoded", **headers}
        return self.ask(path, "POST", urlencode(fields), **form)

    def log_in(self, token: str, **headers: str) -> Answer:
        """Send the form of the login page."""
        return self.send("/login", ("token", token), **headers)

    @contextmanager
    def events(self, path: str, **headers: str) -> Iterator[Iterator[tuple[str, str]]]:
        """The events of a page: name and text of each."""
        connection = self.connection()
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        assert response.status == 200, response.read()
        try:
            yield _events(response)
        finally:
            connection.close()


def _events(response: http.client.HTTPResponse) -> Iterator[tuple[str, str]]:
    name, lines = "", list[str]()
    while raw := response.readline():
        line = raw.decode().rstrip("\n")
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            lines.append(line.removeprefix("data: "))
        elif not line and name:
            yield name, "\n".join(lines)
            name, lines = "", []


def named_by(monkeypatch: pytest.MonkeyPatch) -> str:
    """Have a header say from where a request comes, as behind a proxy; returns its name."""
    header = "x-test-from"

    def origin(_gate: Gate, headers: Mapping[str, str], peer: str) -> str:
        return headers.get(header, peer)

    monkeypatch.setattr(Gate, "origin", origin)
    return header.replace("-", "_")


@contextmanager
def console_of(
    *runs: str,
    servers: str = NOWHERE,
    token_file: Path | None = None,
    role: Role = Role.reader,
    names: tuple[str, ...] = ("kafka",),
    index: DeadLetterIndex | None = None,
    token_files: Mapping[str, Path] = MappingProxyType({}),
    port: int = 0,
    report: SparkReport | None = None,
    prometheus: Prometheus | None = None,
    tls_ca: Path | None = None,
) -> Iterator[Console]:
    """Serve a console of these runs, this broker and this index, a cluster of each name.

    Args:
        port: 0 for any.
        tls_ca: whom to trust at a run with TLS.
    """
    gate = Gate(own_names("127.0.0.1", None), secure=False, token_file=token_file, role=role)
    place = Place("127.0.0.1", port)
    bound = place.bound()
    asking = ThreadPoolExecutor(8)
    brokers = Brokers(servers=servers, tls_ca=tls_ca)
    more = (index, token_files, report, prometheus)
    clusters = [Cluster(name, brokers, runs, asking, *more) for name in names]
    server = server_of(clusters, gate, place)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([bound])))
    thread.start()
    try:
        yield Console(bound.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(60)
        asking.shutdown()
        bound.close()
        assert not thread.is_alive()
