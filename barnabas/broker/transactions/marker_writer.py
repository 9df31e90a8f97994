"""The writer of transaction markers into partitions that this broker leads."""

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.broker.cluster.topic_names import CONSUMER_OFFSETS, INTERNAL_TOPICS
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.coordinator.ports import Clock
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.control import TxnMarker
from barnabas.protocol.steps import Steps
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.storage.origin import Origin

if TYPE_CHECKING:
    from barnabas.coordinator.group.coordinator import GroupRuntime

NOTHING_OPEN: Final = ErrorCode.INVALID_TXN_STATE
"""The outcome of a marker whose epoch is older than the last one of its producer in the partition,
where the producer has no transaction open: there is nothing to end."""
Done = Callable[[ErrorCode], None]
Tell = Callable[[Done], None]
_COORDINATOR: Final = Origin.COORDINATOR
_log = get_logger(__name__)


class MarkerWrite(NamedTuple):
    """A marker to be written; `done` is called with the outcome, now or later, exactly once."""

    partition: TopicPartition
    marker: TxnMarker
    done: Done


class MarkerWriter:
    """The writer of markers. A marker is done once it is committed and, for groups, replayed."""

    def __init__(self, replicas: ReplicaManager, groups: "GroupRuntime", clock: Clock) -> None:
        self._replicas = replicas
        self._groups = groups
        self._clock = clock

    def write(self, writes: Iterable[MarkerWrite]) -> Steps[None]:
        """Write markers in steps.

        The first append follows the last step in which a marker of `writes` is taken.
        """
        taken = []
        for each in writes:
            taken.append(each)
            yield None
        for each in taken:
            self._write(each)
            yield None

    def put(self, place: TopicPartition, marker: TxnMarker, now_ms: int) -> bool:
        """Write a marker into a partition of this broker; return whether it is committed.

        False, with nothing changed, where the marker waits for others or is refused, and for the
        offsets of groups.
        """
        partition = self._replicas.find(place)
        if (
            partition is None
            or not partition.standing.commits_at_once
            or place[0] in INTERNAL_TOPICS
        ):
            return False
        batch, header = marker.packed(now_ms)
        try:
            partition.append(batch, now_ms, header, None, _COORDINATOR, marker)
        except KafkaError:
            return False
        except Exception as fault:
            _log.error("marker not written", topic=place[0], partition=place[1], exc_info=fault)
            return False
        return True

    def write_led(self, write: MarkerWrite) -> bool:
        """Write a marker in this call, if this broker leads its partition; return whether it
        does."""
        partition = self._replicas.find(write.partition)
        if partition is None or not partition.is_leader:
            return False
        self._write(write)
        return True

    def accepts(self, markers: Collection[tuple[TopicPartition, TxnMarker]], now_ms: int) -> bool:
        """Return whether `put` certainly writes each of several markers."""
        asked = set()
        for place, marker in markers:
            partition = self._replicas.find(place)
            if (
                partition is None
                or not partition.is_leader
                or not partition.standing.commits_at_once
                or partition.is_under_min_isr
                or partition.log.log_dir.failure is not None
                or place[0] in INTERNAL_TOPICS
            ):
                return False
            log, (batch, header) = partition.log, marker.packed(now_ms)
            asked.add((place, marker.producer_id))
            batches, end = [(0, header)], log.log_end_offset
            try:
                log.producers.prepare(batch, batches, _COORDINATOR, end, None, marker)
            except KafkaError:
                return False
        # The second of two markers would meet what the first one has left.
        return len(asked) == len(markers)

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

    def _write(self, write: MarkerWrite) -> None:
        (topic, index), marker, done = write
        try:
            if marker.producer_id < 0 or marker.transaction_version < 0:
                raise KafkaError(ErrorCode.INVALID_REQUEST)
            to_group = topic == CONSUMER_OFFSETS
            tell = (self._write_to_group if to_group else self._append)(topic, index, marker)
        except KafkaError as error:
            done(self._outcome_of(error, write))
        except Exception as fault:
            # One failure must not cost the caller the other markers.
            _log.error("marker not written", topic=topic, partition=index, exc_info=fault)
            done(ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            tell(done)

    def _outcome_of(self, error: KafkaError, write: MarkerWrite) -> ErrorCode:
        """Return the outcome of a refused marker; no older epoch can open a transaction again."""
        partition = self._replicas.find(write.partition)
        if error.code is not ErrorCode.INVALID_PRODUCER_EPOCH or partition is None:
            return error.code
        last = partition.log.producers.entry(write.marker.producer_id)
        is_open = last is None or last.current_txn_first_offset is not None
        return error.code if is_open else NOTHING_OPEN

    def _append(self, topic: str, index: int, marker: TxnMarker) -> Tell:
        if topic in INTERNAL_TOPICS:
            # No transaction writes here: a coordinator could not load a log with markers.
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        partition = self._replicas.partition(topic, index)
        now_ms = self._clock.now_ms()
        batch, header = marker.packed(now_ms)
        appended = partition.append(batch, now_ms, header, None, _COORDINATOR, marker)
        return lambda done: partition.add_waiter(
            appended.last_offset + 1,
            lambda error: done(ErrorCode.NONE if error is None else error.code),
        )

    def _write_to_group(self, topic: str, index: int, marker: TxnMarker) -> Tell:
        # An unknown partition is UNKNOWN_TOPIC_OR_PARTITION, not NOT_COORDINATOR.
        self._replicas.partition(topic, index)
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
