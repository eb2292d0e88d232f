"""Refusals: why a client can't log in or connect to a broker, and what to do.

The client reports the cause to its error callback; the failed request itself mostly times out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from confluent_kafka import KafkaError

from ackfloor.kafka.client.certificates import certificate_fault
from ackfloor.kafka.client.client_errors import error_text

#: The client's codes of what is wrong with a connection, the most specific first, and the fix.
_FIXES = {
    KafkaError._SSL: "mend the certificate, or kafka.ssl_ca_location, which says whom to trust",  # noqa: SLF001
    KafkaError._AUTHENTICATION: "mend kafka.sasl_mechanism, kafka.sasl_username or its password",  # noqa: SLF001
    KafkaError.SASL_AUTHENTICATION_FAILED: "mend kafka.sasl_username or its password",
    KafkaError._RESOLVE: "mend the host's name in kafka.bootstrap_servers",  # noqa: SLF001
}
#: The error of a listener that takes no logins.
_NO_LOGIN = "not valid in current SASL state"


class Refusal(NamedTuple):
    """Why a client can't connect.

    Attributes:
        let_in: whether a broker was reached, and refused the client.
    """

    why: str
    fix: str
    let_in: bool


def refusal(
    errors: Iterable[KafkaError], config: Mapping[str, Any] | None = None
) -> Refusal | None:
    """The refusal among errors from a client's error callback; None if there is none.

    A broker's newest refusal is the one that holds: the older ones were mended since.

    Args:
        errors: the callback's arguments, the newest last.
        config: the client's properties; with them the certificate is checked as well, which may
            take seconds.
    """
    newest = {_broker(error): error for error in errors if error.code() in _FIXES}
    by_code = {error.code(): error for error in newest.values()}
    for code, fix in _FIXES.items():
        if code not in by_code:
            continue
        why = error_text(by_code[code])
        if code == KafkaError._SSL and config and (fault := certificate_fault(config)):  # noqa: SLF001
            why = f"the certificate is not trusted: {fault}"
        if _NO_LOGIN in why:
            return Refusal(why, "this listener takes no logins: mend kafka.security_protocol", True)
        return Refusal(why, fix, code != KafkaError._RESOLVE)  # noqa: SLF001
    return None


def _broker(error: KafkaError) -> str:
    """The broker that an error is of: the client begins its text with the broker's name."""
    return error.str().partition(": ")[0]
