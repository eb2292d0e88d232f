"""What a client logs by itself: with whose client it is, and not the same line all the time."""

from __future__ import annotations

import logging
import time

import pytest
from confluent_kafka import Consumer

from ackfloor.kafka.client.client_log import MOST_LINES, SAY_AGAIN_S, ClientLog

FORMAT = "%s [%s] %s"
log = logging.getLogger("ackfloor.kafka")


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged."""
    return [record.getMessage() for record in caplog.records if record.name == log.name]


class Clock:
    """Monotonic seconds that a test sets."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def refused(after_ms: int, broker: str = "kafka-1:9092") -> tuple[str, str, str]:
    """As the client logs a refused connection."""
    text = (
        f"[thrd:{broker}/1]: {broker}/1: Connect to ipv4#10.0.0.1:9092 failed: Connection refused "
        f"(after {after_ms}ms in state CONNECT)"
    )
    return "FAIL", "rdkafka#consumer-1", text


def test_a_line_names_whose_client_it_is(caplog: pytest.LogCaptureFixture) -> None:
    """With the client's code and name, for those who look it up; its threads are nobody's."""
    ClientLog(log, "consumer of group billing").log(logging.ERROR, FORMAT, *refused(0))
    (line,) = lines(caplog)
    assert line == (
        "consumer of group billing: kafka-1:9092/1: Connect to ipv4#10.0.0.1:9092 failed: "
        "Connection refused (after 0ms in state CONNECT) [FAIL, rdkafka#consumer-1]"
    )
    assert caplog.records[0].levelno == logging.ERROR


def test_the_same_line_comes_once_a_minute_with_its_number(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Also where only times and counts differ; what another broker does is another line."""
    clock = Clock()
    client_log = ClientLog(log, "consumer of group billing", clock)
    for number in range(49):
        client_log.log(logging.ERROR, FORMAT, *refused(number))
    code, name, text = refused(0)
    text = text.replace("CONNECT)", "CONNECT, 3 identical error(s) suppressed)")
    client_log.log(logging.ERROR, FORMAT, code, name, text)
    client_log.log(logging.ERROR, FORMAT, *refused(0, "kafka-2:9092"))
    assert [line.split("/")[0] for line in lines(caplog)] == [
        "consumer of group billing: kafka-1:9092",
        "consumer of group billing: kafka-2:9092",
    ]
    clock.now_s += SAY_AGAIN_S
    client_log.log(logging.ERROR, FORMAT, *refused(7))
    assert lines(caplog)[2].endswith(" (49 more like it in the last 60 s)")
    clock.now_s += SAY_AGAIN_S
    client_log.log(logging.ERROR, FORMAT, *refused(7))
    assert lines(caplog)[3].endswith("[FAIL, rdkafka#consumer-1]"), "there were none meanwhile"


@pytest.mark.parametrize(
    ("more", "said"),
    [(12, "12 more lines of this client were"), (1, "1 more line of this client was")],
)
def test_lines_that_all_differ_are_counted(
    more: int, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An offset in each, for one: the first ones say what happens."""
    clock = Clock()
    client_log = ClientLog(log, "consumer of group billing", clock)
    for number in range(MOST_LINES + more):
        client_log.log(logging.WARNING, FORMAT, "OFFSET", "c", f"offset {number} is not there")
    assert len(lines(caplog)) == MOST_LINES
    clock.now_s += SAY_AGAIN_S
    client_log.log(logging.WARNING, FORMAT, "OFFSET", "c", "offset 0 is not there")
    assert lines(caplog)[MOST_LINES:] == [
        f"consumer of group billing: {said} left out",
        "consumer of group billing: offset 0 is not there [OFFSET, c]",
    ]


def test_what_was_asked_for_by_the_property_debug_is_all_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Who asks for it looks for the order of things."""
    caplog.set_level(logging.DEBUG, log.name)
    client_log = ClientLog(log, "consumer of group billing")
    for _ in range(3):
        client_log.log(logging.DEBUG, FORMAT, "FETCH", "c", "the same")
    assert len(lines(caplog)) == 3


def test_a_client_that_can_not_connect_logs_a_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    """A real one: without this it logs some twenty lines a second."""
    client_log = ClientLog(log, "consumer of group billing")
    config = {"bootstrap.servers": "127.0.0.1:1", "group.id": "billing"}
    consumer = Consumer(config, logger=client_log)
    consumer.subscribe(["orders"])
    until_s = time.monotonic() + 60.0
    while sum(client_log._logged.values()) < 5 and time.monotonic() < until_s:
        consumer.poll(0.1)
    consumer.close()
    assert sum(client_log._logged.values()) >= 5, "it came again and again"
    assert len(lines(caplog)) <= 3
    assert lines(caplog)[0].startswith("consumer of group billing: 127.0.0.1:1/")
