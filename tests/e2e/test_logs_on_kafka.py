"""What `ackfloor run` writes to standard error while its handlers fail, as a machine reads it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.stage import Stage
from tests.framework.cli.command import Running

pytestmark = [pytest.mark.kafka, pytest.mark.e2e]

RECORDS = 300
APP = """
import logging

app = App("GROUP")


@app.handler("TOPIC", retry=RetryPolicy(max_redeliveries=0), breaker=None)
def bill(delivery: Delivery) -> None:
    if delivery.offset == 0:
        logging.getLogger("shop").info("first")
    raise ValueError(f"no account for {delivery.value.decode()}")
"""
FIELDS = {"topic", "partition", "offset", "attempt", "handler"}


def test_a_storm_of_failures_is_a_few_lines_with_their_places_and_a_count(
    make_stage: Callable[..., Stage],
) -> None:
    """Each failure is a line or part of a count; no payload is in any, and no masked text."""
    stage = make_stage(APP, partitions=1)
    stage.produce(RECORDS, b"4111111111111111", key=b"SECRET", headers=[("h", b"SECRET")])
    rules = {"ACKFLOOR_REDACTION__PATTERNS": r"\d{16}"}
    run = stage.run("--log-format", "json", **rules)
    run.until(lambda: told(run, ": ValueError: ", "deliveries failed") == RECORDS, "failures")
    run.until(lambda: told(run, ": dead-lettered ", "dead-lettered") == RECORDS, "dead letters")
    entries = list(map(json.loads, run.drain()))
    about_records = [entry for entry in entries if "offset" in entry]
    failures = [e for e in about_records if "ValueError: no account for ***" in e["message"]]
    assert failures
    assert len(about_records) < RECORDS / 2
    for entry in about_records:
        assert entry.keys() >= FIELDS
        assert (entry["topic"], entry["partition"], entry["attempt"]) == (stage.topic, 0, 1)
        assert (entry["handler"], entry["name"]) == ("bill", "worker-0")
    (own,) = [entry for entry in entries if entry["logger"] == "shop"]
    assert (own["message"], own["delivery"]) == ("first", f"{stage.topic}/0/0#1")
    log = "\n".join(run.lines)
    assert "SECRET" not in log
    assert "4111111111111111" not in log


def told(run: Running, single: str, summary: str) -> int:
    """How many records a kind of line has told of so far, one by one or counted."""
    messages: list[Any] = [json.loads(line)["message"] for line in run.drain()]
    counted = [re.match(rf"(\d+) more .*{summary}$", message) for message in messages]
    return sum(single in m for m in messages) + sum(int(m[1]) for m in counted if m)
