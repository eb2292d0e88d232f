"""What the console takes at scale: `python -m benchmarks.console_scale` writes results/console.md.

A broker with a million dead letters of forty causes; ten runs of five workers with 300 partitions,
which answer as real ones do; the console as its own process. How long until its index is built, how
long each page takes and how large it is, and what it costs the runs while somebody looks.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from statistics import quantiles
from typing import IO, Any, Final
from urllib.parse import urlencode

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ackfloor.core.records.envelope import Envelope, Reason, write_headers
from ackfloor.observe import (
    BlockedLane,
    BlockedLanes,
    HandlerSnapshot,
    PartitionSnapshot,
    RunningDelivery,
    Snapshot,
)
from ackfloor.testing.local_kafka.bootstrap import open_broker
from ackfloor_monitoring.metrics.run_metrics import RunMetrics
from ackfloor_monitoring.metrics.worker_metrics import WorkerMetrics
from benchmarks import machine
from benchmarks.results import FOLDER

GROUP: Final = "billing"
RUNS, WORKERS, PARTITIONS = 10, 5, 300
#: Deliveries in flight that a worker names, and lanes that wait in each.
NAMED = 20
DLQS: Final = tuple(f"{topic}--{GROUP}--dlq" for topic in ("orders", "parcels", "refunds"))
ERRORS, HANDLERS = 20, ("bill", "refund")
DLQ_PARTITIONS = 12
#: Records that wait in the producer at most.
QUEUED = 50_000
DAY_MS: Final = 86_400_000
#: Seconds that the index has, and for which the cost of looking is measured.
PATIENCE_S, LOOKED_S = 600, 30
#: What the limits are: milliseconds at p95, and bytes.
LIMIT_MS, LIMIT_BYTES = 300, 200_000


def bury(servers: str, count: int) -> None:
    """Write dead letters of the last week, the newest last."""
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics(
        [NewTopic(name, DLQ_PARTITIONS, 1) for name in DLQS]
    ).values():
        future.result()
    now_ms = time.time_ns() // 1_000_000
    producer = Producer(
        {"bootstrap.servers": servers, "linger.ms": 50, "compression.type": "lz4",
         "queue.buffering.max.messages": 200_000}
    )  # fmt: skip
    for number in range(count):
        at_ms = now_ms - 7 * DAY_MS + 7 * DAY_MS * number // count
        error = number * 7919 % ERRORS
        died = Envelope(
            origin_topic=DLQS[number % 3].partition("--")[0], origin_partition=number % 12,
            origin_offset=number, origin_timestamp_ms=at_ms - 60_000, group=GROUP,
            handler=HANDLERS[number % 2], attempt=7, failures=7, reason=Reason.EXHAUSTED,
            error_type=f"shop.Error{error}", error_message=f"no stock of {number % 1000}",
            error_stack="Traceback\n" + f'  File "/app/shop.py", line {error}, in pay\n' * 6,
            error_fingerprint=f"cause-{error}", first_failed_at_ms=at_ms - 30_000,
            failed_at_ms=at_ms,
        )  # fmt: skip
        headers: Any = write_headers(died, [("tenant", b"t%d" % (number % 50))])
        key, value = b"customer-%d" % (number % 100_000), b'{"order": %d}' % number
        topic, partition = DLQS[number % 3], number % DLQ_PARTITIONS
        producer.poll(0)
        while len(producer) > QUEUED:
            producer.poll(0.1)
        producer.produce(topic, value, key, partition=partition, headers=headers)
    producer.flush(60)


def snapshot_of(run: int, worker: int) -> Snapshot:
    """A busy worker: some of its lanes wait, and some deliveries hang."""
    now_ms = time.time_ns() // 1_000_000
    per_worker = PARTITIONS // (RUNS * WORKERS)
    first = (run * WORKERS + worker) * per_worker
    partitions = tuple(
        PartitionSnapshot(
            topic="orders", partition=first + number, epoch=1, handler="bill",
            source_topic="orders", tier_s=None, floor=100_000, committed=100_000,
            position=100_900, highest_settled=100_870, high_watermark=140_000, open_count=400,
            gap_count=30, waiting=200, next_due_ms=None, parking=0, paused=False,
            floor_advanced_ms=now_ms - 9_000, oldest_open_ms=now_ms - 9_000,
            oldest_written_ms=now_ms - 9_500,
        )
        for number in range(per_worker)
    )  # fmt: skip
    stack = tuple(f"/app/shop/module_{depth}.py:{depth} call_{depth}" for depth in range(12))
    lanes = tuple(
        BlockedLane(
            "orders", first, 100_100 + number, f"customer-{number}", "waiting", 3,
            "shop.Boom: no stock", now_ms - 300_000, now_ms + 20_000, 17,
        )
        for number in range(NAMED)
    )  # fmt: skip
    handler = HandlerSnapshot(
        name="bill", ordering="key", concurrency=64, consume_timeout_s=45.0, running=64, queued=900,
        abandoned=0, held_for_s=0.0, held_reason="",
        oldest=tuple(
            RunningDelivery("orders", first, 100_000 + number, 1, 30.0, 15.0, stack, 19)
            for number in range(NAMED)
        ),
        blocked=BlockedLanes(NAMED, 340, now_ms - 300_000, lanes),
    )  # fmt: skip
    return Snapshot(
        group=GROUP, state="running", taken_ms=now_ms, open_count=2_400, open_bytes=1_000_000,
        max_open=50_000, max_open_bytes=268_435_456, partitions=partitions, handlers=(handler,),
        faults=(), polled_s=40.0, worked_s=19.0, poll_limit_s=300.0,
    )  # fmt: skip


def be_runs() -> None:
    """Ten runs in this process: says their addresses, then its CPU seconds whenever asked."""
    served = []
    for run in range(RUNS):
        metrics = RunMetrics(GROUP, WORKERS)
        for worker in range(WORKERS):
            one = WorkerMetrics()
            one.snapshot(snapshot_of(run, worker))
            metrics.update(worker, one.report())
        served.append(metrics)
    print(" ".join(each.start("127.0.0.1:0") for each in served), flush=True)
    for _ in sys.stdin:
        print(time.process_time(), flush=True)


class Runs:
    """The process of the runs."""

    def __init__(self) -> None:
        argv = [sys.executable, "-m", "benchmarks.console_scale", "--be-runs"]
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.addresses = self._said().split()

    def cpu_s(self) -> float:
        """The CPU seconds that it has used."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self._said())

    def _said(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()


class Console:
    """The process of the console, with its index in `folder`."""

    def __init__(self, servers: str, runs: Sequence[str], folder: str) -> None:
        argv = [sys.executable, "-m", "ackfloor", "console", "--listen", "127.0.0.1:0"]
        argv += ["--bootstrap-servers", servers, "--index-folder", folder, "--role", "reader"]
        argv += [f"--run={run}" for run in runs]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=folder)
        out: IO[str] | None = self.process.stdout
        assert out is not None
        self.port = int(out.readline().rstrip().rstrip("/").rpartition(":")[2])

    def cpu_s(self) -> float:
        """The CPU seconds that it has used, with all its threads."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_mb(self) -> float:
        """The most memory that it had."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        [line] = [line for line in lines if line.startswith("VmHWM")]
        return int(line.split()[1]) / 1_000

    def page(self, path: str) -> str:
        """A page's text."""
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request("GET", path, headers={"Accept": "text/html"})
            response = connection.getresponse()
            text = response.read().decode()
        if response.status != 200:
            raise RuntimeError(f"{path}: {response.status} {text[-500:]}")
        return text

    @contextmanager
    def looked_at(self, path: str) -> Iterator[None]:
        """Meanwhile, somebody has a page open that is renewed."""
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request("GET", f"{path}/events")
            connection.getresponse()
            yield

    def close(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait(30)


def pages() -> dict[str, str]:
    """Name -> address, of what is measured."""
    found = {
        name: f"/c/kafka/{path}"
        for name, path in {
            "Overview": "overview", "Partitions": "partitions",
            "One partition": f"partitions/{GROUP}/orders/6", "In flight": "in-flight",
            "Lanes": "lanes", "Retry topics": "retry", "Handlers": "handlers",
            "Dead letters, by cause": "dead-letters",
            "Jobs": "jobs", "One dead letter": f"dead-letters/{DLQS[0]}/0/5",
            "One record": "records/orders/6/100002",
        }.items()
    }  # fmt: skip
    yesterday = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 86_400))
    searches = {
        "one cause": {"handler": "bill", "error": "shop.Error4"},
        "a key": {"key": "customer-777"},
        "a header": {"header": "tenant=t7"},
        "a time": {"since": yesterday},
        "a text that few have": {"text": "no stock of 77"},
        "a text that none has": {"text": "no such text"},
    }
    for name, query in searches.items():
        found[f"Dead letters, {name}"] = f"/c/kafka/dead-letters?{urlencode(query)}"
    return found


def built(console: Console, count: int) -> tuple[float, float]:
    """Seconds and CPU seconds until the index has all."""
    began_s = time.monotonic()
    shown, text = f"{count:,}", ""
    while time.monotonic() - began_s < PATIENCE_S:
        text = console.page("/c/kafka/dead-letters")
        if shown in text and "is being built" not in text:
            return time.monotonic() - began_s, console.cpu_s()
        time.sleep(0.5)
    raise RuntimeError(f"the index was not built within {PATIENCE_S} s: {text[-2000:]}")


def timed(console: Console, path: str, looks: int) -> tuple[float, float, int]:
    """Median and p95 of a page in milliseconds, and its bytes; the first look warms it."""
    size, took_ms = len(console.page(path).encode()), list[float]()
    for _ in range(looks):
        began_s = time.perf_counter()
        console.page(path)
        took_ms.append(1_000 * (time.perf_counter() - began_s))
    cuts = quantiles(took_ms, n=20)
    return cuts[9], cuts[18], size


def costs(console: Console, runs: Runs) -> tuple[float, float]:
    """CPU of a run and of the console while a page is open, as a part of one core."""
    with console.looked_at("/c/kafka/in-flight"), console.looked_at("/c/kafka/overview"):
        time.sleep(2)
        before = runs.cpu_s(), console.cpu_s()
        time.sleep(LOOKED_S)
        used = runs.cpu_s() - before[0], console.cpu_s() - before[1]
    return used[0] / LOOKED_S / RUNS, used[1] / LOOKED_S


def measured(console: Console, runs: Runs, given: argparse.Namespace, folder: str) -> list[str]:
    """The lines of the result."""
    sys.stderr.write("building the index\n")
    took_s, took_cpu_s = built(console, given.count)
    rows = list[str]()
    for name, path in pages().items():
        median_ms, p95_ms, size = timed(console, path, given.looks)
        over = "" if p95_ms <= LIMIT_MS and size <= LIMIT_BYTES else " (over)"
        rows.append(f"| {name} | {median_ms:.0f} | {p95_ms:.0f} | {size / 1e3:.0f}{over} |")
        sys.stderr.write(f"{rows[-1]}\n")
    of_run, of_console = costs(console, runs)
    index_mb = sum(each.stat().st_size for each in Path(folder).rglob("*.sqlite*")) / 1e6
    index = (
        f"- The index: built in {took_s:.0f} s with {took_cpu_s:.0f} s of CPU, {index_mb:.0f} MB. "
        f"The console's memory: {console.peak_mb():.0f} MB at most."
    )
    cost = (
        f"- While two pages are open, a run of {WORKERS} workers uses {100 * of_run:.2f} % of a "
        f"core for them, the console {100 * of_console:.1f} %."
    )
    return [
        index,
        cost,
        "- Repeat: `python -m benchmarks.console_scale`.",
        "",
        "| Page | median, ms | p95, ms | KB |",
        "|---|--:|--:|--:|",
        *rows,
    ]


def report(given: argparse.Namespace) -> str:
    """The result as a text."""
    head = [line for line in machine.told() if not line.startswith("- aiokafka")][:2]
    load = (
        f"- {given.count:,} dead letters in {len(DLQS)} topics; {RUNS} runs of {WORKERS} workers, "
        f"{PARTITIONS} partitions; {given.looks} looks at each page."
    )
    with open_broker() as broker, tempfile.TemporaryDirectory() as folder:
        servers = broker.bootstrap_servers
        sys.stderr.write(f"writing {given.count:,} dead letters\n")
        bury(servers, given.count)
        with closing(Runs()) as runs, closing(Console(servers, runs.addresses, folder)) as console:
            lines = measured(console, runs, given, folder)
    limits = f"Limits: {LIMIT_MS} ms at p95, {LIMIT_BYTES // 1000} KB."
    return "\n".join(["# The console at scale", "", *head, load, *lines, "", limits, ""])


def main() -> None:
    """Measure, or be the runs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=1_000_000, help="of dead letters")
    parser.add_argument("--looks", type=int, default=40, help="at each page")
    parser.add_argument("--be-runs", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.be_runs:
        be_runs()
        return
    text = report(given)
    (FOLDER / "console.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
