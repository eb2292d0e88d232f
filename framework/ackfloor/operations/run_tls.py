"""TLS of a run's address, as its clients see it: whom they trust.

What speaks TLS and HTTP is in `run_connection`, and is imported when a run is asked: the help of
the commands that could ask one needs neither.
"""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from ackfloor.errors import ConfigError

if TYPE_CHECKING:
    import ssl

FIELD: Final = "app.tls_ca"


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
        import ssl

        try:
            return ssl.create_default_context(cafile=self.ca_file)
        except OSError as exc:  # also ssl.SSLError
            why = exc.strerror or str(exc)
            if isinstance(exc, ssl.SSLError):
                why = "holds no certificate"
            fix = "name a PEM file with the certificate that has signed those of your runs"
            raise ConfigError(FIELD, str(self.ca_file), why, fix) from None


#: What a client trusts that was told nothing.
SYSTEM: Final = Trust()


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine alone; of names, localhost."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
