"""ShownCluster: one Kafka cluster that a console shows, from its options.

One cluster is reached as by every other command, and its runs are addresses. Of several each has
a settings file, `--cluster NAME=FILE`, and each run the name of its cluster, `--run NAME=ADDRESS`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from ackfloor import ConfigError
from ackfloor.cli.shared.parameters import Brokers
from ackfloor.operations.run_client import NoAddress
from ackfloor_monitoring.console.reads.runs.run_names import checked

if TYPE_CHECKING:
    from ackfloor_monitoring.console.reads.prometheus import Prometheus
    from ackfloor_monitoring.console.reads.spark_report import SparkReport

#: What the only cluster is called.
ONLY: Final = "kafka"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True, slots=True)
class ShownCluster:
    """One.

    Attributes:
        name: in the addresses of its pages.
        brokers: how it is reached.
        runs: their addresses, as `RunNames` takes them; none for the one in the settings.
        report: what Spark has counted; None for none.
        prometheus: has the figures of the last hour; None for none.
    """

    name: str
    brokers: Brokers
    runs: Sequence[str]
    report: SparkReport | None = None
    prometheus: Prometheus | None = None


def shown_clusters(
    given: Sequence[str], runs: Sequence[str], brokers: Brokers
) -> Sequence[ShownCluster]:
    """The clusters, in the order in which they were given.

    Args:
        given: each NAME, or NAME=FILE.
        runs: each an address, or NAME=ADDRESS.
        brokers: how the only cluster is reached.

    Raises:
        BadParameter: a name is there twice, a run is of none, or options don't fit together.
        ConfigError: a name can't be a part of an address, or a settings file is refused.
    """
    names = [each.partition("=")[0] for each in given] or [ONLY]
    for name in names:
        refuse_odd_name("--cluster", name)
    if len(set(names)) < len(names):
        raise typer.BadParameter("a name is there twice", param_hint="--cluster")
    if not any("=" in each for each in given):
        if len(names) > 1:
            why = f"of several each has a settings file: write {names[0]}=FILE"
            raise typer.BadParameter(why, param_hint="--cluster")
        return [ShownCluster(names[0], brokers, [_address(each, each) for each in runs])]
    return _of_files(given, _of_each(names, runs), brokers)


def _of_files(
    given: Sequence[str], runs: dict[str, list[str]], brokers: Brokers
) -> Sequence[ShownCluster]:
    if brokers != Brokers():
        why = "what they and their variables say is of one cluster: write it into the files"
        hint = "--bootstrap-servers, --config, --group, --tls-ca"
        raise typer.BadParameter(why, param_hint=hint)
    found = list[ShownCluster]()
    for each in given:
        name, _, file = each.partition("=")
        if not file:
            why = f"{each!r} names no settings file: write {name}=FILE"
            raise typer.BadParameter(why, param_hint="--cluster")
        found.append(ShownCluster(name, Brokers(config=Path(file)), runs[name]))
    try:
        refuse_the_same(found)
    except SameCluster as exc:
        raise typer.BadParameter(str(exc), param_hint="--cluster") from None
    return found


def refuse_odd_name(field: str, name: str) -> None:
    """A cluster's name is in the addresses of its pages; raises ConfigError, of this field."""
    if not _NAME.fullmatch(name):
        fix = "letters, digits and . _ -, at most 63 of them"
        raise ConfigError(field, name, "can't be a part of an address", fix)


class SameCluster(Exception):
    """Two names of one cluster."""


def refuse_the_same(clusters: Sequence[ShownCluster]) -> None:
    """Two names of one cluster: a variable of the environment counts for all files.

    Raises:
        SameCluster: there are two.
        ConfigError: a settings file is refused.
    """
    known = dict[str, str]()
    for each in clusters:
        servers = each.brokers.settings().kafka.bootstrap_servers
        other = known.setdefault(servers, each.name)
        if other != each.name:
            why = f"{other} and {each.name} are one, both at {servers}: give each its servers"
            raise SameCluster(why)


def _of_each(names: Sequence[str], runs: Sequence[str]) -> dict[str, list[str]]:
    """Cluster -> the addresses of its runs."""
    found: dict[str, list[str]] = {name: [] for name in names}
    for each in runs:
        name, equals, address = each.partition("=")
        if not equals or name not in found:
            why = f"{each!r} is of none of the clusters {', '.join(names)}: write NAME=ADDRESS"
            raise typer.BadParameter(why, param_hint="--run")
        found[name].append(_address(address, each))
    return found


def _address(address: str, given: str) -> str:
    try:
        checked(address)
    except NoAddress as exc:
        why = str(exc).replace(f"--listen={address!r}", f"--run={given!r}")
        raise typer.BadParameter(why, param_hint="--run") from exc
    return address
