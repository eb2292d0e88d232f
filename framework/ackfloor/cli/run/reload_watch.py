"""The files that `run --reload` watches, and which of them have changed.

Modification times are compared a few times a second: this needs no package and works on every file
system, also for a host's folder mounted in a container.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

#: Folders of other code, besides all hidden ones.
NOT_OURS = frozenset({"__pycache__", "node_modules", "site-packages"})
#: The file that marks a folder as a virtual environment.
ENVIRONMENT = "pyvenv.cfg"
#: How many names a message has before it says how many more there are.
NAMED = 3

#: File -> modification time in nanoseconds, size, inode: an editor may replace a file.
Looks = Mapping[str, tuple[int, int, int]]


def passed_over(folder: str) -> bool:
    """Whether a folder of this name holds none of the app's code."""
    return folder.startswith(".") or folder in NOT_OURS


def changed(before: Looks, after: Looks) -> list[str]:
    """The files that are new, gone, or different."""
    return sorted(
        name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
    )


def named(files: Iterable[str]) -> str:
    """The first few files as text."""
    names = list(files)
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def looks(folder: Path, settings: Path | None) -> Looks:
    """The Python files below a folder and the settings file, as they are now."""
    found: dict[str, tuple[int, int, int]] = {}
    extra = () if settings is None else (settings,)
    for file in (*_python_files(folder), *extra):
        try:
            status = file.stat()
        except OSError:
            # Removed since it was listed, or not there yet.
            continue
        name = str(file.relative_to(folder) if file.is_relative_to(folder) else file)
        found[name] = (status.st_mtime_ns, status.st_size, status.st_ino)
    return found


def is_watched(module: str, folder: Path) -> bool:
    """Whether an app's module is among the watched files; also if it does not exist yet."""
    top = module.partition(".")[0]
    before = list(sys.path)
    sys.path.insert(0, str(folder))
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        spec = None
    finally:
        sys.path[:] = before
    if spec is None:
        return True
    places = list(spec.submodule_search_locations or ()) or [spec.origin or ""]
    return any(_is_ours(Path(place), folder) for place in places)


def _is_ours(place: Path, folder: Path) -> bool:
    if not place.is_relative_to(folder):
        return False
    way = [place, *place.parents]
    below = way[: way.index(folder)]
    return not any(passed_over(path.name) or (path / ENVIRONMENT).exists() for path in below)


def _python_files(folder: Path) -> Iterator[Path]:
    for where, folders, files in os.walk(folder):
        if ENVIRONMENT in files:
            folders.clear()
            continue
        folders[:] = [name for name in folders if not passed_over(name)]
        yield from (Path(where, name) for name in files if name.endswith(".py"))
