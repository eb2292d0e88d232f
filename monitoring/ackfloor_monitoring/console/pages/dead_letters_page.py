"""Dead letters: by their causes, or those that match a filter, one after the other."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from ackfloor.core.records.envelope import Reason
from ackfloor.dead_letters.commands.dead_letter_views import text_of
from ackfloor_monitoring.console.access.gate import Refused
from ackfloor_monitoring.console.access.roles import Right
from ackfloor_monitoring.console.index.dead_letter_index import NoIndex
from ackfloor_monitoring.console.index.index_search import (
    FoundCause,
    IndexSearch,
    Progress,
    TooSlow,
)
from ackfloor_monitoring.console.pages.console_page import Asked, AskedPage
from ackfloor_monitoring.console.pages.dead_letter_query import (
    DeadLetterQuery,
    place_text,
    query_of,
)
from ackfloor_monitoring.console.reads.cluster_facts import Cluster

#: Dead letters of a page, and causes: more than a person reads.
ROWS: Final = 50
CAUSES: Final = 50
#: The size of a trend's drawing.
_BAR: Final = 4
_HEIGHT: Final = 20


def facts(cluster: Cluster, asked: Asked) -> Mapping[str, Any]:
    """What the template shows; raises Refused."""
    index = cluster.index
    if index is None:
        raise Refused(404, "this console keeps no index of dead letters")
    now = datetime.now(UTC)
    query = query_of(asked.query, asked.person, index, now)
    shown: dict[str, Any] = {
        "query": query,
        "reasons": list(Reason),
        "sees_keys": asked.person.may(Right.see_payloads),
        "error": index.follower.error,
        "progress": Progress(),
        "building_s": None,
        "left_s": None,
        "causes": (),
        "rows": (),
        "more": "",
        "command": "",
        "target": query.given["topic"],
        "target_id": "",
    }
    try:
        with index.searching() as search:
            progress = search.progress()
            shown |= {"progress": progress, "command": query.command(cluster.commands, progress)}
            shown |= building(index.follower.building_since_s, progress)
            if not query.given["topic"] and len(progress.topics) == 1:
                # There is none but this: nobody has to choose it.
                [shown["target"]] = progress.topics
            # Before anything is read: what comes from a topic that was made anew is refused later.
            shown["target_id"] = search.topic_id(shown["target"])
            shown |= _listed(search, query) if query.lists else _grouped(search, query)
    except NoIndex as exc:
        # Without words: the first look at Kafka is under way.
        shown["error"] = index.follower.error or str(exc)
    except TooSlow:
        raise Refused(503, "the search took too long: name a handler, an error or a time") from None
    return shown


def building(since_s: float | None, progress: Progress) -> Mapping[str, float]:
    """For how long the index is built, and how long it will take, as far as that can be said."""
    if since_s is None:
        return {}
    building_s = time.monotonic() - since_s
    if not progress.read:
        return {"building_s": building_s}
    left_s = building_s * (progress.total - progress.read) / progress.read
    return {"building_s": building_s, "left_s": left_s}


def _listed(search: IndexSearch, query: DeadLetterQuery) -> Mapping[str, Any]:
    """Those that match."""
    count, found = search.page(query.wanted, ROWS + 1, query.behind)
    return {
        "rows": [
            {
                "at_ms": each.place.at_ms,
                "topic": each.topic,
                "partition": each.place.partition,
                "offset": each.place.offset,
                "handler": each.handler,
                "reason": each.reason,
                "error": each.error_type or each.cause,
                "attempt": each.attempt,
                "replays": each.replays,
                "key": text_of(each.key),
                "message": each.message,
            }
            for each in found[:ROWS]
        ],
        "more": place_text(found[ROWS - 1].place) if len(found) > ROWS else "",
        "count": count,
        "with_more_headers": search.with_more_headers() if query.wanted.header else 0,
    }


def _grouped(search: IndexSearch, query: DeadLetterQuery) -> Mapping[str, Any]:
    """All by their causes."""
    found, count = search.causes(query.wanted, CAUSES, time.time_ns() // 1_000_000)
    return {"causes": [_cause(each) for each in found], "count": count}


def _cause(found: FoundCause) -> Mapping[str, Any]:
    latest = found.latest
    return {
        "topic": found.topic,
        "handler": found.handler,
        "cause": found.cause,
        "error": (latest.error_type or latest.cause) if latest is not None else found.cause,
        "reason": latest.reason if latest is not None else "",
        "message": latest.message if latest is not None else "",
        "latest": f"{latest.topic}/{latest.place.partition}/{latest.place.offset}"
        if latest is not None
        else "",
        "count": found.count,
        "first_ms": found.first_ms,
        "last_ms": found.last_ms,
        "trend": drawn(found.trend),
        "last_day": sum(found.trend),
        "most": max(found.trend),
    }


def drawn(counts: Sequence[int]) -> str:
    """Counts as the path of a drawing: a bar each, the largest as high as the drawing."""
    most = max(counts, default=0)
    bars = []
    for place, count in enumerate(counts):
        if count:
            # A single one among thousands is seen all the same.
            height = max(1, round(_HEIGHT * count / most))
            bars.append(f"M{place * _BAR} {_HEIGHT}v-{height}h{_BAR - 1}v{height}z")
    return "".join(bars)


DEAD_LETTERS = AskedPage("dead-letters", "Dead letters", "d", "dead-letters.html", facts)
