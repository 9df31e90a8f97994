"""One replica of a partition on this broker: its leadership, its in-sync set and who waits for it.

The log holds the bytes; the partition decides what may be appended, what is committed and who
must be told. All of it happens on the event loop, between awaits.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from barnabas.broker.metadata.cache import NO_LEADER
from barnabas.broker.replication.in_sync import Attendance, InSyncSet, InSyncSets
from barnabas.broker.replication.isr import committed_end, effective_min_isr
from barnabas.broker.replication.purgatory import OffsetWaiters, Reader, Tail, Waiter
from barnabas.broker.replication.topic_cells import TopicCells
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState
from barnabas.protocol.records.claim import Claim
from barnabas.protocol.records.varint import Buffer
from barnabas.storage.log import Log
from barnabas.storage.log_parts import Appended
from barnabas.storage.validator import Origin, Validated
from barnabas.storage.verification import Guard

if TYPE_CHECKING:
    from barnabas.broker.replication.append_queue import Append

NO_EPOCH = -1
NO_OFFSET = -1
ACKS_ALL = -1


class Partition:
    """A replica of one partition. Leadership comes from the controller, never from here."""

    __slots__ = (
        "_broker_id", "_flush_messages", "_in_sync_sets", "_min_isr", "_request_flush", "adding",
        "appends", "cells", "committed", "deleted", "flushed", "flushes_first", "in_sync", "index",
        "is_follower", "is_leader", "leader_epoch", "leader_id", "log", "partition_epoch",
        "readers", "reassigning", "tails", "topic", "topic_id",
    )  # fmt: skip

    def __init__(
        self,
        log: Log,
        broker_id: int,
        cells: TopicCells,
        request_flush: Callable[["Partition"], None],
        in_sync_sets: InSyncSets,
    ) -> None:
        self.log = log
        self.cells = cells
        self.topic = log.topic
        self.index = log.partition
        self.topic_id = log.topic_id
        self._broker_id = broker_id
        self._request_flush = request_flush
        self._in_sync_sets = in_sync_sets
        self.in_sync = InSyncSet(broker_id, in_sync_sets)
        self.adding: tuple[int, ...] = ()
        """Replicas that a reassignment brings."""
        self.reassigning = False
        self.leader_id = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = NO_EPOCH
        self.is_leader = False
        self.is_follower = False
        """Another broker leads, and this one keeps up: consumers may read what it has."""
        self.committed = OffsetWaiters()
        self.flushed = OffsetWaiters()
        self.deleted = OffsetWaiters()
        """Those who wait until the log starts at an offset on every replica."""
        self.readers: dict[Reader, None] = {}
        """Woken in the order in which they came: a history can be replayed."""
        self.tails: dict[Tail, None] = {}
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
        if state.leader_epoch < self.leader_epoch or (
            state.leader_epoch == self.leader_epoch and state.partition_epoch < self.partition_epoch
        ):
            raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH)
        new_epoch = state.leader_epoch > self.leader_epoch
        if new_epoch or state.partition_epoch > self.partition_epoch:
            self.in_sync.decided(state.replicas, state.isr)
        self.leader_id = state.leader
        self.leader_epoch = state.leader_epoch
        self.partition_epoch = state.partition_epoch
        self.adding = tuple(state.adding_replicas)
        self.reassigning = bool(state.adding_replicas or state.removing_replicas)
        was_leader, self.is_leader = self.is_leader, state.leader == self._broker_id
        if self.is_leader:
            self._lead(new_epoch=new_epoch)
        elif was_leader:
            self.resign()
        else:
            self.in_sync.follow()
        self.is_follower = not self.is_leader
        return self.is_leader != was_leader or (new_epoch and self.is_leader)

    def _lead(self, *, new_epoch: bool) -> None:
        now = self._in_sync_sets.now()
        if new_epoch:
            self.log.assign_leader_epoch(self.leader_epoch)
            self.in_sync.begin(self.log.log_end_offset, now)
        else:
            self.in_sync.lead(now)
        self.config_changed()
        self._grown()

    def resign(self) -> None:
        """Serve no more: nobody who waits here will be answered by this broker any more."""
        self.is_leader = self.is_follower = False
        self.in_sync.follow()
        error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.committed.fail(error)
        self.flushed.fail(error)
        self.deleted.fail(error)
        self._wake_readers()
        self._wake_tails()

    def require_replica(self, current_leader_epoch: int) -> None:
        """Check that this replica serves consumers, in the leader epoch that they know (KIP-320).

        Raises KafkaError: FENCED_LEADER_EPOCH (the asker is behind), UNKNOWN_LEADER_EPOCH (this
        broker is behind) or NOT_LEADER_OR_FOLLOWER.
        """
        if current_leader_epoch not in (NO_EPOCH, self.leader_epoch):
            if current_leader_epoch < self.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        if not (self.is_leader or self.is_follower):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def require_leader(self, current_leader_epoch: int = NO_EPOCH) -> None:
        """Check that this broker leads, in the epoch the asker knows; as `require_replica`."""
        self.require_replica(current_leader_epoch)
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
        if required_acks == ACKS_ALL and len(self.in_sync.isr) < self._min_isr:
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

    def append_as_follower(self, data: Buffer, *, now_ms: int, max_batches: int) -> int:
        """Append the first batches of what the leader sent; how many bytes they had.

        Raises KafkaError as `Log.append_as_follower` does.
        """
        size = self.log.append_as_follower(data, now_ms=now_ms, max_batches=max_batches)
        self._grown()
        return size

    def begin_verification(self, claim: Claim) -> Guard | None:
        """See `ProducerStateManager.begin_verification`; raises NOT_LEADER_OR_FOLLOWER too."""
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.log.producers.begin_verification(claim)

    def _grown(self) -> None:
        log = self.log
        # Nobody counts to the default: not even asked then how much is flushed.
        end, messages = log.log_end_offset, self._flush_messages
        if end >= messages and end - log.flushed_offset >= messages:
            self._request_flush(self)
        self.advance()
        if self.tails:
            self._wake_tails()

    def flush_soon(self) -> None:
        """Have an fsync cover all there is."""
        self._request_flush(self)

    def log_flushed(self) -> None:
        """The log's fsynced end moved (told by the flusher)."""
        self.flushed.reached(self.log.flushed_offset)
        self.advance()

    def log_failed(self, error: KafkaError) -> None:
        """The disk failed under the log: what waits is not acknowledged."""
        self.committed.fail(error)
        self.flushed.fail(error)

    def follower_fetched(
        self,
        replica_id: int,
        log_end: int,
        *,
        at: Attendance,
        log_start: int = NO_OFFSET,
        broker_epoch: int = NO_EPOCH,
    ) -> None:
        """A follower asked for records from `log_end` on: it has everything before.

        Raises KafkaError(NOT_LEADER_OR_FOLLOWER) where it is none of this partition, or asks in
        the name of an incarnation before the one that was here already (KIP-903).
        """
        follower = self.in_sync.followers.get(replica_id)
        if follower is None or broker_epoch < follower.broker_epoch:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        follower.fetched(log_end, log_start, broker_epoch, self.log.log_end_offset, at)
        if self.in_sync.may_join(replica_id, self.log.high_watermark):
            self._in_sync_sets.invite(self)
        self.advance()
        if self.deleted:
            self.deleted.reached(self.low_watermark)

    def in_sync_set_changed(self, isr: Iterable[int], partition_epoch: int) -> None:
        """The controller has answered a proposal, or told of its decision otherwise."""
        left = self.in_sync.decided(self.in_sync.replicas, isr)
        self.partition_epoch = partition_epoch
        self.advance()
        if left:
            # They are heard again, also where they have nothing new to ask for.
            self.tell_followers()

    def proposal_refused(self) -> None:
        """What was proposed is certainly not so: the set is as it was decided before."""
        self.in_sync.proposed = None
        self.advance()

    def replace_log(self, log: Log) -> None:
        """The replica lies in another directory now, and has all that it had."""
        self.log = log

    def learn_high_watermark(self, offset: int) -> None:
        """A follower is told what is committed; no more of it counts than is here."""
        log = self.log
        before = log.high_watermark
        log.advance_high_watermark(offset)
        if log.high_watermark > before and self.readers:
            self._wake_readers()

    def tell_followers(self) -> None:
        """Followers look again: what is committed has moved, or where the log begins."""
        for tail in tuple(self.tails):
            tail.committed()

    def advance(self) -> None:
        """Commit what all have who count: one of them has more, or counts no more."""
        if not self.is_leader:
            return
        log, in_sync = self.log, self.in_sync
        if in_sync.followers:
            end = committed_end(
                log.high_watermark, in_sync.end(self.durable_end), len(in_sync.isr), self._min_isr
            )
        else:
            end = log.flushed_offset if self.flushes_first else log.log_end_offset
        if end > log.high_watermark:
            log.advance_high_watermark(end)
            if self.committed:
                self.committed.reached(end)
            if self.readers:
                self._wake_readers()
            if self.tails:
                self.tell_followers()

    def _wake_readers(self) -> None:
        for reader in tuple(self.readers):
            reader.woken()

    def _wake_tails(self) -> None:
        tails, self.tails = self.tails, {}
        for tail in tails:
            tail.grown()

    # -- state that others read ------------------------------------------------------------------

    @property
    def replicas(self) -> tuple[int, ...]:
        """The brokers that have a replica, the preferred leader first."""
        return self.in_sync.replicas

    @property
    def isr(self) -> tuple[int, ...]:
        """The in-sync set, as the controller last decided."""
        return self.in_sync.isr

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
    def low_watermark(self) -> int:
        """Where the log starts on all replicas that are alive; -1 while that is unknown."""
        return self.in_sync.start(self.log.log_start_offset)

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
        return len(self.isr) < self._settled

    @property
    def lacks_replicas(self) -> bool:
        """Whether a replica could still join the in-sync set, one that is only coming too."""
        return len(self.isr) < len(self.replicas)

    @property
    def _settled(self) -> int:
        """How many replicas there are beside those that a reassignment is only bringing: nobody who
        writes has to wait for these."""
        return len(self.replicas) - len(self.adding)

    def config_changed(self) -> None:
        """Read again what the partition keeps of the topic's configuration."""
        config = self.log.config
        self.flushes_first = config.flushes_each_append
        self._flush_messages = config.flush_messages
        self._min_isr = effective_min_isr(config.min_insync_replicas, self._settled)
        if self.durable_end < self.log.log_end_offset:
            # Elections trust this topic from now on, also for what came before.
            self.flush_soon()
        self.advance()

    @property
    def is_catching_up(self) -> bool:
        """Whether a new leader cannot tell yet how much of what it found is committed (KIP-207)."""
        return self.is_leader and self.in_sync.epoch_start > self.log.high_watermark

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
