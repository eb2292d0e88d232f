"""Serving: the console's ASGI app on an address, until a signal ends it."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

import typer
import uvicorn

from ackfloor import ConfigError
from ackfloor_monitoring.console.access.gate import Gate
from ackfloor_monitoring.console.opened_clusters import Indexing, followed, opened_clusters
from ackfloor_monitoring.console.reads.cluster_facts import Cluster
from ackfloor_monitoring.console.shown_clusters import ShownCluster
from ackfloor_monitoring.console.web import web_app, with_headers

#: Seconds that an ending console waits for answers under way; pages that wait for news end at once.
GRACE_S: Final = 2


@dataclass(frozen=True, slots=True)
class Place:
    """Where the console listens.

    Attributes:
        certificate: for TLS; None for none.
        key: of the certificate; None where that file has it, too.
    """

    host: str
    port: int
    certificate: Path | None = None
    key: Path | None = None

    @property
    def secure(self) -> bool:
        """Whether it speaks TLS."""
        return self.certificate is not None

    def bound(self) -> socket.socket:
        """A socket that listens there; raises ConfigError where that can't be."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        found = socket.socket(family, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((self.host, self.port))
            found.listen()
        except OSError as exc:
            found.close()
            where, why = f"{self.host}:{self.port}", exc.strerror or str(exc)
            fix = "another port, or port 0 for any free one"
            raise ConfigError("--listen", where, why, fix) from None
        return found


def serve(
    place: Place,
    shown: Sequence[ShownCluster],
    gate: Gate,
    indexing: Indexing,
    token_files: Mapping[str, Path] = MappingProxyType({}),
) -> None:
    """Serve the console of these clusters.

    Args:
        token_files: address of a run -> the file with its token, where that is not the run's own.

    Raises:
        ConfigError: the address, the certificate, the folder or a setting is refused.
    """
    with ExitStack() as ending:
        clusters = ending.enter_context(opened_clusters(shown, indexing, token_files))
        bound = ending.enter_context(place.bound())
        server = server_of(clusters, gate, place)
        scheme = "https" if place.secure else "http"
        host, port = bound.getsockname()[:2]
        address = f"[{host}]" if ":" in host else host
        typer.echo(f"the console is at {scheme}://{address}:{port}/")
        # uvicorn ends in order and raises the signal again, which is no failure.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda _number, _frame: None)
        ending.enter_context(followed(clusters))
        asyncio.run(server.serve([bound]))


class Server(uvicorn.Server):
    """One that tells pages which wait for news that it ends, before it waits for them.

    Args:
        ending: is set then.
    """

    def __init__(self, config: uvicorn.Config, ending: asyncio.Event) -> None:
        super().__init__(config)
        self._ending = ending

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End in order."""
        self._ending.set()
        await super().shutdown(sockets)


def server_of(clusters: Sequence[Cluster], gate: Gate, place: Place) -> Server:
    """A console's server; raises ConfigError where its certificate can't be used."""
    ending = asyncio.Event()
    config = uvicorn.Config(
        with_headers(web_app(clusters, gate, ending), over_tls=gate.secure),
        log_level=logging.WARNING,
        access_log=False,
        server_header=False,
        # Who is connected is what `--proxy` goes by: no header may say otherwise.
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE_S,
        ssl_certfile=place.certificate,
        ssl_keyfile=place.key,
    )
    try:
        config.load()
    except OSError as exc:  # also ssl.SSLError
        why = exc.strerror or str(exc)
        fix = "a PEM file with the certificate, and --tls-key with its key"
        raise ConfigError("--tls-certificate", str(place.certificate), why, fix) from None
    return Server(config, ending)
