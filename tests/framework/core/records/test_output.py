"""Outputs of one attempt: what they take, and how many it may have."""

from __future__ import annotations

import pytest

from ackfloor.core.records.output import (
    MOST_OUTPUT_BYTES,
    MOST_OUTPUTS,
    OVERHEAD,
    Output,
    Outputs,
    OutputTooLarge,
)


def test_an_output_takes_its_key_value_and_headers() -> None:
    """And what a record costs beside them."""
    assert Output("t", None, None).size == OVERHEAD
    assert Output("t", b"12", b"345", (("ab", b"6"), ("c", None))).size == OVERHEAD + 2 + 3 + 3 + 1


def test_outputs_keep_the_order_of_publishing() -> None:
    """And know what they take together."""
    outputs = Outputs()
    for number in range(3):
        outputs.add(Output("t", None, b"x" * number))
    assert [len(output.value or b"") for output in outputs.items] == [0, 1, 2]
    assert outputs.size == 3 * OVERHEAD + 3
    assert outputs.too_large == ""


def test_what_fits_exactly_is_no_failure() -> None:
    """One byte more is."""
    outputs = Outputs()
    outputs.add(Output("t", None, b"x" * (MOST_OUTPUT_BYTES - OVERHEAD)))
    assert outputs.too_large == ""
    with pytest.raises(OutputTooLarge, match=r"outputs of 33,554,502 bytes; 33,554,432 bytes"):
        outputs.add(Output("t", None, None))
    assert outputs.items == []


def test_one_record_has_so_many_outputs_at_most() -> None:
    """Once there were too many, there are too many."""
    outputs = Outputs()
    for _ in range(MOST_OUTPUTS):
        outputs.add(Output("t", None, None))
    for _ in range(2):
        with pytest.raises(OutputTooLarge, match="over 10,000 outputs of one record"):
            outputs.add(Output("t", None, None))
    assert outputs.too_large
