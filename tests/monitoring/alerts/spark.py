"""The cases of alerts/spark.yml."""

from __future__ import annotations

from tests.monitoring.alerts.cases import Case, of_watch

WATCH = {"instance": "c:9610", "job": "watch"}
BILL = {"group": "billing", "handler": "bill"}

CASES = [
    Case(
        "AckfloorSparkLag",
        {
            of_watch("lag_offsets", topic="orders--billing--dlq"): "0x5 60000x30 0x30",
            of_watch("lag_offsets", topic="orders--billing--retry-1s"): "0x5 60000x30 0x30",
        },
        quiet=(5, 18),
        fires=30,
        labels={"instance": "c:9610"},
        over=40,
    ),
    Case(
        "AckfloorSparkStalled",
        {of_watch("last_progress_timestamp_seconds"): "0+60x10 600x20 1860+60x30"},
        quiet=(10, 15),
        fires=25,
        labels=WATCH,
        over=35,
    ),
    Case(
        "AckfloorSparkAbsent",
        {of_watch("last_progress_timestamp_seconds"): "0+60x10 _x30 2400+60x30"},
        quiet=(10, 20),
        fires=35,
        labels={},
        over=45,
    ),
    Case(
        "AckfloorNewFingerprint",
        {of_watch("last_new_fingerprint_timestamp_seconds", **BILL): "_x30 1800x60"},
        quiet=(10,),
        fires=32,
        labels={**WATCH, **BILL},
        over=50,
    ),
    Case(
        "AckfloorFailureSurge",
        {of_watch("surging_fingerprints", **BILL): "0x10 2x10 0x20"},
        quiet=(5,),
        fires=15,
        labels={**WATCH, **BILL},
        over=25,
    ),
    # The series begins with the first dead letters.
    Case(
        "AckfloorDeadLetters",
        {of_watch("failures_total", stage="dlq", reason="decode", **BILL): "_x10 3x60"},
        quiet=(5,),
        fires=12,
        labels={**BILL, "reason": "decode"},
        over=40,
    ),
]
