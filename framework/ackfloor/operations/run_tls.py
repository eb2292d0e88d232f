"""TLS of a run's address, as its clients see it: whom they trust, and why they do not."""

from __future__ import annotations

import http.client
import ipaddress
import ssl
from pathlib import Path
from typing import Final, NamedTuple

from ackfloor.errors import ConfigError

FIELD: Final = "app.tls_ca"
#: OpenSSL's numbers of what can be wrong with a certificate.
_NOT_YET: Final = 9
_EXPIRED: Final = 10
_OTHER_NAME: Final = frozenset({62, 64})
#: What OpenSSL calls an answer that is no TLS.
_NO_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"})


class Trust(NamedTuple):
    """Whom a client of runs trusts.

    Attributes:
        ca_file: certificates that may have signed those of runs; None for the system's.
        plain_token: whether a token is sent beyond this machine without TLS.
    """

    ca_file: Path | None = None
    plain_token: bool = False

    def context(self) -> ssl.SSLContext:
        """For connections to runs; raises ConfigError where the file can't be used."""
        try:
            return ssl.create_default_context(cafile=self.ca_file)
        except OSError as exc:  # also ssl.SSLError
            why = exc.strerror or str(exc)
            if isinstance(exc, ssl.SSLError):
                why = "holds no certificate"
            fix = "name a PEM file with the certificate that has signed those of your runs"
            raise ConfigError(FIELD, str(self.ca_file), why, fix) from None


class NamedConnection(http.client.HTTPSConnection):
    """A connection to a host whose certificate is for a name, which may be another one.

    The addresses behind a name of DNS have the certificate of the name.
    """

    def __init__(
        self, host: str, port: int, name: str, timeout_s: float, context: ssl.SSLContext
    ) -> None:
        super().__init__(host, port, timeout=timeout_s, context=context)
        self._name = name
        self._trust = context

    def connect(self) -> None:
        """Connect, and shake hands; raises OSError, ssl.SSLError."""
        http.client.HTTPConnection.connect(self)
        self.sock = self._trust.wrap_socket(self.sock, server_hostname=self._name)


#: What a client trusts that was told nothing.
SYSTEM: Final = Trust()


def fault_text(exc: ssl.SSLError) -> str:
    """Why there is no connection over TLS, and what to do."""
    if not isinstance(exc, ssl.SSLCertVerificationError):
        if exc.reason in _NO_TLS:
            return "it speaks no TLS: write http://, or set app.tls_certificate where it runs"
        return f"TLS failed: {exc.reason or exc}"
    if exc.verify_code == _EXPIRED:
        return "its certificate has expired: renew it"
    if exc.verify_code == _NOT_YET:
        return "its certificate is not valid yet: is the clock of this machine right?"
    if exc.verify_code in _OTHER_NAME:
        why = exc.verify_message.rstrip(".")
        return f"its certificate is for another name ({why}): name the run as its certificate does"
    return (
        f"its certificate is signed by nobody that is trusted ({exc.verify_message}): name who has "
        f"signed it with --tls-ca or {FIELD}"
    )


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine alone; of names, localhost."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
