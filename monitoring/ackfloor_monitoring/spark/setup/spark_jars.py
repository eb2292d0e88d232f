"""The jars that Spark needs beside its own: Kafka's connector and Delta tables.

They are used alone, without their dependencies, which would drag in a second Hadoop and Scala.
The connector is not on Maven Central in one matching version, hence the mixed list. The whole was
tested with PySpark 4.2; change it only as a whole.
"""

from __future__ import annotations

from pathlib import Path

from ackfloor import MissingExtra
from ackfloor.testing.local_kafka.jars import Pin, fetch_jars

CONNECTOR_JARS = (
    Pin(
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705",
    ),
    Pin(
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767",
    ),
    Pin(
        "org.apache.kafka:kafka-clients:3.9.2",
        "014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8",
    ),
    Pin(
        "org.apache.commons:commons-pool2:2.13.1",
        "f77a5060d6936a9144023584232f9de3f2248f1abfe156e9d31795f18770674f",
    ),
)
DELTA_JARS = (
    Pin(
        "io.delta:delta-spark_4.2_2.13:4.4.0",
        "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
    ),
    Pin(
        "io.delta:delta-storage:4.4.0",
        "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
    ),
)


def spark_jars() -> list[Path]:
    """The local files of all these jars, checked against their pinned checksums.

    The first call of a machine fetches them; after that no network is needed.

    Raises:
        MissingExtra, JarRefused, JarsUnavailable: each says what is missing and what to do.
    """
    try:
        return fetch_jars((*CONNECTOR_JARS, *DELTA_JARS))
    except MissingExtra:  # it names the broker's extra, which brings the same package
        raise MissingExtra("spark", "fetching Spark's jars (package jgo)") from None
