"""RunNames: the addresses of runs, among them those that a DNS name stands for.

`dns+NAME:PORT`, as Thanos writes it, stands for a run at each address of the name, such as those of
a headless service of Kubernetes; in `dns+https://NAME:PORT` each has a certificate for the name. It
is asked for each time: runs come and go. A name that can't be
resolved for a moment stands for what it stood for before, and an address that its name does not
lead to any more is kept as long as somebody has answered there lately.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Final, NamedTuple

from ackfloor.cli.status.run_answers import RunAnswer
from ackfloor.operations.run_client import NoAddress, address_of

PREFIX: Final = "dns+"

Resolve = Callable[[str, int], Sequence[str]]


def addresses(name: str, port: int) -> Sequence[str]:
    """The IP addresses of a name, in order; raises OSError where there is none."""
    found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    return sorted({str(address[0]) for *_, address in found})


def checked(given: str) -> None:
    """Refuse what is neither an address nor a name to resolve; raises NoAddress."""
    name = given.removeprefix(PREFIX)
    try:
        address_of(name)
    except NoAddress as exc:
        raise NoAddress(str(exc).replace(f"{name!r}", f"{given!r}", 1)) from None


class Named(NamedTuple):
    """What names stand for now.

    Attributes:
        given: address of a run -> how it was given, as an address or by a name.
        left: those of them that their name does not lead to any more.
        failed: the names that can't be resolved, and why.
    """

    given: Mapping[str, str]
    left: frozenset[str]
    failed: Sequence[RunAnswer]


class RunNames:
    """Those of one cluster.

    Args:
        given: addresses, or names with their prefix.
        resolve: name and port -> its IP addresses; blocks, and may raise OSError.
    """

    def __init__(self, given: Sequence[str], resolve: Resolve = addresses) -> None:
        self._given = list(given)
        self._resolve = resolve
        self._known: dict[str, Sequence[str]] = {}
        self._before: Mapping[str, str] = {}

    def now(self, recent: Container[str] = ()) -> Named:
        """What they stand for now.

        Args:
            recent: addresses where a run has answered lately.
        """
        found, failed = dict[str, str](), list[RunAnswer]()
        for given in self._given:
            if not given.startswith(PREFIX):
                found.setdefault(given, given)
                continue
            try:
                self._known[given] = self._resolved(given.removeprefix(PREFIX))
            except (OSError, UnicodeError) as exc:
                why = f"{given}: {getattr(exc, 'strerror', None) or exc}"
                failed.append(RunAnswer(given, named=True, error=why))
            for address in self._known.get(given, ()):
                found.setdefault(address, given)
        left = {
            address: given
            for address, given in self._before.items()
            if address not in found and address in recent
        }
        self._before = {**found, **left}
        return Named(self._before, frozenset(left), failed)

    def _resolved(self, name: str) -> Sequence[str]:
        address = address_of(name)
        found = self._resolve(address.host, address.port)
        shown = (f"[{each}]" if ":" in each else each for each in found)
        before, behind = ("https://", f"#{address.host}") if address.secure else ("", "")
        return [f"{before}{each}:{address.port}{address.path}{behind}" for each in shown]
