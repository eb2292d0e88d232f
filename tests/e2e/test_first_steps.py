"""The first steps that README and guide tell are taken, word for word, on a real broker."""

from __future__ import annotations

import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.served import PATIENCE_S, RUN, served_at
from tests.plugin_arguments import plugin_arguments
from tests.structure.pages import SHELLS, blocks, commands, environment, run
from tests.structure.sources import REPOSITORY

pytestmark = [pytest.mark.kafka, pytest.mark.e2e]


@pytest.mark.parametrize(
    ("page", "workers", "handled"),
    [
        ("README.md", 1, ["order 1: 500 cents"]),
        (
            "docs/guide/getting-started.md",
            2,
            [f"billed order {n} at attempt 1" for n in range(1, 11) if n != 7],
        ),
    ],
)
def test_the_first_steps_lead_where_they_say(
    page: str, workers: int, handled: list[str], tmp_path: Path
) -> None:
    """Valid orders are handled, two records are dead letters, and a signal ends it in order."""
    text = (REPOSITORY / page).read_text()
    creates: list[list[str]] = []
    for block in blocks(text):
        if block.language == "python" and block.file is not None:
            (tmp_path / block.file).write_text(block.text)
        elif block.language in SHELLS:
            named = (words for words in commands(block.text) if words[0] == "ackfloor")
            creates += [words for words in named if words[1:3] == ["broker", "topic"]]
    with broker_of_the_page(tmp_path) as shell:
        for words in creates:
            run(words, tmp_path, **shell)
        run(["python", "send.py"], tmp_path, **shell)
        env = environment(tmp_path, **shell)
        with running(workers, tmp_path, env) as process:
            metrics = served_at(tmp_path / "log.txt", process, RUN) + "/metrics"
            await_total(metrics, "ackfloor_messages_acked_total", len(handled))
            await_total(metrics, "ackfloor_messages_dead_lettered_total", 2)
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0
    assert sorted((tmp_path / "out.txt").read_text().splitlines()) == sorted(handled)


def test_the_test_on_kafka_of_the_guide_passes(tmp_path: Path) -> None:
    """A user's app, handler and worker, on a real broker, in a test that is copied as it is."""
    for block in blocks((REPOSITORY / "docs/guide/testing.md").read_text()):
        if block.file in {"billing.py", "test_on_kafka.py"}:
            (tmp_path / block.file).write_text(block.text)
    with broker_of_the_page(tmp_path) as shell:
        for _ in range(2):  # the topic is there the second time
            command = ["pytest", "-q", *plugin_arguments(), "test_on_kafka.py"]
            assert "1 passed" in run(command, tmp_path, **shell)


@contextmanager
def broker_of_the_page(folder: Path) -> Iterator[dict[str, str]]:
    """The variables of a shell in which `ackfloor broker up` was run; it goes down at the end."""
    state = {"ACKFLOOR_STATE_DIR": str(folder / "state")}
    servers = run(["ackfloor", "broker", "up"], folder, **state).strip()
    try:
        yield {**state, "ACKFLOOR_BOOTSTRAP_SERVERS": servers}
    finally:
        run(["ackfloor", "broker", "down"], folder, **state)


@contextmanager
def running(workers: int, folder: Path, env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """`ackfloor run` of the page's app; what it prints and logs is in files."""
    command = ["ackfloor", "run", "billing:app", "--workers", str(workers)]
    with (folder / "out.txt").open("wb") as out, (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--listen", "127.0.0.1:0"], cwd=folder, env=env, stdout=out, stderr=log
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(PATIENCE_S)
                finally:
                    process.kill()
                    process.wait()


def await_total(url: str, name: str, wanted: int) -> None:
    """Wait until all series of a counter add up to what is wanted."""
    give_up_s = time.monotonic() + PATIENCE_S
    total = -1.0
    while total != wanted:
        assert time.monotonic() < give_up_s, f"{name} is {total}, not {wanted}"
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            text = answer.read().decode()
        total = sum(
            float(value) for value in re.findall(rf"^{name}{{.*}} (\S+)$", text, re.MULTILINE)
        )
        time.sleep(0.1)
