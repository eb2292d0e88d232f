"""A frame in the columns of a view, each with its meaning as the comment that SQL shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


def described(rows: DataFrame, columns: StructType) -> DataFrame:
    """These columns of the rows, in their order, of their types."""
    return rows.select(
        *(F.col(each.name).cast(each.dataType).alias(each.name, metadata=each.metadata)
          for each in columns)
    )  # fmt: skip
