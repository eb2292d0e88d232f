"""Garbage: how often a worker process looks for objects that only refer to each other.

Theory. Reference counts free nearly everything. For the rest the interpreter looks at its youngest
objects whenever 700 more were made than freed (2,000 from Python 3.13 on), at older ones after
every tenth such look, and now and then at all. A worker makes two objects for a record when it is
read and frees them when it is settled, by the thousand in between: the collector looks at open
records again and again, and finds nothing. That was a fifth of the CPU time of a handler that does
nothing.

So what is there when the worker starts is not looked at any more, and young objects less often.
What a handler leaves behind in circles waits a little longer: at most `YOUNG` objects of it.
"""

from __future__ import annotations

import gc

#: How many more objects are made than freed before the youngest are looked at.
YOUNG = 20_000


def look_less_often() -> None:
    """For this process, before the user's lifespan, which may say otherwise.

    A collector that was switched off, or that looks less often already, stays as it is.
    """
    young, *older = gc.get_threshold()
    if 0 < young < YOUNG:
        gc.set_threshold(YOUNG, *older)
    gc.collect()
    gc.freeze()
