"""The smallest app: prints every value of one topic. Run `python -m ackfloor_handlers.echo`."""

from __future__ import annotations

from ackfloor import App

app = App(group="echo")


@app.handler("echo")
def echo(value: str) -> None:
    """Print the value; returning is the acknowledgement."""
    print(value)


if __name__ == "__main__":
    from ackfloor.testing import Harness

    with Harness(app) as h:
        h.send("echo", "hello")
