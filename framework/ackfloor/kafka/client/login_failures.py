"""Refusals: why a broker does not let a client in, and what to do; the client says it to callbacks.

What a request that fails says itself is mostly that nobody answered in time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from confluent_kafka import KafkaError

from ackfloor.kafka.client.certificates import certificate_fault
from ackfloor.kafka.client.client_errors import error_text

#: The client's codes of what is wrong with a connection, the most telling first, and what to do.
_FIXES = {
    KafkaError._SSL: "mend the certificate, or kafka.ssl_ca_location, which says whom to trust",  # noqa: SLF001
    KafkaError._AUTHENTICATION: "mend kafka.sasl_mechanism, kafka.sasl_username or its password",  # noqa: SLF001
    KafkaError.SASL_AUTHENTICATION_FAILED: "mend kafka.sasl_username or its password",
    KafkaError._RESOLVE: "mend the host's name in kafka.bootstrap_servers",  # noqa: SLF001
}
#: What a listener says that knows of no logins.
_NO_LOGIN = "not valid in current SASL state"


class Refusal(NamedTuple):
    """What stands in the way, in words.

    Attributes:
        let_in: whether a broker was there, and did not let us in.
    """

    why: str
    fix: str
    let_in: bool


def refusal(
    errors: Iterable[KafkaError], config: Mapping[str, Any] | None = None
) -> Refusal | None:
    """What a client's callbacks tell of; None where nothing of it names itself.

    Args:
        errors: what they were called with.
        config: the client's properties, where there is time to look at the certificate as well.
    """
    by_code = {error.code(): error for error in errors}
    for code, fix in _FIXES.items():
        if code not in by_code:
            continue
        why = error_text(by_code[code])
        if code == KafkaError._SSL and config and (fault := certificate_fault(config)):  # noqa: SLF001
            why = f"the certificate is not believed: {fault}"
        if _NO_LOGIN in why:
            return Refusal(why, "this listener takes no logins: mend kafka.security_protocol", True)
        return Refusal(why, fix, code != KafkaError._RESOLVE)  # noqa: SLF001
    return None
