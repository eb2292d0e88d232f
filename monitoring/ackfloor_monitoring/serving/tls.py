"""TLS of a run's address, as the run serves it."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import Final

from ackfloor import ConfigError

log = logging.getLogger("ackfloor.monitoring")

#: The first byte of whoever begins with TLS: a handshake.
HANDSHAKE: Final = b"\x16"


class ServerTls:
    """The certificate of an address. A renewed one counts from the next connection.

    Args:
        certificate: a PEM file with the certificate, and those it is signed by.
        key: the file with its key; None where that is in the same file.

    Raises:
        ConfigError: they can't be used.
    """

    def __init__(self, certificate: Path, key: Path | None) -> None:
        self._certificate = certificate
        self._key = key
        #: Of the files that were read, and of those that could not be used last: it is logged once.
        self._seen = self._warned = self._stamps()
        self._context = self._read()

    def context(self) -> ssl.SSLContext:
        """What the next connection is served with; any thread may ask.

        Files that can't be used leave what was read before: a certificate and its key may be
        renewed one after the other. They are read again for each connection until they can be used:
        permission to read them changes no stamp.
        """
        stamps = self._stamps()
        if stamps != self._seen:
            try:
                self._context = self._read()
            except ConfigError as exc:
                if stamps != self._warned:
                    log.warning("the run's address keeps the certificate that it has: %s", exc)
                self._warned = stamps
            else:
                self._seen = self._warned = stamps
                log.info("the run's address has a new certificate")
        return self._context

    def _stamps(self) -> list[tuple[int, int] | None]:
        return [_stamp(each) for each in (self._certificate, self._key) if each is not None]

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            # With a password for a key that has none: else OpenSSL would ask a terminal for it.
            context.load_cert_chain(self._certificate, self._key, password="")
        except OSError as exc:  # also ssl.SSLError
            fix = "a PEM file with it, and app.tls_key with its key, without a password"
            why = self._why(exc)
            raise ConfigError("app.tls_certificate", str(self._certificate), why, fix) from None
        return context

    def _why(self, exc: OSError) -> str:
        if isinstance(exc, ssl.SSLError):
            if exc.reason == "KEY_VALUES_MISMATCH":
                return "the key is that of another certificate"
            return f"no certificate with its key ({exc.reason or exc})"
        files = [each for each in (self._certificate, self._key) if each is not None]
        missing = [str(each) for each in files if not each.is_file()]
        return ": ".join((*missing, exc.strerror or str(exc)))


def _stamp(file: Path) -> tuple[int, int] | None:
    """When a file was written, and which it is; None where it is not there."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino
