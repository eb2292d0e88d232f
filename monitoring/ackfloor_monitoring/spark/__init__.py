"""What Spark reads from the retry and dead-letter topics, and what it makes of it.

`session` starts a local Spark, `io` holds the only reads, `frames` the pure transforms over
`schema`'s columns, `jobs` puts them together, `failures` is the answer in plain Python. Only the
functions that take or return a SparkSession need the extra `spark`; importing this package does
not load PySpark.
"""
