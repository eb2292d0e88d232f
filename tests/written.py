"""What tests read of files that another process writes meanwhile."""

from __future__ import annotations

from pathlib import Path


def whole_lines(file: Path) -> list[str]:
    """The lines that are there to their ends; none where there is no such file yet.

    A line is one write, and yet a reader may find the half of it that lies in front of a page's
    end; and so may everybody for ever, of one whose writer was killed in it.
    """
    # One look, not two: the file may come or go between them.
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return []
    # Bytes first: what is cut off may be half of a character.
    return data[: data.rfind(b"\n") + 1].decode("utf-8", "replace").split("\n")[:-1]
