"""What a lookout looks with in tests; it is called in the lookout's own process."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ackfloor.core.acks.progress import Progress
from ackfloor.errors import AckfloorError

SEEN = (Progress("billing", "orders", 0, "source", start=0, end=10, floor=3),)


@contextmanager
def script(folder: Path, answers: str) -> Iterator[Callable[[], Sequence[Progress]]]:
    """A letter for each look: seen, known failure, bug, hang, killed, terminated; then all is seen.

    The letters are counted in a file, so that the next process goes on where one has ended.
    """
    (folder / f"{os.getpid()}.pid").touch()

    def look() -> Sequence[Progress]:
        count = folder / "count"
        number = len(count.read_bytes()) if count.exists() else 0
        with count.open("ab") as file:
            file.write(b".")
        match answers[number : number + 1]:
            case "f":
                raise AckfloorError("no broker answers")
            case "b":
                raise KeyError("bug")
            case "h":
                time.sleep(3600)
            case "k":
                os.kill(os.getpid(), signal.SIGKILL)
            case "t":
                os.kill(os.getpid(), signal.SIGTERM)
        return SEEN

    yield look
