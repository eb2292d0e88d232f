"""UsualTime: how long deliveries of one handler usually run, and how long is far longer than that.

Theory. What is usual moves by a twentieth with each delivery, towards that one: so it is a median,
and a few that run for very long do not move it far. No times are kept.

Of a handler that has handled nothing yet it is not known what is usual. Then half the consume
timeout is long: else a slow handler would seem to hang with its first records.
"""

from __future__ import annotations

#: A delivery hangs that has run for so many times what is usual, and for so many seconds.
UNUSUAL, LONG_S = 10.0, 1.0
#: By how much what is usual moves with one delivery.
STEP = 1.05
#: What is long where neither what is usual is known, nor a consume timeout is set, in seconds.
NO_TIMEOUT_S = 60.0


class UsualTime:
    """How long deliveries of a handler usually run.

    Attributes:
        seconds: that time; 0 while none was handled.
    """

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        self.seconds = 0.0

    def took(self, seconds: float) -> None:
        """A delivery was handled, in so many seconds."""
        if not self.seconds:
            self.seconds = seconds
        elif seconds > self.seconds:
            self.seconds *= STEP
        else:
            self.seconds /= STEP

    def long_s(self, timeout_s: float | None) -> float:
        """What has run for so many seconds runs far longer than usual.

        Args:
            timeout_s: the handler's consume timeout, None for no limit.
        """
        usual_s = self.seconds * UNUSUAL or (timeout_s or NO_TIMEOUT_S) / 2
        return max(LONG_S, usual_s)
