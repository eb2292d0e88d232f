"""Opened clusters: those that a console shows, with their indexes, for as long as it runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from ackfloor_monitoring.console.index.dead_letter_index import DeadLetterIndex
from ackfloor_monitoring.console.index.index_place import index_place
from ackfloor_monitoring.console.reads.cluster_facts import Cluster
from ackfloor_monitoring.console.shown_clusters import ShownCluster

#: Questions to runs and to Kafka that may wait for their answers at once.
ASKING: Final = 8


@dataclass(frozen=True, slots=True)
class Indexing:
    """How dead letters are indexed.

    Attributes:
        folder: of the index; None for the user's state folder.
        most: so many dead letters are kept.
    """

    folder: Path | None
    most: int


@contextmanager
def opened_clusters(
    shown: Sequence[ShownCluster],
    indexing: Indexing,
    token_files: Mapping[str, Path] = MappingProxyType({}),
) -> Iterator[Sequence[Cluster]]:
    """These clusters, which can be asked meanwhile; `followed` keeps their indexes up to date.

    Args:
        token_files: address of a run -> the file with its token, where that is not the run's own.

    Raises:
        ConfigError: the folder or a setting is refused.
    """
    with ExitStack() as ending:
        asking = ending.enter_context(ThreadPoolExecutor(ASKING * len(shown), "console"))
        found = list[Cluster]()
        for each in shown:
            path = ending.enter_context(index_place(indexing.folder, each.name))
            rules = each.brokers.settings().redaction.rules()
            index = DeadLetterIndex(each.brokers.options(), path, rules, indexing.most)
            runs, more = each.runs or None, (token_files, each.report, each.prometheus)
            found.append(Cluster(each.name, each.brokers, runs, asking, index, *more))
        yield found


@contextmanager
def followed(clusters: Sequence[Cluster]) -> Iterator[None]:
    """Keep the indexes of clusters up to date meanwhile."""
    with ExitStack() as ending:
        for each in clusters:
            if each.index is not None:
                ending.enter_context(each.index.following())
        yield
