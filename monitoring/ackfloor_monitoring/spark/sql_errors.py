"""Spark's errors about somebody's SQL, as one sentence without a stack."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, ParseException, PySparkException

from ackfloor import AckfloorError
from ackfloor_monitoring.spark.table import kafka_reads as io

_CORRECT: Final = "correct it, or try_cast what it reads"


@contextmanager
def readable_sql_errors(
    refuse: Callable[[str, str], AckfloorError], *, parsed: str, resolved: str
) -> Iterator[None]:
    """Around the evaluation of SQL that somebody wrote.

    Args:
        refuse: makes the error, from why it is refused and what to do.
        parsed: what to do about what Spark can't parse.
        resolved: what to do about a name or a type that does not fit.
    """
    try:
        yield
    except ParseException as error:
        raise refuse(first_sentence(str(error)), parsed) from error
    except AnalysisException as error:
        raise refuse(first_sentence(str(error)), resolved) from error
    except PySparkException as error:
        raise refuse(first_sentence(str(error)), _CORRECT) from error
    except Py4JJavaError as error:
        # Where rows are fetched one by one, a failed wait wraps Spark's error.
        _, message = io.root_cause(error)
        if not message.startswith("["):
            raise
        raise refuse(first_sentence(message), _CORRECT) from error


def first_sentence(text: str) -> str:
    """The first sentence of Spark's error, without its class and its SQLSTATE."""
    text = text.strip().partition("\n")[0]
    if text.startswith("["):
        text = text.partition("] ")[2]
    return text.partition(" SQLSTATE:")[0].rstrip(". ")
