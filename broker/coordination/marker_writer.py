"""Writes transaction markers into partitions that this broker leads."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from barnabas.broker.clock import Clock
from barnabas.broker.metadata.topic_names import CONSUMER_OFFSETS, INTERNAL_TOPICS
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.coordinator.group.shard import GroupShard
from barnabas.coordinator.runtime import CoordinatorRuntime
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.control import ControlType, Marker, build_marker
from barnabas.storage.validator import Origin

Done = Callable[[ErrorCode], None]
_log = get_logger(__name__)


class TxnMarker(NamedTuple):
    """The end of one producer's transaction, as its coordinator of this epoch decided it."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool
    transaction_version: int


class MarkerWriter:
    """Appends markers; each is reported when it is committed and, for groups, can be seen."""

    def __init__(
        self, replicas: ReplicaManager, groups: CoordinatorRuntime[GroupShard], clock: Clock
    ) -> None:
        self._replicas = replicas
        self._groups = groups
        self._clock = clock

    def write(self, topic: str, index: int, marker: TxnMarker, done: Done) -> None:
        """Write one marker. `done` is told the outcome, now or later, exactly once."""
        try:
            if marker.producer_id < 0 or marker.transaction_version < 0:
                raise KafkaError(ErrorCode.INVALID_REQUEST)
            if topic == CONSUMER_OFFSETS:
                tell = self._write_to_group(index, marker)
            else:
                tell = self._append(topic, index, marker)
        except KafkaError as error:
            done(error.code)
        except Exception as fault:
            # One marker's fault must not cost the caller the others that are due with it.
            _log.error("marker not written", topic=topic, partition=index, exc_info=fault)
            done(ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            tell(done)

    def _append(self, topic: str, index: int, marker: TxnMarker) -> Callable[[Done], None]:
        if topic in INTERNAL_TOPICS:
            # No transaction writes there; its coordinator would find a log it cannot explain.
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        partition = self._replicas.partition(topic, index)
        now_ms = self._clock.now_ms()
        kind = ControlType.COMMIT if marker.committed else ControlType.ABORT
        batch = build_marker(
            Marker(kind, marker.coordinator_epoch),
            offset=0,
            timestamp=now_ms,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
        )
        appended = partition.append_as_leader(
            bytearray(batch),
            now_ms=now_ms,
            origin=Origin.COORDINATOR,
            transaction_version=marker.transaction_version,
        )
        return lambda done: partition.add_waiter(
            appended.last_offset + 1,
            lambda error: done(ErrorCode.NONE if error is None else error.code),
        )

    def _write_to_group(self, index: int, marker: TxnMarker) -> Callable[[Done], None]:
        # A partition that there is not has no coordinator either, but that is not the reason.
        self._replicas.partition(CONSUMER_OFFSETS, index)
        answer = self._groups.write_marker(
            index,
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            marker.committed,
            marker.transaction_version,
        )
        if answer is None:
            return lambda done: done(ErrorCode.NONE)
        return lambda done: answer.add_done_callback(lambda future: done(_outcome(future)))


def _outcome(future: "asyncio.Future[None]") -> ErrorCode:
    if future.cancelled():
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    error = future.exception()
    if error is None:
        return ErrorCode.NONE
    return error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
