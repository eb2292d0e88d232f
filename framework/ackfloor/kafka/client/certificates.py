"""Why a broker's certificate is not trusted: the client only says that it is not."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HANDSHAKE_S = 5.0


def certificate_fault(config: Mapping[str, Any]) -> str:
    """What is wrong with the certificate of the first broker named; empty if that is not known.

    Args:
        config: a client's properties.
    """
    address = str(config.get("bootstrap.servers", "")).partition(",")[0].strip()
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        context = ssl.create_default_context()
        if authorities := config.get("ssl.ca.location"):
            path = Path(str(authorities))
            folder = path.is_dir()
            context.load_verify_locations(None if folder else path, path if folder else None)
        with (
            socket.create_connection((host, int(port)), timeout=HANDSHAKE_S) as plain,
            context.wrap_socket(plain, server_hostname=host),
        ):
            return ""
    except ssl.SSLCertVerificationError as exc:
        return f"{address}: {exc.verify_message}"
    except (OSError, ValueError):  # no such file, nobody there, no port
        return ""
