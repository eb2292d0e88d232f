"""AdminConnection: an admin client that knows why nobody answers it.

A request that fails says mostly that no answer came in time. What stands in the way the client
says to a callback: a refused login, a certificate that is not believed, a name that nobody knows,
a connection that is refused.
"""

from __future__ import annotations

import logging
import time
from collections import deque

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata  # type: ignore[attr-defined]

from ackfloor.errors import KafkaUnreachable
from ackfloor.kafka.client.client_errors import error_text
from ackfloor.kafka.client.client_options import KafkaOptions, admin_config, make_client
from ackfloor.kafka.client.login_failures import Refusal, refusal

#: How long an answer is waited for, and where the client has said that we are not let in.
PATIENCE_S = 10.0
REFUSED_S = 2.0
#: The first try ends after this; each further one takes twice as long.
PROBE_S = 1.0

_DOCTOR = "`ackfloor doctor` looks closer"


class AdminConnection:
    """The brokers that the settings name.

    Attributes:
        by_default: nobody has said where they are.

    Raises:
        ConfigError: a client property is refused.
    """

    def __init__(self, options: KafkaOptions) -> None:
        self._config = admin_config(options)
        self.by_default = options.by_default
        #: What the client said of why it can't connect. Not a method of ours: the client would hold
        #: us, and be collected at some time, which must not be inside another client's callback.
        self._errors: deque[KafkaError] = deque(maxlen=10)
        config = {**self._config, "error_cb": self._errors.append}
        quiet = logging.getLogger("ackfloor.kafka.admin")
        # It repeats every refused connection; what keeps us from an answer is told once, here.
        quiet.setLevel(logging.CRITICAL)
        self.admin: AdminClient = make_client(AdminClient, "admin", config, logger=quiet)

    @property
    def servers(self) -> str:
        """The bootstrap servers, for messages."""
        return str(self._config.get("bootstrap.servers", ""))

    def metadata(self) -> ClusterMetadata:
        """All topics and brokers.

        Raises:
            KafkaUnreachable: nobody answers; says why.
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
        """What the client has said that names itself."""
        self.admin.poll(0)
        return refusal(self._errors, self._config)

    def why(self, exc: KafkaException) -> str:
        """Why nobody answers: a refused login or certificate is told to callbacks alone."""
        refused = self.refusal()
        if refused is not None:
            return f"{refused.why}; {refused.fix}"
        down = KafkaError._ALL_BROKERS_DOWN  # noqa: SLF001 -- says nothing of why
        causes = [error for error in self._errors if error.code() != down]
        return error_text(causes[-1] if causes else exc)

    def unreachable(self, exc: KafkaException, waited_s: float) -> KafkaUnreachable:
        """The same as the error with which a command ends."""
        why, refused = self.why(exc), self.refusal()
        where = f"kafka.bootstrap_servers={self.servers!r}{' (the default)' * self.by_default}"
        if refused is not None and refused.let_in:
            return KafkaUnreachable(
                f"{where}: a broker is there, and does not let us in: {why}; {_DOCTOR}"
            )
        fix = (
            "" if refused else "; start one (ackfloor broker up), or set ACKFLOOR_BOOTSTRAP_SERVERS"
        )
        return KafkaUnreachable(
            f"{where}: no broker has answered within {waited_s:g} s: {why}{fix}; {_DOCTOR}"
        )
