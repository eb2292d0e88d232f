"""What released versions wrote to Kafka, kept as they wrote it, and read by a test for ever.

    python -m tests.compatibility

writes the folder of this version: headers of parked records, metadata of commits, dispositions and
notes of jobs, names of topics, each with what it says. It is run once for a release, when its
version has been set, and the folder is committed with it. A folder of a version that was released
is never changed: what it holds lies in somebody's topics. Where a test says that it can't be read
any more, the reader is to be mended.
"""
