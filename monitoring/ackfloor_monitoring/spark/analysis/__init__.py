"""Analysis: the figures of the report as DataFrames and SQL views, for questions of one's own.

`views` names them, `ackfloor_monitoring.spark.notebook` is what users import.
"""
