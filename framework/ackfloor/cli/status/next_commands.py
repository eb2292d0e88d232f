"""NextCommands: commands to type next, with the flags that this one was given.

A run or a broker that was named on the command line has to be named again. What the environment or
the settings file says, the next command finds there itself.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ackfloor.cli.shared.parameters import Brokers

_LISTEN: Final = "ACKFLOOR_RUN_LISTEN"
_SERVERS: Final = "ACKFLOOR_BOOTSTRAP_SERVERS"
_CONFIG: Final = "ACKFLOOR_CONFIG"
_GROUP: Final = "ACKFLOOR_GROUP"
_TLS_CA: Final = "ACKFLOOR_RUN_TLS_CA"


@dataclass(frozen=True, slots=True)
class NextCommands:
    """Makes them.

    Attributes:
        names_runs: whether runs are to be named: the settings lead to none of them, or to another.
        of_runs: further flags of commands that ask runs.
        of_kafka: flags of commands that ask Kafka.
    """

    names_runs: bool = False
    of_runs: tuple[str, ...] = ()
    of_kafka: tuple[str, ...] = ()

    @classmethod
    def after(cls, listen: Sequence[str] | None, brokers: Brokers) -> NextCommands:
        """After a command with these options."""
        known = os.environ.get(_LISTEN, "").split()
        # Most commands ask one run: of several in the variable they would take none.
        names_runs = bool(listen) and (len(known) != 1 or list(listen or ()) != known)
        config = _unless_known("--config", brokers.config, _CONFIG)
        group = _unless_known("--group", brokers.group, _GROUP)
        trusts = _unless_known("--tls-ca", brokers.tls_ca, _TLS_CA)
        servers = _unless_known("--bootstrap-servers", brokers.servers, _SERVERS)
        return cls(names_runs, (*group, *config, *trusts), (*servers, *config))

    def asks_runs(self, command: str, runs: Iterable[str]) -> str:
        """A command that asks these runs."""
        named = [flag for run in runs for flag in ("--listen", run)] if self.names_runs else []
        return _typed(command, (*named, *self.of_runs))

    def asks_kafka(self, command: str, *arguments: str) -> str:
        """A command that asks Kafka."""
        return _typed(command, (*arguments, *self.of_kafka))


def _unless_known(flag: str, value: object, variable: str) -> tuple[str, ...]:
    """A flag with its value, unless there is none or the environment has it."""
    if value is None or os.environ.get(variable) == str(value):
        return ()
    return flag, str(value)


def _typed(command: str, arguments: Sequence[str]) -> str:
    return " ".join(["ackfloor", command, *map(shlex.quote, arguments)])
