"""How Linux wakes handler threads: without pushing aside whoever runs.

A thread that wakes up, because what its handler waited for is there, needs the interpreter's lock
before it can do anything. By default Linux lets it take the place of what runs on its core, often
of the one who holds the lock: two changes of context, and nobody gets anywhere meanwhile.
`SCHED_BATCH` is Linux' word for a thread that need not be let in at once (sched(7)). Its share of a
busy machine is the same. What a handler starts, threads and processes, has the policy as well.
"""

from __future__ import annotations

import os
import sys


def wait_for_a_core() -> None:
    """Let this thread wait until a core is free, instead of taking one, when it wakes up.

    Nothing is changed where it runs under another policy than the usual one, or where the
    system has no such thing or forbids it.
    """
    if sys.platform != "linux":
        return
    try:
        if os.sched_getscheduler(0) == os.SCHED_OTHER:
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    except OSError:
        # A sandbox forbids it, or has no such call: threads are woken as everywhere.
        return
