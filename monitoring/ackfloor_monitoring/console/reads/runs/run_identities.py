"""RunIdentities: which answers are those of one run, at whichever of its addresses it was asked.

A name with IPv4 and IPv6 addresses leads to each run twice, or leads nowhere at the addresses of
one kind. A run says in `/state` which one it is; one of an older version is told by its address.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ackfloor.cli.status.run_answers import RunAnswer
from ackfloor_monitoring.console.reads.runs.run_names import Named


class RunIdentities:
    """Those of one cluster."""

    def __init__(self) -> None:
        #: Address -> which run has answered there last.
        self._ids: dict[str, str] = {}
        #: Run -> the address at which it was shown to answer last.
        self._at: dict[str, str] = {}

    def once(self, answers: Sequence[RunAnswer], named: Named) -> list[RunAnswer]:
        """Each run once: by the first address at which it answers, or else answered last."""
        ids = {each.run: str(each.state.get("run", "")) for each in answers if not each.error}
        found = dict[str, RunAnswer]()
        for answer in self._meant(answers, ids, named):
            run = ids.get(answer.run, self._ids.get(answer.run)) or answer.run
            is_better = not answer.error or self._at.get(run) == answer.run
            if run not in found or (found[run].error and is_better):
                found[run] = answer
        there = {run: each.run for run, each in found.items() if not each.error}
        self._at = {run: at for run, at in {**self._at, **there}.items() if run in found}
        asked = {each.run for each in answers}
        # Of an address that has left its name it stays known whose it was: another look that is
        # under way must not take whoever has got it by now for that one.
        ours = {at: run for at, run in ids.items() if at not in named.left}
        self._ids = {at: run for at, run in {**self._ids, **ours}.items() if at in asked}
        return list(found.values())

    def _meant(
        self, answers: Iterable[RunAnswer], ids: Mapping[str, str], named: Named
    ) -> Iterator[RunAnswer]:
        """Those that belong to this cluster, and those that are missed."""
        kinds = {_kind_of(run, named) for run in ids}
        for answer in answers:
            known = self._ids.get(answer.run)
            if answer.run in named.left:
                # Somebody else may have got the address by now.
                if ids.get(answer.run, known) == known:
                    yield _with_name(answer, named)
            elif known is not None or not answer.error or not _is_deaf(answer.run, named, kinds):
                yield answer


#: How an address was given, and whether it is one of IPv6.
Kind = tuple[str, bool]


def _kind_of(address: str, named: Named) -> Kind:
    return named.given.get(address, address), "[" in address


def _is_deaf(address: str, named: Named, kinds: set[Kind]) -> bool:
    """Whether the runs of a name answer at its other kind of addresses alone."""
    name, is_ipv6 = _kind_of(address, named)
    # A name that can't be resolved is no address.
    is_address = address in named.given
    return is_address and (name, is_ipv6) not in kinds and (name, not is_ipv6) in kinds


def _with_name(answer: RunAnswer, named: Named) -> RunAnswer:
    """The same; of an address that has left its name, an error says so."""
    if not answer.error:
        return answer
    gone = f"{named.given[answer.run]} does not lead there any more"
    return replace(answer, error=f"{answer.error} ({gone})")
