"""Selection: which dead letters a `dlq` command works on, by topic, place and filter."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from ackfloor.cli.shared.parameters import Brokers
from ackfloor.cli.shared.read_count import counted
from ackfloor.core.parking.topic_names import parse_topic
from ackfloor.core.values.suggestions import there_are
from ackfloor.dead_letters.commands.filter_misses import Misses
from ackfloor.dead_letters.rules.dead_letter_filter import DeadLetterFilter
from ackfloor.dead_letters.rules.redrive_rules import Wanted
from ackfloor.errors import RedriveRefused
from ackfloor.redrive import select

if TYPE_CHECKING:
    from ackfloor.core.records.redaction import Redaction
    from ackfloor.dead_letters.kafka.dead_letter_topic import DeadLetterTopics, StoredDeadLetter
    from ackfloor.dead_letters.kafka.record_reading import Gone
    from ackfloor.kafka.client.client_options import KafkaOptions

PlacesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="TOPIC[/PARTITION/OFFSET]...",
        help="A dead-letter topic, as `dlq groups` prints it, or single dead letters of one, as "
        "`dlq ls` does.",
    ),
]
OptionalPlacesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TOPIC[/PARTITION/OFFSET]]...",
        help="A dead-letter topic, as `dlq groups` prints it, or single dead letters of one, as "
        "`dlq ls` does.",
        show_default="those of --group",
    ),
]
TopicsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TOPIC]...", help="Dead-letter topics.", show_default="all"),
]
AllOption = Annotated[
    bool, typer.Option("--all", help="Also those that were replayed, discarded or archived.")
]
PartitionOption = Annotated[
    int | None,
    typer.Option(min=0, help="Read this partition only."),
]
ForeignOption = Annotated[
    bool,
    typer.Option(
        "--foreign", help="It is a dead-letter topic of another tool, although no header says so."
    ),
]
_PLACE = re.compile(r"(?P<topic>[^/]+)/(?P<partition>[0-9]{1,9})/(?P<offset>[0-9]{1,18})")


@dataclass(frozen=True, slots=True)
class Places:
    """What a command was given: a whole topic, or (`only`) single dead letters of it."""

    topic: str
    only: Wanted | None = None

    @classmethod
    def of(cls, texts: Sequence[str]) -> Places:
        """From the command's arguments.

        Raises:
            typer.BadParameter: places of two topics, or what is neither topic nor place.
        """
        if len(texts) == 1 and "/" not in texts[0]:
            return cls(texts[0])
        found = [place_of(text) for text in texts]
        topics = {topic for topic, _, _ in found}
        if len(topics) != 1:
            raise typer.BadParameter(f"{', '.join(sorted(topics))}: name places of one topic")
        return cls(topics.pop(), select((partition, offset) for _, partition, offset in found))

    def texts(self) -> list[str]:
        """The single dead letters as they are written."""
        return [f"{self.topic}/{p}/{o}" for p, each in (self.only or {}).items() for o in each]


def place_of(text: str) -> tuple[str, int, int]:
    """Topic, partition and offset of one dead letter.

    Raises:
        typer.BadParameter: it is none.
    """
    match = _PLACE.fullmatch(text)
    if match is None:
        raise typer.BadParameter(f"{text!r}: give TOPIC/PARTITION/OFFSET, as `dlq ls` prints it")
    return match["topic"], int(match["partition"]), int(match["offset"])


@dataclass(slots=True)
class Chosen:
    """The dead letters that were selected.

    Attributes:
        offsets: of each partition, ascending.
        ends: partition -> the offset behind the last one that was read.
        open: how many of those selected are there, and were not disposed of.
        read: how many were read.
        unmarked: how many of them, in a topic that is not ours, no header calls a dead letter.
    """

    offsets: dict[int, array[int]] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    open: int = 0
    read: int = 0
    unmarked: int = 0

    def __len__(self) -> int:
        return sum(map(len, self.offsets.values()))

    def refuse_unmarked(self, topic: str) -> None:
        """Refuse a topic that may be no dead-letter topic, such as a source topic.

        Raises:
            RedriveRefused: no header marks some of these as dead letters.
        """
        if self.unmarked:
            raise RedriveRefused(
                f"{topic} is no dead-letter topic of ackfloor, and {self.unmarked:,} of "
                f"{len(self):,} records have no header that any tool gives a dead letter; if it is "
                "one of another tool all the same, say --foreign"
            )


@dataclass(frozen=True, slots=True)
class DeadLetterSelection:
    """A cluster's dead letters, and the redaction for showing them."""

    options: KafkaOptions
    topics: DeadLetterTopics
    rules: Redaction

    @classmethod
    def open(cls, brokers: Brokers) -> DeadLetterSelection:
        """By the settings.

        Raises:
            ConfigError, KafkaUnreachable: a setting is refused, or no broker answers.
        """
        from ackfloor.dead_letters.kafka.dead_letter_topic import DeadLetterTopics

        rules, options = brokers.settings().redaction.rules(), brokers.options()
        return cls(options, DeadLetterTopics(options), rules)

    def dead_letters(
        self,
        places: Places,
        wanted: DeadLetterFilter,
        partition: int | None = None,
        scan_limit: int | None = None,
        *,
        noted: bool = False,
    ) -> Iterator[StoredDeadLetter]:
        """Those that match and exist, counted on a terminal as they are read.

        Args:
            partition: only of this one.
            scan_limit: how many are read, matching or not; a warning says where there are more.
            noted: with what was done with each.

        Raises:
            RedriveRefused: they can't be read, or one that is named is not there.
            KafkaUnreachable: no broker answers.
            typer.BadParameter: single dead letters are named, and a partition as well.
        """
        from ackfloor.dead_letters.kafka.parked_topics import not_there
        from ackfloor.dead_letters.kafka.record_reading import Gone

        misses = Misses(wanted)
        for number, each in enumerate(self._found(places, partition, noted=noted)):
            if number == scan_limit:
                text = (
                    f"stopped after {number:,} were read: raise --scan-limit, or name a --partition"
                )
                typer.secho(text, err=True)
                return
            if isinstance(each, Gone):
                raise not_there(places.topic, each)
            if misses.matches(each.dead_letter):
                yield each
        misses.tell()

    def tell_source(self, topic: str) -> None:
        """Say of a source topic that its records are no dead letters of ours, and where those are.

        Raises:
            KafkaUnreachable: no broker answers.
        """
        if names := sorted(self.topics.names_of_source(topic)):
            text = f"{topic} is a source topic; its dead letters are in {', '.join(names)}"
            typer.secho(text, fg="yellow", err=True)

    def of_record(
        self, topic: str, partition: int, offset: int, group: str | None = None
    ) -> list[StoredDeadLetter]:
        """The dead letters of a record of a source topic, the newest first.

        Disposed ones are among them: what was redriven may have been dead-lettered again. The
        record may be a dead letter of another tool that a handler of ours reads: without any of
        ours it is returned itself. None where no dead-letter topic of ours is of that source topic.

        Args:
            group: the consumer group whose dead-letter topics are meant; None for all.

        Raises:
            RedriveRefused: there is none, or a topic may not be read.
            KafkaUnreachable: no broker answers.
        """
        place = f"{topic}/{partition}/{offset}"
        owners = self.topics.names_of_source(topic)
        if not owners:
            return []
        names = [name for name, owner in owners.items() if group in {None, owner}]
        if not names:
            raise RedriveRefused(
                f"{topic} has no dead-letter topic of group {group!r}: of groups that have, "
                f"{there_are(group or '', owners.values())}"
            )
        found = [
            each
            for name in names
            for each in counted(self.topics.dead_letters(name, noted=True), name)
            if each.dead_letter.origin == place
        ] or self._of_another_tool(topic, partition, offset)
        if not found:
            raise RedriveRefused(
                f"{place} has no dead letter in {', '.join(names)}: it was not given up, or "
                f"retention has removed it; `ackfloor retry show {place}` looks for it in retry "
                "topics, `ackfloor inflight` and `ackfloor lanes ls` in runs"
            )
        return sorted(found, key=_newest_first)

    def _of_another_tool(self, topic: str, partition: int, offset: int) -> list[StoredDeadLetter]:
        """The record there, where it came from another topic and its headers say that it failed."""
        try:
            found = self.topics.dead_letter(topic, partition, offset)
        except RedriveRefused:  # not there
            return []
        dead_letter = found.dead_letter
        # What was redriven to its source has headers of ours as well.
        came_from = dead_letter.origin.rsplit("/", 2)[0]
        return [found] if dead_letter.says_it_failed and came_from != topic else []

    def choose(
        self,
        places: Places,
        wanted: DeadLetterFilter,
        ends: Mapping[int, int] | None = None,
        misses: Misses | None = None,
    ) -> Chosen:
        """The offsets of those that match, for a job.

        Disposed ones and named places that do not exist are included: the job says why it left
        each of them out.

        Args:
            ends: partition -> offset; what is at or behind it is left out.
            misses: of several topics; whoever gives it warns. None: a warning is about this one.

        Raises:
            RedriveRefused, KafkaUnreachable: they can't be read.
        """
        from ackfloor.dead_letters.kafka.record_reading import Gone

        chosen, missed = Chosen(), misses or Misses(wanted)
        ours = parse_topic(places.topic) is not None
        for each in self._found(places):
            dead_letter = each if isinstance(each, Gone) else each.dead_letter
            partition, offset = dead_letter.partition, dead_letter.offset
            if ends is not None and offset >= ends.get(partition, 0):
                continue
            chosen.read += 1
            chosen.ends[partition] = offset + 1
            if isinstance(dead_letter, Gone) or missed.matches(dead_letter):
                chosen.offsets.setdefault(partition, array("q")).append(offset)
                chosen.open += not (isinstance(each, Gone) or each.disposed)
                if not (ours or isinstance(dead_letter, Gone) or dead_letter.says_it_failed):
                    chosen.unmarked += 1
        if misses is None:
            missed.tell()
        return chosen

    def _found(
        self, places: Places, partition: int | None = None, *, noted: bool = False
    ) -> Iterator[StoredDeadLetter | Gone]:
        if places.only is not None and partition is not None:
            raise typer.BadParameter(
                "places name their partitions: leave it out", param_hint="--partition"
            )
        found: Iterable[StoredDeadLetter | Gone]
        if places.only is None:
            found = self.topics.dead_letters(places.topic, partition, noted=noted)
        else:
            found = self.topics.at(places.topic, places.only, noted=noted)
        return counted(found, places.topic)


def _newest_first(found: StoredDeadLetter) -> tuple[int, str, int, int]:
    dead_letter = found.dead_letter
    return -dead_letter.timestamp_ms, dead_letter.topic, dead_letter.partition, -dead_letter.offset


def tell_hidden(hidden: int) -> None:
    """Say how many were not shown because they are disposed of."""
    if hidden:
        typer.secho(f"{hidden:,} replayed, discarded or archived: not shown (--all)", err=True)
