"""Odd requests: whatever an address or a form says, the answer is a page or a refusal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn
from urllib.parse import quote

import pytest

from ackfloor.errors import KafkaUnreachable
from ackfloor_monitoring.console.access.roles import Role
from ackfloor_monitoring.console.reads.cluster_facts import Cluster
from tests.monitoring.console.dead_letter_source import DLQ, DeadLetterSource
from tests.monitoring.console.served_console import Console
from tests.monitoring.console.shown_cluster import Kafka, Run
from tests.monitoring.console.test_dead_letter_pages import Serve, serve, source

__all__ = ["serve", "source"]

#: What no page of the console has sent: bytes that are no text, numbers that no database holds,
#: names of nothing, pieces of other languages.
ODD = (
    b"", b"\0", b"a\0b", b"\xed\xa0\x80", b"\xff", b"9" * 30, b"9" * 5_000, b"-1", b"\xc2\xb2",
    b"nan", b"1e999", b"' or 1=1 --", b"%!_", b"../../etc/passwd", b"\r\nX-Odd: yes", b"{0.a}",
    b"9999-12-31T23:59:59+00:01", b"<script>", b"a--b--dlq", b"a--b--retry-1s",
)  # fmt: skip
#: Addresses that ask something, and those with a name in their path.
ASKED = (
    *("overview?group", "partitions?group", "retry?key", "retry?topic", "retry?group", "report?x"),
    *("dead-letters?list=1&" + name for name in ("behind", "error", "header", "key", "since")),
    *("dead-letters?list=1&" + name for name in ("reason", "text", "topic", "until")),
)
NAMED = (
    *("../{}/overview", "{}", "partitions/{0}/{0}/{0}", "partitions/billing/orders/{}"),
    *("records/{0}/{0}/{0}", "records/orders/0/{}", "records/orders/{}/0", "retry/{0}/0/0"),
    *(f"dead-letters/{DLQ}/0/{{}}", f"dead-letters/{DLQ}/{{}}/0", "dead-letters/{}/0/0"),
    *("orders/{}", "redrives/{}", "changes/{}", "edits/{}", "../../static/{}"),
)
#: Forms, with what each needs to come as far as the field that is odd.
ALL: tuple[tuple[str, str], ...] = (("topic", DLQ), ("all", "yes"))
FORMS: dict[str, tuple[tuple[tuple[str, str], ...], tuple[str, ...]]] = {
    "orders": ((("handler", "bill"), ("group", "billing")), ("action", "place", "all", "topic")),
    "redrives": ((("action", "replay"), *ALL), ("topic", "to", "rate", "since", "key", "header")),
    "exports": (ALL, ("topic", "topic_id", "text", "place")),
    "resumes": ((("topic", DLQ),), ("topic", "job", "rate")),
    "cancels": ((("topic", DLQ),), ("topic", "job")),
    "changes": ((("group", "billing"), ("value", "1")), ("group", "setting", "value")),
    "edits": ((("place", f"{DLQ}/0/0"),), ("place", "look", "to", "value")),
    "reveals": ((("reason", "INC-17"),), ("place", "reason")),
}


@pytest.fixture
def console(
    source: DeadLetterSource,
    serve: Serve,
    run: Run,
    kafka: Kafka,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Console]:
    """An admin's, who may ask for all; no broker answers."""
    del run, kafka

    def unreachable(_cluster: Cluster) -> NoReturn:
        raise KafkaUnreachable("no broker takes a connection")

    monkeypatch.setattr(Cluster, "options", unreachable)
    source.bury(5, own=[("tenant", b"t1")])
    with serve(role=Role.admin) as served:
        yield served


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: repr(odd[:16]))
def test_none_is_a_fault_of_the_console(console: Console, odd: bytes) -> None:
    """503 says that Kafka does not answer; nothing else goes wrong on this side."""
    text = quote(odd, safe="")
    addresses = [f"/c/kafka/{path}={text}" for path in ASKED]
    addresses += [f"/c/kafka/{path.format(text)}" for path in NAMED]
    answers = {path: console.ask(path) for path in addresses}
    for form, (given, fields) in FORMS.items():
        for field in fields:
            kept = [f"{name}={quote(value)}" for name, value in given if name != field]
            body = "&".join([*kept, f"{field}={text}"])
            answers[f"{form}: {field}"] = console.ask(
                f"/c/kafka/{form}", "POST", body,
                Content_Type="application/x-www-form-urlencoded",
            )  # fmt: skip
    faults = {path: each.status for path, each in answers.items() if each.status in {500, 502}}
    assert faults == {}
    assert all("x-odd" not in each.headers for each in answers.values())
