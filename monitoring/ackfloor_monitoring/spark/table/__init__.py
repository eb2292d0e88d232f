"""The table of failures: read from Kafka, one row a record, stored in Delta.

A new column begins in `columns`. Start with `ingest`.
"""
