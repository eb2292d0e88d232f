"""Prometheus: the figures of the last hour, as a Prometheus has them that scrapes the runs.

The console's own begin with it; these were there before. Where its server is, is the operator's
alone: no part of a request is in what is asked. What it answers is bounded, in size and in time.
"""

from __future__ import annotations

import http.client
import json
import math
import re
import time
from collections.abc import Collection, Sequence
from contextlib import closing
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, urlencode, urlsplit

from ackfloor import ConfigError
from ackfloor_monitoring.console.reads import history
from ackfloor_monitoring.console.reads.history import MOST, Point
from ackfloor_monitoring.metrics.gauges import KAFKA_LAG, KAFKA_OPEN

#: Seconds that an answer may take, and its bytes: six figures of an hour have some 50 KB.
ANSWER_S: Final = 5.0
MOST_BYTES: Final = 1024 * 1024
#: Of all groups of a cluster, as they are asked for.
MOST_GROUPS: Final = 200
_CHUNK: Final = 64 * 1024


class NoFigures(Exception):
    """There are none; says why."""


class Place(NamedTuple):
    """Where a server is.

    Attributes:
        path: in front of its `/api`.
    """

    secure: bool
    host: str
    port: int | None
    path: str


def place_of(field: str, given: str) -> Place:
    """The place of an address; raises ConfigError for what is none."""
    try:
        url = urlsplit(given)
        fine = url.scheme in {"http", "https"} and url.hostname and url.port != 0
    except ValueError:
        url, fine = urlsplit(""), False
    if "@" in url.netloc:
        why = "a password in an address is seen by everybody who lists processes"
        # The value has it.
        raise ConfigError(
            field, _without_password(url), why, "let a proxy beside the console add it"
        )
    if not fine or url.query or url.fragment:
        why = "is no address of a Prometheus"
        raise ConfigError(field, given, why, "such as http://prometheus:9090")
    return Place(url.scheme == "https", url.hostname or "", url.port, url.path.rstrip("/"))


def _without_password(url: SplitResult) -> str:
    return f"{url.scheme}://***@{url.netloc.rpartition('@')[2]}{url.path}"


class Prometheus:
    """One.

    Args:
        place: of its server.
    """

    def __init__(self, place: Place) -> None:
        self._place = place

    def last_hour(self, groups: Collection[str], now_s: float) -> Sequence[Point]:
        """The figures of these groups together, from the first that it has; blocks.

        Raises:
            NoFigures: it does not answer, or has none.
        """
        if not groups:
            raise NoFigures("no group is known yet")
        if len(groups) > MOST_GROUPS:
            raise NoFigures(f"it is asked for {MOST_GROUPS} groups at most")
        step_s = history.EVERY_S
        end_s = now_s - now_s % step_s
        asked = {
            "query": query_of(groups),
            "start": f"{end_s - step_s * (MOST - 1):.3f}",
            "end": f"{end_s:.3f}",
            "step": f"{step_s:g}",
            "timeout": f"{ANSWER_S:g}s",
        }
        found = points_of(self._answer(urlencode(asked)), end_s, step_s)
        if not found:
            raise NoFigures("it has no figure of these groups: does it scrape their runs?")
        return found

    def _answer(self, asked: str) -> object:
        until_s = time.monotonic() + ANSWER_S
        kind = http.client.HTTPSConnection if self._place.secure else http.client.HTTPConnection
        try:
            connection = kind(self._place.host, self._place.port, timeout=ANSWER_S)
            with closing(connection):
                path = f"{self._place.path}/api/v1/query_range"
                form = {"Content-Type": "application/x-www-form-urlencoded"}
                connection.request("POST", path, asked, form)
                # A redirect is not followed: where it leads, the operator has not said.
                response = connection.getresponse()
                text = _bounded(response, until_s)
                if response.status != http.client.OK:
                    raise NoFigures(f"it answered {response.status} {response.reason[:100]}")
                return json.loads(text)
        except (OSError, http.client.HTTPException) as exc:
            raise NoFigures(str(exc) or type(exc).__name__) from None
        except (ValueError, RecursionError):
            raise NoFigures("what it answers is no JSON") from None


def _bounded(response: http.client.HTTPResponse, until_s: float) -> bytes:
    text = b""
    while part := response.read1(_CHUNK):
        text += part
        if len(text) > MOST_BYTES:
            raise NoFigures(f"its answer has more than {MOST_BYTES:,} bytes")
        if time.monotonic() > until_s:
            raise NoFigures(f"its answer takes more than {ANSWER_S:g} s")
    return text


def query_of(groups: Collection[str]) -> str:
    """What is asked: one series for each figure, by the label `figure`.

    What runs say of Kafka, each of them says: the most of a partition counts, once.
    """
    names = "|".join(re.escape(each) for each in sorted(groups))
    of = f"group=~{json.dumps(names, ensure_ascii=False)}"

    def on_kafka(metric: str, kind: str) -> str:
        series = f'{metric}{{kind="{kind}",{of}}}'
        return f"sum(max by (group, topic, partition) ({series}))"

    figures = {
        "lag": on_kafka(KAFKA_LAG.name, "source"),
        "open": on_kafka(KAFKA_OPEN.name, "source"),
        "retry": on_kafka(KAFKA_OPEN.name, "retry"),
        "dead": on_kafka(KAFKA_OPEN.name, "dlq"),
        "running": f"sum(ackfloor_inflight_messages{{{of}}})",
        "waiting": f'sum({{__name__=~"ackfloor_lanes_blocked|ackfloor_quarantined_keys",{of}}})',
    }
    return " or ".join(
        f'label_replace({expression}, "figure", "{name}", "", "")'
        for name, expression in figures.items()
    )


def points_of(answer: object, end_s: float, step_s: float) -> Sequence[Point]:
    """The points that an answer has, from the first one on: what has none is a gap.

    Raises:
        NoFigures: it is no such answer.
    """
    found: dict[int, dict[str, int]] = {}
    for name, values in _series(answer):
        for at_s, value in values:
            if math.isfinite(value):
                found.setdefault(round(at_s / step_s), {})[name] = round(value)
    if not found:
        return []
    last = round(end_s / step_s)
    first = max(min(found), last - MOST + 1)
    return [Point(round(n * step_s * 1000), found.get(n, {})) for n in range(first, last + 1)]


def _series(answer: Any) -> Sequence[tuple[str, Sequence[tuple[float, float]]]]:
    try:
        series = answer["data"]["result"]
        return [
            (str(each["metric"]["figure"]), [(float(at_s), float(v)) for at_s, v in each["values"]])
            for each in series
        ]
    except (KeyError, TypeError, ValueError):
        raise NoFigures("what it answers are no figures") from None
