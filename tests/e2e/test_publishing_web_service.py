"""The guide's web service that only publishes, on a broker that stands still for a while."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ackfloor.testing import KafkaCluster
from tests.e2e.served import PATIENCE_S, UVICORN, served_at
from tests.framework.kafka.wire import silent
from tests.framework.test_publishing_on_kafka import everything
from tests.structure.pages import blocks, environment
from tests.structure.sources import REPOSITORY

pytestmark = [pytest.mark.kafka, pytest.mark.e2e]


def test_it_answers_503_while_no_broker_answers(tmp_path: Path) -> None:
    """And takes orders again after that; each is written once."""
    for block in blocks((REPOSITORY / "docs/guide/publishing.md").read_text()):
        if block.file in ("shop.py", "web.py"):
            (tmp_path / block.file).write_text(block.text)
    with KafkaCluster() as cluster:
        servers = cluster.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(60)
        with _served(tmp_path, servers) as url:
            assert _posted(url, 1) == 202
            with silent(cluster):
                assert _posted(url, 2) == 503
            assert _posted(url, 3) == 202
        found = everything(servers, "orders", 3)
    # The second was on its way all the time, as the page says.
    assert [json.loads(each.value() or b"")["id"] for each in found] == [1, 2, 3]


@contextmanager
def _served(folder: Path, servers: str) -> Iterator[str]:
    """The service's address, as uvicorn serves it."""
    env = environment(folder, ACKFLOOR_BOOTSTRAP_SERVERS=servers)
    command = ["python", "-m", "uvicorn", "web:web", "--port", "0"]
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log)
    try:
        yield served_at(folder / "log.txt", process, UVICORN)
        process.terminate()
        process.wait(PATIENCE_S)
    finally:
        process.kill()
        process.wait()


def _posted(url: str, number: int) -> int:
    """The status of an order's answer."""
    body = json.dumps({"id": number, "cents": 500}).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/orders", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        return refused.code
