"""The record's value as a pydantic model."""

from __future__ import annotations

from pydantic import BaseModel


class Order(BaseModel):
    """One order."""

    order: int
    customer: str
    cents: int
    note: str
