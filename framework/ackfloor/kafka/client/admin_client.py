"""AdminConnection: an admin client that knows why no broker answers.

A failed request mostly says only that it timed out. The client passes the cause to an error
callback: a refused login, an untrusted certificate, a host name that can't be resolved, a refused
connection.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata  # type: ignore[attr-defined]

from ackfloor.errors import KafkaUnreachable
from ackfloor.kafka.client.client_errors import error_text
from ackfloor.kafka.client.client_options import KafkaOptions, admin_config, make_client
from ackfloor.kafka.client.login_failures import Refusal, refusal

#: How long to wait for an answer, and how long once the client has reported a refusal.
PATIENCE_S = 10.0
REFUSED_S = 2.0
#: The first try ends after this; each further one takes twice as long.
PROBE_S = 1.0

_DOCTOR = "`ackfloor doctor` looks closer"


def quiet_admin(config: Mapping[str, Any]) -> tuple[AdminClient, deque[KafkaError]]:
    """An admin client that does not log, and the last errors reported to its error callback.

    The callback is no method of the client's owner: that would be a cycle, which the garbage
    collector may end inside another client's callback.

    Raises:
        ConfigError: a client property is refused.
    """
    quiet = logging.getLogger("ackfloor.kafka.admin")
    # The client logs every refused connection again; callers log the cause once.
    quiet.setLevel(logging.CRITICAL)
    errors: deque[KafkaError] = deque(maxlen=10)
    client = make_client(AdminClient, "admin", {**config, "error_cb": errors.append}, logger=quiet)
    return client, errors


class AdminConnection:
    """The brokers that the settings name.

    Attributes:
        by_default: the bootstrap servers are the built-in default.

    Raises:
        ConfigError: a client property is refused.
    """

    def __init__(self, options: KafkaOptions) -> None:
        self._config = admin_config(options)
        self.by_default = options.by_default
        self.admin, self._errors = quiet_admin(self._config)

    @property
    def servers(self) -> str:
        """The bootstrap servers, for messages."""
        return str(self._config.get("bootstrap.servers", ""))

    def metadata(self) -> ClusterMetadata:
        """All topics and brokers.

        Raises:
            KafkaUnreachable: no broker answers; the message says why.
        """
        began_s, probe_s = time.monotonic(), PROBE_S
        while True:
            try:
                return self.admin.list_topics(timeout=probe_s)
            except KafkaException as exc:
                waited_s = time.monotonic() - began_s
                if waited_s >= (PATIENCE_S if self.refusal() is None else REFUSED_S):
                    raise self.unreachable(exc, round(waited_s)) from exc
                probe_s = max(PROBE_S, min(2 * probe_s, PATIENCE_S - waited_s))

    def refusal(self) -> Refusal | None:
        """The refusal that the client has reported, if any."""
        self.admin.poll(0)
        return refusal(self._errors, self._config)

    def why(self, exc: KafkaException) -> str:
        """Why no broker answers: the refusal, else the last error reported to the callback."""
        refused = self.refusal()
        if refused is not None:
            return f"{refused.why}; {refused.fix}"
        down = KafkaError._ALL_BROKERS_DOWN  # noqa: SLF001 -- says nothing of why
        causes = [error for error in self._errors if error.code() != down]
        return error_text(causes[-1] if causes else exc)

    def unreachable(self, exc: KafkaException, waited_s: float) -> KafkaUnreachable:
        """The error with which a command ends."""
        why, refused = self.why(exc), self.refusal()
        where = f"kafka.bootstrap_servers={self.servers!r}{' (the default)' * self.by_default}"
        if refused is not None and refused.let_in:
            return KafkaUnreachable(
                f"{where}: a broker is there, but refuses the connection: {why}; {_DOCTOR}"
            )
        fix = (
            "" if refused else "; start one (ackfloor broker up), or set ACKFLOOR_BOOTSTRAP_SERVERS"
        )
        return KafkaUnreachable(
            f"{where}: no broker has answered within {waited_s:g} s: {why}{fix}; {_DOCTOR}"
        )
