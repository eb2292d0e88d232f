"""A real run for windows to look at: its app, and where it listens."""

from __future__ import annotations

from tests.e2e.stage import Running, ready

#: What its handler does with a record is what the record says.
APP = """
app = App("GROUP")


@app.handler("TOPIC", ordering="key", retry=RetryPolicy.fixed("10m", None), breaker=None)
async def bill(delivery: Delivery) -> None:
    if delivery.value == b"bad":
        raise RuntimeError("no price <b>here</b>")
    while delivery.value == b"slow" and not opened("gate"):
        await asyncio.sleep(0.05)
"""


def listening(run: Running) -> str:
    """The address of a run, once it is ready."""
    run.until(ready(run), "ready")
    return run.logged("metrics and health on ").rpartition("http://")[2]
