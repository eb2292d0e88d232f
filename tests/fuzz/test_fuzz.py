"""Each target holds for its corpus and for new inputs; and a check that fails is seen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import strategies as st

from tests.fuzz import http
from tests.fuzz import target as target_module
from tests.fuzz.engine import TARGETS, Lines, explore, replay
from tests.fuzz.target import Target

#: New inputs of a target; the same in each run, so that what fails here fails again.
NEW, SEED = 80, 7


@pytest.fixture(scope="module", autouse=True)
def _address() -> Iterator[None]:
    """The address that requests go to is given back."""
    yield
    http.close()


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_what_comes_from_outside_breaks_nothing(target: Target) -> None:
    """Neither what is kept nor what is new; what breaks it is told and belongs into the corpus."""
    assert replay(target) > 0
    trial = explore(target, target.corpus(), NEW, SEED)
    assert trial.executions >= NEW // 2
    for kind, (data, how) in trial.broke.items():
        pytest.fail(f"{target.name} is broken by {data!r}: {kind}\n{how}")


def test_what_breaks_a_check_is_found_made_small_and_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As is what leads further."""
    monkeypatch.setattr(target_module, "CORPUS", tmp_path)

    def check(data: bytes) -> None:
        assert b"x" not in data

    target = Target("one", check, st.binary(max_size=9), [b"x"])
    trial = explore(target, [b"abc"], 500, 7)
    [(kind, (data, how))] = trial.broke.items()
    assert (data, kind.startswith("AssertionError at"), "in check" in how) == (b"x", True, True)
    target.keep([data, b""])
    target.keep([data])
    assert target.corpus() == [b"", b"x"]
    with pytest.raises(AssertionError):
        replay(target)


def test_a_line_that_is_reached_is_noted() -> None:
    """Of ackfloor, and of nothing else."""
    [commits] = [target for target in TARGETS if target.name == "commits"]
    lines = Lines()
    with lines:
        commits.check(b"af1")
    assert lines.seen
    assert all("/ackfloor" in file for file, _ in lines.seen)
