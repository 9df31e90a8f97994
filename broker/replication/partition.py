"""One replica of a partition on this broker: its leadership, its in-sync set and who waits for it.

The log holds the bytes; the partition decides what may be appended, what is committed and who
must be told. All of it happens on the event loop, between awaits.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from barnabas.broker.replication.isr import committed_end, effective_min_isr
from barnabas.broker.replication.purgatory import OffsetWaiters, Waiter
from barnabas.broker.replication.topic_cells import TopicCells
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState
from barnabas.storage.log import Log
from barnabas.storage.log_parts import Appended
from barnabas.storage.validator import Origin, Validated
from barnabas.storage.verification import Guard

if TYPE_CHECKING:
    from barnabas.broker.replication.append_queue import Append

NO_LEADER = -1
NO_EPOCH = -1
ACKS_ALL = -1
HIGH_WATERMARK = -1
"""Asked for as an offset in DeleteRecords: everything that is committed."""


class Reader(Protocol):
    """A parked Fetch."""

    def woken(self) -> None:
        """Something of a partition it reads has changed."""
        ...


class Partition:
    """A replica of one partition. Leadership comes from the controller, never from here."""

    __slots__ = (
        "_broker_id",
        "_flush_messages",
        "_follower_ends",
        "_min_isr",
        "_request_flush",
        "_sole",
        "appends",
        "cells",
        "committed",
        "flushed",
        "flushes_first",
        "index",
        "is_leader",
        "isr",
        "leader_epoch",
        "leader_id",
        "log",
        "partition_epoch",
        "readers",
        "replicas",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        log: Log,
        broker_id: int,
        cells: TopicCells,
        request_flush: Callable[["Partition"], None],
    ) -> None:
        self.log = log
        self.cells = cells
        self.topic = log.topic
        self.index = log.partition
        self.topic_id = log.topic_id
        self._broker_id = broker_id
        self._request_flush = request_flush
        self.leader_id = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = NO_EPOCH
        self.is_leader = False
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.committed = OffsetWaiters()
        self.flushed = OffsetWaiters()
        self.readers: set[Reader] = set()
        self._follower_ends: dict[int, int] = {}
        self._sole = False
        self.appends: deque[Append] = deque()
        """Appends that have to wait, oldest first; every later one waits behind them."""
        self.flushes_first = False
        """Whether an acknowledgement waits for the fsync (`flush.messages=1`)."""
        self.config_changed()

    # -- leadership ------------------------------------------------------------------------------

    def apply(self, state: LeaderAndIsrPartitionState) -> bool:
        """Take over what the controller decided; True where leadership of this broker changed.

        Raises KafkaError(STALE_CONTROLLER_EPOCH) for a decision older than the one in force.
        """
        if state.leader_epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH)
        new_epoch = state.leader_epoch > self.leader_epoch
        self.leader_id = state.leader
        self.leader_epoch = state.leader_epoch
        self.partition_epoch = state.partition_epoch
        self.replicas = tuple(state.replicas)
        self.isr = tuple(state.isr)
        was_leader, self.is_leader = self.is_leader, state.leader == self._broker_id
        self._sole = self.isr == (self._broker_id,)
        if new_epoch:
            self._follower_ends.clear()
        if self.is_leader:
            if new_epoch:
                self.log.assign_leader_epoch(state.leader_epoch)
            self.config_changed()
            self._grown()
        elif was_leader:
            self.resign()
        return self.is_leader != was_leader or (new_epoch and self.is_leader)

    def resign(self) -> None:
        """Stop leading: nobody who waits here will be answered by this broker any more."""
        self.is_leader = False
        error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.committed.fail(error)
        self.flushed.fail(error)
        self._wake_readers()

    def require_leader(self, current_leader_epoch: int = NO_EPOCH) -> None:
        """Check that this broker leads, in the epoch the client knows (KIP-320).

        Raises KafkaError: NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH (the client is behind) or
        UNKNOWN_LEADER_EPOCH (this broker is behind).
        """
        if current_leader_epoch not in (NO_EPOCH, self.leader_epoch):
            if current_leader_epoch < self.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # -- writing ---------------------------------------------------------------------------------

    def append_as_leader(
        self,
        data: bytes | bytearray | memoryview,
        *,
        now_ms: int,
        required_acks: int = ACKS_ALL,
        origin: Origin = Origin.CLIENT,
        validated: Validated | None = None,
        guard: Guard | None = None,
        transaction_version: int = 0,
    ) -> Appended:
        """Append one request's batches; what is committed by it is told to those who wait.

        Raises KafkaError: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS (acks=all, and too few
        replicas in sync), or what the log refuses.
        """
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if required_acks == ACKS_ALL and len(self.isr) < self._min_isr:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"The size of the current ISR {set(self.isr)} is insufficient to satisfy "
                f"the min.isr requirement of {self._min_isr} for partition "
                f"{self.topic}-{self.index}",
            )
        appended = self.log.append_as_leader(
            data,
            leader_epoch=self.leader_epoch,
            now_ms=now_ms,
            origin=origin,
            validated=validated,
            guard=guard,
            transaction_version=transaction_version,
        )
        self._grown()
        return appended

    def begin_verification(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        sequence: int,
        *,
        epoch_per_transaction: bool,
    ) -> Guard | None:
        """See `ProducerStateManager.begin_verification`; raises NOT_LEADER_OR_FOLLOWER too."""
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.log.producers.begin_verification(
            transactional_id,
            producer_id,
            epoch,
            sequence,
            epoch_per_transaction=epoch_per_transaction,
        )

    def _grown(self) -> None:
        log = self.log
        # Nobody counts to the default: not even asked then how much is flushed.
        end, messages = log.log_end_offset, self._flush_messages
        if end >= messages and end - log.flushed_offset >= messages:
            self._request_flush(self)
        self._advance()

    def log_flushed(self) -> None:
        """The log's fsynced end moved (told by the flusher)."""
        self.flushed.reached(self.log.flushed_offset)
        self._advance()

    def log_failed(self, error: KafkaError) -> None:
        """The disk failed under the log: what waits is not acknowledged."""
        self.committed.fail(error)
        self.flushed.fail(error)

    def follower_fetched(self, replica_id: int, log_end: int) -> None:
        """A follower asked for records from `log_end` on: it has everything before."""
        self._follower_ends[replica_id] = log_end
        self._advance()

    def _advance(self) -> None:
        if not self.is_leader:
            return
        log = self.log
        if self._sole and self._min_isr <= 1:
            end = log.flushed_offset if self.flushes_first else log.log_end_offset
        else:
            end = committed_end(log.high_watermark, self._in_sync_ends(), self._min_isr)
        if end > log.high_watermark:
            log.advance_high_watermark(end)
            if self.committed:
                self.committed.reached(end)
            if self.readers:
                self._wake_readers()

    def _in_sync_ends(self) -> list[int]:
        followers = self._follower_ends
        return [
            self.durable_end if replica == self._broker_id else followers.get(replica, 0)
            for replica in self.isr
        ]

    def _wake_readers(self) -> None:
        for reader in tuple(self.readers):
            reader.woken()

    def delete_records(self, offset: int) -> int:
        """Let the log start at `offset`, -1 for the high watermark; the new low watermark.

        Raises KafkaError: OFFSET_OUT_OF_RANGE, or POLICY_VIOLATION on a log that is not deleted.
        """
        if "delete" not in self.log.config.cleanup_policy:
            raise KafkaError(ErrorCode.POLICY_VIOLATION)
        if offset == HIGH_WATERMARK:
            offset = self.log.high_watermark
        if offset < 0:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        self.log.delete_records_before(offset)
        return self.log.log_start_offset

    # -- state that others read ------------------------------------------------------------------

    @property
    def durable_end(self) -> int:
        """This replica's log end as the in-sync set counts it: fsynced where flush comes first."""
        log = self.log
        return log.flushed_offset if self.flushes_first else log.log_end_offset

    @property
    def high_watermark(self) -> int:
        """The end of what is committed."""
        return self.log.high_watermark

    @property
    def is_under_min_isr(self) -> bool:
        """Whether too few replicas are in sync for acks=all."""
        return len(self.isr) < self._min_isr

    @property
    def is_at_min_isr(self) -> bool:
        """Whether no replica may leave the in-sync set without stopping acks=all."""
        return len(self.isr) == self._min_isr

    @property
    def is_under_replicated(self) -> bool:
        """Whether a replica is missing from the in-sync set."""
        return len(self.isr) < len(self.replicas)

    def config_changed(self) -> None:
        """Read again what the partition keeps of the topic's configuration."""
        config = self.log.config
        self.flushes_first = config.flushes_each_append
        self._flush_messages = config.flush_messages
        self._min_isr = effective_min_isr(config.min_insync_replicas, len(self.replicas))
        self._advance()

    def readable_end(self, *, read_committed: bool) -> int:
        """Where a consumer's reading ends: the last stable offset or the high watermark."""
        return self.log.last_stable_offset if read_committed else self.log.high_watermark

    def add_waiter(self, offset: int, waiter: Waiter) -> None:
        """Call `waiter` once the high watermark reaches `offset` (at once if it has already)."""
        if self.log.high_watermark >= offset:
            waiter(None)
        else:
            self.committed.add(offset, waiter)

    def add_flush_waiter(self, offset: int, waiter: Waiter) -> None:
        """Call `waiter` once everything before `offset` is on the medium of this replica."""
        if self.log.flushed_offset >= offset:
            waiter(None)
        else:
            self.flushed.add(offset, waiter)
