"""`ackfloor status`: what is wrong comes first, with the command to type next, and exit codes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ackfloor.cli.main import cli
from ackfloor.cli.status.group_look import GroupLook
from ackfloor.cli.status.status_line import ABOUT, COLUMNS, State
from ackfloor.core.acks.progress import Progress
from ackfloor.core.acks.tier_counts import TierCount
from ackfloor.dead_letters.rules.cause_groups import CauseGroup
from ackfloor.dead_letters.rules.redrive_jobs import JobNote, JobState
from ackfloor.errors import KafkaUnreachable
from ackfloor.observe import (
    BlockedLanes,
    BreakerSnapshot,
    Fault,
    NoisyKeys,
    PartitionSnapshot,
    RunningDelivery,
)
from ackfloor.runtime.supervision.exit_codes import Exit
from ackfloor_monitoring.metrics.run_metrics import RunMetrics
from ackfloor_monitoring.metrics.worker_metrics import WorkerMetrics
from tests.monitoring.samples import HANDLER, NOW_MS, OPEN, PARTITION, handler, snapshot

NONE = BlockedLanes()
#: A handler with nothing to say of it.
QUIET: dict[str, Any] = {"blocked": NONE, "quarantined": NONE, "noisy_keys": NoisyKeys()}


class Run:
    """A run at an address."""

    def __init__(self, workers: int = 1, group: str = "billing") -> None:
        self.metrics = RunMetrics(group, workers, now_ms=lambda: NOW_MS + 1_000)
        self.listen = self.metrics.start("127.0.0.1:0")
        for number in range(workers):
            self.show(number)

    def show(self, number: int = 0, faults: tuple[Fault, ...] = (), **changes: Any) -> None:
        """A worker reports how its handler is."""
        worker = WorkerMetrics()
        bill = handler(**{**QUIET, **changes})
        worker.snapshot(snapshot(handlers=(bill,), faults=faults))
        self.metrics.update(number, worker.report())


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """One run whose worker has nothing to say; no settings file."""
    monkeypatch.chdir(tmp_path)
    made = Run()
    yield made
    made.metrics.stop()


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> list[GroupLook]:
    """What Kafka says of the group: a test puts it in."""
    found: list[GroupLook] = []

    def looks(_options: object, groups: Sequence[str] | None) -> Iterator[GroupLook]:
        yield from (each for each in found if groups is None or each.group in groups)

    monkeypatch.setattr("ackfloor.cli.status.status.looks", looks)
    return found


def asked(*arguments: str, on: Sequence[Run] = (), columns: int = 80) -> Result:
    """The command, run to its end."""
    listen = [text for each in on for text in ("--listen", each.listen)]
    return CliRunner().invoke(cli, ["status", *arguments, *listen], env={"COLUMNS": str(columns)})


def rows(*arguments: str, on: Sequence[Run] = ()) -> list[dict[str, Any]]:
    """What programs read of it."""
    found: list[dict[str, Any]] = json.loads(asked(*arguments, "-o", "json", on=on).stdout)
    return found


def source(**changes: Any) -> Progress:
    """A partition that is not behind."""
    known = Progress("billing", "orders", 0, "source", start=0, end=100, floor=100)
    return replace(known, **changes)


def cause(**changes: Any) -> CauseGroup:
    """Dead letters of one cause."""
    return replace(
        CauseGroup(
            *("orders--billing--dlq", "bill", "765ff7a93e3b16b5", "KeyError"),
            *(25, NOW_MS, NOW_MS, 0, 24, "no price"),
            {"2.4.0": NOW_MS},
        ),
        **changes,
    )


DEAD = Progress("billing", "orders--billing--dlq", 0, "dlq", start=0, end=25)


def test_where_nothing_is_wrong_it_says_what_was_looked_at(
    run: Run, kafka: list[GroupLook]
) -> None:
    """The exit code is 0, and no command has to be typed."""
    kafka.append(GroupLook("billing", 1, [source()]))
    said = asked(on=[run])
    assert said.exit_code == Exit.OK
    lines = said.stdout.splitlines()
    assert lines[0] == "nothing is wrong"
    assert [line.split()[1] for line in lines[1:] if not line.startswith(" ")] == [
        *("run", "group", "dlq", "inflight", "retry", "lag"),
    ]
    assert "ackfloor lag" not in said.stdout


def test_what_is_wrong_comes_first_with_the_command_to_type(
    run: Run, kafka: list[GroupLook]
) -> None:
    """A breaker with lanes that wait for it, keys that hang, dead letters: likely causes first."""
    run.show(breaker=OPEN, blocked=HANDLER.blocked, noisy_keys=HANDLER.noisy_keys)
    dead_and_behind = [source(end=400), DEAD]
    kafka.append(GroupLook("billing", 1, dead_and_behind, causes=[cause()], dead=25))
    said = asked(on=[run])
    assert said.exit_code == Exit.FAILURE
    assert said.stdout.startswith("3 things are wrong; look at the first one first\n")
    listen = f"--listen {run.listen}"
    commands = [line.strip() for line in said.stdout.splitlines() if " ackfloor " in line]
    assert commands == [
        f"ackfloor breaker show {listen}",
        f"ackfloor inflight --trace {listen}",
        "ackfloor dlq show orders--billing--dlq/0/24",
        "ackfloor lag --group billing",
    ]
    for text in ("70 records withheld", "OSError: the bank is away", "2 hanging keys",
                 "3 blocked lanes, 19 records behind", "shop.Boom: no stock", "25 dead letters",
                 "KeyError: no price", "release 2.4.0", "300 behind"):  # fmt: skip
        assert text in " ".join(said.stdout.split())


@pytest.mark.parametrize("behind", [0, 12])
def test_keys_that_hang_are_wrong_where_records_wait_for_them(
    run: Run, kafka: list[GroupLook], behind: int
) -> None:
    """What waits behind a noisy key beside them waits for others, as it should."""
    newest = HANDLER.noisy_keys.newest
    run.show(noisy_keys=NoisyKeys(1, 2, 340, newest, behind_hanging=behind))
    said = asked(on=[run], columns=200)
    text = f"bill: 1 noisy key, 2 hanging keys, 340 records behind ({behind} of hanging keys)"
    state = "wrong" if behind else "note"
    assert [line.split()[:2] for line in said.stdout.splitlines() if text in line] == [
        [state, "keys"]
    ]


@pytest.mark.parametrize("columns", [80, 160])
def test_it_fits_the_terminal(run: Run, kafka: list[GroupLook], columns: int) -> None:
    """Text is wrapped; a command stays in one piece, to be copied, even where it is longer."""
    topic = f"{'o' * 60}--billing--dlq"
    kafka.append(GroupLook("billing", 1, [DEAD], causes=[cause(topic=topic)], dead=25))
    run.show(breaker=OPEN, noisy_keys=HANDLER.noisy_keys, quarantined=HANDLER.quarantined)
    lines = asked(on=[run], columns=columns).stdout.splitlines()
    assert [line for line in lines if len(line) > columns and "ackfloor dlq show" not in line] == []
    assert f"       ackfloor dlq show {topic}/0/24" in lines


def test_a_pipe_gets_each_text_in_one_line(
    run: Run, kafka: list[GroupLook], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For `grep`."""
    monkeypatch.delenv("COLUMNS", raising=False)
    kafka.append(GroupLook("billing", 1, [DEAD], causes=[cause(message="x" * 300)], dead=25))
    said = CliRunner().invoke(cli, ["status", "--listen", run.listen])
    [line] = [line for line in said.stdout.splitlines() if "KeyError" in line]
    assert "x" * 300 in line
    assert "cause 765ff7a93e3b16b5" in line


def test_lanes_of_all_runs_of_a_group_are_one_line(run: Run, kafka: list[GroupLook]) -> None:
    """With the record that has waited longest, and the runs that have such lanes."""
    kafka.append(GroupLook("billing", 2, [source()]))
    other, idle = Run(2), Run()
    try:
        run.show(blocked=HANDLER.blocked)
        other.show(1, blocked=HANDLER.blocked)
        [line] = [each for each in rows(on=[run, other, idle]) if each["about"] == "blocked"]
        assert line["count"] == 6
        assert line["detail"].startswith("bill: 6 blocked lanes, 38 records behind; the longest")
        assert line["runs"] == [run.listen, other.listen]
        assert line["next"] == f"ackfloor lanes ls --listen {run.listen} --listen {other.listen}"
    finally:
        other.metrics.stop()
        idle.metrics.stop()


def test_a_fault_is_wrong_and_a_pause_of_an_operator_is_not(
    run: Run, kafka: list[GroupLook]
) -> None:
    """Why a run is not ready is told in the words of /readyz, each once for all its workers."""
    kafka.append(GroupLook("billing", 1, [source()]))
    run.show(paused=True, paused_for_s=60.0, paused_reason="a migration")
    assert asked(on=[run]).exit_code == Exit.OK
    [paused] = [each for each in rows(on=[run]) if each["about"] == "paused"]
    assert (paused["state"], paused["count"]) == ("note", 1)
    assert "a migration" in paused["detail"]
    fault = Fault("parking", "orders--billing--dlq", "the topic is missing", NOW_MS, "missing")
    two = Run(2)
    try:
        for number in (0, 1):
            two.show(number, faults=(fault,))
        [line] = [each for each in rows(on=[two]) if each["about"] == "fault"]
        assert line["detail"] == "worker 0, 1: orders--billing--dlq: the topic is missing"
        assert line["next"] == f"ackfloor doctor --listen {two.listen}"
    finally:
        two.metrics.stop()


def test_a_forced_breaker_is_a_note(run: Run, kafka: list[GroupLook]) -> None:
    """Somebody wants it so."""
    kafka.append(GroupLook("billing", 1, [source()]))
    run.show(breaker=replace(OPEN, forced="open", forced_reason="the bank asked"))
    [line] = [each for each in rows(on=[run]) if each["about"] == "breaker"]
    assert line["state"] == "note"
    assert "forced its circuit breaker: open (the bank asked)" in line["detail"]


def test_a_delivery_beyond_its_deadline_is_noted(run: Run, kafka: list[GroupLook]) -> None:
    """It goes on although its record was parked."""
    kafka.append(GroupLook("billing", 1, [source()]))
    run.show(oldest=(RunningDelivery("orders", 0, 7, 1, 60.0, -15.0),), running=1)
    [line] = [each for each in rows(on=[run]) if each["about"] == "inflight"]
    assert line["state"] == "note"
    assert "orders/0/7 (bill), 16s beyond its deadline" in line["detail"]


def test_a_run_that_was_named_and_is_away_is_wrong_and_the_rest_is_shown(
    run: Run, kafka: list[GroupLook]
) -> None:
    """The exit code is 5, as where an order does not reach all runs."""
    kafka.append(GroupLook("billing", 1, [source(end=101)]))
    gone = Run()
    gone.metrics.stop()
    said = asked("-o", "json", on=[gone, run])
    assert said.exit_code == Exit.PARTIAL
    found = json.loads(said.stdout)
    assert (found[0]["about"], found[0]["state"]) == ("run", "wrong")
    assert f"no run answers at {gone.listen}" in found[0]["detail"]
    assert {each["about"] for each in found} >= {"run", "lag", "inflight"}


def test_a_run_of_the_settings_may_be_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kafka: list[GroupLook]
) -> None:
    """Who sits at another machine reads what Kafka says, and how to ask the runs."""
    gone = Run()
    gone.metrics.stop()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ACKFLOOR_APP__LISTEN", gone.listen)
    kafka.append(GroupLook("billing", 1, [source()]))
    said = asked()
    assert said.exit_code == Exit.OK
    assert "ackfloor status --listen HOST:PORT" in said.stdout
    assert "are not known" in " ".join(said.stdout.split())


def test_kafka_may_be_away(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the runs say is shown, and the exit code is 4, as with other commands."""

    def away(*_: object) -> Iterator[GroupLook]:
        raise KafkaUnreachable("no broker answers at kafka:9092: Connection refused")

    monkeypatch.setattr("ackfloor.cli.status.status.looks", away)
    run.show(breaker=OPEN)
    said = asked(on=[run])
    assert said.exit_code == Exit.KAFKA_UNREACHABLE
    first = said.stdout.splitlines()[1]
    assert first.startswith("wrong  kafka        no broker answers at kafka:9092")
    assert "70 records withheld" in " ".join(said.stdout.split())


def test_a_run_of_another_group_is_not_mixed_in(run: Run, kafka: list[GroupLook]) -> None:
    """With --group it would be misleading."""
    kafka.append(GroupLook("mailing", 1, [replace(source(), group="mailing")]))
    run.show(breaker=OPEN)
    found = rows("--group", "mailing", on=[run])
    assert f"the run at {run.listen} is of group 'billing', not 'mailing'" in found[0]["detail"]
    assert "breaker" not in {each["about"] for each in found}


def test_of_several_groups_each_line_names_its_own(kafka: list[GroupLook], run: Run) -> None:
    """Without a run all groups that park are shown."""
    kafka.append(GroupLook("billing", 0, [source(end=300)]))
    kafka.append(GroupLook("mailing", 0, [replace(source(), group="mailing", topic="mails")]))
    run.metrics.stop()
    said = CliRunner().invoke(
        cli, ["status"], env={"COLUMNS": "200", "ACKFLOOR_APP__LISTEN": run.listen}
    )
    assert said.exit_code == Exit.FAILURE
    text = said.stdout
    assert "wrong  group        billing: no members: no worker is running, and 200 records" in text
    assert "note   group        mailing: no members" in text


def test_retries_that_are_overdue_are_wrong_and_those_that_wait_are_not(
    run: Run, kafka: list[GroupLook], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By five minutes, as for the alert."""
    monkeypatch.setattr("ackfloor.cli.status.status.time.time_ns", lambda: NOW_MS * 1_000_000)
    topic = "orders--billing--retry-5s"
    tier = replace(source(), topic=topic, kind="retry", end=110)
    count = TierCount(waiting=6, due=3, oldest_due_ms=NOW_MS - 299_000, next_due_ms=NOW_MS + 1_000)
    kafka.append(GroupLook("billing", 1, [tier], {topic: count}))
    assert asked(on=[run]).exit_code == Exit.OK
    [line] = [each for each in rows(on=[run]) if each["about"] == "retry"]
    assert line["state"] == "note"
    assert line["detail"].startswith("6 wait, 3 due; the next is due at ")
    count.oldest_due_ms = NOW_MS - 301_000
    [late] = [each for each in rows(on=[run]) if each["about"] == "overdue"]
    assert late["detail"] == f"{topic}: 3 are due, the oldest for 5m1s"
    assert late["next"] == f"ackfloor retry show {topic}"


def test_the_newest_causes_are_shown_and_the_others_counted(
    run: Run, kafka: list[GroupLook]
) -> None:
    """Five of them."""
    causes = [cause(cause=f"{n:016x}", last_ms=NOW_MS - n, count=1) for n in range(7)]
    kafka.append(GroupLook("billing", 1, [replace(DEAD, end=2_000)], causes=causes, dead=1_000))
    found = [each for each in rows(on=[run]) if each["about"] == "dlq"]
    assert len(found) == 6
    assert "0000000000000000" in found[0]["detail"]
    assert found[0]["detail"].startswith("bill: at least 1 dead letter: KeyError")
    assert found[-1]["detail"] == (
        "2,000 dead letters in all, of 2 further causes; causes are those of the newest 1,000 of "
        "each partition"
    )
    assert found[-1]["next"] == "ackfloor dlq groups --group billing"


def test_what_is_odd_about_a_partition_is_wrong(run: Run, kafka: list[GroupLook]) -> None:
    """But not that a group has not committed yet."""
    odd = source(note="retention has removed 12 offsets that were not settled")
    fresh = source(partition=1, floor=None, note="no commit yet")
    kafka.append(GroupLook("billing", 1, [odd, fresh], errors=["grant READ on orders"]))
    found = {each["about"]: each for each in rows(on=[run]) if each["state"] == "wrong"}
    assert found["log"]["next"] == "ackfloor acks orders/0 --group billing"
    assert found["group"]["detail"] == "grant READ on orders"
    assert len(found) == 2


def test_the_next_command_repeats_what_was_given(run: Run, kafka: list[GroupLook]) -> None:
    """What the environment says, it finds there itself."""
    kafka.append(GroupLook("billing", 1, [source(end=300)]))
    given = ["status", "-o", "json", "--bootstrap-servers", "kafka:9092"]
    said = CliRunner().invoke(cli, [*given, "--listen", run.listen])
    [lag] = [each for each in json.loads(said.stdout) if each["about"] == "lag"]
    assert lag["next"] == "ackfloor lag --group billing --bootstrap-servers kafka:9092"
    known = {"ACKFLOOR_RUN_LISTEN": run.listen, "ACKFLOOR_BOOTSTRAP_SERVERS": "kafka:9092"}
    said = CliRunner().invoke(cli, ["status", "-o", "json"], env=known)
    found = {each["about"]: each["next"] for each in json.loads(said.stdout)}
    assert found["lag"] == "ackfloor lag --group billing"
    assert found["inflight"] == "ackfloor inflight"


def test_programs_read_rows(run: Run, kafka: list[GroupLook]) -> None:
    """Of all lines, with the same columns; an address that is none is a usage error."""
    kafka.append(GroupLook("billing", 1, [source()]))
    found = rows(on=[run])
    assert all(tuple(each) == COLUMNS for each in found)
    assert {each["state"] for each in found} <= {*map(str, State)}
    assert {each["about"] for each in found} <= {*ABOUT}
    head = asked("-o", "csv", on=[run]).stdout.splitlines()[0]
    assert head == ",".join(COLUMNS)
    refused = CliRunner().invoke(cli, ["status", "--listen", "nowhere"])
    assert getattr(refused.exception, "exit_code", None) == Exit.USAGE


def test_one_cause_is_one_entry_with_one_command(
    run: Run, kafka: list[GroupLook], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An open breaker, and what waits for it; programs have a row of its own for each."""
    monkeypatch.setattr("ackfloor.cli.status.status.time.time_ns", lambda: NOW_MS * 1_000_000)
    tiers = {
        f"orders--billing--retry-{delay}": TierCount(due=3, oldest_due_ms=NOW_MS - 400_000)
        for delay in ("5s", "1m")
    }
    look = GroupLook("billing", 1, [source()], tiers)
    look.progress = [source(), *(source(topic=t, kind="retry", end=103) for t in tiers)]
    kafka.append(look)
    run.show(
        breaker=replace(OPEN, error="ConsumeTimeout: no answer within 8s"),
        noisy_keys=HANDLER.noisy_keys,
        quarantined=HANDLER.quarantined,
    )
    said = asked(on=[run], columns=200)
    text = said.stdout
    assert text.startswith("1 thing is wrong; look at the first one first\n")
    [next_, *_] = [line.strip() for line in text.splitlines() if line.startswith("       ackfloor")]
    assert next_ == f"ackfloor inflight --trace --listen {run.listen}"
    for also in (
        "also bill: 1 noisy key, 2 hanging keys",
        "also bill: 2 quarantined keys",
        "also orders--billing--retry-5s: 3 are due",
        "also orders--billing--retry-1m:",
    ):
        assert also in text
    found = [each["about"] for each in rows(on=[run]) if each["state"] == "wrong"]
    assert found == ["breaker", "keys", "quarantined", "overdue", "overdue"]


@pytest.mark.parametrize(
    ("error", "handler", "wrong"),
    [("KeyError", "bill", 1), ("shop.Boom", "bill", 2), ("KeyError", "ship", 2)],
)
def test_dead_letters_of_the_error_that_opened_the_breaker_are_its_entry(
    run: Run, kafka: list[GroupLook], error: str, handler: str, wrong: int
) -> None:
    """Another error, or that of another handler, is a thing of its own."""
    dead = cause(error_type=error, handler=handler)
    kafka.append(GroupLook("billing", 1, [source(), DEAD], {}, [dead], 25))
    run.show(breaker=replace(OPEN, error="KeyError: no price"))
    text = asked(on=[run], columns=200).stdout
    assert text.startswith(f"{wrong} thing{'s are' if wrong > 1 else ' is'} wrong")
    assert (f"also {handler}: 25 dead letters: {error}" in text) is (wrong == 1)
    assert ("ackfloor dlq show" in text) is (wrong == 2)


def test_dead_letters_that_timed_out_belong_to_the_keys_that_hang(
    run: Run, kafka: list[GroupLook]
) -> None:
    """They are what became of the records before."""
    dead = cause(error_type="ConsumeTimeout")
    kafka.append(GroupLook("billing", 1, [source(), DEAD], {}, [dead], 25))
    run.show(noisy_keys=HANDLER.noisy_keys)
    text = asked(on=[run], columns=200).stdout
    assert text.startswith("1 thing is wrong")
    assert "also bill: 25 dead letters: ConsumeTimeout" in text


def test_without_a_run_overdue_topics_of_one_source_are_one_entry(
    run: Run, kafka: list[GroupLook], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of another source are another one."""
    monkeypatch.setattr("ackfloor.cli.status.status.time.time_ns", lambda: NOW_MS * 1_000_000)
    late = TierCount(due=3, oldest_due_ms=NOW_MS - 400_000)
    names = ("mails--billing--retry-5s", "orders--billing--retry-5s", "orders--billing--retry-1m")
    kafka.append(GroupLook("billing", 1, [source()], dict.fromkeys(names, late)))
    run.metrics.stop()
    env = {"COLUMNS": "200", "ACKFLOOR_APP__LISTEN": run.listen}
    text = CliRunner().invoke(cli, ["status"], env=env).stdout
    assert text.startswith("2 things are wrong")


def test_lanes_that_wait_name_what_frees_them(run: Run, kafka: list[GroupLook]) -> None:
    """And whose age it is: a quarantined key's record may have failed just now."""
    kafka.append(GroupLook("billing", 1, [source()]))
    run.show(quarantined=HANDLER.quarantined, blocked=HANDLER.blocked)
    found = {each["about"]: each["detail"] for each in rows(on=[run])}
    retry = f"when the cause is mended, `ackfloor lanes retry bill --all --listen {run.listen}`"
    assert retry in found["blocked"]
    assert retry in found["quarantined"]
    assert ", by orders/0/90 (shop.Boom: no stock)" in found["blocked"]
    assert ", its head now orders/1/41 (held: shop.Boom: no price)" in found["quarantined"]
    assert "; `ackfloor dlq show orders/1/41` has its dead letter; " in found["quarantined"]
    (held,) = HANDLER.quarantined.oldest
    waits = replace(HANDLER.quarantined, oldest=(replace(held, head="waiting"),))
    run.show(quarantined=waits)
    found = {each["about"]: each["detail"] for each in rows(on=[run])}
    assert "; `ackfloor retry show orders/1/41` has its traceback; " in found["quarantined"]


def test_lag_counts_what_is_open_in_retry_topics_too(run: Run, kafka: list[GroupLook]) -> None:
    """Parked records are settled in their source topic, and not handled."""
    parked = source(
        topic="orders--billing--retry-5s", kind="retry", start=100, end=2_604, floor=None
    )
    kafka.append(GroupLook("billing", 1, [source(), parked]))
    [line] = [each for each in rows(on=[run]) if each["about"] == "lag"]
    assert (line["state"], line["count"]) == ("note", 2_504)
    assert line["detail"] == "0 behind, of these 0 open; another 2,504 open in retry topics"


TIER = "orders--billing--retry-5s"
MOVED = replace(PARTITION, topic=TIER, floor_advanced_ms=NOW_MS - 2_000)
WORKED_OFF = "; being worked off: its floor moved 3s ago, and what is open last failed 6m40s ago"


@pytest.mark.parametrize(
    ("part", "failed_s", "breaker", "ran_s", "told"),
    [
        (MOVED, 400, BreakerSnapshot(), 100.0, WORKED_OFF),
        # Each of these alone shows that it does not, or nothing.
        (MOVED, 5, BreakerSnapshot(), 100.0, ""),
        (MOVED, None, BreakerSnapshot(), 100.0, ""),
        (MOVED, 400, OPEN, 100.0, ""),
        (MOVED, 400, BreakerSnapshot(), 11.0, ""),
        (replace(MOVED, highest_settled=-1), 400, BreakerSnapshot(), 100.0, ""),
        (replace(MOVED, floor_advanced_ms=NOW_MS - 31_000), 400, BreakerSnapshot(), 100.0, ""),
        (replace(MOVED, topic="orders--billing--retry-1m"), 400, BreakerSnapshot(), 100.0, ""),
    ],
)
def test_overdue_retries_that_are_worked_off_say_so(
    run: Run,
    kafka: list[GroupLook],
    monkeypatch: pytest.MonkeyPatch,
    part: PartitionSnapshot,
    failed_s: int | None,
    breaker: BreakerSnapshot,
    ran_s: float,
    told: str,
) -> None:
    """Where a floor has moved since the worker began, and nothing has failed for a minute."""
    monkeypatch.setattr("ackfloor.cli.status.status.time.time_ns", lambda: NOW_MS * 1_000_000)
    count = TierCount(due=3, oldest_due_ms=NOW_MS - 400_000)
    failed_ms = {} if failed_s is None else {"orders": NOW_MS - failed_s * 1_000}
    tier = source(topic=TIER, kind="retry", end=103)
    kafka.append(GroupLook("billing", 1, [source(), tier], {TIER: count}, failed_ms=failed_ms))
    worker = WorkerMetrics()
    bill = handler(**QUIET, breaker=breaker)
    worker.snapshot(snapshot(handlers=(bill,), partitions=(part,), polled_s=ran_s, worked_s=0.0))
    run.metrics.update(0, worker.report())
    [line] = [each for each in rows(on=[run]) if each["about"] == "overdue"]
    assert line["state"] == "wrong"
    assert line["detail"] == f"{TIER}: 3 are due, the oldest for 6m40s{told}"
    kafka[0].errors.append("grant READ on orders--billing--dlq")
    [line] = [each for each in rows(on=[run]) if each["about"] == "overdue"]
    assert WORKED_OFF not in line["detail"]


def test_a_topic_is_worked_off_where_each_of_its_partitions_is(
    run: Run, kafka: list[GroupLook], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that stands still, or that no run has, may hold just the oldest record."""
    monkeypatch.setattr("ackfloor.cli.status.status.time.time_ns", lambda: NOW_MS * 1_000_000)
    count = TierCount(due=3, oldest_due_ms=NOW_MS - 400_000)
    tiers = [source(topic=TIER, partition=part, kind="retry", end=103) for part in (0, 1)]
    failed_ms = {"orders": NOW_MS - 400_000}
    kafka.append(GroupLook("billing", 1, [source(), *tiers], {TIER: count}, failed_ms=failed_ms))
    stands = replace(MOVED, partition=1, floor_advanced_ms=NOW_MS - 40_000)
    for parts, told in (
        ((MOVED,), False),
        ((MOVED, stands), False),
        ((MOVED, replace(MOVED, partition=1)), True),
    ):
        worker = WorkerMetrics()
        worker.snapshot(
            snapshot(handlers=(handler(**QUIET),), partitions=parts, polled_s=100.0, worked_s=0.0)
        )
        run.metrics.update(0, worker.report())
        [line] = [each for each in rows(on=[run]) if each["about"] == "overdue"]
        assert ("being worked off" in line["detail"]) is told


def test_a_job_that_works_on_dead_letters_is_noted(run: Run, kafka: list[GroupLook]) -> None:
    """What is not sent yet stays wrong beside it."""
    job = JobNote(
        *("20261128-011345-5f2c", "replayed", JobState.RUNNING, "ann@ops", "ops-1", 7),
        *(TIER, 10, 25, NOW_MS, NOW_MS, NOW_MS + 60_000),
    )
    jobs = {DEAD.topic: job}
    kafka.append(GroupLook("billing", 1, [DEAD], causes=[cause()], dead=25, jobs=jobs))
    wrong, note = [each for each in rows(on=[run]) if each["about"] == "dlq"]
    assert (wrong["state"], note["state"]) == ("wrong", "note")
    assert note["detail"] == (
        "orders--billing--dlq: job 20261128-011345-5f2c of ann@ops works on its dead letters: 10 "
        "of 25 replayed"
    )
    assert note["next"] == "ackfloor dlq jobs orders--billing--dlq"


def test_a_breaker_whose_trials_succeed_says_so(run: Run, kafka: list[GroupLook]) -> None:
    """It is not closed yet."""
    kafka.append(GroupLook("billing", 1, [source()]))
    run.show(breaker=replace(OPEN, state="slow_start", allowed=8, next_trial_s=None))
    [line] = [each for each in rows(on=[run]) if each["about"] == "breaker"]
    assert line["state"] == "wrong"
    assert "70 records withheld, trials succeed: 8 of 64 may run; OSError" in line["detail"]
    run.show(breaker=OPEN)
    [line] = [each for each in rows(on=[run]) if each["about"] == "breaker"]
    assert "trials succeed" not in line["detail"]


@pytest.mark.parametrize(
    ("head", "next_ms", "told"),
    [
        ("waiting", NOW_MS + 21_000, ", tried again in 20s"),
        ("running", None, ", tried now"),
        ("queued", NOW_MS, ", tried now"),
        ("withheld", None, ""),
    ],
)
def test_a_blocked_lane_says_when_it_is_tried(
    run: Run, kafka: list[GroupLook], head: str, next_ms: int | None, told: str
) -> None:
    """So whoever has mended its cause knows when it shows."""
    kafka.append(GroupLook("billing", 1, [source()]))
    [lane] = HANDLER.blocked.oldest
    shown = replace(lane, head=head, next_try_ms=next_ms)
    run.show(blocked=replace(HANDLER.blocked, oldest=(shown,)))
    [line] = [each for each in rows(on=[run]) if each["about"] == "blocked"]
    assert f"by orders/0/90 (shop.Boom: no stock){told}; when the cause" in line["detail"]


def test_records_behind_others_lead_to_their_keys(run: Run, kafka: list[GroupLook]) -> None:
    """Few keys may hold very many records."""
    tier = source(topic=TIER, kind="retry", end=110)
    count = TierCount(behind=9, waiting=1, next_due_ms=NOW_MS)
    kafka.append(GroupLook("billing", 1, [source(), tier], {TIER: count}))
    [line] = [each for each in rows(on=[run]) if each["about"] == "retry"]
    assert line["next"] == "ackfloor retry groups --by key --group billing"
    count.behind = 0
    [line] = [each for each in rows(on=[run]) if each["about"] == "retry"]
    assert line["next"] == "ackfloor retry ls --group billing"
