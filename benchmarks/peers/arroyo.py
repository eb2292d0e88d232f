"""sentry-arroyo: a processor of one step and CommitOffsets, committing once a second.

RunTask where the function is quick, RunTaskInThreads where it waits, RunTaskWithMultiprocessing
where it computes.
"""

from __future__ import annotations

from collections.abc import Mapping

from arroyo import Topic
from arroyo.backends.kafka import KafkaConsumer, KafkaPayload
from arroyo.backends.kafka.configuration import build_kafka_consumer_configuration
from arroyo.processing import StreamProcessor
from arroyo.processing.strategies import (
    CommitOffsets,
    ProcessingStrategy,
    ProcessingStrategyFactory,
    RunTask,
    RunTaskInThreads,
    RunTaskWithMultiprocessing,
)
from arroyo.processing.strategies.run_task_with_multiprocessing import MultiprocessingPool
from arroyo.types import Commit, Message, Partition

from benchmarks.peers.work import PROCESSES, THREADS, Work, spin


def compute(message: Message[KafkaPayload]) -> None:
    """The CPU case's function, which child processes import."""
    spin(message.payload.value)


class Steps(ProcessingStrategyFactory[KafkaPayload]):
    """The steps of a case."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._handle = work.handler()
        self._pool = MultiprocessingPool(PROCESSES) if work.body == "cpu" else None

    def create_with_partitions(
        self, commit: Commit, partitions: Mapping[Partition, int]
    ) -> ProcessingStrategy[KafkaPayload]:
        """Called when partitions are assigned."""
        last = CommitOffsets(commit)
        if self._pool is not None:
            return RunTaskWithMultiprocessing(
                compute,
                RunTask(self._count, last),
                max_batch_size=100,
                max_batch_time=0.1,
                pool=self._pool,
            )
        if self._work.body == "blocking":
            return RunTaskInThreads(self._call, THREADS, 10 * THREADS, last)
        return RunTask(self._call, last)

    def _call(self, message: Message[KafkaPayload]) -> None:
        self._handle(message.payload.value)

    def _count(self, message: Message[None]) -> None:
        self._work.done()


def main() -> None:
    """Run the processor until killed."""
    work = Work()
    consumer = KafkaConsumer(
        build_kafka_consumer_configuration(
            {"bootstrap.servers": work.servers}, work.group, auto_offset_reset="earliest"
        )
    )
    StreamProcessor(consumer, Topic(work.topic), Steps(work)).run()


if __name__ == "__main__":
    main()
