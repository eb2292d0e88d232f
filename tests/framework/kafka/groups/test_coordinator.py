"""Questions to a group's coordinator while it moves; no broker is needed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException

from ackfloor.kafka.groups import coordinator
from ackfloor.kafka.groups.coordinator import PASSING, coordinated


def saying(*codes: int) -> Callable[[], str]:
    """Answers with these errors in turn, and then in earnest."""
    left = list(codes)

    def ask() -> str:
        if left:
            raise KafkaException(KafkaError(left.pop(0)))
        return "found"

    return ask


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "AGAIN_S", 0.001)


@pytest.mark.parametrize("code", sorted(PASSING))
def test_it_is_asked_again_while_it_moves(code: int) -> None:
    """However often it says so."""
    assert coordinated(saying(code, code, code), 60.0) == "found"


def test_a_no_is_told_at_once() -> None:
    """What does not pass by itself is not asked again."""
    with pytest.raises(KafkaException, match="GROUP_AUTHORIZATION_FAILED"):
        coordinated(saying(KafkaError.GROUP_AUTHORIZATION_FAILED), 60.0)


def test_one_that_goes_on_moving_is_told_in_the_end() -> None:
    """After the time that was given."""
    with pytest.raises(KafkaException, match="NOT_COORDINATOR"):
        coordinated(saying(*[KafkaError.NOT_COORDINATOR] * 1000), 0.01)
