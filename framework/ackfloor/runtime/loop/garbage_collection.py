"""Garbage collection: a worker process runs Python's cycle collector less often.

Reference counts free nearly everything. For cycles the interpreter scans its youngest objects
whenever 700 more were made than freed (2,000 from Python 3.13 on), older ones after every tenth
such scan, and now and then all. A worker makes two objects for a record when it reads it and frees
them when it settles it, with thousands open in between: the collector scans open records again and
again, and finds nothing. That was a fifth of the CPU time of a handler that does nothing.

So objects that exist when the worker starts are not scanned any more, and young ones less often. A
handler's cycles are freed a little later: at most `YOUNG` objects wait.
"""

from __future__ import annotations

import gc

#: How many more objects are made than freed before the youngest are scanned.
YOUNG = 20_000


def look_less_often() -> None:
    """For this process, before the user's lifespan, which may change it.

    A collector that is off, or that runs less often already, stays as it is.
    """
    young, *older = gc.get_threshold()
    if 0 < young < YOUNG:
        gc.set_threshold(YOUNG, *older)
    gc.collect()
    gc.freeze()
