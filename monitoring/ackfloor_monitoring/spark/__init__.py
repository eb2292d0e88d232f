"""Analytics with Spark of the retry and dead-letter topics.

`setup.session` starts a local Spark; `table.kafka_reads` has the only reads from Kafka, and
`table.table_frames` the pure transforms to the columns of `table.columns`. `report`, `watch`,
`whatif` and `audit` answer from that table, in plain Python. Only functions that take or
return a SparkSession need the extra `spark`; importing this package does not load PySpark.
"""
