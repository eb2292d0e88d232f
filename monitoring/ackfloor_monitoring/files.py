"""Files: writes the package's alert rules for Prometheus and dashboard for Grafana.

    python -m ackfloor_monitoring.files ./monitoring

writes `alerts/*.yml` and `dashboards/*.json` there. It overwrites files of these names, so that an
upgrade is the same command; other files stay.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path

#: Folder of the package -> the suffix of its files for users.
_FOLDERS = {"alerts": ".yml", "dashboards": ".json"}


def shipped() -> Iterator[tuple[str, str]]:
    """Relative path and text of each file."""
    for folder, ending in _FOLDERS.items():
        found = files("ackfloor_monitoring") / folder
        if not found.is_dir():
            continue
        for file in sorted(found.iterdir(), key=lambda file: file.name):
            if file.name.endswith(ending):
                yield f"{folder}/{file.name}", file.read_text()


def main(arguments: Sequence[str] = sys.argv[1:]) -> int:
    """Write them below the folder given; the exit code."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        sys.stderr.write("usage: python -m ackfloor_monitoring.files FOLDER\n")
        return 2
    try:
        for path, text in shipped():
            file = Path(arguments[0], path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            sys.stdout.write(f"{file}\n")
    except OSError as exc:
        sys.stderr.write(f"error: {exc}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
