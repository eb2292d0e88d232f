"""RefusedPublishes: `app.publish` inside of a handler with `output="exactly_once"` is refused.

It would be written at once, and stay written where the record is handled again. Code of a handler
that runs elsewhere, such as in a thread that it has started, is not known to be a handler's.
"""

from __future__ import annotations

from collections.abc import Callable

from ackfloor.core.records.batch import Batch
from ackfloor.core.records.record import Headers
from ackfloor.ports import Publisher
from ackfloor.runtime.calls.publishes import Handled


class RefusedPublishes:
    """A publisher that handlers with `output="exactly_once"` can't use; implements `Publisher`.

    Args:
        publisher: writes what others publish.
        handled: what is being handled where it is called.
    """

    def __init__(self, publisher: Publisher, handled: Callable[[], Handled | None]) -> None:
        self._publisher = publisher
        self._handled = handled

    def publish(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        on_done: Callable[[BaseException | None], None],
        partition: int | None = None,
    ) -> None:
        """Write a record, unless such a handler asks for it.

        Raises:
            RuntimeError: one does.
        """
        handled = self._handled()
        if handled is not None:
            delivery = handled.items[0] if isinstance(handled, Batch) else handled
            rules = delivery.assignment.handler.rules
            if rules.exactly_once:
                raise RuntimeError(
                    f'handler {rules.name!r} has output="exactly_once", and app.publish would '
                    f"write to {topic!r} again where its record is handled again: use "
                    f"`delivery.publish({topic!r}, ...)`"
                )
        self._publisher.publish(topic, value, key, headers, on_done, partition)

    def close(self, timeout_s: float) -> None:
        """As the publisher."""
        self._publisher.close(timeout_s)
