"""The cases of alerts/progress.yml."""

from __future__ import annotations

from tests.monitoring.alerts.cases import (
    BILL,
    OTHER_RUN,
    PARTITION,
    RETRY,
    Case,
    known_topic,
    of,
)

OF_GROUP = {"job": "shop", "group": "billing"}
ON_PARTITION = {**OF_GROUP, **PARTITION}
ADVANCE, OLDEST = "floor_last_advance_timestamp_seconds", "oldest_unacked_timestamp_seconds"
#: An operator pauses the handler in one of two runs, until the 30th minute.
PAUSED = {
    of("handler_paused", handler="bill"): "0x120",
    of("handler_paused", OTHER_RUN, handler="bill"): "1x30 0x90",
}

CASES = [
    # Idle for half an hour, then a record that hangs: 2 x 60 s + 60 s, and two minutes of `for`.
    # What hangs is settled in the 50th minute. A second machine has said the same until then.
    Case(
        "AckfloorFloorStalled",
        {
            of(ADVANCE, PARTITION): "0x49 3000x70",
            of(OLDEST, PARTITION): "_x30 1860x18 _x70",
            of(ADVANCE, PARTITION, OTHER_RUN): "0x40",
            of("retry_waiting_messages", PARTITION): "0x120",
            **known_topic(),
        },
        quiet=(31, 33),
        fires=38,
        labels={**ON_PARTITION, "handler": "bill"},
        over=52,
    ),
    # A handler without a timeout: taken for ten minutes, so 21 minutes from the 5th on.
    Case(
        "AckfloorFloorStalled",
        {
            of(ADVANCE, PARTITION): "0x120",
            of(OLDEST, PARTITION): "_x4 300x40 _x70",
            of("topic_info", BILL, source_topic="orders", kind="source"): "1x120",
            of("inflight_limit", handler="bill"): "64x120",
        },
        quiet=(20, 26),
        fires=30,
        labels={**ON_PARTITION, "handler": "bill"},
        over=50,
    ),
    # The same floor, but its record is retried in place until the 20th minute: that is waiting.
    Case(
        "AckfloorFloorStalled",
        {
            of(ADVANCE, PARTITION): "0x40",
            of(OLDEST, PARTITION): "0x40",
            of("retry_waiting_messages", PARTITION): "1x20 0x20",
            # And a retry topic, which waits by design.
            of(ADVANCE, RETRY): "0x120",
            of(OLDEST, RETRY): "0x120",
            **known_topic(),
            of("topic_info", RETRY, source_topic="orders", handler="bill", kind="retry"): "1x120",
            # A run of the release before, in which the handler had another name.
            of(
                "topic_info", BILL, OTHER_RUN, source_topic="orders", kind="source", handler="old"
            ): ("1x120"),
            of("handler_consume_timeout_seconds", OTHER_RUN, handler="old"): "5x120",
        },
        quiet=(10, 20),
        fires=25,
        labels={**ON_PARTITION, "handler": "bill"},
        over=60,
    ),
    # An operator pauses the handler until the 30th minute, in the other run: nothing starts.
    Case(
        "AckfloorFloorStalled",
        {
            of(ADVANCE, PARTITION): "0x60",
            of(OLDEST, PARTITION): "0x60",
            **known_topic(),
            **PAUSED,
        },
        quiet=(10, 29),
        fires=35,
        labels={**ON_PARTITION, "handler": "bill"},
        over=70,
    ),
    Case(
        "AckfloorLaneBlocked",
        {of("blocked_messages", PARTITION): "0x5 7x40 0x30"},
        quiet=(30,),
        fires=40,
        labels=ON_PARTITION,
        over=48,
    ),
    # In one worker, then in another: a restart does not begin the day anew.
    Case(
        "AckfloorKeyQuarantined",
        {
            of("quarantined_keys", handler="bill", worker="0"): "0x5 2x700 0x1000",
            of("quarantined_keys", handler="bill", worker="1"): "0x700 2x800 0x200",
        },
        quiet=(1440,),
        fires=1450,
        labels={**OF_GROUP, "handler": "bill"},
        over=1520,
    ),
    # It grows until the 60th minute. In the first minutes there is no quarter of an hour to judge.
    Case(
        "AckfloorLagGrowing",
        {
            of("lag_messages", PARTITION): "2000+100x60 0x40",
            of("lag_messages", PARTITION, partition="4"): "10x100",
            of("oldest_unacked_record_timestamp_seconds", PARTITION): "0x60 _x40",
            of("lag_messages", RETRY): "2000+100x100",
            of("oldest_unacked_record_timestamp_seconds", RETRY): "0x100",
            **known_topic(),
        },
        quiet=(10,),
        fires=40,
        labels={**OF_GROUP, "topic": "orders"},
        over=65,
    ),
    # It grows for an hour, and until the 30th minute because an operator has paused the handler.
    Case(
        "AckfloorLagGrowing",
        {
            of("lag_messages", PARTITION): "2000+100x60 0x40",
            of("oldest_unacked_record_timestamp_seconds", PARTITION): "0x60 _x40",
            **known_topic(),
            **PAUSED,
        },
        quiet=(25, 40),
        fires=50,
        labels={**OF_GROUP, "topic": "orders"},
        over=65,
    ),
    Case(
        "AckfloorRetryOverdue",
        {
            of("retry_next_due_timestamp_seconds", RETRY): "0x60 6000x20",
            **known_topic(topic=RETRY["topic"], kind="retry"),
            **PAUSED,
        },
        quiet=(20, 35),
        fires=45,
        labels={**OF_GROUP, **RETRY},
        over=63,
    ),
    Case(
        "AckfloorRetryOverdue",
        {of("retry_next_due_timestamp_seconds", RETRY): "600x40 6000x20"},
        quiet=(9, 20),
        fires=30,
        labels={**OF_GROUP, **RETRY},
        over=43,
    ),
    Case(
        "AckfloorRecordsLost",
        {of("lost_to_retention_total", topic="orders"): "0x5 40x60"},
        quiet=(5,),
        fires=8,
        labels={**OF_GROUP, "topic": "orders"},
        over=30,
    ),
    # One failure in the 3rd minute is mended by itself; from the 20th to the 40th all fail.
    Case(
        "AckfloorCommitsFailing",
        {
            of("commit_failures_total", topic="orders", reason="GROUP_AUTHORIZATION_FAILED"): (
                "0x2 1x17 2+1x20 22x60"
            )
        },
        quiet=(8, 15, 25),
        fires=35,
        labels={**OF_GROUP, "topic": "orders"},
        over=55,
    ),
    Case(
        "AckfloorCommitMetadataIgnored",
        {of("commit_metadata_ignored_total", topic="orders"): "0x5 1x60"},
        quiet=(5,),
        fires=8,
        labels={**OF_GROUP, "topic": "orders"},
        over=30,
    ),
]
