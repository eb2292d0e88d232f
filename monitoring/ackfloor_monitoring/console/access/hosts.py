"""The names of a console: a request for any other is refused.

A page of another site may have its name resolve to this console's address (DNS rebinding), and
would then be read as if it were our own. The name that the browser asked for gives it away.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import SplitResult, urlsplit

from ackfloor import ConfigError

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def host_name(host: str) -> str:
    """The name in a Host header or an address, without a port and brackets, in lower case."""
    name, colon, port = host.rpartition(":")
    if not colon or not port.isdecimal() or (":" in name and not name.endswith("]")):
        name = host
    return name.strip("[]").rstrip(".").lower()


def own_names(listen_host: str, public: SplitResult | None) -> frozenset[str]:
    """The names by which this console may be asked for.

    Args:
        listen_host: the address that it listens on.
        public: the address that browsers use, where a proxy is in front of it.
    """
    names = LOOPBACK | {host_name(listen_host)}
    return names if public is None else names | {host_name(public.netloc)}


def public_url(given: str) -> SplitResult:
    """The address that browsers use, from what was given for it.

    Raises:
        ConfigError: it is no such address.
    """
    try:
        url = urlsplit(given)
        fine = url.scheme in {"http", "https"} and url.hostname and url.port != 0
    except ValueError:
        url, fine = urlsplit(""), False
    if not fine or url.path.strip("/") or url.query or url.fragment or "@" in url.netloc:
        why = "is not a scheme and a host"
        raise ConfigError("--public-url", given, why, "such as https://console.example")
    return url
