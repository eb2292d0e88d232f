"""The oracle's rule of the floor: nobody has to begin at a lower position than was committed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from math import inf

from tests.soak.commit_log import Written
from tests.soak.facts import Facts
from tests.soak.ledger import Turn

#: How long a worker may go on committing the positions of a topic that was created anew.
NOTICED_S = 60.0


def floors_going_back(facts: Facts) -> Iterator[str]:
    """Commits of a lower position than the one before, with which the next owner had to begin.

    A request can be late: its connection was cut, the next one was quicker. That is made good when
    as much is committed again before anybody is assigned there.
    """
    if not facts.written:
        yield "no commit was found"
    commits: dict[tuple[str, int], list[Written]] = defaultdict(list)
    for written in facts.written:
        commits[written.place].append(written)
    for (topic, partition), all_of_it in commits.items():
        began = [t.at_s for t in facts.turns if _begins(t, topic, partition)]
        for number, (before, after) in enumerate(pairwise(all_of_it), 2):
            if before.position is None or after.position is None:
                continue
            anew = any(
                r.topic == topic and before.at_s < r.to_s + NOTICED_S and r.from_s < after.at_s
                for r in facts.recreated
            )
            until_s = min((at_s for at_s in began if at_s > after.at_s), default=inf)
            rest = [c.position or 0 for c in all_of_it[number:] if c.at_s <= until_s]
            if after.position < before.position > max(rest, default=0) and not anew:
                yield (
                    f"{topic}/{partition}: {before.position} at {before.at_s:.3f}, "
                    f"{after.position} at {after.at_s:.3f}"
                )


def _begins(turn: Turn, topic: str, partition: int) -> bool:
    return (turn.what, turn.topic, turn.partition) == ("assigned", topic, partition)
