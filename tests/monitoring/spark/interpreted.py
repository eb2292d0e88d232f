"""Spark without compiled queries, for sessions of tests and for the programs that they start.

Most queries here run once, over a few dozen rows: to compile them takes most of the time. As users
have them they run in `ackfloor demo` (tests/e2e/test_demo.py).
"""

from __future__ import annotations

INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
#: The variable by which a command finds them. A file of settings would be in a folder of Java's
#: class path, and no class archive fits one of those.
FOR_COMMANDS = {
    "PYSPARK_SUBMIT_ARGS": " ".join(
        [*(f"--conf {name}={value}" for name, value in INTERPRETED.items()), "pyspark-shell"]
    )
}
