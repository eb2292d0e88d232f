"""The cases of alerts/failures.yml."""

from __future__ import annotations

from tests.monitoring.alerts.cases import BILL, OTHER_RUN, Case, known_topic, of, of_run

OF_HANDLER = {"job": "shop", "group": "billing", "handler": "bill"}
OF_BILL = {**OF_HANDLER, "topic": "orders"}
RECEIVED = of("messages_received_total", BILL, via="source")
EXHAUSTED = of("messages_dead_lettered_total", BILL, reason="exhausted", error="KeyError")
DECODED = of("messages_dead_lettered_total", BILL, reason="decode", error="ValueError")
LETTERS = {"topic": "orders--billing--dlq", "partition": "0", "kind": "dlq"}
IN_DLQ = {"topic": "orders--billing--dlq", "partition": "0"}
OLDEST = "kafka_oldest_dead_letter_timestamp_seconds"
DURATION = "handler_duration_seconds_bucket"

CASES = [
    # Two in a hundred, of two kinds, from the 20th minute to the 50th.
    Case(
        "AckfloorDeadLetterRate",
        {
            RECEIVED: "0+100x120",
            EXHAUSTED: "0x20 1+1x30 31x60",
            DECODED: "0x20 1+1x30 31x60",
        },
        quiet=(19, 25),
        fires=40,
        labels=OF_BILL,
        over=70,
    ),
    # Three of four, but so few records that it says nothing.
    Case(
        "AckfloorDeadLetterRate",
        {RECEIVED: "0x9 1x10 1+1x200", EXHAUSTED: "0x9 1x10 1+1x60 61x120"},
        quiet=(11, 18),
        fires=50,
        labels=OF_BILL,
        over=100,
    ),
    # Half of all; the two runs together, each for a share.
    Case(
        "AckfloorDeadLetterFlood",
        {
            RECEIVED: "0+20x120",
            EXHAUSTED: "0x20 5+5x30 155x70",
            of("messages_received_total", BILL, OTHER_RUN, via="source"): "0+20x120",
            of("messages_dead_lettered_total", BILL, OTHER_RUN, reason="decode", error="E"): (
                "0x20 5+5x30 155x70"
            ),
        },
        quiet=(19, 24),
        fires=40,
        labels=OF_BILL,
        over=70,
    ),
    # Both runs see the same letters. Replayed for a moment, then new ones, for two days.
    Case(
        "AckfloorDeadLettersWaiting",
        {
            of_run("kafka_open_messages", LETTERS): "1x60 0x2 3x2880 0x60",
            of_run("kafka_open_messages", LETTERS, OTHER_RUN): "1x60 0x2 3x2880 0x60",
        },
        quiet=(1450,),
        fires=1600,
        labels={"job": "shop", "group": "billing", "topic": "orders--billing--dlq", "kind": "dlq"},
        over=2960,
    ),
    # The oldest was written 24 days less an hour before the start, and is replayed in the 200th
    # minute; that of the other partition is younger. Both runs see them.
    Case(
        "AckfloorDeadLettersAgeing",
        {
            of_run(OLDEST, IN_DLQ): "-2070000x200 -1000x40",
            of_run(OLDEST, IN_DLQ, OTHER_RUN): "-2070000x200 -1000x40",
            of_run(OLDEST, {**IN_DLQ, "partition": "1"}): "-1000x240",
        },
        quiet=(50, 90),
        fires=150,
        labels={"job": "shop", "group": "billing", "topic": "orders--billing--dlq"},
        over=210,
    ),
    Case(
        "AckfloorRetryStorm",
        {
            RECEIVED: "0+10x120",
            of("messages_retried_total", BILL, attempt="2"): "0x20 5+5x30 155x70",
            of("messages_retried_total", BILL, attempt="3"): "0x20 5+5x30 155x70",
        },
        quiet=(19, 28),
        fires=45,
        labels=OF_BILL,
        over=70,
    ),
    # 25,000 dead letters are replayed in the 20th minute and one in ten fails once more: no storm.
    # In the 60th as many are, and each fails twice.
    Case(
        "AckfloorRetryStorm",
        {
            RECEIVED: "0+10x120",
            of("messages_replayed_total", BILL, result="handled"): "0x20 2250+2250x9 22500x90",
            of("messages_replayed_total", BILL, result="failed"): "0x20 250+250x9 2500x29 5000x61",
            of("messages_retried_total", BILL, attempt="2"): "0x20 250+250x9 2500x29 4000+4000x30",
        },
        quiet=(22, 32, 35, 39, 59, 65),
        fires=80,
        labels=OF_BILL,
        over=110,
    ),
    # One of two workers, and another handler's for a moment.
    Case(
        "AckfloorBreakerOpen",
        {
            of("breaker_open", handler="bill"): "0x5 1x20 0x20",
            of("breaker_open", handler="bill", worker="1"): "0x45",
            of("breaker_open", handler="ship"): "0x5 1x3 0x37",
        },
        quiet=(5, 10),
        fires=12,
        labels=OF_HANDLER,
        over=30,
    ),
    # Its breaker is open all the time, which is no sign that it keeps too much.
    Case(
        "AckfloorWithheldFull",
        {
            of("breaker_open", handler="bill"): "1x60",
            of("withheld_full", handler="bill"): "0x10 1x20 0x30",
            of("withheld_full", handler="bill", worker="1"): "0x60",
        },
        quiet=(9, 15),
        fires=18,
        labels=OF_HANDLER,
        over=32,
    ),
    # Its breaker is open at first, which has an alert of its own.
    Case(
        "AckfloorHandlerPaused",
        {
            of("handler_held", handler="bill"): "1x60 0x20",
            of("breaker_open", handler="bill"): "1x20 0x60",
        },
        quiet=(20, 30),
        fires=45,
        labels=OF_HANDLER,
        over=65,
    ),
    # In the second of two runs: one of its workers has begun later than the pause.
    Case(
        "AckfloorPausedByOperator",
        {
            of("handler_paused", handler="bill"): "0x120",
            of("handler_paused", OTHER_RUN, handler="bill"): "0x5 1x80 0x30",
            of("handler_paused", OTHER_RUN, handler="bill", worker="1"): "_x20 1x65 0x30",
            of("handler_paused", handler="other"): "0x120",
        },
        quiet=(10, 60),
        fires=70,
        labels=OF_HANDLER,
        over=90,
    ),
    # All calls take from 30 to 60 s of their 60 s, from the 20th minute to the 60th.
    Case(
        "AckfloorSlowHandler",
        {
            of(DURATION, BILL, outcome="acked", le="30"): "0+10x20 200x40 200+10x60",
            of(DURATION, BILL, outcome="acked", le="60"): "0+10x120",
            of(DURATION, BILL, outcome="acked", le="+Inf"): "0+10x120",
            **known_topic(),
        },
        quiet=(19, 30),
        fires=50,
        labels=OF_HANDLER,
        over=80,
    ),
    Case(
        "AckfloorHandlersAbandoned",
        {
            of("abandoned_handlers", handler="bill"): "0x5 2x30 0x30",
            of("abandoned_handlers", handler="bill", worker="1"): "0x65",
        },
        quiet=(15,),
        fires=30,
        labels={**OF_HANDLER, "worker": "0"},
        over=40,
    ),
    # Busy, and in the first ten minutes nothing waits.
    Case(
        "AckfloorSaturated",
        {
            of("inflight_messages", handler="bill"): "64x60 3x60",
            of("inflight_limit", handler="bill"): "64x120",
            of("queued_messages", handler="bill"): "0x10 500x50 0x60",
        },
        quiet=(10, 35),
        fires=50,
        labels=OF_HANDLER,
        over=65,
    ),
    # A burst waits for ten minutes; then more is written than the rate lets start.
    Case(
        "AckfloorRateTooLow",
        {
            of(
                "handler_rate_waited_seconds_total", handler="bill"
            ): "0+60x10 600x20 600+60x60 4200x40"
        },
        quiet=(12, 35, 55),
        fires=75,
        labels=OF_HANDLER,
        over=110,
    ),
]
