"""Where a process that was started serves, as its log tells it."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

PATIENCE_S = 120.0
# With what follows the address: of a line that is half written it may be the half.
RUN = re.compile(r"metrics and health on (http://\S+)\s")
UVICORN = re.compile(r"Uvicorn running on (http://\S+) ")


def served_at(
    log: Path,
    process: subprocess.Popen[bytes],
    pattern: re.Pattern[str],
    patience_s: float = PATIENCE_S,
) -> str:
    """The address; fails with the log where the process ends before, or takes too long."""
    give_up_s = time.monotonic() + patience_s
    while time.monotonic() < give_up_s:
        if found := pattern.search(log.read_text()):
            return found[1]
        assert process.poll() is None, log.read_text()
        time.sleep(0.05)
    raise AssertionError(log.read_text())
