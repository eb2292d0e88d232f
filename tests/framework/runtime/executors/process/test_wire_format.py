"""What goes between a worker and a handler's process comes out as it was."""

from __future__ import annotations

import json

import pytest

from ackfloor.core.records.output import Output
from ackfloor.runtime.executors.process.wire_format import output_from_list, output_to_list


@pytest.mark.parametrize(
    "output",
    [
        Output("bills", None, None),
        Output("bills", b"", b""),
        Output("bills", b"\x00\xff", "ä".encode(), (("kind", b"\xfe"), ("kind", None)), 3),
    ],
    ids=str,
)
def test_an_output_is_the_same_after_it_was_sent(output: Output) -> None:
    """Bytes that are no text, what is empty, what is not there, headers that repeat."""
    assert output_from_list(json.loads(json.dumps(output_to_list(output)))) == output
