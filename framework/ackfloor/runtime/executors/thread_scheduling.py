"""Scheduling policy of handler threads: a thread that wakes up does not preempt another.

A thread that wakes up, because its handler's wait is over, needs the interpreter's lock before it
can do anything. By default Linux lets it preempt what runs on its core, often the thread that holds
the lock: two context switches without any progress. `SCHED_BATCH` is Linux's policy for a thread
that need not run at once (sched(7)). Its share of a busy machine is the same. Threads and processes
that a handler starts inherit the policy.
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
