"""`ackfloor retry promote|bury` beside a run: waiting records are handled, or dead, once."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from typing import Any

import pytest

from ackfloor.core.records.envelope import read_envelope
from ackfloor.runtime.supervision.exit_codes import Exit
from tests.e2e.stage import Stage, ready
from tests.framework.cli.command import ackfloor
from tests.framework.kafka.wire import committed_records

pytestmark = [pytest.mark.kafka, pytest.mark.e2e]

COUNT = 12
#: The first delivery of each record fails, and the next one is an hour away.
WAITING = """
app = App("GROUP")


@app.handler("TOPIC", retry=RetryPolicy.fixed("1h"))
async def bill(delivery: Delivery) -> None:
    if delivery.attempt == 1:
        raise RuntimeError("not yet")
    note(handled, delivery)
"""


def test_waiting_records_are_promoted_or_buried_each_once(
    make_stage: Callable[..., Stage],
) -> None:
    """Two workers; one record by its place, some by a filter, the rest all together."""
    stage = make_stage(WAITING)
    run = stage.run("--workers", "2")
    run.until(ready(run), "ready")
    for n in range(COUNT):
        stage.produce(1, key=b"even" if n % 2 == 0 else b"odd")
    listen = run.logged("metrics and health on ").rpartition("http://")[2]
    tier = f"{stage.topic}--{stage.group}--retry-1h"

    def retry(*arguments: str) -> Any:
        known = ("--bootstrap-servers", stage.servers)
        address = () if arguments[0] in {"ls", "show"} else ("--listen", listen)
        ended = ackfloor("retry", *arguments, "-o", "json", *known, *address, cwd=stage.folder)
        assert ended.returncode == Exit.OK, ended.stderr
        return json.loads(ended.stdout)

    def all_wait() -> bool:
        ended = ackfloor(
            "retry", "promote", tier, "--dry-run", "-o", "json", "--listen", listen,
            "--bootstrap-servers", stage.servers, cwd=stage.folder,
        )  # fmt: skip
        # A worker that has not answered in time has said nothing yet.
        return ended.returncode == Exit.OK and json.loads(ended.stdout)["done"] == COUNT

    run.until(all_wait, "all of them wait in the workers")
    [row] = retry("ls", tier)
    assert (row["waiting"], row["due"]) == (COUNT, 0)
    first = retry("show", tier, "--key", "even")[0]["place"]
    assert retry("promote", first, "--yes")["done"] == 1
    run.until(lambda: stage.records() == 1, "the promoted one is handled")
    told = retry("bury", tier, "--key", "odd", "--yes")
    buried = COUNT // 2
    assert (told["meant"], told["done"]) == (buried, buried)
    dlq = f"{stage.topic}--{stage.group}--dlq"
    run.until(lambda: len(committed_records(stage.servers, dlq)) == buried, "the buried ones")
    for message in committed_records(stage.servers, dlq):
        envelope = read_envelope(message.headers())
        assert (message.key(), envelope.reason, envelope.attempt) == (b"odd", "dead_letter", 1)
        assert envelope.error_type == "RuntimeError"
    ackfloor(
        "retry", "promote", tier, "--yes", "--listen", listen,
        "--bootstrap-servers", stage.servers, cwd=stage.folder,
    )  # fmt: skip
    run.until(lambda: stage.records() == COUNT - buried, "the rest is handled")
    run.signal(signal.SIGTERM)
    assert run.wait() == Exit.OK
    assert set(stage.noted().values()) == {1}
    assert {name.rpartition("#")[2] for name in stage.noted()} == {"2"}
    assert len(committed_records(stage.servers, dlq)) == buried
    [row] = retry("ls", tier)
    assert (row["waiting"], row["due"]) == (0, 0)
