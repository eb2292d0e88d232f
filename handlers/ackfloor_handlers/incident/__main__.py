"""`python -m ackfloor_handlers.incident begin|mend|watch`: starts the incident, repairs, shows it.

`begin` creates the topics and writes to them, `mend` repairs what is outside. `watch` has the whole
of it on a broker of its own, and a console beside it, until Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import sys

from ackfloor import AckfloorError
from ackfloor_handlers.incident.beginning import RECORDS, TOPICS, begin
from ackfloor_handlers.incident.in_browser import watch
from ackfloor_handlers.incident.outside import mend


def main() -> int:
    """The command line; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m ackfloor_handlers.incident")
    parser.add_argument("what", choices=["begin", "mend", "watch"])
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument(
        "--listen", default="127.0.0.1:9700", help="of the console that `watch` has"
    )
    given = parser.parse_args()
    try:
        if given.what == "begin":
            begin(os.environ.get("ACKFLOOR_BOOTSTRAP_SERVERS", "localhost:9092"), given.seed)
            print(f"{RECORDS} records in each of {', '.join(TOPICS)}; something is wrong outside")
        elif given.what == "mend":
            mended = mend()
            print(
                f"mended: {'; '.join(mended)}"
                if mended
                else "nothing to mend: begin an incident first"
            )
        else:
            watch(given.listen, given.seed)
    except AckfloorError as exc:
        print(f"error: {exc}", file=sys.stderr)
        return exc.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
