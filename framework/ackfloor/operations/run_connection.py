"""A connection to a run, also over TLS, and why there is none."""

from __future__ import annotations

import http.client
import ssl
from typing import Final

from ackfloor.operations.run_tls import FIELD

#: OpenSSL's numbers of what can be wrong with a certificate.
_NOT_YET: Final = 9
_EXPIRED: Final = 10
_OTHER_NAME: Final = frozenset({62, 64})
#: What OpenSSL calls an answer that is no TLS.
_NO_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"})


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
