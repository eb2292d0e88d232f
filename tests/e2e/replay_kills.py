"""Kills in the middle of `ackfloor spark replay`: each dead letter that was meant, once.

    python -m tests.e2e.replay_kills --records 50000 --kills 2

Dead letters of two causes are written to a broker and ingested into a table. The command chooses
those of one cause with SQL. It is killed with SIGKILL, its Java process included, at a random
point of what it has to write, and then given again; the last one may end. After that the retry
topic, as a reader of committed records sees it, must have each dead letter of that cause once,
byte for byte; each of them must have one disposition, and no other any; and the same command must
find nothing left to send.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Message, TopicPartition
from confluent_kafka.admin import OffsetSpec

from ackfloor.core.records.envelope import read_envelope
from ackfloor.testing import open_broker
from tests.e2e.redrive_kills import REPOSITORY
from tests.framework.cli.command import environment
from tests.redrive_stage import PARTITIONS, Stage

MEANT = "shop.Boom"
WHERE = f"error_type = '{MEANT}' and reason = 'exhausted'"
#: So many dead letters of the other cause for each hundred that are meant.
OTHERS = 10
PATIENCE_S = 600.0


@dataclass(slots=True)
class Findings:
    """What came of it.

    Attributes:
        killed_at: how far the retry topic's log was at each kill.
        in_target: dead letters that are there, each once.
        noted: dispositions, each of one that was meant.
        last_s: the command that was not killed, in seconds from its start to its end.
    """

    meant: int
    killed_at: list[int] = field(default_factory=list)
    in_target: int = 0
    noted: int = 0
    last_s: float = 0.0

    @property
    def sound(self) -> bool:
        """Whether all that was meant is where it should be."""
        return self.meant == self.in_target == self.noted


class Replay:
    """The dead letters of one broker, their table, and the command over it."""

    def __init__(self, servers: str, folder: Path, meant: int) -> None:
        self.stage = Stage(servers)
        self.meant = meant
        self._folder = folder
        self._where = ["--table", str(folder / "failures"), "--bootstrap-servers", servers]
        self._bury(0, meant)
        self.meant_places = set(self.stage.places)
        self.stage.died = self.stage.died._replace(error_type="shop.Other")
        self._bury(meant, max(1, meant * OTHERS // 100))
        self._ended(["ingest", "--once", "--group", self.stage.group])

    def _bury(self, first: int, count: int) -> None:
        numbers = [b"%d" % n for n in range(first, first + count)]
        self.stage.bury([(n, b"value " + n, [("n", n), ("n", b"\xff")]) for n in numbers])

    def send(self) -> dict[str, Any]:
        """The command, to its end; what it says."""
        told = json.loads(self._ended(self._command))
        assert len(told) == 1, told
        return dict(told[0])

    def killed(self, share: float) -> int:
        """The command, killed when this share of what was left is written; how far that is."""
        before = self._written()
        aim = before + max(1, round((self.meant - before) * share))
        with self._begun(self._command) as process:
            while (written := self._written()) < aim:
                assert process.poll() is None, self._output("err")
                time.sleep(0.005)
            os.killpg(process.pid, signal.SIGKILL)
            assert process.wait() == -signal.SIGKILL, "it had ended before it could be killed"
        return written

    def sent(self) -> int:
        """How many are in the retry topic: of those that were meant, each once and unchanged."""
        records = self.stage.read(self.stage.tier)
        numbers = Counter(map(_number, records))
        assert set(numbers.values()) == {1}, "sent twice"
        assert set(numbers) <= set(range(self.meant)), "sent and not meant"
        return len(numbers)

    def noted(self) -> int:
        """How many dispositions there are: each once, and of one that was meant."""
        stage, notes = self.stage, self.stage.notes()
        assert set(notes) <= {f"{p}/{o}" for p, o in self.meant_places}, "noted and not meant"
        said = {(note["disposition"], note["target"]) for note in notes.values()}
        assert said == {("replayed", stage.tier)}, said
        return len(notes)

    def _written(self) -> int:
        """The end of the retry topic's log; what is in no transaction that ended counts too."""
        latest = OffsetSpec.latest()
        asked = {TopicPartition(self.stage.tier, p): latest for p in range(PARTITIONS)}
        return sum(f.result(60).offset for f in self.stage.admin.list_offsets(asked).values())

    @property
    def _command(self) -> list[str]:
        return ["replay", "--where", WHERE, "--yes", "-o", "json"]

    @contextmanager
    def _begun(self, arguments: list[str]) -> Iterator[subprocess.Popen[bytes]]:
        """A command in a process group of its own, gone in the end with all that it started."""
        command = [sys.executable, "-m", "ackfloor.cli.main", "spark", *arguments, *self._where]
        with (self._folder / "out").open("wb") as out, (self._folder / "err").open("wb") as err:
            process = subprocess.Popen(
                command,
                cwd=REPOSITORY,
                env=environment({}),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _ended(self, arguments: list[str]) -> str:
        with self._begun(arguments) as process:
            code = process.wait(PATIENCE_S)
        assert code == 0, f"{arguments[0]} ended with {code}: {self._output('err')}"
        return self._output("out")

    def _output(self, name: str) -> str:
        return (self._folder / name).read_text("utf-8", "replace")[-4_000:]


def _number(record: Message) -> int:
    """The dead letter that a record of the retry topic was; fails where it has changed."""
    number = record.key() or b""
    headers = record.headers() or []
    assert record.value() == b"value " + bytes(number)
    assert [value for name, value in headers if name == "n"] == [number, b"\xff"]
    told = read_envelope(headers)
    assert (told.replays, told.attempt, told.origin_offset) == (1, 0, int(number))
    return int(number)


def prove(servers: str, folder: Path, records: int, kills: int, seed: int) -> Findings:
    """Bury, ingest, replay under kills, and count."""
    chance = random.Random(seed)
    replay, found = Replay(servers, folder, records), Findings(records)
    for _ in range(kills):
        found.killed_at.append(replay.killed(chance.uniform(0.1, 0.7)))
    began_s = time.monotonic()
    replay.send()
    found.last_s = time.monotonic() - began_s
    again = replay.send()
    assert (again["sent"], again["left"]) == (0, {"disposed": records}), again
    found.in_target, found.noted = replay.sent(), replay.noted()
    return found


def main() -> int:
    """The command line; see the head of this file."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.e2e.replay_kills", description="Kills in the middle of a replay."
    )
    parser.add_argument("--records", type=int, default=50_000, help="dead letters that are meant")
    parser.add_argument("--kills", type=int, default=2, help="of the command")
    parser.add_argument("--seed", type=int, default=1, help="what decides when")
    given = parser.parse_args()
    with open_broker() as broker, tempfile.TemporaryDirectory() as folder:
        servers = broker.bootstrap_servers
        found = prove(servers, Path(folder), given.records, given.kills, given.seed)
    sys.stdout.write(f"{found}\n")
    return int(not found.sound)


if __name__ == "__main__":
    sys.exit(main())
