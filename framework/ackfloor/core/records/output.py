"""Output: what a handler publishes through its delivery, held until the record's outcome is known.

An open transaction can't drop one record's output. So an output is written only when its record is
known to be handled, in the transaction that settles the record; the outputs of an attempt that ends
in another way are dropped with it. What one record may hold is bounded by what one transaction can
carry: they are never split.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ackfloor.core.records.record import Headers

#: Most outputs of one record, and most bytes of them: what a transaction writes within its time.
MOST_OUTPUTS = 10_000
MOST_OUTPUT_BYTES = 32 * 1024 * 1024
#: The error type of a record whose outputs are too large.
OUTPUT_TOO_LARGE = "OutputTooLarge"
#: What an output takes in memory and on the wire beside its key, value and headers, in bytes.
OVERHEAD = 70


class OutputTooLarge(Exception):
    """The outputs of one record are more than one transaction may hold."""


@dataclass(slots=True)
class Output:
    """One record to write.

    Attributes:
        partition: the target partition, None to let the producer choose by the key.
        size: about how many bytes it takes.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None
    size: int = field(init=False)

    def __post_init__(self) -> None:
        # Here, because all that holds and bounds outputs asks for it.
        size = OVERHEAD + len(self.key or b"") + len(self.value or b"")
        for name, text in self.headers:
            size += len(name) + len(text or b"")
        self.size = size


class Outputs:
    """What one attempt has published so far.

    Attributes:
        items: in the order of publishing.
        too_large: why they are too large; "" as long as they are not.
    """

    __slots__ = ("_size", "items", "too_large")

    def __init__(self) -> None:
        self.items: list[Output] = []
        self.too_large = ""
        # Threads of one handler may publish at once: this may miss some, `size` does not.
        self._size = 0

    @property
    def size(self) -> int:
        """Bytes of all of them."""
        return sum([output.size for output in self.items])

    def add(self, output: Output) -> None:
        """Hold one more.

        Raises:
            OutputTooLarge: they would be too large with it. The record has failed then, whatever
                its handler makes of it.
        """
        self._size += output.size
        self.items.append(output)
        if len(self.items) > MOST_OUTPUTS:
            self.too_large = f"over {MOST_OUTPUTS:,} outputs of one record"
        elif self._size > MOST_OUTPUT_BYTES:
            most = f"{MOST_OUTPUT_BYTES:,} bytes are the most of one record"
            self.too_large = f"outputs of {self._size:,} bytes; {most}"
        if self.too_large:
            self.items.clear()
            raise OutputTooLarge(self.too_large)
