"""`python -m tests.compatibility`: write down what this version writes to Kafka."""

from __future__ import annotations

import json
from pathlib import Path

from ackfloor import __version__
from tests.compatibility.cases import FILES

FOLDER = Path(__file__).parent / __version__


def main() -> None:
    """A file for each kind."""
    FOLDER.mkdir(exist_ok=True)
    for name, cases in FILES.items():
        lines = [json.dumps(case, ensure_ascii=True) for case in cases()]
        (FOLDER / f"{name}.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main()
