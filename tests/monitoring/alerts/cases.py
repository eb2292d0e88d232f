"""Case: what an alert is shown to do: fire, and be over again.

A minute is a sample and an evaluation. Values are promtool's: `0x5 1+2x10` is six times 0, then
1, 3, 5 and so on. `time()` is 0 at the start, so a timestamp of 0 is the start.
"""

from __future__ import annotations

from dataclasses import dataclass, field

RUN = {"instance": "a:9600", "job": "shop", "group": "billing"}
#: Twice, on two machines, as around a rebalance: most alerts make one of what both say.
OTHER_RUN = {**RUN, "instance": "b:9600"}
BILL = {"topic": "orders", "handler": "bill"}
PARTITION = {"topic": "orders", "partition": "3"}
RETRY = {"topic": "orders--billing--retry-1s", "partition": "3"}


@dataclass(frozen=True, slots=True)
class Case:
    """One alert in one story.

    Attributes:
        series: what Prometheus has scraped.
        quiet: minutes at which it must not fire: too early, or something that looks alike.
        fires: the minute at which it does.
        labels: what it fires with, beside its own name and severity.
        over: the minute at which it does no longer.
    """

    alert: str
    series: dict[str, str]
    fires: int
    labels: dict[str, str]
    over: int
    quiet: tuple[int, ...] = field(default=())

    def as_test(self) -> dict[str, object]:
        """The case as promtool's unit test."""
        return {
            "name": self.alert,
            "interval": "1m",
            "input_series": [{"series": s, "values": v} for s, v in self.series.items()],
            "promql_expr_test": [
                *(self._at(minute, []) for minute in (*self.quiet, self.over)),
                self._at(self.fires, [{"labels": labels(self.labels), "value": 1}]),
            ],
        }

    def _at(self, minute: int, samples: list[dict[str, object]]) -> dict[str, object]:
        firing = f'ALERTS{{alertname="{self.alert}", alertstate="firing"}}'
        expr = f"max without (alertname, alertstate, severity) ({firing})"
        return {"expr": expr, "eval_time": f"{minute}m", "exp_samples": samples}


def labels(given: dict[str, str]) -> str:
    """Labels as Prometheus writes them."""
    return "{" + ", ".join(f'{name}="{value}"' for name, value in given.items()) + "}"


def of(metric: str, *given: dict[str, str], **more: str) -> str:
    """A series of a worker of a run."""
    merged: dict[str, str] = {**RUN, "worker": "0"}
    for some in (*given, more):
        merged |= some
    return f"ackfloor_{metric}{labels(merged)}"


def of_run(metric: str, *given: dict[str, str], **more: str) -> str:
    """A series of a run as a whole."""
    merged: dict[str, str] = {**RUN}
    for some in (*given, more):
        merged |= some
    return f"ackfloor_{metric}{labels(merged)}"


def of_watch(metric: str, **more: str) -> str:
    """A series of `ackfloor spark watch`."""
    return f"ackfloor_spark_{metric}{labels({'instance': 'c:9610', 'job': 'watch', **more})}"


def known_topic(**more: str) -> dict[str, str]:
    """What rules on topics look up: whose a topic is, and how long that handler may take."""
    info = {"source_topic": "orders", "kind": "source", **BILL, **more}
    return {
        of("topic_info", info): "1x120",
        of("handler_consume_timeout_seconds", handler="bill"): "60x120",
        of("inflight_limit", handler="bill"): "64x120",
    }
