"""How much memory a process holds.

What is looked at is what the kernel has given it (resident memory), not what it has reserved: a
limit on address space (`RLIMIT_AS`) kills handlers that only map a large file or start many
threads, and libraries such as numpy reserve many times what they use.
"""

from __future__ import annotations

import os

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def resident_bytes(process: int | str) -> int:
    """A process's resident memory, 0 where it is gone."""
    try:
        with open(f"/proc/{process}/statm", "rb") as file:  # noqa: PTH123 -- five times as fast
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0
