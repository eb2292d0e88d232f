"""RedriveJob: redrives dead letters, each exactly once in effect.

A transaction holds new records, their dispositions and the note of the job, so a dead letter is
either both sent and noted or neither, and the job's own figures are exact. The transactional id
belongs to the dead-letter topic (and so to one group), not to the job. It follows that one job is
active at a time, and that a job need not remember anything:

1. `take` the id. The job that had it is fenced, and its open transaction is ended.
2. Read the dispositions to their end. No other job can add any now, so they are complete.
3. Send what has none, a batch in a transaction.
4. Where a transaction failed or its end is not known: from 1, with what is left of the batch.

A job that was killed is therefore resumed by asking for the same again. One whose order has an edit
that nobody else has writes that first, with its note, and deletes it in the transaction that sends
its dead letter. One whose selection nobody else could make again writes that first, and deletes it
with its last note. Two jobs at once: the younger one fences the older one, which reports that and
ends. To avoid it, check `active` first.

Discarding and archiving are the same job, in which nothing is sent: dispositions alone are written.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from itertools import islice

from ackfloor.core.values.setting_error import SettingError
from ackfloor.dead_letters.kafka.disposition_reading import DispositionsLog
from ackfloor.dead_letters.kafka.record_reading import DeadLetterReader, Gone
from ackfloor.dead_letters.kafka.redrive_notes import (
    JobSign,
    now_ms,
    state_of,
    who_ended,
    with_earlier_runs,
)
from ackfloor.dead_letters.kafka.redrive_topics import RedriveTopics
from ackfloor.dead_letters.kafka.redrive_writer import (
    NewRecord,
    RedriveWriter,
    Superseded,
    TooLarge,
    Unwritten,
)
from ackfloor.dead_letters.rules.dispositions import Disposed, DispositionNote, disposition_key
from ackfloor.dead_letters.rules.kept_edits import KeptEdit, edit_key, gone_text, why_not
from ackfloor.dead_letters.rules.kept_selections import (
    Parts,
    missing_text,
    part_bytes,
    part_key,
    parts_of,
    selection_of,
)
from ackfloor.dead_letters.rules.record_size import Fit
from ackfloor.dead_letters.rules.redrive_edit import Edit, edited, unedited, with_kept
from ackfloor.dead_letters.rules.redrive_jobs import JobNote, JobState
from ackfloor.dead_letters.rules.redrive_rules import (
    DeadLetter,
    Left,
    Order,
    Wanted,
    in_order,
    redriven_fit,
    redriven_headers,
    target_partition,
    why_left,
)
from ackfloor.dead_letters.rules.redrive_tally import Preview, Tally
from ackfloor.errors import AckfloorError, KafkaUnreachable, RedriveRefused
from ackfloor.kafka.client.client_options import KafkaOptions

#: Most records of one transaction, and most bytes.
BATCH = 500
BATCH_BYTES = 8 * 1024 * 1024
#: How long a job goes on trying when nothing can be written.
PATIENCE_S = 60.0
PAUSE_S = 0.2
#: Stores dead letters (an archive) before they are disposed of.
Keep = Callable[[Sequence[DeadLetter]], None]


class RedriveJob:
    """One order, carried out.

    Raises:
        RedriveRefused: a topic is missing or may not be used.
        KafkaUnreachable: no broker answers.
        ConfigError: a client property is refused.
    """

    def __init__(self, options: KafkaOptions, order: Order) -> None:
        self.order = order
        self.topics = RedriveTopics.find(options, order)
        self._options = options
        self._disposed = Disposed(self.topics.dlq_id)
        limit = self.topics.target.limits.batch if order.sends else None
        self._writer = RedriveWriter(options, f"ackfloor-redrive-{order.dlq}", limit)
        self._log: DispositionsLog | None = None
        self._tally = Tally()
        self._next_at_s = 0.0
        self._sign: JobSign | None = None
        self._has_noted = False
        #: Places of kept edits whose dead letters are not in the topic any more.
        self._gone: set[tuple[int, int]] = set()
        #: Of the selection that it keeps, where this run has written it.
        self._parts: Parts = {}

    @property
    def is_noted(self) -> bool:
        """Whether a note of it is there, by which it can be resumed."""
        return self._has_noted or self.order.resumes

    def active(self) -> JobNote | None:
        """Another job that runs on the same dead-letter topic, as far as is known.

        Raises:
            RedriveRefused, KafkaUnreachable: see the class.
        """
        self._look()
        others = (each for each in self.jobs() if each.job != self.order.job)
        return next((each for each in others if state_of(each) is JobState.RUNNING), None)

    def jobs(self) -> list[JobNote]:
        """The notes that were read so far, latest job first."""
        return self._disposed.jobs.latest_first()

    def kept_edit(self) -> KeptEdit:
        """The edit that this job, which ran before, keeps in the topic.

        Raises:
            RedriveRefused: it keeps none any more.
            KafkaUnreachable: see the class.
        """
        self._look()
        for each in self._disposed.edits.values():
            if each.job == self.order.job:
                return each
        raise RedriveRefused(gone_text(self.order.job))

    def kept_selection(self) -> Wanted:
        """What this job, which ran before, was to work on, as it keeps it in the topic.

        Raises:
            RedriveRefused: it keeps none any more.
            KafkaUnreachable: see the class.
        """
        self._look()
        found = selection_of(self._disposed.selections.get(self.order.job, {}))
        if found is None:
            raise RedriveRefused(missing_text(self.order.job))
        return found

    def _look(self) -> None:
        """Read the dispositions as they are; others may add to them."""
        if count := self.topics.dispositions_partitions:
            self._log_of(count).read_on(self._disposed)

    def _log_of(self, partitions: int) -> DispositionsLog:
        if self._log is None:
            self._log = DispositionsLog(self._options, self.topics.dispositions, partitions)
        return self._log

    def preview(self, wanted: Wanted, *, edit: Edit = unedited) -> Preview:
        """Read everything, write nothing; a job that is active is not disturbed.

        Raises:
            RedriveRefused, KafkaUnreachable: see the class; or an edit is refused.
        """
        self._look()
        preview = Preview(self.topics.target)
        self._tally = Tally()
        dead_letters = self._dead_letters(self._undone(wanted))
        fitting = self._fitting(self._sendable(dead_letters), edit)
        for before, after, fit in islice(fitting, self.order.limit):
            preview.add(before, after, fit)
            self._tally = self._tally.send(1)
        preview.tally = self._tally
        return preview

    def run(
        self,
        wanted: Wanted,
        *,
        progress: Callable[[Tally], None] = lambda _tally: None,
        stopping: Callable[[], bool] = lambda: False,
        keep: Keep = lambda _dead_letters: None,
        edit: Edit = unedited,
    ) -> Tally:
        """Send what has no disposition yet; returns how far it came, however it ended.

        Args:
            wanted: partition -> ascending offsets.
            progress: told after each transaction.
            stopping: asked between transactions.
            keep: given each batch before it is disposed of; may get one again.
            edit: given each dead letter, returns it as it is to be sent; the order's kept edit
                counts more.
        """
        self._tally = Tally()
        try:
            self._log_of(self.topics.create_dispositions(self._options))
            self._begin()
            # Somebody may have read for long what would be done.
            self.topics.refuse_another(self._options)
            self.order = with_earlier_runs(self.order, self._disposed.jobs)
            undone = self._undone(wanted)
            self._sign = self._new_sign(self._progress(wanted).remaining)
            self._refuse_another_edit()
            self._keep_edit()
            self._keep_selection(wanted)
            fitting = self._fitting(self._sendable(self._dead_letters(undone)), edit)
            for batch in self._batches(after for _, after, _ in fitting):
                self._keep_to_rate(len(batch), stopping)
                if stopping():
                    self._tally = replace(self._tally, stopped="it was told to stop")
                    break
                keep(batch)
                self._send(batch)
                progress(self._progress(wanted))
        except Superseded as exc:
            assert self._log is not None
            why = who_ended(self._log, self._disposed, self._sign) or str(exc)
            self._tally = replace(self._tally, stopped=why)
        except AckfloorError as exc:
            self._tally = replace(self._tally, stopped=str(exc))
        except BaseException as exc:
            self._tally = replace(self._tally, stopped=f"{type(exc).__name__}")
            raise
        finally:
            self._sign_off()
            self._writer.discard()
        return self._progress(wanted)

    def _progress(self, wanted: Wanted) -> Tally:
        """The tally, with what remains."""
        return self._tally.of(sum(map(len, wanted.values())), self.order.limit)

    def _undone(self, wanted: Wanted) -> dict[int, array[int]]:
        """Those asked for that have no disposition."""
        left = {}
        for partition, offsets in wanted.items():
            hides = self._disposed.hides
            left[partition] = array("q", (o for o in offsets if not hides(partition, o)))
            if hidden := len(offsets) - len(left[partition]):
                self._tally = self._tally.leave(Left.DISPOSED, hidden)
        return left

    def _dead_letters(self, left: dict[int, array[int]]) -> Iterator[DeadLetter | Gone]:
        """These dead letters, from Kafka."""
        with closing(DeadLetterReader(self._options, self.order.dlq)) as reader:
            for partition in [p for p in left if p >= self.topics.dlq_partitions]:
                yield from (Gone(partition, offset) for offset in left.pop(partition))
            yield from reader.read(left)

    def _sendable(self, dead_letters: Iterable[DeadLetter | Gone]) -> Iterator[DeadLetter]:
        for dead_letter in dead_letters:
            if isinstance(dead_letter, Gone):
                self._tally = self._tally.leave(Left.GONE)
                if dead_letter in self._disposed.edits:
                    self._gone.add(dead_letter)
            elif (why := why_left(dead_letter, self.order, self._disposed)) is not None:
                self._tally = self._tally.leave(why)
            else:
                yield dead_letter

    def _fitting(
        self, dead_letters: Iterable[DeadLetter], edit: Edit
    ) -> Iterator[tuple[DeadLetter, DeadLetter, Fit]]:
        """Those that may fit the target: as they are, as they are sent, and whether they fit."""
        for before in dead_letters:
            after = self._edited(before, edit)
            fit = redriven_fit(after, self.topics.target) if self.order.sends else Fit.YES
            if fit is Fit.NO:
                self._tally = self._tally.leave(Left.TOO_LARGE)
            else:
                yield before, after, fit

    def _batches(self, dead_letters: Iterator[DeadLetter]) -> Iterator[list[DeadLetter]]:
        batch: list[DeadLetter] = []
        size = 0
        chosen: Iterable[DeadLetter] = islice(dead_letters, self.order.limit)
        for dead_letter in in_order(chosen) if self.order.sends else chosen:
            if self.order.sends and redriven_fit(dead_letter, self.topics.target) is not Fit.YES:
                # Alone: a broker refuses a batch as a whole.
                yield from (each for each in (batch, [dead_letter]) if each)
                batch, size = [], 0
                continue
            batch.append(dead_letter)
            size += dead_letter.size
            if len(batch) >= self._most or size >= BATCH_BYTES:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    @property
    def _most(self) -> int:
        """The records of one transaction."""
        # Two transactions a second, so that a slow rate is even.
        rate = self.order.rate_per_s
        return BATCH if rate is None else max(1, min(BATCH, int(rate / 2)))

    def _keep_to_rate(self, count: int, stopping: Callable[[], bool]) -> None:
        if self.order.rate_per_s is not None:
            while not stopping() and (wait_s := self._next_at_s - time.monotonic()) > 0:
                time.sleep(min(wait_s, PAUSE_S))
            self._next_at_s = max(self._next_at_s, time.monotonic()) + count / self.order.rate_per_s

    def _send(self, batch: list[DeadLetter]) -> None:
        """Write a batch, with retries; a record too large for its topic is left out."""
        assert self._sign is not None
        left, until_s = batch, time.monotonic() + PATIENCE_S
        while left:
            try:
                records = [record for each in left for record in self._records(each)]
                done = self._tally.sent + len(left)
                self._writer.write([*records, self._sign.record(JobState.RUNNING, done)])
                self._has_noted = True
                break
            except TooLarge:
                left = self._open_again(left)
                if not left:
                    return
                if len(left) == 1:
                    self._tally = self._tally.leave(Left.TOO_LARGE)
                    return
                # Its limit is not known, or was lowered just now. The broker refuses a batch as a
                # whole, and does not say for which record.
                half = len(left) // 2
                self._send(left[:half])
                self._send(left[half:])
                return
            except Unwritten as exc:
                if time.monotonic() >= until_s:
                    raise _given_up(exc) from exc
                left = self._open_again(left)
        self._tally = self._tally.send(len(batch))

    def _open_again(self, batch: list[DeadLetter]) -> list[DeadLetter]:
        """Those of a batch that nobody has disposed of, once the id is taken again.

        While it was free another job may have had it.
        """
        self._begin()
        hides = self._disposed.hides
        return [each for each in batch if not hides(each.partition, each.offset)]

    def _begin(self) -> None:
        """Take the id, and read what has been done."""
        assert self._log is not None
        until_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                self._writer.take()
                break
            except Unwritten as exc:
                if time.monotonic() >= until_s:
                    raise _given_up(exc) from exc
                time.sleep(PAUSE_S)
        self._log.read_on(self._disposed)
        if self._sign is not None and (why := self._sign.ended_by(self._disposed.jobs)):
            raise AckfloorError(why)
        self._refuse_another_edit()

    def _refuse_another_edit(self) -> None:
        """Raises RedriveRefused where the order's edit is not the one to send."""
        kept, sign = self.order.kept, self._sign
        if kept is None or sign is None or self._disposed.hides(kept.partition, kept.offset):
            return
        there = self._disposed.edits.get((kept.partition, kept.offset))
        if why := why_not(kept, there, resumes=sign.earlier is not None):
            raise RedriveRefused(why)

    def _keep_edit(self) -> None:
        """Write the order's edit and the job's note, for whoever resumes it."""
        kept = self.order.kept
        if kept is None:
            return

        def records() -> list[NewRecord]:
            if self._disposed.hides(kept.partition, kept.offset):
                return []
            return [self._noted(kept.partition, kept.key, kept.to_bytes())]

        self._write_first(records, "this edit")

    def _keep_selection(self, wanted: Wanted) -> None:
        """Write what the job is about and its note, for whoever resumes it."""
        if self.order.keeps_selection:
            self._parts = parts = parts_of(wanted, self.topics.dlq_id)
            records = [
                self._noted(place.partition, part_key(self.order.job, place), part_bytes(part))
                for place, part in parts.items()
            ]
            self._write_first(lambda: records, "a part of this selection")

    def _write_first(self, records: Callable[[], list[NewRecord]], what: str) -> None:
        """Write what the job keeps, and its note, before anything is sent.

        Args:
            records: what is to be written, asked each time; nothing where it is of no use any more.
        """
        until_s = time.monotonic() + PATIENCE_S
        while kept := records():
            assert self._sign is not None
            try:
                self._writer.write([*kept, self._sign.record(JobState.RUNNING, 0)])
                self._has_noted = True
                return
            except TooLarge as exc:
                raise RedriveRefused(
                    f"{self.topics.dispositions} allows no record as large as {what}; raise its "
                    f"max.message.bytes ({exc})"
                ) from exc
            except Unwritten as exc:
                if time.monotonic() >= until_s:
                    raise _given_up(exc) from exc
                self._begin()

    def _edited(self, dead_letter: DeadLetter, edit: Edit) -> DeadLetter:
        order, by, at_ms = self.order, self.order.by, now_ms()
        if order.kept is not None:
            edit, by, at_ms = with_kept(order.kept), order.kept.by, order.kept.at_ms
        try:
            return edited(dead_letter, edit, by, at_ms)
        except SettingError as exc:
            raise RedriveRefused(f"the edit of {exc.value}: {exc.why}; {exc.fix}") from exc

    def _noted(self, partition: int, key: bytes, value: bytes | None) -> NewRecord:
        """A record of the dispositions topic about dead letters of a partition."""
        count = self.topics.dispositions_partitions or self.topics.dlq_partitions
        return NewRecord(self.topics.dispositions, partition % count, key, value)

    def _forgotten(self, partition: int, offset: int) -> list[NewRecord]:
        """What deletes the edit of a dead letter; nothing where none is kept."""
        kept = self.order.kept
        own = kept is not None and (kept.partition, kept.offset) == (partition, offset)
        if not own and (partition, offset) not in self._disposed.edits:
            return []
        return [self._noted(partition, edit_key(partition, offset), None)]

    def _records(self, dead_letter: DeadLetter) -> list[NewRecord]:
        """A dead letter's disposition, and the new record where it is sent."""
        topics, at_ms, target = self.topics, now_ms(), self.topics.target
        note = DispositionNote(
            self.order.action, at_ms, self.order.by, self.order.job, target.topic, topics.dlq_id
        )
        at = dead_letter.partition, dead_letter.offset
        noted = [self._noted(at[0], disposition_key(*at), note.to_bytes()), *self._forgotten(*at)]
        if not self.order.sends:
            return noted
        place = target_partition(dead_letter, target)
        headers = redriven_headers(dead_letter, at_ms)
        return [NewRecord(target.topic, place, dead_letter.key, dead_letter.value, headers), *noted]

    def _new_sign(self, to_do: int) -> JobSign:
        order = self.order
        pause_s = 0.0 if order.rate_per_s is None else self._most / order.rate_per_s
        earlier = self._disposed.jobs.notes.get(order.job)
        return JobSign(order, self.topics, earlier, to_do, pause_s)

    def _sign_off(self) -> None:
        """Write how the job ended; where that fails, the job shows as silent."""
        sign, tally = self._sign, self._tally
        keeps = self.order.kept is not None or self.order.keeps_selection
        if sign is None or not self._writer.ready:
            return
        state = JobState.STOPPED if tally.stopped else JobState.DONE
        last = [self._noted(at[0], edit_key(*at), None) for at in self._useless_edits(state)]
        if state is JobState.DONE:
            last += self._useless_selection()
        if tally.sent or sign.earlier or keeps:
            last.append(sign.record(state, tally.sent, tally.stopped))
        with suppress(AckfloorError, TooLarge, Unwritten):
            if last:
                self._writer.write(last)

    def _useless_edits(self, state: JobState) -> set[tuple[int, int]]:
        """The places of kept edits that nobody can send any more."""
        hides, kept = self._disposed.hides, self.order.kept
        found = {at for at in self._disposed.edits if at in self._gone or hides(*at)}
        if kept is not None and state is JobState.DONE and not self._tally.sent:
            # Its dead letter can't be sent, or is gone.
            found.add((kept.partition, kept.offset))
        return found

    def _useless_selection(self) -> list[NewRecord]:
        """What deletes the selection of a job that has done all of it."""
        job = self.order.job
        places = {*self._parts, *self._disposed.selections.get(job, ())}
        return [self._noted(at.partition, part_key(job, at), None) for at in places]


def _given_up(exc: Unwritten) -> KafkaUnreachable:
    return KafkaUnreachable(
        f"nothing could be written for {PATIENCE_S:g} s ({exc}); run it again to go on"
    )
