"""Proxies: who a reverse proxy in front of the console says somebody is.

A proxy that logs people in names them in a header. Anybody could send that header, so it is
believed of the addresses alone that the operator has named; a request from elsewhere is nobody's.
Whose request it is goes by the address of the connection: what `X-Forwarded-For` says, anybody
could say as well. From where it came, for the notes of actions, a named proxy may say.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import typer

from ackfloor import ConfigError
from ackfloor_monitoring.console.access.hosts import host_name
from ackfloor_monitoring.console.access.roles import NAME, Person, Role

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_HEADER: Final = re.compile(r"[A-Za-z0-9-]{1,100}")
#: What browsers, proxies and the console itself use for something else.
_TAKEN: Final = frozenset({"authorization", "cookie", "host", "origin", "sec-fetch-site"})


class NotNamed(Exception):
    """A proxy names nobody, or what is no name or role."""


@dataclass(frozen=True, slots=True)
class Proxies:
    """The proxies that are believed.

    Attributes:
        networks: their addresses.
        user_header: names the person; in lower case.
        role_header: has their role; in lower case, empty for none.
        role: of everybody, where no header has it.
        address_header: says from where a request came; in lower case, empty for none.
    """

    networks: Sequence[Network]
    user_header: str
    role_header: str
    role: Role
    address_header: str = ""

    def origin(self, peer: str, headers: Mapping[str, str]) -> str:
        """From where a request came: the last address that a named proxy has added.

        Args:
            peer: the address of the connection, which is the answer where no named proxy says more.
            headers: as in `person`.
        """
        if not self.address_header or not self._is_one(peer):
            return peer
        # Each proxy adds whom it has it from at the end; what is in front of that, anybody can say.
        for given in reversed(headers.get(self.address_header, "").split(",")):
            address = _address(host_name(given.strip()))
            if address is None:
                return peer
            peer = str(address)
            if not self._is_one(peer):
                return peer
        return peer

    def person(self, peer: str, headers: Mapping[str, str]) -> Person | None:
        """Who sends a request; None where it comes from elsewhere.

        Args:
            peer: the address of the connection.
            headers: names in lower case; of a header that came twice both values.

        Raises:
            NotNamed: it comes from a proxy that does not say who they are.
        """
        if not self._is_one(peer):
            return None
        name = headers.get(self.user_header, "").strip()
        if not NAME.fullmatch(name):
            shown = f"{name[:70]!r}, which is no name" if name else "nobody"
            raise NotNamed(f"the proxy at {peer} names {shown} in {self.user_header}")
        return Person(name, self._role_of(peer, headers))

    def _role_of(self, peer: str, headers: Mapping[str, str]) -> Role:
        if not self.role_header:
            return self.role
        given = headers.get(self.role_header, "").strip()
        try:
            return Role(given)
        except ValueError:
            why = f"the proxy at {peer} has {given[:70]!r} in {self.role_header}: not one of "
            raise NotNamed(why + ", ".join(Role)) from None

    def _is_one(self, peer: str) -> bool:
        address = _address(peer)
        return address is not None and any(address in network for network in self.networks)


def _address(text: str) -> Address | None:
    """An address; of IPv4 in its own form, also where it is written as one of IPv6; else None."""
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def proxies_of(
    given: Sequence[str],
    user_header: str | None,
    role_header: str | None,
    role: Role,
    address_header: str | None = None,
) -> Proxies | None:
    """The proxies that options name; None where they name none.

    Raises:
        BadParameter: one option needs another one.
        ConfigError: an address or the name of a header is none.
    """
    if not given:
        headers = {
            "--proxy-user": user_header,
            "--proxy-role": role_header,
            "--proxy-address": address_header,
        }
        for option, header in headers.items():
            if header is not None:
                raise typer.BadParameter("goes with --proxy", param_hint=option)
        return None
    if user_header is None:
        why = "needs --proxy-user, the header that names people"
        raise typer.BadParameter(why, param_hint="--proxy")
    networks = [_network(each) for each in given]
    user, has_role = _header("--proxy-user", user_header), _header("--proxy-role", role_header)
    return Proxies(networks, user, has_role, role, _header("--proxy-address", address_header))


def _network(given: str) -> Network:
    try:
        found = ipaddress.ip_network(given)
    except ValueError as exc:
        fix = "the proxy's address, such as 10.0.0.7 or 10.0.0.0/29"
        raise ConfigError("--proxy", given, str(exc), fix) from None
    if not found.prefixlen:
        raise ConfigError("--proxy", given, "believes everybody", "name the proxy's address")
    return found


def _header(option: str, given: str | None) -> str:
    name = (given or "").lower()
    if name and (not _HEADER.fullmatch(name) or name in _TAKEN):
        raise ConfigError(option, given, "can't be such a header", "such as X-Forwarded-User")
    return name
