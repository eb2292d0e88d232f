"""The service of the guide, served by uvicorn on a real broker, asked over HTTP."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ackfloor.kafka.groups.coordinator import coordinated
from ackfloor.testing import KafkaCluster
from tests.e2e.served import UVICORN, served_at
from tests.framework.kafka.wire import stored, until
from tests.structure.pages import blocks, environment
from tests.structure.sources import REPOSITORY

pytestmark = [pytest.mark.kafka, pytest.mark.e2e]

PATIENCE_S = 120.0
#: A lifespan of the worker that ends by itself when a file is there.
BREAKING = """
from pathlib import Path

@asynccontextmanager
async def breaking(_: App) -> AsyncGenerator[None]:
    async def watch() -> None:
        while not Path("break").exists():
            await asyncio.sleep(0.05)
        raise LookupError("the pool is gone")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(watch())
        yield
        task.cancel()

"""


class Service:
    """A server of the guide's service."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes]) -> None:
        self.folder = folder
        self.process = process
        self.url = ""

    def log(self) -> str:
        """What it has logged so far."""
        return (self.folder / "log.txt").read_text()

    def wait_served(self) -> None:
        """Wait until it takes requests."""
        self.url = served_at(self.folder / "log.txt", self.process, UVICORN, PATIENCE_S)

    def get(self, path: str) -> tuple[int, str]:
        """Status and text of a page."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=PATIENCE_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def order(self, number: int, cents: int) -> Any:
        """What a new order is answered with."""
        body = json.dumps({"id": number, "cents": cents}).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + "/orders", body, headers)
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return json.load(answer)

    def end(self) -> str:
        """Ask it to end, and wait; returns its log."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE_S)
        return self.log()


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """A broker of its own, with the topic of the guide."""
    with KafkaCluster() as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([NewTopic("orders", 2, 1)])["orders"].result()
        yield cluster.bootstrap_servers


@contextmanager
def serving(
    folder: Path, servers: str, *options: str, change: Callable[[str], str] = str
) -> Iterator[Service]:
    """The guide's service, as uvicorn serves it."""
    for block in blocks((REPOSITORY / "docs/guide/web-service.md").read_text()):
        if block.file == "service.py":
            (folder / block.file).write_text(change(block.text))
    env = environment(folder, ACKFLOOR_BOOTSTRAP_SERVERS=servers)
    env["ACKFLOOR_APP__LOOK_INTERVAL"] = "1s"
    command = ["python", "-m", "uvicorn", "service:web", "--port", "0", *options]
    with ExitStack() as stack:
        log = stack.enter_context((folder / "log.txt").open("wb"))
        process = subprocess.Popen(
            command, cwd=folder, env=env, stdout=log, stderr=log, start_new_session=True
        )
        stack.callback(process.wait)
        stack.callback(_kill_all_of, process)
        service = Service(folder, process)
        service.wait_served()
        yield service
        if process.poll() is None:
            service.end()


def _kill_all_of(process: subprocess.Popen[bytes]) -> None:
    """The server and what it has started, which would outlive it."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def members(servers: str, group: str = "shop") -> int:
    """How many members the group has."""
    admin = AdminClient({"bootstrap.servers": servers})
    described = coordinated(lambda: admin.describe_consumer_groups([group])[group].result(60), 60)
    return len(described.members)


def test_a_request_is_answered_by_what_a_handler_did(servers: str, tmp_path: Path) -> None:
    """In the same process, on the same loop; its pages are mounted, and a signal ends it all."""
    with serving(tmp_path, servers) as service:
        assert [service.order(n, 500 + n) for n in range(5)] == [500 + n for n in range(5)]
        # The worker reports its state a moment after it has handled its first record.
        until(lambda: service.get("/ackfloor/readyz")[0] == 200)
        assert json.loads(service.get("/ackfloor/readyz")[1])["ready"] is True
        assert service.get("/ackfloor/livez")[0] == 200
        state = json.loads(service.get("/ackfloor/state")[1])
        assert (state["group"], list(state["workers"])) == ("shop", ["0"])
        acked = r'^ackfloor_messages_acked_total\{[^}]*handler="bill"[^}]*\} 5\.0$'
        until(lambda: re.search(acked, service.get("/ackfloor/metrics")[1], re.MULTILINE))
        # What another process has read from Kafka.
        until(lambda: "\nackfloor_kafka_lag_messages{" in service.get("/ackfloor/metrics")[1])
        status, pages = service.get("/ackfloor/nowhere")
        assert (status, json.loads(pages)["pages"][0]) == (404, "/livez")
        assert members(servers) == 1
        log = service.end()
    assert "Application shutdown complete" in log
    assert "Traceback" not in log
    assert members(servers) == 0
    assert sum(max(0, stored(servers, "shop", "orders", p).offset) for p in range(2)) == 5


def test_each_process_of_the_server_is_a_member(servers: str, tmp_path: Path) -> None:
    """All leave the group when the server ends."""
    with serving(tmp_path, servers, "--workers", "2") as service:
        until(lambda: members(servers) == 2)
        service.end()
    assert members(servers) == 0


def test_a_server_whose_worker_is_given_up_ends(servers: str, tmp_path: Path) -> None:
    """It would go on to serve without what its lifespan had opened."""

    def broken(text: str) -> str:
        text = text.replace('app = App("shop")', BREAKING + 'app = App("shop", lifespan=breaking)')
        return text.replace("app.running()", "app.running(restarts=0)")

    with serving(tmp_path, servers, change=broken) as service:
        assert service.order(1, 700) == 700
        (tmp_path / "break").touch()
        assert service.process.wait(PATIENCE_S) in {0, -signal.SIGTERM}
        assert "WorkerFailed: the worker has failed 1 times, at last with" in service.log()
    assert members(servers) == 0


def test_a_server_starts_while_kafka_is_away(tmp_path: Path) -> None:
    """Alive, not ready, and says why; it ends at once."""
    with serving(tmp_path, "127.0.0.1:1") as service:
        assert service.get("/ackfloor/livez")[0] == 200
        status, ready = service.get("/ackfloor/readyz")
        assert status == 503
        assert "127.0.0.1:1" in ready
        assert service.get("/docs")[0] == 200
        asked_s = time.monotonic()
        service.end()
        assert time.monotonic() - asked_s < 20
