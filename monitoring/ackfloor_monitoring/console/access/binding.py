"""Where a console may be reached: beyond this machine with tokens and TLS, or behind proxies alone.

A proxy on this machine leads others to a loopback address: the address that browsers use counts as
much as the one on which the console listens.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import SplitResult

from ackfloor import ConfigError
from ackfloor.operations.run_tls import is_loopback
from ackfloor_monitoring.console.access.proxies import Proxies
from ackfloor_monitoring.console.access.roles import Role

_LISTEN: Final = "--listen"
_PUBLIC: Final = "--public-url"


def refuse_unsafe(
    listen: str,
    host: str,
    token_file: Path | None,
    certificate: Path | None,
    role: Role | None,
    proxies: Proxies | None = None,
) -> None:
    """Refuse an address where anybody could come in, or read tokens on the way.

    Args:
        listen: as it was given, for the message.
        role: of everybody who reaches a console without tokens.
        proxies: nobody comes in but by them, where there are no tokens.

    Raises:
        ConfigError: one of those is so.
    """
    if token_file is not None and role is not None and proxies is None:
        why = f"a console with tokens has their roles ({token_file})"
        raise ConfigError("--role", role, why, "leave --role or --token-file out")
    if is_loopback(host) or (proxies is not None and token_file is None):
        return
    if token_file is None:
        why = "others can reach this address, and without tokens everybody may come in"
        raise ConfigError(_LISTEN, listen, why, "--token-file FILE, or a loopback address")
    if certificate is None:
        why = "others can reach this address, and without TLS tokens can be read on the way"
        fix = "--tls-certificate and --tls-key, or a loopback address behind a proxy that has TLS"
        raise ConfigError(_LISTEN, listen, why, fix)


def refuse_unsafe_url(
    url: str, public: SplitResult, token_file: Path | None, proxies: Proxies | None = None
) -> None:
    """Refuse an address of browsers at which anybody could come in, or read tokens on the way.

    Args:
        url: as it was given, for the message.
        public: the same in its parts.
        proxies: nobody comes in but by them, where there are no tokens.

    Raises:
        ConfigError: one of those is so.
    """
    if is_loopback(public.hostname or ""):
        return
    if token_file is None and proxies is None:
        why = "others can reach this address, and without tokens everybody may come in"
        fix = "--token-file FILE, or --proxy and --proxy-user where the proxy logs people in"
        raise ConfigError(_PUBLIC, url, why, fix)
    if public.scheme != "https":
        why = "others can reach this address, and without TLS what lets people in can be read"
        raise ConfigError(_PUBLIC, url, why, "https://, at a proxy that has TLS or by the console")
