# %% [markdown]
"""An analysis of the history of failures, as a notebook.

Open this file in Jupyter (with jupytext), VS Code or PyCharm, or run it: each part between two
`# %%` is a cell. The table is what ACKFLOOR_SPARK_TABLE names, and `[kafka]` of ackfloor.toml says
where the brokers are; a test runs it on a month of failures. What each function gives is in
docs/spark-analysis.md.
"""

# %%
import os

from pyspark.sql import functions as F

from ackfloor import RetryPolicy
from ackfloor_monitoring.spark import notebook

spark = notebook.session()
failures = notebook.failures(spark)

# %% What the groups have committed tells recovered messages from waiting ones. Without brokers
# these are "unknown".
named = "ACKFLOOR_BOOTSTRAP_SERVERS" in os.environ
commits = notebook.commits(failures) if named else []

# %% What failed: the largest causes, and since when.
causes = notebook.fingerprints(failures)
causes.select("handler", "error_type", "failures", "messages", "dead", "first", "last").orderBy(
    F.desc("failures")
).show(10, truncate=40)

# %% What retries achieve: where `recovered` is small, the attempts behind it cost more than they
# save.
funnel = notebook.funnel(failures, commits)
funnel.withColumn("saved", F.round(F.col("recovered") / F.col("failed"), 3)).show(40)

# %% How long it takes until a message is given up: half of them, and 99 of 100.
lives = notebook.lives(failures, commits)
lives.where("outcome = 'dead' AND replays = 0").groupBy("handler").agg(
    F.count("*").alias("dead"),
    F.percentile("to_death_s", F.array(F.lit(0.5), F.lit(0.99))).alias("p50_and_p99_s"),
).orderBy("handler").show(truncate=False)

# %% Hot keys: one key that fails all the time is another problem than many that fail once.
deliveries = notebook.deliveries(failures)
deliveries.where("key IS NOT NULL").groupBy(
    "handler", F.col("key").cast("string").alias("key")
).agg(F.count("*").alias("failures"), F.count_distinct("message").alias("messages")).orderBy(
    F.desc("failures")
).show(10)

# %% When: failures by handler and day, as columns for a chart.
deliveries.groupBy("day").pivot("handler").count().orderBy("day").show(40)

# %% Another retry policy, on the same failures.
answer = notebook.what_if(failures, RetryPolicy("10s", max_redeliveries=3), commits or None)
total = answer.total
print(f"redeliveries: {total.redeliveries} were, {total.redeliveries_then.likely:.0f} would be")
print(f"dead letters: {total.dead} were, {total.dead_then.likely:.0f} would be")

# %% The same in SQL.
notebook.register_views(failures, commits)
spark.sql("""
    SELECT handler, error_type, releases[0] AS since_release, failures
    FROM fingerprints WHERE size(releases) = 1 ORDER BY failures DESC
""").show(10, truncate=40)

# %% A join with data of your own: which of these orders have failed, and what became of them?
orders = spark.createDataFrame([(0, 17), (0, 18)], "partition bigint, offset bigint")
place = [
    F.col("message.origin_partition") == F.col("partition"),
    F.col("message.origin_offset") == F.col("offset"),
]
orders.join(lives, place, "left").select("partition", "offset", "handler", "outcome").show()
