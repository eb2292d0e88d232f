"""What every test has: the run's broker (`bootstrap_servers`), and a worker for each group."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator

import pytest

import tests.examples  # noqa: F401 -- how properties are tried, before any is read

# What a shell starts in the background, and all that this starts, is deaf to Ctrl-C: some of what
# is started here must hear it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Where tests run side by side, each process is told that it has a terminal of 80 columns, and
# commands would leave out what has no room in it.
os.environ.pop("COLUMNS", None)

pytest_plugins = ["tests.collecting", "tests.groups", "tests.kafka_broker", "tests.tracing"]


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """A test that switches logging off leaves it on: the next one in its process may read a log."""
    yield
    logging.disable(logging.NOTSET)
