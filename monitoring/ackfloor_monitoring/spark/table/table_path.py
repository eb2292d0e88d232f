"""The path of a table: Delta takes a relative one for a name in the catalog."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from ackfloor_monitoring.spark.setup.session import submitted

# As Hadoop reads it: a path that begins so names its own file system, such as s3a:// or file:/.
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def absolute_path(table: str) -> str:
    """The table's path from the root on.

    Raises:
        ValueError: it is empty, or relative on a cluster, where no folder is the current one. The
            text is the end of a sentence that names the field.
    """
    if not table.strip():
        raise ValueError("is empty; name a folder, or any path that Spark can write to")
    if table.startswith("/") or _SCHEME.match(table):
        return table
    if submitted():
        raise ValueError(
            f"{table!r} is relative, and on a cluster no folder is the current one; give the whole "
            "path, such as hdfs://name/failures"
        )
    return str(Path(table).resolve())
