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

WHAT = """\
begin  creates the shop's topics on ACKFLOOR_BOOTSTRAP_SERVERS, writes to them, and begins the
       trouble outside; then start the shop in the same folder:
       ackfloor run ackfloor_handlers.incident.app:app --workers 2
mend   repairs what is outside of the shop: give it in the same folder
watch  has all of it on a broker of its own, with a console beside it, until Ctrl-C
"""


def main() -> int:
    """The command line; returns its exit code."""
    given = _parser().parse_args()
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m ackfloor_handlers.incident",
        description="A shop in trouble, to practise on: docs/guide/incident.md walks through it.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=WHAT,
    )
    parser.add_argument("what", choices=["begin", "mend", "watch"], help="see below")
    parser.add_argument(
        "--seed", type=int, default=7, help="another one picks other records (default: 7)"
    )
    parser.add_argument(
        "--listen",
        default="127.0.0.1:9700",
        help="address of the console that `watch` has (default: 127.0.0.1:9700)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
