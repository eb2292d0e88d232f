"""The demo's steps in order; see the package's docstring.

Whatever happens, Ctrl-C and SIGTERM included: it ends the run, Spark and its own broker, and
deletes the topics it made on a given broker.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console

from ackfloor import MissingExtra
from ackfloor.testing import Broker, open_broker
from ackfloor_handlers.demo import demo_faults as ordeal
from ackfloor_handlers.demo.account import account_report as report
from ackfloor_handlers.demo.account.collect import collect
from ackfloor_handlers.demo.account.facts import Disturbance, Facts
from ackfloor_handlers.demo.account.reconcile import Account, Row, reconcile
from ackfloor_handlers.demo.account.timing import deadline_precision, retry_lateness
from ackfloor_handlers.demo.demo_errors import DemoRefused
from ackfloor_handlers.demo.demo_processes import Pipeline, Service, signals_raise
from ackfloor_handlers.demo.demo_session import Stage
from ackfloor_handlers.demo.demo_topics import SOURCE, Topics
from ackfloor_handlers.demo.live_view import LiveView
from ackfloor_handlers.demo.order_producer import Feed
from ackfloor_handlers.demo.seeded_orders import EXPECTED, counts, seeded_orders
from ackfloor_handlers.orders import CONSUME_TIMEOUT

#: On a broker of our own, timestamps are the broker's: when it appended the record.
#: The group's first assignment waits a little, as by default: it is for all workers.
_BROKER_CONFIG = {
    "log.message.timestamp.type": "LogAppendTime",
    "group.initial.rebalance.delay.ms": "2000",
}
_TIMEOUT_MS = 1_000 * int(CONSUME_TIMEOUT.removesuffix("s"))
_JOIN_S = 60.0
_HALF_S = 300.0


@dataclass(frozen=True, slots=True)
class Plan:
    """The options of the command.

    Attributes:
        rate: orders a second; 0 for all at once.
        outage_s: for how long the broker is taken away; 0 for not at all.
        keep: leave the topics on a given broker.
        log_file: where the workers' log is kept; None for nowhere.
        page: where Spark's failure report is kept as a page; None for nowhere.
    """

    orders: int = 20_000
    rate: int = 1_000
    workers: int = 2
    seed: int = 7
    kill: bool = True
    outage_s: float = 0.0
    spark: bool = True
    replace: bool = False
    keep: bool = False
    log_file: Path | None = None
    page: Path | None = None


def run_demo(**options: Any) -> int:
    """Run the demo with the options of `Plan`; returns 0 where everything adds up, else 1.

    Raises:
        DemoRefused: it can't be run as asked.
        AckfloorError: it did not run to its end; the message says why.
    """
    plan = Plan(**options)
    if plan.spark and find_spec("pyspark") is None:
        raise MissingExtra("spark", "Spark's part of the demo (or leave it out: --no-spark)")
    with signals_raise(), ExitStack() as stack:
        out, console = report.console_out(), Console(stderr=True)
        started_s = time.monotonic()
        console.print("finds or starts a broker", highlight=False)
        broker = stack.enter_context(open_broker(config=_BROKER_CONFIG))
        console.print(f"broker {broker.description}", highlight=False)
        if plan.outage_s and broker.cluster is None:
            raise DemoRefused(
                f"--broker-outage: {broker.bootstrap_servers} is not ours to kill; leave the "
                "option out, or unset ACKFLOOR_BOOTSTRAP_SERVERS for a local broker"
            )
        topics = stack.enter_context(_topics(broker, plan))
        folder = stack.enter_context(_folder(plan.log_file))
        facts, rows = _act(plan, broker, topics, folder, console, stack)
        account = reconcile(facts, plan.orders)
        account.rows += rows
        _tell(out, account, facts, time.monotonic() - started_s)
        if plan.spark and plan.page is not None:
            report.show_page(out, plan.page)
        return 0 if account.adds_up else 1


def _act(
    plan: Plan,
    broker: Broker,
    topics: Topics,
    folder: Path,
    console: Console,
    stack: ExitStack,
) -> tuple[Facts, list[Row]]:
    """Run the workers to the end; returns the topics' facts, and rows on the run itself."""
    service = stack.enter_context(Service(broker.bootstrap_servers, plan.workers, folder))
    feed = Feed(broker.bootstrap_servers, seeded_orders(plan.orders, plan.seed), plan.rate)
    with LiveView(console, "ackfloor demo", plan.orders) as live:
        stage = Stage(topics, service, feed, live)
        _begin(plan, stage, feed, stack)
        # So early that Java has started and compiled when the last stuck orders are dead letters;
        # but an outage would end its first report.
        spark = None if plan.outage_s else _spark(plan, broker, folder, stack, live)
        _handle_half(plan, stage)
        disturbances = _disturb(plan, stage, broker)
        if plan.outage_s:
            spark = _spark(plan, broker, folder, stack, live)
        stage.until(feed.finished, "all orders are produced", _HALF_S)
        stage.until_settled()
        stage.look()
        lost = stage.workers_lost()
        live.tell("everything is settled")
        if spark is not None:
            spark.ask()
        code = service.stop()
        live.tell(f"the run ended with exit code {code}")
        found = collect(broker.bootstrap_servers, topics)
        report = None
        if spark is not None:
            report = spark.report(live.tell_seldom)
            live.tell("Spark has made its report")
    facts = Facts(
        ledger=feed.ledger(),
        receipts=found.receipts,
        parked=found.parked,
        dead=found.dead,
        source=SOURCE,
        topic_records=found.records,
        disturbances=disturbances,
        spark=report,
    )
    return facts, [
        Row("worker processes lost", str(int(plan.kill)), str(lost), lost == plan.kill),
        Row("exit code of the run", "0", str(code), code == 0),
    ]


def _spark(
    plan: Plan, broker: Broker, folder: Path, stack: ExitStack, live: LiveView
) -> Pipeline | None:
    """Spark, started; it is asked for its report later. None where the demo does without."""
    if not plan.spark:
        return None
    page = None if plan.page is None else plan.page.resolve()
    pipeline = stack.enter_context(Pipeline(broker.bootstrap_servers, folder, page))
    live.tell("Spark starts to store the retry and dead-letter topics")
    return pipeline


def _begin(plan: Plan, stage: Stage, feed: Feed, stack: ExitStack) -> None:
    """Begin to produce once the workers have joined."""
    stage.live.tell(f"{plan.workers} workers start")
    stage.until(lambda: stage.all_owned(plan.workers), "all workers have partitions", _JOIN_S)
    stage.live.tell(f"every partition has its worker; producing {plan.orders:,} orders")
    stack.enter_context(feed)


def _handle_half(plan: Plan, stage: Stage) -> None:
    """Wait until half of what can be handled is."""
    handled = sum(n for kind, n in counts(plan.orders).items() if EXPECTED[kind].reason is None)
    half = handled // 2
    stage.until(lambda: stage.receipts() >= half, f"{half} orders are handled", _HALF_S)


def _disturb(plan: Plan, stage: Stage, broker: Broker) -> list[Disturbance]:
    """Inject the faults that were asked for."""
    disturbances: list[Disturbance] = []
    if plan.kill:
        disturbances += ordeal.kill_worker(stage, plan.workers)
    if plan.outage_s and broker.cluster is not None:
        disturbances.append(ordeal.take_broker_away(stage, broker.cluster, plan.outage_s))
    return disturbances


def _tell(out: Console, account: Account, facts: Facts, took_s: float) -> None:
    if facts.spark is not None:
        report.print_causes(out, facts.spark)
    precision, lateness = deadline_precision(facts, _TIMEOUT_MS), retry_lateness(facts)
    timing = [
        *report.timing_rows(precision, lateness, facts),
        Row("time", "", f"{took_s:.0f} s", True),
    ]
    report.print_account(out, account, timing)
    report.print_verdict(out, account)


@contextmanager
def _topics(broker: Broker, plan: Plan) -> Iterator[Topics]:
    """The demo's topics, deleted at the end where the broker stays, unless `keep`."""
    with closing(Topics(broker.bootstrap_servers)) as topics:
        topics.make_room(replace=plan.replace)
        try:
            topics.create()
            yield topics
        finally:
            if broker.origin == "given" and not plan.keep:
                topics.remove()


@contextmanager
def _folder(log_file: Path | None) -> Iterator[Path]:
    """A folder for the programs' output; keeps the run's log in `log_file`."""
    target = None if log_file is None else log_file.resolve()
    with tempfile.TemporaryDirectory(prefix="ackfloor-demo-") as name:
        try:
            yield Path(name)
        finally:
            log = Path(name) / "run.log"
            if target is not None and log.exists():
                shutil.copyfile(log, target)
