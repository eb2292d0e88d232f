"""Opens standard streams that were closed at the start (`2>&-`).

Else the next file or socket gets their number, and child processes log into it.
"""

from __future__ import annotations

import os
import sys


def lead_closed_streams_nowhere() -> None:
    """Open what is closed of them; called first of all, by each process that may be the first."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            # The lowest number that is free: the stream's own, unless it is another file's by now.
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(nowhere, nowhere == number)
            stream = os.fdopen(nowhere, "r" if number == 0 else "w")
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)
