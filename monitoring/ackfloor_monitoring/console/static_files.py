"""The console's own scripts, styles and pictures: a fixed set of names, read once."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

from starlette.responses import Response

from ackfloor_monitoring.console.access.gate import Refused

FOLDER: Final = Path(__file__).with_name("static")
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@cache
def _files() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in FOLDER.iterdir() if path.suffix in _TYPES}


def static_file(name: str) -> Response:
    """A file as an answer; raises Refused if there is none of this name."""
    body = _files().get(name)
    if body is None:
        raise Refused(404, f"no file {name}")
    # A page of a newer version asks for the newer file.
    headers = {"Cache-Control": "no-cache"}
    return Response(body, media_type=_TYPES[Path(name).suffix], headers=headers)
