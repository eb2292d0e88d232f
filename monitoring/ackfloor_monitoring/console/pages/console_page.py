"""Page: one kind of page of a cluster, and the facts that its template shows.

A `Page` shows what is so now, and is sent again when that changes. An `AskedPage` answers what its
address asks, and stays as it is: nothing jumps under who reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from ackfloor_monitoring.console.access.roles import Person
from ackfloor_monitoring.console.reads.cluster_facts import Cluster, OfActions
from ackfloor_monitoring.console.reads.kafka_facts import OfKafka
from ackfloor_monitoring.console.reads.refreshed import Answer
from ackfloor_monitoring.console.reads.runs.last_answers import LastAnswer
from ackfloor_monitoring.console.reads.runs.run_facts import OfRuns


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asks.

    Attributes:
        query: the parameters of its address.
        parts: the parts of its path that are names of something.
    """

    person: Person
    query: Mapping[str, str]
    parts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Known:
    """What was answered so far, and what is asked of it.

    Attributes:
        kafka: None on a page that does not show what Kafka says.
        actions: None on a page that does not show what operators did.
    """

    asked: Asked
    runs: Answer[OfRuns]
    kafka: Answer[OfKafka] | None = None
    actions: Answer[OfActions] | None = None

    def late(self) -> list[str]:
        """What has not answered, in sentences."""
        found = [_late("The runs have", self.runs)]
        if self.kafka is not None:
            found.append(_late("Kafka has", self.kafka))
        if self.actions is not None:
            found.append(_late("The topic of actions has", self.actions))
        return [text for text in found if text]

    def silent(self) -> Sequence[LastAnswer]:
        """What the runs that do not answer now said a while ago."""
        return () if self.runs.value is None else self.runs.value.silent


def _late(name: str, answer: Answer[Any]) -> str:
    if answer.error:
        return f"{name} not answered: {answer.error}"
    return f"{name} not answered yet" if answer.value is None else ""


@dataclass(frozen=True, slots=True)
class Page:
    """One kind.

    Attributes:
        path: below the cluster's address.
        title: with the parts of its address in braces, where it has some.
        key: goes there, after `g`.
        facts: what the template shows; may raise Refused.
        asks_kafka: whether it shows what Kafka says.
        asks_actions: whether it shows what operators did.
        asks_index: whether it reads the index: `facts` may block then, and is a search.
        below: what of its address follows `path`, with parts in braces.
        template: of the part that changes; "" where it is named like `path`.
        once: what is below that part, found out when the page is loaded and not again; empty for
            nothing. It may block, and is a search. None for pages without it.
        once_template: shows it.
    """

    path: str
    title: str
    key: str
    facts: Callable[[Cluster, Known], Mapping[str, Any]]
    asks_kafka: bool = False
    asks_actions: bool = False
    asks_index: bool = False
    below: str = ""
    template: str = ""
    once: Callable[[Cluster, Known], Mapping[str, Any]] | None = None
    once_template: str = ""

    @property
    def changing(self) -> str:
        """The template of the part that changes."""
        return self.template or f"{self.path}.html"

    def heading(self, asked: Asked) -> str:
        """What a person reads on top of it."""
        return self.title.format(**asked.parts)

    def news(self, asked: Asked) -> str:
        """Where its changing part is sent again, below the cluster's address."""
        parts = {name: quote(part, safe="") for name, part in asked.parts.items()}
        query = f"?{urlencode(asked.query)}" if asked.query else ""
        return f"{self.path}{self.below.format(**parts)}/events{query}"


@dataclass(frozen=True, slots=True)
class AskedPage:
    """One kind of page that answers a question.

    Attributes:
        path: below the cluster's address.
        key: goes there, after `g`.
        template: shows the answer.
        facts: what the template shows; may block, and raise Refused.
        below: what of its address follows `path`, with parts in braces.
    """

    path: str
    title: str
    key: str
    template: str
    facts: Callable[[Cluster, Asked], Mapping[str, Any]]
    below: str = ""
