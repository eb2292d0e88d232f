"""`ackfloor spark whatif`: the words of a policy, the tables, the JSON, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from ackfloor import RetryPolicy, SettingError
from ackfloor.commits import Settled
from ackfloor_monitoring.spark.cli import spark_app
from ackfloor_monitoring.spark.spark_errors import NothingToReport, TableRefused
from ackfloor_monitoring.spark.table import settled_rows, store
from ackfloor_monitoring.spark.whatif.answer import (
    ASSUMPTIONS,
    Estimate,
    Examples,
    LeftOut,
    Outcome,
    Policy,
    WhatIf,
)
from ackfloor_monitoring.spark.whatif.terminal import whatif_tables
from ackfloor_monitoring.spark.whatif.whatif_model import PolicyOptions
from tests.monitoring.spark.failure_rows import NOON, dead, frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ackfloor.redrive import KafkaOptions

# The package has the command of this name where the module would be.
command = import_module("ackfloor_monitoring.spark.cli.whatif")


def whatif(*arguments: str, table: str = "t") -> Result:
    """Run the command."""
    return CliRunner().invoke(spark_app, ["whatif", "--table", table, *arguments])


@pytest.mark.parametrize(
    ("options", "policy"),
    [
        (PolicyOptions(), RetryPolicy()),
        (
            PolicyOptions(max_redeliveries=3, initial_delay="10s"),
            RetryPolicy("10s", max_redeliveries=3),
        ),
        (
            PolicyOptions(multiplier=2, max_delay="1m", jitter=0),
            RetryPolicy("1s", 2, "1m", jitter=0),
        ),
        (PolicyOptions(delays=["1s", "1m"]), RetryPolicy(delays=["1s", "1m"])),
        (PolicyOptions("activemq"), RetryPolicy.activemq()),
        (PolicyOptions("rocketmq"), RetryPolicy.rocketmq()),
    ],
)
def test_a_policy_is_said_as_in_code(options: PolicyOptions, policy: RetryPolicy) -> None:
    """What is not said is its default."""
    assert options.policy() == policy


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            PolicyOptions(initial_delay="10"),
            "--initial-delay='10': a bare number has no unit; write 10s",
        ),
        (PolicyOptions(max_redeliveries=-1), "--max-redeliveries=-1: not a count"),
        (PolicyOptions(max_redeliveries=1_001), "--max-redeliveries=1001: over 1000"),
        (PolicyOptions(multiplier=0.5), "--multiplier=0.5: delays would shrink"),
        (PolicyOptions(delays=["1x"]), "--delay='1x': not a duration"),
        (
            PolicyOptions(delays=["1s"], multiplier=2),
            "--delay='1s': an explicit schedule has no multiplier",
        ),
        (PolicyOptions("sqs"), "--preset='sqs': no such preset; there are activemq, rocketmq"),
        (
            PolicyOptions("activemq", jitter=0),
            "--preset='activemq': it is a whole policy, and --jitter",
        ),
    ],
)
def test_a_bad_policy_names_the_option(options: PolicyOptions, sentence: str) -> None:
    """And what to write instead."""
    with pytest.raises(SettingError) as caught:
        options.policy()
    assert str(caught.value).startswith(sentence)


IN_FORCE = RetryPolicy(delays=["2s", "6s", "18s"], max_redeliveries=5, jitter=0.1)


@pytest.mark.parametrize(
    ("options", "waits_s", "jitter"),
    [
        (PolicyOptions(), (2, 6, 18, 18, 18), 0.1),
        (PolicyOptions(max_redeliveries=2), (2, 6), 0.1),
        (PolicyOptions(max_redeliveries=7, jitter=0), (2, 6, 18, 18, 18, 18, 18), 0),
        (PolicyOptions(initial_delay="1s"), (1, 3, 9, 27, 81), 0.1),
        (PolicyOptions(multiplier=2), (2, 4, 8, 16, 32), 0.1),
        (PolicyOptions(max_delay="30s"), (2, 6, 18, 30, 30), 0.1),
        (PolicyOptions(delays=["1s"]), (1,) * 5, 0.1),
        (
            PolicyOptions("activemq"),
            RetryPolicy.activemq().schedule(),
            RetryPolicy.activemq().jitter,
        ),
    ],
)
def test_what_is_not_given_is_as_in_force(
    options: PolicyOptions, waits_s: tuple[float, ...], jitter: float
) -> None:
    """Fewer redeliveries have the same waits; one number of a curve leaves the others."""
    policy = options.policy(IN_FORCE)
    assert (policy.schedule(), policy.jitter) == (waits_s, jitter)


def test_a_refused_policy_ends_before_spark_starts() -> None:
    """With exit code 2 and a sentence."""
    refused = whatif("--initial-delay", "10")
    assert refused.exit_code == 2
    assert "--initial-delay" in refused.stderr


def outcome(handler: str | None, messages: int) -> Outcome:
    """Some numbers."""
    return Outcome(
        "billing", handler, messages, 1_900, Estimate(1_800.4, 1_700, 1_950), 100,
        Estimate(199.6, 50, 300), 4, 4_000, Estimate(3_000, 2_900, 3_100), 90.0, 60.0, 31.5,
        1_356.0, 31.0, 7, 80.0, 50.0, 400.0, 61.0, Policy(3, (1, 5, 5), 0.15),
        Policy(6, (1, 5, 25, 125, 600, 600), 0.15),
    )  # fmt: skip


ANSWER = WhatIf(
    "[red]t", Policy(3, (1, 5, 5), 0.15), True, outcome(None, 2_000),
    (outcome("bill", 1_500), outcome("\x1b[31m[b]evil", 500)), LeftOut(3, 0, 2, 0), ASSUMPTIONS,
    messages=2_003, examples=Examples("orders/0/7", None, "orders/1/[b]9"),
)  # fmt: skip


def test_the_tables_say_what_the_numbers_rest_on() -> None:
    """Numbers, their bounds, the assumptions; names that try to be markup or more are text."""
    console = Console(width=120, record=True, file=StringIO())
    for part in whatif_tables(ANSWER):
        console.print(part)
    text = console.export_text()
    assert "Through 3 redeliveries after 1s, 5s (2 times), with up to 15% jitter" in text
    assert "In force: 6 redeliveries after 1s, 5s, 25s, 2m5s, 10m (2 times), with up to" in text
    assert "2,000 of 2,003 messages that failed, of [red]t" in text
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert "recovered 1,900 1,800 1,700 \u2013 1,950 \u2212100" in rows
    assert "dead letters 100 200 50 \u2013 300 +100" in rows
    assert "mean time to recovery 1m 30s 1m 0s" in rows
    assert "half recovered within 1m 20s 50.0 s" in rows
    assert "99 of 100 within 6m 40s 1m 1s" in rows
    assert "billing \\x1b[31m[b]evil 500 1,900 > 1,800 100 > 200 4,000 > 3,000" in rows
    assert "What recovers under both does so 31.5 s sooner on the average." in rows
    joined = " ".join(rows)
    assert (
        "Left out: 3 messages that still wait (such as orders/0/7); 2 lives of redriven dead "
        "letters (their first lives count)." in joined
    )
    assert "cannot be known: see the bounds (such as orders/1/[b]9)." in joined
    assert all(sentence in joined for sentence in ASSUMPTIONS)


def test_handlers_with_policies_of_their_own_have_a_line_each() -> None:
    """Where not everything was given, each keeps the rest of what it has."""
    bill, mail = outcome("bill", 1_500), replace(outcome("mail", 500), in_force=None)
    console = Console(width=120, record=True, file=StringIO())
    for part in whatif_tables(replace(ANSWER, handlers=(bill, mail))):
        console.print(part)
    text = console.export_text()
    assert "bill through 3 redeliveries after 1s, 5s (2 times), with up to 15% jitter" in text
    assert "mail through 3 redeliveries after 1s" in text
    assert "The records do not say which policy was in force" in text


def test_people_get_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they do not ask for JSON; the policy is the one that was said."""
    asked: list[RetryPolicy] = []

    def told(_asked: object, options: PolicyOptions) -> WhatIf:
        asked.append(options.policy(IN_FORCE))
        return ANSWER

    monkeypatch.setattr(command, "_rerun", told)
    shown = whatif("--preset", "activemq")
    assert (shown.exit_code, asked) == (0, [RetryPolicy.activemq()])
    assert "Through 3 redeliveries after 1s, 5s (2 times)" in shown.stdout


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_it_reads_the_table(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """None, an empty one, a Delta table as JSON, and a handler that is not there."""

    @contextmanager
    def session(_name: str) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(command, "spark_session", session)
    origin: dict[str, Any] = {"origin_topic": "orders", "origin_partition": 0, "origin_offset": 5}
    table = str(tmp_path / "failures")
    assert isinstance(whatif(table=table).exception, TableRefused)
    store.open_table(spark, table)
    assert isinstance(whatif(table=table).exception, NothingToReport)
    store.append(frame(spark, [dead(1, **origin)]), table)
    read = whatif("--max-redeliveries", "3", "-o", "json", table=table)
    assert read.exit_code == 0, read.stderr
    told = json.loads(read.stdout)
    # No record says how long anything waited.
    assert told["handlers"][0]["in_force"] is None
    assert told["policy"] == {"max_redeliveries": 3, "waits_s": [1, 5, 25], "jitter": 0.15}
    assert (told["total"]["dead"], told["total"]["redeliveries"]) == (1, 6)
    assert len(told["assumptions"]) == len(ASSUMPTIONS) + 1
    unknown = whatif("--handler", "bil", table=table)
    assert unknown.exit_code == 2
    assert "the table has bill" in " ".join(unknown.stderr.replace("│", " ").split())


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_what_waits_by_the_groups_commits_is_no_recovery(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where brokers are named they are asked. Else what was due counts as recovered. Of a redriven
    message the first life is a dead letter, whatever became of it since."""

    @contextmanager
    def session(_name: str) -> Iterator[SparkSession]:
        yield spark

    def parked(offset: int, origin: int, **more: Any) -> dict[str, Any]:
        return dead(
            offset, topic="orders--billing--retry-1s", topic_id="tier", stage="retry", tier="1s",
            reason="error", attempt=1, not_before=NOON + timedelta(seconds=1), day=NOON.date(),
            origin_topic="orders", origin_partition=0, origin_offset=origin, **more,
        )  # fmt: skip

    of_one = {"origin_topic": "orders", "origin_partition": 0, "origin_offset": 9}
    later = NOON + timedelta(hours=1)
    redriven = {"replays": 1, "attempt": 0, "reason": None, "error_type": None}
    rows = [
        parked(0, 5), parked(1, 6), dead(7, **of_one),
        {**parked(2, 9), **redriven, "kafka_time": later},
    ]  # fmt: skip
    table = str(tmp_path / "failures")
    store.open_table(spark, table)
    store.append(frame(spark, rows), table)
    asked: list[str] = []

    def committed(_failures: object, clients: KafkaOptions) -> list[Settled]:
        asked.append(str(clients.consumer["bootstrap.servers"]))
        return [Settled("orders--billing--retry-1s", "tier", 0, 1, [])]

    monkeypatch.setattr(command, "spark_session", session)
    monkeypatch.setattr(settled_rows, "committed", committed)
    monkeypatch.delenv("ACKFLOOR_BOOTSTRAP_SERVERS", raising=False)
    found = {}
    for name, more in (
        ("none", ()),
        ("asked", ("--bootstrap-servers", "there:1")),
        ("not asked", ("--bootstrap-servers", "there:1", "--no-commits")),
    ):
        told = json.loads(whatif("-o", "json", *more, table=table).stdout)
        left, total = told["left_out"], told["total"]
        found[name] = (total["recovered"], total["dead"], left["waiting"], told["commits_known"])
        assert left["replays"] == 1
    assert found == {
        "none": (2, 1, 0, False), "asked": (1, 1, 1, True), "not asked": (2, 1, 0, False)
    }  # fmt: skip
    assert asked == ["there:1"]
    nobody = whatif("--group", "mail", "--bootstrap-servers", "there:1", table=table)
    assert isinstance(nobody.exception, NothingToReport)
