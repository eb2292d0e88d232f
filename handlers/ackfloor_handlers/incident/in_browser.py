"""The incident beside a console: a broker, the shop, records that go on coming, and the pages.

Everything is started here and ends with this process: the broker by its guard, the programs by
their leashes. The broker is never one that is named in the environment, since what is written to
it has no end.
"""

from __future__ import annotations

import random
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, chdir, suppress
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Final

from ackfloor import MissingExtra
from ackfloor.testing import KafkaCluster
from ackfloor_handlers.demo.demo_errors import DemoFailed
from ackfloor_handlers.demo.demo_processes import Program, free_port, signals_raise
from ackfloor_handlers.demo.run_watch import fetch_state
from ackfloor_handlers.incident.app import BAD_RELEASE
from ackfloor_handlers.incident.beginning import TOPICS, Record, begin, records, write

APP: Final = "ackfloor_handlers.incident.app:app"
#: Seconds that the shop and the console have to start on a busy machine.
START_S: Final = 120.0
_LOOK_EVERY_S: Final = 0.1
_WRITE_EVERY_S: Final = 1.0


def watch(listen: str, seed: int) -> None:
    """Have the incident and its console until Ctrl-C.

    Args:
        listen: the console's address, host:port.

    Raises:
        MissingExtra: the console's packages are not installed.
        DemoFailed: the shop or the console did not start, or has ended.
    """
    if find_spec("starlette") is None:
        raise MissingExtra("console", "the console")
    with suppress(KeyboardInterrupt), signals_raise(), ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ackfloor-shop-")))
        stack.enter_context(chdir(folder))
        _tell("starts a broker")
        servers = stack.enter_context(KafkaCluster()).bootstrap_servers
        begin(servers, seed)
        _tell("starts the shop and the console")
        address = f"127.0.0.1:{free_port()}"
        shop = stack.enter_context(_shop(servers, address, folder))
        console = stack.enter_context(_console(servers, address, listen, folder))
        _until_shown(shop, console, address)
        _tell("something is wrong in the shop, and orders go on coming. To mend what is outside:")
        _tell(f"  cd {folder} && {sys.executable} -m ackfloor_handlers.incident mend")
        print(f"{console.output.read_text().strip()} until Ctrl-C", flush=True)
        chance = random.Random(seed)  # noqa: S311 -- the same incident for the same seed
        coming = _without_end(chance)
        while True:
            _check(shop, console)
            write(servers, islice(coming, len(TOPICS)))
            time.sleep(_WRITE_EVERY_S)


def _shop(servers: str, address: str, folder: Path) -> Program:
    argv = ["ackfloor.cli.main", "run", APP, "--workers", "2", "--listen", address]
    settings = {"ACKFLOOR_BOOTSTRAP_SERVERS": servers, "ACKFLOOR_RELEASE": BAD_RELEASE}
    return Program("shop", argv, folder, settings)


def _console(servers: str, address: str, listen: str, folder: Path) -> Program:
    argv = [
        "ackfloor.cli.main",
        "console",
        "--listen",
        listen,
        "--run",
        address,
        "--role",
        "operator",
    ]
    return Program("console", argv, folder, {"ACKFLOOR_BOOTSTRAP_SERVERS": servers})


def _until_shown(shop: Program, console: Program, address: str) -> None:
    """Wait until the console serves pages and the shop tells its state."""
    give_up_s = time.monotonic() + START_S
    while not (
        re.search(r"\bat https?://\S+\n", console.output.read_text()) and fetch_state(address)
    ):
        _check(shop, console)
        if time.monotonic() > give_up_s:
            raise DemoFailed(f"nothing is shown after {START_S:g} s:\n{shop.log_tail()}")
        time.sleep(_LOOK_EVERY_S)


def _check(*programs: Program) -> None:
    """Raise DemoFailed where one has ended by itself."""
    for program in programs:
        code = program.returncode()
        if code is not None:
            raise DemoFailed(f"the {program.name} ended with code {code}:\n{program.log_tail()}")


def _without_end(chance: random.Random) -> Iterator[Record]:
    while True:
        yield from records(chance)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
