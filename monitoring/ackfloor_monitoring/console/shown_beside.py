"""Shown beside: what a cluster's pages have from elsewhere, `--report` and `--prometheus`.

Of one cluster each is a value; of several each has the cluster's name in front, `NAME=VALUE`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import typer

from ackfloor_monitoring.console.reads.prometheus import Prometheus, place_of
from ackfloor_monitoring.console.reads.spark_report import report_at
from ackfloor_monitoring.console.shown_clusters import ShownCluster

REPORT, PROMETHEUS = "--report", "--prometheus"


def with_others(
    shown: Sequence[ShownCluster], reports: Sequence[str], servers: Sequence[str]
) -> Sequence[ShownCluster]:
    """These clusters with what is shown beside them.

    Args:
        reports: the files of reports.
        servers: the addresses of Prometheus servers.

    Raises:
        BadParameter: one is of no cluster, or a cluster has two.
        ConfigError: one can't be what it is given for.
    """
    names = [each.name for each in shown]
    files, places = _of_each(REPORT, names, reports), _of_each(PROMETHEUS, names, servers)
    return [
        replace(
            each,
            report=report_at(REPORT, Path(files[each.name])) if each.name in files else None,
            prometheus=(
                Prometheus(place_of(PROMETHEUS, places[each.name])) if each.name in places else None
            ),
        )
        for each in shown
    ]


def _of_each(option: str, names: Sequence[str], given: Sequence[str]) -> Mapping[str, str]:
    """Cluster -> the value that an option has for it."""
    found = dict[str, str]()
    for each in given:
        name, equals, value = each.partition("=")
        if not (equals and name in names):
            if len(names) > 1:
                why = f"{each!r} is of none of the clusters {', '.join(names)}: write NAME=VALUE"
                raise typer.BadParameter(why, param_hint=option)
            name, value = names[0], each
        if name in found:
            why = f"{name} has two: {found[name]} and {value}"
            raise typer.BadParameter(why, param_hint=option)
        found[name] = value
    return found
