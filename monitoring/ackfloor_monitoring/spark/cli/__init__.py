"""`ackfloor spark`: one file per command, each added to `spark_app` here.

`ackfloor` loads this through its entry point when one of them is run. Neither this nor the head of
a command's file imports PySpark; the commands import what needs it.
"""

from __future__ import annotations

from ackfloor.cli.shared.command_options import Commands
from ackfloor_monitoring.spark.cli.audit import audit
from ackfloor_monitoring.spark.cli.doctor import doctor, jars, prepare
from ackfloor_monitoring.spark.cli.forget import forget
from ackfloor_monitoring.spark.cli.ingest import ingest
from ackfloor_monitoring.spark.cli.maintain import maintain
from ackfloor_monitoring.spark.cli.migrate import migrate
from ackfloor_monitoring.spark.cli.replay import replay
from ackfloor_monitoring.spark.cli.report import report
from ackfloor_monitoring.spark.cli.sql import sql
from ackfloor_monitoring.spark.cli.watch import watch
from ackfloor_monitoring.spark.cli.whatif import whatif

spark_app = Commands(
    name="spark",
    variables="spark_{command}",
    help="The history of failures, and what it says.",
    no_args_is_help=True,
)


@spark_app.callback()
def spark() -> None:
    """The history of failures, and what it says."""


spark_app.command()(doctor)
spark_app.command()(ingest)
spark_app.command()(jars)
spark_app.command()(prepare)
spark_app.command()(replay)
spark_app.command()(audit)
spark_app.command()(watch)
spark_app.command()(whatif)
spark_app.command()(report)
spark_app.command()(sql)
spark_app.command()(forget)
spark_app.command()(maintain)
spark_app.command()(migrate)
