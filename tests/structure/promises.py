"""The register of promises: what docs/guide/semantics.md promises, and what holds each.

    python -m tests.structure.promises > docs/reference/promises.md

A promise is held twice: by a property of the simulation, which turns red when the code that keeps
the promise is taken out (`python -m tests.simulation --safeguards`), and by tests on a real broker.
Where one of the two can't be, `but` says why. `test_promises.py` compares the register with the
page, the simulation and the suite, so what is renamed or removed there is missed here.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from tests.simulation.safeguards import SAFEGUARDS
from tests.simulation.watch import RULES
from tests.structure.sources import REPOSITORY

PAGE = REPOSITORY / "docs" / "guide" / "semantics.md"
#: What marks a file of tests as one that talks to a broker.
ON_A_BROKER = "mark.kafka"

_HEAD = """\
# Register of promises

<!-- Written by `python -m tests.structure.promises`. -->

Every promise of [semantics](../guide/semantics.md) has a number there. Each is held by a property
of the [simulation](../simulation.md#what-is-checked) and by tests on a real broker. A *safeguard*
is a piece of the code that keeps the promise: `python -m tests.simulation --safeguards` removes
each in turn, and ends with 1 unless a property fails without it. Where something can't be shown,
the last column says why.

A test compares this page with the code: each number, property, safeguard and test named here
exists, each property with a number belongs to a promise, and so does each safeguard.

| promise | | property | safeguards | on a real broker | what can't be shown, and why |
|---|---|---|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class Promise:
    """One promise.

    Attributes:
        number: as in the page, `P1` and so on.
        says: what is promised, in short.
        rules: properties of the simulation, as `tests.simulation.watch.RULES` has them.
        safeguards: names in `tests.simulation.safeguards.SAFEGUARDS`, each of one of these rules.
        tests: tests on a real broker.
        but: why there is no property, no safeguard or no test on a broker, and what there is.
    """

    number: str
    says: str
    rules: tuple[str, ...] = ()
    safeguards: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    but: str = ""


PROMISES: tuple[Promise, ...] = (
    Promise(
        "P1",
        "The committed position never passes a record that is not settled.",
        ("1", "3"),
        (
            "the floor is the lowest open offset",
            "a rewound partition does not follow its consumer's position",
        ),
        (
            "test_nothing_is_lost_or_settled_twice_however_members_come_and_go",
            "test_a_handler_that_never_returns_holds_its_span_and_no_more",
        ),
    ),
    Promise(
        "P2",
        "Settled is handled, or confirmed unchanged in a retry or dead-letter topic, or discarded.",
        ("2",),
        (
            "a park settles only when it is confirmed",
            "a park does not settle when it is sent",
            "a record is parked byte for byte",
        ),
        (
            "test_what_too_few_replicas_confirm_leaves_its_record_open",
            "test_parking_at_least_once_does_not_lose",
            "test_a_parked_record_is_byte_identical",
        ),
    ),
    Promise(
        "P3",
        "A delivery ends once; what comes later changes nothing.",
        ("4",),
        (
            "a late answer changes nothing",
            "an answer by hand counts once",
            "what was settled stays settled where a partition is rewound",
            "only what waits behind a failed record is dropped from memory",
        ),
        ("test_an_answer_after_the_revoke_is_stale_and_counted",),
    ),
    Promise(
        "P4",
        "Whatever a handler raises ends its own delivery and nothing else.",
        ("11",),
        ("every exception is its record's outcome",),
        ("test_what_hangs_or_crashes_costs_nobody_else",),
    ),
    Promise(
        "P5",
        "After a crash or a rebalance everything that was not durably settled is delivered again.",
        ("1", "10"),
        ("the floor is the lowest open offset", "of a lost partition nothing is committed"),
        (
            "test_a_killed_worker_is_replaced_and_its_records_come_again",
            "test_nothing_is_lost_or_settled_twice_however_members_come_and_go",
            "test_nothing_is_lost_in_chaos",
        ),
    ),
    Promise(
        "P6",
        "The consume timeout runs from the start of the handler.",
        ("9",),
        (
            "what outlives its deadline is ended",
            "the next deadline is looked for in time",
            "a deadline runs from the start of the handler",
            "a changed timeout counts for what runs",
        ),
        (
            "test_a_record_that_waits_for_a_slot_is_not_late",
            "test_extend_keeps_a_long_handler_from_its_deadline",
        ),
    ),
    Promise(
        "P7",
        "In one lane at most one delivery is in flight, in offset order.",
        ("8",),
        ("a lane starts one at a time",),
        ("test_order_per_key_holds_across_failures_and_a_rebalance",),
    ),
    Promise(
        "P8",
        "A process handler is killed, not abandoned, and its lane goes on once it is dead.",
        ("8", "9"),
        ("a lane starts one at a time",),
        ("test_what_hangs_or_crashes_costs_nobody_else",),
        "In the simulation a process is a strand, which dies at once; that a real one is dead "
        "before its lane goes on is seen without a broker: "
        "`test_a_handler_that_is_timed_out_never_runs_beside_its_retry`.",
    ),
    Promise(
        "P9",
        "Offsets that never arrive block nothing.",
        ("6",),
        ("offsets that never arrive are passed",),
        ("test_trailing_aborted_records_are_passed", "test_markers_in_the_middle_are_holes"),
    ),
    Promise(
        "P10",
        "A failure outside the handler keeps records open, stops nothing else, and is tried again.",
        ("10",),
        ("a refused park is tried again",),
        (
            "test_a_tier_that_may_not_be_written_keeps_its_records_open_until_it_may",
            "test_a_retry_topic_that_was_deleted_and_made_again_is_used_again",
            "test_a_broker_that_goes_down_and_comes_back_needs_no_restart",
        ),
    ),
    Promise(
        "P11",
        "What a worker holds is bounded, and what is not read because of that is read later.",
        ("7",),
        (
            "what is paused is resumed",
            "what leaves is no longer open",
            "what keeps others from being read is written anew",
        ),
        (
            "test_records_of_a_mebibyte_are_held_by_their_bytes",
            "test_what_waits_behind_failed_records_is_held_in_part",
            "test_a_tier_of_many_waiting_records_is_held_in_part",
        ),
    ),
    Promise(
        "P12",
        "Outside its lane, a record that fails, hangs or waits delays no other.",
        ("12",),
        (
            "a handler's pause ends",
            "what a breaker withholds is delivered again",
            "an open breaker tries records",
        ),
        (
            "test_healthy_keys_do_not_wait_for_failing_ones",
            "test_a_burst_with_stuck_records_does_not_hold_up_what_follows",
            "test_healthy_records_do_not_wait_behind_failed_ones_after_a_restart",
        ),
    ),
    Promise(
        "P13",
        "What the last commit has, above the floor too, is not handled again after a kill.",
        ("5",),
        ("what the commit has settled is not handled again",),
        ("test_a_crash_with_one_stuck_record_repeats_only_what_no_commit_held",),
    ),
    Promise(
        "P14",
        "What had ended when a partition is given up is in its last commit.",
        ("5",),
        (
            "a partition that leaves is drained and committed",
            "the last commit of a partition is made after its drain",
            "the last commit has what is settled above the floor",
        ),
        (
            "test_sigterm_with_full_queues_loses_nothing",
            "test_closing_in_the_middle_of_a_rebalance_is_bounded_and_committed",
            "test_a_commit_inside_the_revoke_is_stored_before_the_partition_leaves",
        ),
    ),
    Promise(
        "P15",
        "Of a lost partition nothing is committed, and its handlers are given up.",
        ("1", "4"),
        (
            "of a lost partition nothing is committed",
            "an answer for a partition that has left is stale",
        ),
        ("test_a_worker_that_was_stopped_beyond_its_session_is_fenced_and_works_again",),
    ),
    Promise(
        "P16",
        "A result is published again where its record was not committed; none is missing.",
        tests=("test_no_kill_loses_a_result",),
        but="The simulation's handlers publish nothing, so it has no property. Results are "
        "published within the call (P1 holds the record back), which is seen without a broker: "
        "`test_a_record_is_settled_after_its_result_is_confirmed`.",
    ),
    Promise(
        "P17",
        "Several copies of one parked record have the same `origin`.",
        ("13",),
        ("a park has the record's idempotency key",),
        ("test_parking_at_least_once_does_not_lose",),
    ),
    Promise(
        "P18",
        "Under transactional parking a parked record is in one place.",
        ("2", "3", "4"),
        (
            "a parcel waits for a plain commit",
            "a partition begins after the end of a transaction that carries it",
            "an abort is not the fault of its bystanders",
        ),
        (
            "test_transactional_parking_neither_loses_nor_doubles",
            "test_rebalances_in_the_middle_of_transactions_double_nothing",
            "test_no_plain_commit_crosses_a_transaction",
            "test_a_transaction_from_before_a_silence_ends_before_its_partitions_begin",
        ),
    ),
    Promise(
        "P19",
        "A gap set that is in doubt is ignored.",
        tests=(
            "test_metadata_over_the_brokers_limit_is_shortened_and_the_floor_still_committed",
            "test_a_topic_created_anew_between_two_runs_is_read_from_its_start",
        ),
        but="Nothing in the simulation damages metadata or writes some of its own. Without a "
        "broker: `test_in_doubt_everything_above_the_floor_comes_again`, "
        "`test_one_flipped_bit_anywhere_is_noticed`.",
    ),
    Promise(
        "P20",
        "While a partition has two owners, each commits only what it has settled or read.",
        ("1",),
        ("of a lost partition nothing is committed",),
        (
            "test_a_worker_that_is_thrown_out_unheard_stops_and_undoes_nothing",
            "test_who_was_thrown_out_undoes_no_commit_of_a_later_owner",
        ),
    ),
    Promise(
        "P21",
        "What retention removes before it was read is counted.",
        ("6", "accounts"),
        ("offsets that never arrive are passed",),
        (
            "test_records_that_retention_takes_while_running_are_told",
            "test_a_start_below_the_log_goes_on_at_its_start_and_counts_the_lost",
        ),
        "The simulation sees that such records block nothing; how many are counted is seen on the "
        "broker alone.",
    ),
    Promise(
        "P22",
        "What is lost with a deleted retry topic is counted, and named.",
        tests=("test_a_deleted_retry_topic_is_named_with_what_it_held",),
        but="No topic is deleted in the simulation: a client can't follow one that is made anew, "
        "so its worker is replaced, which is the work of the Kafka shell.",
    ),
    Promise(
        "P23",
        "What an unclean election puts in the place of settled records is handled.",
        tests=(
            "test_what_takes_the_place_of_settled_records_is_handled",
            "test_what_takes_the_place_of_others_is_broadcast",
            "test_a_clean_election_has_nothing_read_again",
        ),
        but="The simulation has one broker without replicas, so there are no elections.",
    ),
    Promise(
        "P24",
        "A first position is committed at once: an idle group skips nothing.",
        tests=(
            "test_an_idle_latest_group_skips_nothing_that_came_while_it_was_away",
            "test_a_partition_that_was_added_is_read_from_its_start_by_a_latest_group",
        ),
        but="The groups of the simulation start at the earliest record, where there is nothing to "
        "skip. Without a broker: `test_a_first_position_is_committed_at_once`.",
    ),
    Promise(
        "P25",
        "A topic that was created anew is read from its beginning.",
        tests=(
            "test_a_topic_created_anew_between_two_runs_is_read_from_its_start",
            "test_a_topic_that_was_made_anew_is_read_from_its_beginning",
        ),
        but="No topic is created anew in the simulation, see P22.",
    ),
    Promise(
        "P26",
        "The slot of an abandoned handler is used again.",
        ("12",),
        ("an abandoned handler gives its slot back",),
        ("test_two_hundred_stuck_threads_do_not_stop_the_worker_for_good",),
    ),
    Promise(
        "P27",
        "A record with which three workers died is dead-lettered without being run.",
        ("11",),
        ("the suspects of a crash are known",),
        ("test_a_record_that_kills_its_worker_is_dead_lettered_after_three_crashes",),
    ),
    Promise(
        "P28",
        "Under `block` a failed record blocks its lane until it is handled or dead-lettered.",
        ("8", "10"),
        ("a lane waits for its failed head", "a lane goes on with the retry of its head"),
        (
            "test_order_per_key_holds_across_failures_and_a_rebalance",
            "test_each_action_moves_the_lanes_that_are_meant",
        ),
    ),
    Promise(
        "P29",
        "Under `quarantine` what is behind a failed record is handled in its order.",
        ("2", "8", "10"),
        (
            "a takeover knows what is parked",
            "what follows of a quarantined key waits",
            "only the head of a quarantined key has its turn",
            "a lane's records go behind its failed one",
            "what retention may have taken keeps its place until its log was read",
            "what waits behind is parked in its own partition",
            "of several copies the one that ends is told from the others",
            "what waits behind a head stays open",
            "a condemned record is dead-lettered",
            "a key is free when nothing of it is left",
            "a head that an operator dead-letters holds its lane",
            "a head that an operator dead-letters stays open until it is written",
        ),
        ("test_keys_stay_in_order_however_workers_come_and_go",),
    ),
    Promise(
        "P30",
        "A retry comes when it is due, not before, and no more often than its policy allows.",
        ("10",),
        (
            "a retry is released when it is due",
            "a retry is not early",
            "the budget of retries ends",
        ),
        ("test_retries_are_not_early_and_a_redrive_to_the_source_keeps_the_key",),
    ),
    Promise(
        "P31",
        "A record has one idempotency key in all its deliveries, and no other record has it.",
        ("13",),
        ("a park has the record's idempotency key",),
        ("test_retries_are_not_early_and_a_redrive_to_the_source_keeps_the_key",),
        "Nothing is redriven in the simulation. All three ways, without a broker: "
        "`test_the_key_stays_over_redeliveries_retries_and_redrives`.",
    ),
    Promise(
        "P32",
        "Each record of a batch is open, ends once, and is settled or parked by itself.",
        ("2", "4"),
        ("an answer by hand counts once", "a park settles only when it is confirmed"),
        ("test_batches_settle_record_by_record",),
    ),
    Promise(
        "P33",
        "Floors are committed; a refused commit is made again and stops nothing.",
        ("3", "5"),
        (
            "a partition's floor is committed",
            "a refused commit is not taken for stored",
        ),
        (
            "test_a_commit_that_is_refused_is_recorded_and_made_again",
            "test_a_group_that_may_not_commit_goes_on_when_it_may",
        ),
    ),
    Promise(
        "P34",
        "Commits of a partition that has been revoked are dropped.",
        ("1",),
        ("of a lost partition nothing is committed",),
        ("test_who_was_thrown_out_undoes_no_commit_of_a_later_owner",),
    ),
    Promise(
        "P35",
        "What a delivery publishes is committed with its record's acknowledgement, or not at all.",
        ("14", "10"),
        (
            "the outputs of an attempt that failed are dropped",
            "a record with outputs is settled with them",
            "all outputs of a record go together",
            "refused outputs are written again",
        ),
        (
            "test_no_kill_loses_or_doubles_an_output",
            "test_a_leader_that_is_killed_neither_loses_nor_doubles_an_output",
            "test_outputs_are_there_once_with_their_acknowledgement",
            "test_a_rebalance_under_load_doubles_no_output",
        ),
    ),
    Promise(
        "P36",
        "A lane's outputs are committed in its order.",
        ("14",),
        ("a lane's outputs keep its order",),
        ("test_a_rebalance_under_load_doubles_no_output",),
    ),
)


def wrong(
    promises: Sequence[Promise],
    page: str,
    tests: Mapping[str, bool],
    rules: Collection[str],
    safeguards: Mapping[str, str],
) -> Iterator[str]:
    """What is wrong with a register.

    Args:
        page: the text in which the promises have their numbers.
        tests: the tests of the suite, and whether each talks to a broker.
        rules: the properties of the simulation.
        safeguards: name -> the rule that it is for.
    """
    numbers, there = [p.number for p in promises], re.findall(r"\((P\d+)\)", page)
    if there != [f"P{n}" for n in range(1, len(there) + 1)]:
        yield f"the page's numbers are not P1, P2 and so on, each once: {', '.join(there)}"
    yield from (f"{n} is in the page and not in the register" for n in there if n not in numbers)
    yield from (f"{n} is in the register and not in the page" for n in numbers if n not in there)
    for promise in promises:
        yield from _wrong_of(promise, tests, rules, safeguards)
    held = {rule for promise in promises for rule in promise.rules}
    yield from (f"no promise has rule {r}" for r in rules if r.isdigit() and r not in held)
    named = {name for promise in promises for name in promise.safeguards}
    yield from (
        f"no promise has the safeguard {name!r}" for name in safeguards if name not in named
    )


def _wrong_of(
    promise: Promise,
    tests: Mapping[str, bool],
    rules: Collection[str],
    safeguards: Mapping[str, str],
) -> Iterator[str]:
    number = promise.number
    for name in (*promise.tests, *re.findall(r"`(test_\w+)`", promise.but)):
        if name not in tests:
            yield f"{number}: there is no test {name}"
        elif name in promise.tests and not tests[name]:
            yield f"{number}: {name} talks to no broker"
    yield from (f"{number}: there is no rule {r}" for r in promise.rules if r not in rules)
    for name in promise.safeguards:
        if name not in safeguards:
            yield f"{number}: there is no safeguard {name!r}"
        elif safeguards[name] not in promise.rules:
            yield f"{number}: {name!r} is for rule {safeguards[name]}, which is not one of its own"
    if not promise.but and not (promise.rules and promise.safeguards and promise.tests):
        yield f"{number}: it lacks a rule, a safeguard or a test, and does not say why"


@cache
def suite() -> Mapping[str, bool]:
    """Every test of the suite, by its syntax tree, and whether its file talks to a broker."""
    found: dict[str, bool] = {}
    for file in sorted((REPOSITORY / "tests").rglob("test_*.py")):
        source = file.read_text()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found[node.name] = found.get(node.name, False) or ON_A_BROKER in source
    return found


def safeguards() -> Mapping[str, str]:
    """The safeguards of the simulation, and the rule that each is for."""
    return {each.name: str(each.invariant) for each in SAFEGUARDS}


def page() -> str:
    """The page of the register."""
    return _HEAD + "".join(f"{_row(promise)}\n" for promise in PROMISES)


def _row(promise: Promise) -> str:
    cells = (
        promise.number,
        promise.says,
        ", ".join(promise.rules),
        "; ".join(promise.safeguards),
        ", ".join(f"`{name}`" for name in promise.tests),
        promise.but,
    )
    return f"| {' | '.join(cells)} |"


def found() -> list[str]:
    """What is wrong with the register as it is."""
    return list(wrong(PROMISES, PAGE.read_text(), suite(), RULES, safeguards()))


if __name__ == "__main__":
    sys.stdout.write(page())
