"""`make console`: leads to a page with something wrong on it, and leaves nothing behind."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.test_demo import Demo
from tests.framework.kafka.wire import until
from tests.structure.sources import REPOSITORY

pytestmark = [pytest.mark.e2e, pytest.mark.kafka]

#: What each of the three causes says on the first page.
WRONG = ("circuit breaker open", "dead letters: AttributeError", "1 hanging key")


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[list[Demo]]:
    """Put in what has to be ended, however the test ends."""
    started: list[Demo] = []
    yield started
    for each in started:
        each.clean_up()


def command(listen: str) -> list[str]:
    """What `make console` gives Python."""
    told = subprocess.run(
        ["make", "--no-print-directory", "-n", "console", f"LISTEN={listen}"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    python, *arguments = told.stdout.splitlines()[-1].split()
    assert python.endswith("/python")
    return arguments


def test_it_leads_to_what_is_wrong_and_ends_with_ctrl_c(
    tmp_path: Path, watched: list[Demo]
) -> None:
    """A broker named in the environment gets none of its records."""
    watched.append(shop := Demo(tmp_path, *command("127.0.0.1:0"), servers="127.0.0.1:1"))
    shop.until("To mend what is outside")
    until(lambda: "until Ctrl-C" in shop.out)
    address = re.findall(r"the console is at (http://127\.0\.0\.1:\d+/) until Ctrl-C\n", shop.out)
    assert len(address) == 1

    def page() -> str:
        with urllib.request.urlopen(address[0], timeout=60) as answer:
            return str(answer.read().decode())

    until(lambda: all(text in page() for text in WRONG))
    shop.process.send_signal(signal.SIGINT)
    assert shop.ended() == 0, shop.err
    assert shop.left() == []
    assert {each.name for each in tmp_path.iterdir()} == {"out", "err"}


def test_where_the_port_is_taken_it_says_so_and_ends(tmp_path: Path, watched: list[Demo]) -> None:
    """With the console's own words; what was started is gone."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        watched.append(shop := Demo(tmp_path, *command(listen)))
        assert shop.ended() == 1
    assert "error: the console ended with code 2:\n" in shop.err
    assert listen in shop.err
    assert "another port" in shop.err
    assert shop.left() == []
