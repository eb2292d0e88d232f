"""Waiting records: what a form of the page of retry topics asks for, checked and chosen."""

from __future__ import annotations

from typing import Final

from ackfloor import AckfloorError, SettingError
from ackfloor.core.parking.topic_names import parse_topic
from ackfloor.dead_letters.commands.selection import Places
from ackfloor.operations import RetryAction, RetryMove
from ackfloor.redrive import select
from ackfloor_monitoring.console.access.roles import Person
from ackfloor_monitoring.console.acts.places import place_in, ticked
from ackfloor_monitoring.console.forms import Fields
from ackfloor_monitoring.console.pages.waiting_query import FILTERS, waiting_query
from ackfloor_monitoring.console.reads.cluster_facts import Cluster
from ackfloor_monitoring.console.reads.waiting_records import choose, retry_topic_id

#: What a form may ask for.
ACTIONS: Final = (RetryAction.PROMOTE, RetryAction.BURY)
#: Records of one order: their places are kept until it is forgotten.
MOST_MEANT: Final = 25_000


def read_retry(form: Fields, person: Person, cluster: Cluster) -> RetryMove:
    """The order of a form, about the records that it means now.

    Raises:
        SettingError: a field has no value, or an invalid one.
        Refused: a filter is not understood or may not be used, or too many records are open.
        AckfloorError: the topic can't be read, or is another one than that of the form's page.
    """
    action, topic = RetryAction(form.get("action")), form.get("topic")
    parsed = parse_topic(topic)
    if parsed is None or parsed.kind != "retry":
        fix = "choose the retry topic whose records are meant"
        raise SettingError("topic", topic, "is no retry topic", fix)
    texts = ticked(form, "records")
    query = waiting_query({name: form.get(name) for name in FILTERS}, person, cluster.rules)
    only = select(place_in(topic, text) for text in texts) if texts else None
    # Asked for first: what is chosen in a topic that comes after it is refused later.
    topic_id = retry_topic_id(cluster.options(), topic)
    if form.get("topic_id") not in {"", topic_id}:
        raise AckfloorError(f"{topic} was deleted and made anew: load its page again")
    chosen = choose(cluster.options(), action, topic, only, query.wanted.matches)
    if len(chosen) > MOST_MEANT:
        why = f"{len(chosen):,} are meant, and an order has at most {MOST_MEANT:,}"
        raise SettingError("all", "yes", why, "narrow the search, or use `ackfloor retry`")
    asked = {"places": Places(topic, only).texts(), "filter": query.wanted.to_dict()}
    return RetryMove(action, topic, chosen, asked, topic_id)
