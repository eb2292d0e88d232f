"""`ackfloor dlq replay`: redrive dead letters, each once, also when killed and resumed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from ackfloor.cli.shared.noting import Noting, ReasonOption
from ackfloor.cli.shared.parameters import (
    OF_SETTINGS,
    Brokers,
    BrokersOption,
    DryRunOption,
    MaxOption,
    MaxReplaysOption,
    Output,
    OutputOption,
    RateOption,
    ResumeOption,
    ToOption,
    YesOption,
)
from ackfloor.core.values.setting_error import SettingError
from ackfloor.dead_letters.commands.edit_input import EditedLines, function_edit
from ackfloor.dead_letters.commands.filter_misses import Misses
from ackfloor.dead_letters.commands.filter_options import FilterOptions
from ackfloor.dead_letters.commands.redriving import (
    LeftOut,
    Part,
    carry_out,
    rate_of,
)
from ackfloor.dead_letters.commands.selection import (
    Chosen,
    DeadLetterSelection,
    ForeignOption,
    OptionalPlacesArgument,
    Places,
)
from ackfloor.dead_letters.rules.dead_letter_filter import DeadLetterFilter
from ackfloor.dead_letters.rules.dispositions import Disposition
from ackfloor.dead_letters.rules.redrive_edit import Edit, unedited
from ackfloor.dead_letters.rules.redrive_jobs import resuming
from ackfloor.dead_letters.rules.redrive_rules import MAX_REPLAYS, TO_RETRY, Order, target_topic
from ackfloor.errors import RedriveRefused
from ackfloor.redrive import job_name, operator

if TYPE_CHECKING:
    from ackfloor.core.records.redaction import Redaction
    from ackfloor.dead_letters.kafka.redrive_job import RedriveJob
    from ackfloor.dead_letters.rules.redrive_jobs import JobNote

Read = TypeVar("Read")
#: What the note of a job holds only for `--resume`.
_OF_RESUMING = frozenset({"action", "ends", "topic_id", "edit_kept", "selection_kept"})
#: What a job may do that is resumed by its note: an archive is a file of another machine.
_RESUMED = frozenset({Disposition.REPLAYED, Disposition.DISCARDED})


@dataclass(frozen=True, slots=True)
class Replay:
    """What a job was asked for: given on the command line, or read from its note.

    Attributes:
        to: where they go; "" where they go nowhere.
        ends: partition -> offset; what is at or behind it came later and is left out. None for no
            end.
        topic_id: of the dead-letter topic when the job began; "" where that is not known.
        edit: what was to be edited, and by what; "" for nothing.
        edit_kept: whether the job keeps it, so that it can be resumed.
        action: what is done with each.
        selection_kept: whether the job keeps the places that are meant, and no filter says them.
    """

    places: Places
    wanted: DeadLetterFilter
    to: str
    limit: int | None
    max_replays: int
    ends: dict[int, int] | None = None
    topic_id: str = ""
    edit: str = ""
    edit_kept: bool = False
    action: Disposition = Disposition.REPLAYED
    selection_kept: bool = False

    def to_dict(self) -> dict[str, Any]:
        """For the note of the job, as JSON."""
        facts = self._facts()
        if self.selection_kept:
            # A release that knows nothing of it misses these, and resumes nothing: without them
            # it would take the whole topic to be meant.
            facts = {k: v for k, v in facts.items() if k not in {"places", "filter"}}
            facts["selection_kept"] = True
        if self.action is not Disposition.REPLAYED:
            # Likewise: it would send them.
            del facts["to"]
            facts["action"] = self.action.value
        return facts

    def _facts(self) -> dict[str, Any]:
        return {
            # A file may name very many, and a job with such edits can't be resumed by its note.
            "places": [] if self.edit and not self.edit_kept else self.places.texts(),
            "filter": self.wanted.to_dict(),
            "to": self.to,
            "max": self.limit,
            "max_replays": self.max_replays,
            "ends": {str(partition): end for partition, end in (self.ends or {}).items()},
            "topic_id": self.topic_id,
            "edit": self.edit,
            **({"edit_kept": True} if self.edit_kept else {}),
        }

    @classmethod
    def of(cls, topic: str, note: JobNote) -> Replay:
        """The same again.

        Raises:
            RedriveRefused: another command, or a newer version, has written the note.
        """
        asked = note.asked
        kept = asked.get("edit_kept") is True
        if asked.get("edit") and not kept:
            raise RedriveRefused(
                f"--resume={note.job!r}: it edited what it sent ({asked['edit']}); give the "
                "command that began it again, and it goes on"
            )
        keeps = asked.get("selection_kept") is True
        try:
            action = _action_of(note)
            return cls(
                Places(topic) if keeps else _places(topic, _kind(list, asked["places"])),
                DeadLetterFilter.from_dict({} if keeps else _kind(dict, asked["filter"])),
                _kind(str, asked["to"]) if action is Disposition.REPLAYED else "",
                None if asked["max"] is None else _kind(int, asked["max"]),
                _kind(int, asked["max_replays"]),
                {int(p): _kind(int, end) for p, end in _kind(dict, asked["ends"]).items()},
                _kind(str, asked["topic_id"]),
                _kind(str, asked["edit"]) if kept else "",
                kept,
                action,
                keeps,
            )
        except (KeyError, TypeError, ValueError, typer.BadParameter) as exc:
            raise RedriveRefused(
                f"--resume={note.job!r}: not a job of this command; give the command that began "
                "it again, and it goes on"
            ) from exc


def _action_of(note: JobNote) -> Disposition:
    """What a job is to do again; raises ValueError where its note says it in two ways, or not."""
    action = Disposition(note.asked.get("action", Disposition.REPLAYED))
    if action.value != note.action or action not in _RESUMED:
        raise ValueError(note.action)
    return action


def _places(topic: str, texts: list[str]) -> Places:
    """The places of a note, which are in its own topic; raises ValueError and typer's error."""
    places = Places.of(texts or [topic])
    if places.topic != topic:
        raise ValueError(places.topic)
    return places


def _kind(kind: type[Read], value: object) -> Read:
    """What a note holds where something of this type belongs; raises TypeError."""
    if type(value) is not kind:
        raise TypeError(value)
    return value


def replay(
    wanted: FilterOptions,
    places: OptionalPlacesArgument = None,
    group: Annotated[
        str | None,
        typer.Option(
            envvar="ACKFLOOR_GROUP",
            help="Where no topic is named: all dead-letter topics of this consumer group. Its "
            "section of the settings counts as well.",
        ),
    ] = None,
    to: ToOption = None,
    rate: RateOption = None,
    most: MaxOption = None,
    max_replays: MaxReplaysOption = None,
    resume: ResumeOption = None,
    edit: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Send these as they are here: lines of `dlq export`, with value or headers "
            "corrected. Only dead letters in the file are meant.",
        ),
    ] = None,
    edit_with: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Send what this function of yours makes of each DeadLetter.",
        ),
    ] = None,
    foreign: ForeignOption = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    because: ReasonOption = None,
    brokers: BrokersOption = OF_SETTINGS,
    output: OutputOption = Output.table,
) -> None:
    """Redrive dead letters, with their retry budget whole. Nothing is sent without --yes.

    Each is sent once in effect: killed or asked for again, the command goes on where it was. What
    was replayed, discarded or archived before is left out. Exits with 5 where some were not sent.
    What is edited is shown by --dry-run as a diff, and tried on all before the first is sent. With
    --group and no topic, the topics are shown, confirmed and sent as one; one whose dead letters
    have no topic to go to is named and left out, and the command exits with 5, for --dry-run too.
    """
    rate_per_s, as_json = rate_of(rate), output is Output.json
    if not places:
        whose = _group_without_topic(group, resume, edit)
        asked = Replay(
            Places(""), wanted, to or TO_RETRY, most, max_replays or MAX_REPLAYS,
            edit=edit_with or "",
        )  # fmt: skip
        noting = _noting(brokers, asked, rate, because)
        reading = DeadLetterSelection.open(brokers)
        parts, left_out = _parts_of_group(reading, whose, asked, rate_per_s)
        carry_out(
            parts, dry_run=dry_run, yes=yes, as_json=as_json, noting=noting, left_out=left_out
        )
        return
    named = Places.of(places)
    given = (to, most, max_replays, named.only, edit, edit_with)
    if resume and (wanted != DeadLetterFilter() or any(each is not None for each in given)):
        raise typer.BadParameter(
            "the job says what is meant: give only the topic, and --rate, --dry-run or --yes",
            param_hint="--resume",
        )
    reading = DeadLetterSelection.open(brokers)
    edits = _edits(named, edit, edit_with, reading.rules)
    if isinstance(edits, EditedLines):
        named = Places(named.topic, edits.wanted())
    if resume:
        order, asked = resumed(reading, named.topic, resume, operator())
        refuse_another_action(order, Disposition.REPLAYED)
    else:
        asked = Replay(
            named, wanted, to or TO_RETRY, most, max_replays or MAX_REPLAYS,
            edit=str(edit or edit_with or ""),
        )  # fmt: skip
        order = Order(named.topic, asked.to, job_name(), operator(), limit=most)
    noting = _noting(brokers, asked, rate, because, resume)
    order = replace(order, rate_per_s=rate_per_s, max_replays=asked.max_replays)
    # Who began a job has said so.
    part = part_of(reading, order, asked, foreign=foreign or resume is not None)
    part.edit, part.rules = edits, reading.rules
    carry_out([part], dry_run=dry_run, yes=yes, as_json=as_json, noting=noting)


def _noting(
    brokers: Brokers,
    asked: Replay,
    rate: str | None,
    because: str | None,
    resumed: str | None = None,
) -> Noting:
    """What is noted of it; raises SettingError where the reason is too long."""
    return Noting(brokers, "dlq replay", because, noted_arguments(asked, rate, resumed))


def noted_arguments(asked: Replay, rate: str | None, resumed: str | None) -> dict[str, Any]:
    """What the note of a replay says of it.

    Args:
        resumed: the job that it goes on with.
    """
    given = {name: value for name, value in asked.to_dict().items() if name not in _OF_RESUMING}
    return given | {"edit": asked.edit or None, "rate": rate, "resumed": resumed}


def _group_without_topic(group: str | None, resume: str | None, edit: Path | None) -> str:
    """The group all of whose topics are meant.

    Raises:
        typer.BadParameter: there is none, or an option is about one topic.
    """
    if group is None:
        raise typer.BadParameter(
            "name a dead-letter topic, or all of a consumer group with --group",
            param_hint="TOPIC",
        )
    about_one = {"--resume": resume, "--edit": edit}
    for option, value in about_one.items():
        if value is not None:
            raise typer.BadParameter("it is about one topic: name it", param_hint=option)
    return group


def _parts_of_group(
    reading: DeadLetterSelection, group: str, asked: Replay, rate_per_s: float | None
) -> tuple[list[Part], list[LeftOut]]:
    """A job for each dead-letter topic of a group that has open dead letters as asked for.

    Topics whose dead letters have no topic to go to are left out, unless nothing else is there.

    Raises:
        RedriveRefused: the group has no topics, none of them can be redriven, or one may not be.
        typer.BadParameter, StartError: the edit can't be used.
    """
    edits = _edits(asked.places, None, asked.edit or None, reading.rules)
    misses, before, parts, left_out = Misses(asked.wanted), 0, list[Part](), list[LeftOut]()
    job, by = job_name(), operator()
    for topic in reading.topics.names(group):
        each = replace(asked, places=Places(topic))
        chosen = reading.choose(each.places, each.wanted, misses=misses)
        before += len(chosen) - chosen.open
        if not chosen.open:
            continue
        order = Order(topic, asked.to, job, by, rate_per_s, asked.limit, asked.max_replays)
        if why := _no_target(order, reading.topics.partitions):
            left_out.append(LeftOut(order, chosen.open, why))
        else:
            part = part_of(reading, order, each, chosen)
            part.edit, part.rules = edits, reading.rules
            parts.append(part)
    misses.tell()
    if left_out and not parts:
        raise RedriveRefused("; ".join(f"{each.order.dlq}: {each.why}" for each in left_out))
    if before and not parts:
        typer.secho(f"{before:,} were replayed, discarded or archived before", err=True)
    return parts, left_out


def _no_target(order: Order, topics: Iterable[str]) -> str:
    """Why the dead letters of a topic have no topic to go to; empty where they have one."""
    # Where a target is named, all would go there: without it all are refused.
    if order.named:
        return ""
    try:
        target_topic(order, topics)
    except SettingError as exc:
        return f"--{exc}"
    return ""


def _edits(named: Places, edit: Path | None, edit_with: str | None, rules: Redaction) -> Edit:
    """The edit that was asked for.

    Raises:
        typer.BadParameter, RedriveRefused, StartError: what was given can't be used.
    """
    if edit is None:
        return unedited if edit_with is None else function_edit(edit_with, rules)
    if edit_with is not None or named.only is not None:
        raise typer.BadParameter(
            "the file says which dead letters are meant, and what becomes of them: give the "
            "topic alone, and no --edit-with",
            param_hint="--edit",
        )
    if rules.active:
        raise typer.BadParameter(
            "[redaction] leaves parts out of what is exported, and they would be missing in what "
            "is sent: use --edit-with",
            param_hint="--edit",
        )
    return EditedLines(edit, named.topic)


def resumed(reading: DeadLetterSelection, topic: str, job: str, by: str) -> tuple[Order, Replay]:
    """The order of a job that was ended, with what is left of its maximum, and what it was asked.

    Args:
        by: who goes on with it.

    Raises:
        RedriveRefused: there is no such job, or it can't be resumed by its note.
        KafkaUnreachable: the broker says nothing.
    """
    notes = {note.job: note for note in reading.topics.jobs(topic)}
    if job not in notes:
        raise RedriveRefused(
            f"--resume={job!r}: no such job; `ackfloor dlq jobs {topic}` lists them"
        )
    note = notes[job]
    asked = Replay.of(topic, note)
    left = None if asked.limit is None else asked.limit - note.done
    if left is not None and left < 1:
        raise RedriveRefused(f"--resume={job!r}: the job has sent its {asked.limit:,}")
    order = Order(
        topic, asked.to, job, by, limit=left, max_replays=asked.max_replays, action=asked.action,
        before=note.done,
    )  # fmt: skip
    return order, asked


def refuse_another_action(order: Order, wanted: Disposition) -> None:
    """Raises RedriveRefused where a job that is to be resumed does something else."""
    if order.action is not wanted:
        goes_on = resuming(order.dlq, order.job, sends=order.sends)
        text = f"this job has {order.action.value} what it was about: to go on, {goes_on}"
        raise RedriveRefused(f"--resume={order.job!r}: {text}")


def job_of(reading: DeadLetterSelection, order: Order, asked: Replay) -> RedriveJob:
    """The job; nothing is read yet.

    Raises:
        RedriveRefused: a topic is missing, may not be used, or is not that which was meant.
        KafkaUnreachable: no broker answers.
    """
    from ackfloor.dead_letters.kafka.redrive_job import RedriveJob

    job = RedriveJob(reading.options, order)
    if asked.topic_id not in {"", job.topics.dlq_id}:
        raise RedriveRefused(
            f"--resume={order.job!r}: {order.dlq} was deleted and created anew since, and holds "
            "other dead letters"
        )
    return job


def part_of(
    reading: DeadLetterSelection,
    order: Order,
    asked: Replay,
    chosen: Chosen | None = None,
    *,
    foreign: bool = False,
) -> Part:
    """The job, and what it is to send.

    Args:
        chosen: that; None to select it, unless the job is refused before anything is read.
        foreign: whether the topic is known to hold dead letters, whatever their headers say.

    Raises:
        RedriveRefused, KafkaUnreachable: as `job_of` does, or the dead letters can't be read.
    """
    job = job_of(reading, order, asked)
    if asked.selection_kept:
        job.order = replace(order, asked=asked.to_dict())
        return Part(job, job.kept_selection())
    if chosen is None:
        chosen = reading.choose(asked.places, asked.wanted, asked.ends)
    if not foreign:
        chosen.refuse_unmarked(asked.places.topic)
    if asked.ends is None:
        asked = replace(asked, ends=chosen.ends, topic_id=job.topics.dlq_id)
    kept = job.kept_edit() if asked.edit_kept else None
    job.order = replace(order, asked=asked.to_dict(), kept=kept)
    return Part(job, chosen.offsets)
