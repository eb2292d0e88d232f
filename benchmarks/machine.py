"""The machine and the versions that figures belong to."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from ackfloor.testing.local_kafka.jars import KAFKA_VERSION
from benchmarks.peers.installed import PEERS


def told() -> list[str]:
    """A few lines for the head of a result."""
    versions = ", ".join(f"{peer.title} {peer.version}" for peer in PEERS.values() if peer.version)
    load = os.getloadavg()[0]
    when = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    cores = f"{os.cpu_count()} cores ({_processor()}), {platform.system()}"
    clients = f"confluent-kafka {version('confluent-kafka')}, uvloop {version('uvloop')}"
    python = f"Python {platform.python_version()}"
    return [
        f"- {when}; {cores}; load before the run {load:.1f} (others use the cores unless near 0).",
        f"- {python}, {clients}, one Kafka {KAFKA_VERSION} on the same machine.",
        f"- {versions}.",
    ]


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if not info.is_file():
        return platform.processor() or platform.machine()
    rows = (row.partition(":") for row in info.read_text("utf-8").splitlines())
    return next((value.strip() for name, _, value in rows if name.startswith("model name")), "?")
