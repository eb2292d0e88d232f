"""The peers, and an environment of its own for each: made on first use under benchmarks/.peers.

Versions and hashes are pinned in `requirements/`; `make pins` resolves them again. The JVM's
parallel-consumer is jars by their checksums and one class, compiled on first use.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from ackfloor.errors import AckfloorError
from ackfloor.testing.local_kafka.jars import Pin, fetch_jars
from ackfloor.testing.local_kafka.java import find_java

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ENVIRONMENTS = HERE.parent / ".peers"
REQUIREMENTS = HERE / "requirements"
JARS = REQUIREMENTS / "parallel-consumer.sha256"
JAVA_CLASS = "ParallelConsumerPeer"
INSTALL_TIMEOUT_S = 900
LAST_WORDS = 160


class NotInstalled(Exception):
    """A peer can't be had on this machine; the message says why."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Somebody who handles records.

    Attributes:
        name: its module in this folder.
        title: what it is called in tables.
        requirements: its file in `requirements/`; empty for what runs in our own environment.
        any_python: install it on an older Python than its metadata asks for.
    """

    name: str
    title: str
    requirements: str = ""
    any_python: bool = False

    @property
    def version(self) -> str:
        """The pinned version; of what runs in our own environment, none."""
        if self.name == "parallel_consumer":
            return JARS.read_text("utf-8").partition("parallel-consumer-core:")[2].split()[0]
        if not self.requirements:
            return ""
        pins = (REQUIREMENTS / f"{self.requirements}.txt").read_text("utf-8")
        found = re.search(rf"^{self.requirements}==(\S+)", pins, re.MULTILINE)
        return found[1] if found else "?"

    def command(self) -> list[str]:
        """How its process is started, arguments of the case to follow; installed if need be.

        Raises:
            NotInstalled: it can't be had.
        """
        if self.name == "parallel_consumer":
            return _java()
        python = _python(self) if self.requirements else sys.executable
        return [python, "-m", f"benchmarks.peers.{self.name}"]

    @property
    def env(self) -> dict[str, str]:
        """Environment variables beside ours: it finds `benchmarks`, and not our packages."""
        inherited = "" if self.requirements else os.environ.get("PYTHONPATH", "")
        return {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), inherited]))}


PEERS = {
    peer.name: peer
    for peer in (
        Peer("confluent", "bare confluent-kafka"),
        Peer("ackfloor", "ackfloor"),
        Peer("aiokafka", "aiokafka", "aiokafka"),
        Peer("quixstreams", "quixstreams", "quixstreams"),
        Peer("arroyo", "sentry-arroyo", "sentry-arroyo"),
        Peer("parallel_consumer", "parallel-consumer (JVM)"),
        Peer("faust", "faust-streaming", "faust-streaming"),
        Peer("faststream", "FastStream (confluent)", "faststream"),
        Peer("pyrallel", "pyrallel-consumer", "pyrallel-consumer", any_python=True),
    )
}


def _python(peer: Peer) -> str:
    folder = ENVIRONMENTS / peer.requirements
    pins = REQUIREMENTS / f"{peer.requirements}.txt"
    python = folder / "bin" / "python"
    stamp = folder / ".pins"
    wanted = hashlib.sha256(pins.read_bytes()).hexdigest()
    if stamp.is_file() and stamp.read_text("utf-8") == wanted:
        return str(python)
    shutil.rmtree(folder, ignore_errors=True)
    _done([sys.executable, "-m", "venv", str(folder)])
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    older = ["--ignore-requires-python"] if peer.any_python else []
    _done([*install, *older, "--require-hashes", "-r", str(pins)])
    stamp.write_text(wanted, "utf-8")
    return str(python)


def _java() -> list[str]:
    rows = (line.split() for line in JARS.read_text("utf-8").splitlines())
    try:
        java = str(find_java().executable)
        jars = [str(jar) for jar in fetch_jars(Pin(name, digest) for digest, name in rows)]
    except AckfloorError as error:
        raise NotInstalled(str(error).splitlines()[0]) from None
    source = HERE / f"{JAVA_CLASS}.java"
    folder = ENVIRONMENTS / "parallel-consumer"
    compiled = folder / f"{JAVA_CLASS}.class"
    if not compiled.is_file() or compiled.stat().st_mtime < source.stat().st_mtime:
        compiler = [java, "-m", "jdk.compiler/com.sun.tools.javac.Main"]
        _done([*compiler, "-cp", os.pathsep.join(jars), "-d", str(folder), str(source)])
    return [java, "-cp", os.pathsep.join([str(folder), *jars]), JAVA_CLASS]


def _done(argv: list[str]) -> None:
    done = subprocess.run(
        argv, check=False, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S
    )
    if done.returncode:
        words = " ".join((done.stderr or done.stdout).split())[-LAST_WORDS:]
        raise NotInstalled(f"{Path(argv[0]).name} ended with {done.returncode}: {words}")
