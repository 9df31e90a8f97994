"""The writer of transaction markers into partitions that this broker leads."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

from barnabas.broker.clock import Clock
from barnabas.broker.cluster.topic_names import CONSUMER_OFFSETS, INTERNAL_TOPICS
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.coordinator.group.coordinator import GroupRuntime
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.control import TxnMarker
from barnabas.protocol.steps import Steps
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.storage.log.validator import Origin

NOTHING_OPEN: Final = ErrorCode.INVALID_TXN_STATE
"""The outcome of a marker whose epoch is older than the last one of its producer in the partition,
where the producer has no transaction open: there is nothing to end."""
MARKERS_PER_APPEND: Final = 64
"""The number of markers that one append writes into a partition: about a millisecond."""
Done = Callable[[ErrorCode], None]
Tell = Callable[[Done], None]
_log = get_logger(__name__)


class MarkerWrite(NamedTuple):
    """A marker to be written; `done` is called with the outcome, now or later, exactly once."""

    partition: TopicPartition
    marker: TxnMarker
    done: Done


class MarkerWriter:
    """The writer of markers. A marker is done once it is committed and, for groups, replayed."""

    def __init__(self, replicas: ReplicaManager, groups: GroupRuntime, clock: Clock) -> None:
        self._replicas = replicas
        self._groups = groups
        self._clock = clock

    def write(self, writes: Iterable[MarkerWrite]) -> Steps[None]:
        """Write markers in steps; those of one partition share their appends.

        The first append follows the last step in which a marker of `writes` is taken.
        """
        if isinstance(writes, list) and len(writes) == 1:
            yield None
            to_group = writes[0].partition[0] == CONSUMER_OFFSETS
            self._try(writes, self._write_to_group if to_group else self._append)
            return
        together: defaultdict[tuple[TopicPartition, int], list[MarkerWrite]] = defaultdict(list)
        for each in writes:
            together[each.partition, each.marker.transaction_version].append(each)
            yield None
        for ((topic, _), _), some in together.items():
            if topic == CONSUMER_OFFSETS:
                for each in some:
                    self._try([each], self._write_to_group)
                    yield None
            else:
                for start in range(0, len(some), MARKERS_PER_APPEND):
                    self._try(some[start : start + MARKERS_PER_APPEND], self._append)
                    yield None

    def accepts(self, writes: Collection[MarkerWrite]) -> bool:
        """Return whether `write` certainly writes each of these markers and calls `done` with NONE
        before it returns. Of a single marker only the log knows whether it is fenced: a refusal
        changes nothing."""
        asked = set()
        for place, marker, _ in writes:
            partition = self._replicas.find(place)
            if (
                partition is None
                or not partition.is_leader
                or not partition.commits_at_once
                or partition.is_under_min_isr
                or partition.log.log_dir.failure is not None
                or place[0] in INTERNAL_TOPICS
                or marker.producer_id < 0
                or marker.transaction_version < 0
            ):
                return False
            if len(writes) > 1:
                log = partition.log
                asked.add((place, marker.producer_id))
                try:
                    log.producers.prepare_marker(marker, log.log_end_offset, self._clock.now_ms())
                except KafkaError:
                    return False
        # The second of two markers would meet what the first one has left.
        return len(writes) == 1 or len(asked) == len(writes)

    def would_fence(self, place: TopicPartition, marker: TxnMarker) -> bool:
        """Return whether a marker would fence its producer or the coordinator: one of its epochs is
        above the last one that the partition, if it is led here, knows.

        Every producer begins with epoch 0 of both.
        """
        partition = self._replicas.find(place)
        if partition is None or not partition.is_leader:
            return False
        last = partition.log.producers.entry(marker.producer_id)
        epoch, coordinator = (
            (0, 0) if last is None else (last.producer_epoch, last.coordinator_epoch)
        )
        return marker.producer_epoch > epoch or marker.coordinator_epoch > max(coordinator, 0)

    def _try(self, writes: list[MarkerWrite], write: Callable[[list[MarkerWrite]], Tell]) -> None:
        try:
            for _, marker, _ in writes:
                if marker.producer_id < 0 or marker.transaction_version < 0:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
            tell = write(writes)
        except KafkaError as error:
            if len(writes) > 1:
                # The partition refuses one of them, maybe, and takes the others.
                for each in writes:
                    self._try([each], write)
            else:
                writes[0].done(self._outcome_of(error, writes[0]))
        except Exception as fault:
            # One failure must not cost the caller the other markers.
            topic, index = writes[0].partition
            _log.error("marker not written", topic=topic, partition=index, exc_info=fault)
            for each in writes:
                each.done(ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            for each in writes:
                tell(each.done)

    def _outcome_of(self, error: KafkaError, write: MarkerWrite) -> ErrorCode:
        """Return the outcome of a refused marker; no older epoch can open a transaction again."""
        partition = self._replicas.find(write.partition)
        if error.code is not ErrorCode.INVALID_PRODUCER_EPOCH or partition is None:
            return error.code
        last = partition.log.producers.entry(write.marker.producer_id)
        is_open = last is None or last.current_txn_first_offset is not None
        return error.code if is_open else NOTHING_OPEN

    def _append(self, writes: list[MarkerWrite]) -> Tell:
        (topic, index), marker, _ = writes[0]
        if topic in INTERNAL_TOPICS:
            # No transaction writes here: a coordinator could not load a log with markers.
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        partition = self._replicas.partition(topic, index)
        now_ms, batches = self._clock.now_ms(), bytearray()
        for each in writes:
            batches += each.marker.batch(now_ms)
        last_offset = partition.append(
            batches,
            now_ms=now_ms,
            origin=Origin.COORDINATOR,
            transaction_version=marker.transaction_version,
        ).last_offset
        return lambda done: partition.add_waiter(
            last_offset + 1,
            lambda error: done(ErrorCode.NONE if error is None else error.code),
        )

    def _write_to_group(self, writes: list[MarkerWrite]) -> Tell:
        (_, index), marker, _ = writes[0]
        # An unknown partition is UNKNOWN_TOPIC_OR_PARTITION, not NOT_COORDINATOR.
        self._replicas.partition(CONSUMER_OFFSETS, index)
        answer = self._groups.write_marker(index, marker)
        if answer is None:
            return _committed
        return lambda done: answer.add_done_callback(lambda future: done(_outcome(future)))


def _committed(done: Done) -> None:
    done(ErrorCode.NONE)


def _outcome(future: "asyncio.Future[None]") -> ErrorCode:
    if future.cancelled():
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    error = future.exception()
    if error is None:
        return ErrorCode.NONE
    return error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
