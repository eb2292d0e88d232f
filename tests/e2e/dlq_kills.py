"""Many dead letters from the command line: grouped, and one group replayed under kills.

    python -m tests.e2e.dlq_kills --letters 100000 --groups 40 --rate 1000 --kills 2

`ackfloor dlq groups` counts them. `ackfloor dlq replay` sends those of one cause at a steady rate,
is killed with SIGKILL at random points of what it has to write, and is given again: the same
command first, in the end `--resume` with the name of the job. After that the retry topic, as a
reader of committed records sees it, must have each dead letter of that cause once and byte for
byte, each of them must have one disposition, and no other any.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec

from ackfloor.core.records.envelope import read_envelope
from ackfloor.testing import open_broker
from tests.framework.cli.command import environment
from tests.redrive_stage import PARTITIONS, Stage

MEANT = "feed0000feed0000"
#: Dead letters of one cause that lie next to each other.
STRETCH = 250
PATIENCE_S = 600.0


@dataclass(slots=True)
class Findings:
    """What came of it.

    Attributes:
        meant: dead letters of the cause that is replayed.
        groups_s: `dlq groups`, from the start of its process to its end.
        killed_at: how far the retry topic's log was at each kill.
        in_target: dead letters that are there, each once and as it was.
        noted: dispositions, each of one that was meant.
        replay_s: all runs of `dlq replay` together.
    """

    letters: int
    meant: int = 0
    groups: int = 0
    groups_s: float = 0.0
    killed_at: list[int] = field(default_factory=list)
    in_target: int = 0
    noted: int = 0
    replay_s: float = 0.0

    @property
    def sound(self) -> bool:
        """Whether all that was meant is where it should be."""
        return self.meant == self.in_target == self.noted


class Incident:
    """Dead letters of several causes in one topic; a fifth of them of the one that is meant."""

    def __init__(self, servers: str, folder: Path, letters: int, groups: int, seed: int) -> None:
        self.stage, self.letters, self._folder = Stage(servers), letters, folder
        self.chance = random.Random(seed)
        stretches = max(groups, letters // STRETCH)
        meant = max(1, stretches // 5)
        others = [f"{n % (groups - 1):016x}" for n in range(stretches - meant)]
        causes = [MEANT] * meant + others
        self.chance.shuffle(causes)
        self.meant: dict[tuple[int, int], int] = {}
        for n, cause in enumerate(causes):
            self._bury(n * letters // stretches, (n + 1) * letters // stretches, cause)

    def _bury(self, begin: int, end: int, cause: str) -> None:
        stage, before = self.stage, len(self.stage.places)
        stage.died = stage.died._replace(
            error_fingerprint=cause, error_type=f"shop.Error{cause[-4:]}"
        )
        stage.bury([(b"%d" % n, b"value %d" % n, [("n", b"%d" % n)]) for n in range(begin, end)])
        if cause == MEANT:
            # Reports come per partition in order, and the first half of a batch is in partition 0.
            half = begin + (end - begin + 1) // 2
            for partition, numbers in ((0, range(begin, half)), (1, range(half, end))):
                places = sorted(place for place in stage.places[before:] if place[0] == partition)
                self.meant.update(zip(places, numbers, strict=True))

    def command(self, *arguments: str) -> subprocess.Popen[str]:
        """`ackfloor dlq` in a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "ackfloor.cli.main", "dlq", *arguments],
            cwd=self._folder,
            env=environment({"ACKFLOOR_BOOTSTRAP_SERVERS": self.stage.servers}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def answer(self, *arguments: str) -> list[dict[str, object]]:
        """What a command says as JSON."""
        process = self.command(*arguments, "-o", "json")
        out, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, err
        rows: list[dict[str, object]] = json.loads(out)
        return rows

    def replay(self, *arguments: str, killed_at: int | None = None) -> int | None:
        """Replay; killed when the retry topic's log has come so far.

        Returns how far it was then; None where it had ended before, or was not to be killed.
        """
        process = self.command("replay", self.stage.dlq, *arguments, "--yes")
        until_s = time.monotonic() + PATIENCE_S
        try:
            while killed_at is not None and process.poll() is None:
                if (written := self.written()) >= killed_at:
                    process.send_signal(signal.SIGKILL)
                    out, err = process.communicate(timeout=PATIENCE_S)
                    # It may have ended just before.
                    assert process.returncode in {0, -signal.SIGKILL}, (out, err)
                    return written if process.returncode else None
                assert time.monotonic() < until_s, "it does not get there"
                time.sleep(0.05)
            out, err = process.communicate(timeout=PATIENCE_S)
            assert process.returncode == 0, (out, err)
        finally:
            process.kill()
            process.wait()
        return None

    def written(self) -> int:
        """How far the retry topic's log is, whatever of it counts."""
        asked = {TopicPartition(self.stage.tier, p): OffsetSpec.latest() for p in range(PARTITIONS)}
        answers = self.stage.admin.list_offsets(asked, request_timeout=60)
        return sum(each.result(60).offset for each in answers.values())

    def sent(self) -> int:
        """How many are in the retry topic: of those that were meant, each once and unchanged."""
        found: Counter[int] = Counter()
        numbers = set(self.meant.values())
        for message in self.stage.read(self.stage.tier):
            number = int(dict(message.headers() or [])["n"] or b"")
            assert (message.key(), message.value()) == (b"%d" % number, b"value %d" % number)
            assert number in numbers, "sent and not meant"
            assert read_envelope(message.headers()).replays == 1
            found[number] += 1
        assert set(found.values()) <= {1}, "sent twice"
        return len(found)

    def noted(self) -> int:
        """How many dispositions there are: each of one that was meant."""
        notes = self.stage.notes()
        assert set(notes) <= {f"{p}/{o}" for p, o in self.meant}, "noted and not meant"
        assert {each["target"] for each in notes.values()} == {self.stage.tier}
        return len(notes)


def prove(
    servers: str, folder: Path, *, letters: int, groups: int, rate: int, kills: int, seed: int = 1
) -> Findings:
    """Bury, group, replay under kills, and count; fails where one is there twice."""
    incident = Incident(servers, folder, letters, groups, seed)
    dlq, meant = incident.stage.dlq, len(incident.meant)
    found = Findings(letters, meant)
    began_s = time.monotonic()
    rows = incident.answer("groups", dlq)
    found.groups_s, found.groups = time.monotonic() - began_s, len(rows)
    assert sum(int(str(row["count"])) for row in rows) == letters
    given = ["--error", MEANT, "--rate", f"{rate}/s"]
    began_s = time.monotonic()
    for number in range(kills):
        # Each kill in a part of its own, so that there is something left after the last one.
        part = 0.6 * meant / kills
        at = int(part * number + incident.chance.uniform(0.1, 0.9) * part) + 1
        if (killed_at := incident.replay(*given, killed_at=at)) is not None:
            found.killed_at.append(killed_at)
    last = incident.answer("jobs", dlq)
    if last:
        assert last[0]["state"] in {"silent", "done"}
        given = ["--resume", str(last[0]["job"])]
    incident.replay(*given)
    found.replay_s = time.monotonic() - began_s
    found.in_target, found.noted = incident.sent(), incident.noted()
    left = {row["cause"]: row["count"] for row in incident.answer("groups", dlq)}
    assert MEANT not in left
    assert len(left) == found.groups - 1
    again = incident.answer("replay", dlq, "--error", MEANT, "--yes")
    assert (again[0]["sent"], again[0]["left"]) == (0, {"disposed": meant})
    return found


def main() -> int:
    """The command line; see the head of this file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--letters", type=int, default=100_000)
    parser.add_argument("--groups", type=int, default=40)
    parser.add_argument("--rate", type=int, default=1_000, help="records a second")
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    given = vars(parser.parse_args())
    with open_broker() as broker, tempfile.TemporaryDirectory() as folder:
        found = prove(broker.bootstrap_servers, Path(folder), **given)
    sys.stdout.write(f"{found}\n")
    return int(not found.sound)


if __name__ == "__main__":
    sys.exit(main())
