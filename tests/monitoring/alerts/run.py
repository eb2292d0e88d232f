"""The cases of alerts/run.yml."""

from __future__ import annotations

from tests.monitoring.alerts.cases import BILL, OTHER_RUN, RUN, Case, of, of_run

OF_GROUP = {"job": "shop", "group": "billing"}

CASES = [
    # The run moves to another machine in the 20th minute, and is gone from the 40th to the 60th.
    Case(
        "AckfloorRunAbsent",
        {
            of_run("workers_expected"): "2x20 _x100",
            of_run("workers_expected", OTHER_RUN): "_x18 2x22 _x20 2x60",
        },
        quiet=(30, 41),
        fires=55,
        labels=OF_GROUP,
        over=65,
    ),
    Case(
        "AckfloorWorkersMissing",
        {
            of_run("workers_expected"): "2x60",
            of_run("workers_reporting"): "2x10 1x20 2x30",
            of_run("workers_expected", OTHER_RUN): "2x60",
            of_run("workers_reporting", OTHER_RUN): "2x60",
        },
        quiet=(12,),
        fires=20,
        labels=RUN,
        over=35,
    ),
    # One that died is replaced; three within minutes are a loop.
    Case(
        "AckfloorWorkersRestarting",
        {of_run("workers_ended_total"): "0x5 1x30 2x2 3x2 4x60"},
        quiet=(10, 35),
        fires=44,
        labels=RUN,
        over=65,
    ),
    Case(
        "AckfloorLoopStalled",
        {
            of("loop_turn_age_seconds"): "0x10 60+60x10 0x40",
            of("max_poll_interval_seconds"): "300x60",
        },
        quiet=(10, 12),
        fires=18,
        labels={**RUN, "worker": "0"},
        over=25,
    ),
    Case(
        "AckfloorLoopBusy",
        {
            of("loop_seconds_total", state="work"): "0+10x20 202+58x40 2532+10x60",
            of("loop_seconds_total", state="poll"): "0+50x20 1002+2x40 1084+50x60",
        },
        quiet=(19, 30),
        fires=50,
        labels={**RUN, "worker": "0"},
        over=70,
    ),
    Case(
        "AckfloorFault",
        {of("faults_in_force"): "0x5 1x20 0x30", of("faults_in_force", OTHER_RUN): "0x55"},
        quiet=(5, 9),
        fires=20,
        labels=OF_GROUP,
        over=27,
    ),
    # Its fault is the open circuit breaker of one of two handlers; from the 31st minute to the 50th
    # there is another one, and the breaker stays open.
    Case(
        "AckfloorFault",
        {
            of("faults_in_force"): "0x5 1x24 2x19 1x30",
            of("breaker_open", handler="bill"): "0x5 1x75",
            of("breaker_open", handler="ship"): "0x80",
        },
        quiet=(9, 20, 30, 34),
        fires=40,
        labels=OF_GROUP,
        over=60,
    ),
    Case(
        "AckfloorPublishFailing",
        {
            of("publish_failures_total", BILL, kind="dlq"): "0x5 2x60",
            of("publish_failures_total", BILL, kind="retry"): "0x65",
        },
        quiet=(5,),
        fires=8,
        labels={**OF_GROUP, **BILL, "kind": "dlq"},
        over=20,
    ),
    # Two changes are a deployment.
    Case(
        "AckfloorRebalanceLoop",
        {
            of("rebalances_total", event="assigned"): "1x10 2x10 2+1x15 17x60",
            of("rebalances_total", event="revoked"): "0x10 1x10 1+1x15 16x60",
        },
        quiet=(15,),
        fires=35,
        labels=OF_GROUP,
        over=60,
    ),
    Case(
        "AckfloorSettingsRefused",
        {of_run("config_last_reload_successful"): "1x5 0x20 1x30"},
        quiet=(5, 9),
        fires=20,
        labels=RUN,
        over=28,
    ),
]
