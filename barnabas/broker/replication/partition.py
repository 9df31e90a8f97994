"""One replica of a partition on this broker: its leadership, its ISR and the requests that wait.

The log holds the bytes. The partition decides which appends are allowed, advances the high
watermark and wakes the waiting requests. All of it runs on the event loop, between awaits.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from barnabas.broker.cluster.cache import NO_LEADER
from barnabas.broker.replication.isr_state import (
    FollowerLiveness,
    IsrState,
    LastFetch,
    committed_end,
    effective_min_isr,
)
from barnabas.broker.replication.purgatory import (
    DelayedFetch,
    FollowerWatch,
    OffsetWaiters,
    Waiter,
)
from barnabas.broker.replication.topic_cells import TopicCells
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState
from barnabas.protocol.records.batch import BatchHeader, HeaderFields
from barnabas.protocol.records.claim import Claim
from barnabas.protocol.records.control import TxnMarker
from barnabas.protocol.records.varint import Buffer
from barnabas.storage.log.log import Log
from barnabas.storage.log.log_parts import LogAppendInfo
from barnabas.storage.log.validator import Validated
from barnabas.storage.origin import Origin
from barnabas.storage.producers.verification import VerificationGuard

NO_EPOCH = -1
NO_OFFSET = -1
ACKS_ALL = -1


class PendingAppend:
    """A producer's batch that waits in a partition's queue; see `leader/append_queue.py`."""

    __slots__ = ("data", "done", "header", "now_ms", "options")

    def __init__(self, data: bytes, header: BatchHeader | None, now_ms: int, options: Any) -> None:
        self.data = data
        self.header = header
        self.now_ms = now_ms
        self.options = options
        self.done: asyncio.Future[LogAppendInfo] = asyncio.get_running_loop().create_future()
        """The appended offsets, or the error; the producer's request cancels it to withdraw."""


@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """The state of a partition on which appends depend, besides the batch and the disk.

    Every change replaces the object: a check remains valid while the partition has the same one.
    """

    leader_epoch: int
    is_leader: bool = False
    has_min_isr: bool = False
    """Whether enough replicas are in sync for acks=all."""
    commits_at_once: bool = False
    """Whether an append is committed when it returns: no follower and no fsync is awaited."""
    is_prompt: bool = False
    """Whether it is, and the topic's rules need no look at single records."""


class IsrPort(FollowerLiveness, Protocol):
    """The ISR manager of the broker, as its partitions call it."""

    def now(self) -> float:
        """Return the monotonic time in seconds."""
        ...

    def maybe_expand(self, partition: "Partition", /) -> None:
        """Propose the followers of the partition that may join its ISR."""
        ...


class Partition:
    """A replica of one partition. Its leader is chosen by the controller only."""

    __slots__ = (
        "_broker_id",
        "_flush_messages",
        "_isr_manager",
        "_min_isr",
        "_request_flush",
        "adding",
        "appends",
        "cells",
        "committed",
        "delayed_fetches",
        "deleted",
        "flushed",
        "flushes_first",
        "follower_watches",
        "index",
        "is_follower",
        "is_leader",
        "isr_state",
        "leader_epoch",
        "leader_id",
        "log",
        "partition_epoch",
        "reassigning",
        "standing",
        "topic",
        "topic_id",
    )  # fmt: skip

    def __init__(
        self,
        log: Log,
        broker_id: int,
        cells: TopicCells,
        request_flush: Callable[["Partition"], None],
        isr_manager: IsrPort,
    ) -> None:
        self.log = log
        self.cells = cells
        self.topic = log.topic
        self.index = log.partition
        self.topic_id = log.topic_id
        self._broker_id = broker_id
        self._request_flush = request_flush
        self._isr_manager = isr_manager
        self.isr_state = IsrState(broker_id, isr_manager)
        self.adding: tuple[int, ...] = ()
        """The replicas that a reassignment adds."""
        self.reassigning = False
        self.leader_id = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.standing = Standing(NO_EPOCH)
        self.partition_epoch = NO_EPOCH
        self.is_leader = False
        self.is_follower = False
        """Whether another broker leads and this one replicates: consumers may read from it."""
        self.committed = OffsetWaiters()
        self.flushed = OffsetWaiters()
        self.deleted = OffsetWaiters()
        """Waiters for the low watermark: the log start that all replicas have reached."""
        self.delayed_fetches: dict[DelayedFetch, None] = {}
        """Fetches of consumers, in the order of their arrival: simulations stay repeatable."""
        self.follower_watches: dict[FollowerWatch, None] = {}
        self.appends: deque[PendingAppend] = deque()
        """Appends that wait, oldest first; every later append waits behind them."""
        self.flushes_first = False
        """Whether an acknowledgement waits for the fsync (`flush.messages=1`)."""
        self.config_changed()

    # -- leadership ------------------------------------------------------------------------------

    def apply(self, state: LeaderAndIsrPartitionState) -> bool:
        """Take over the controller's decision; True where the leadership of this broker changed.

        Raises KafkaError(STALE_CONTROLLER_EPOCH) for a decision older than the one in force.
        """
        if state.leader_epoch < self.leader_epoch or (
            state.leader_epoch == self.leader_epoch and state.partition_epoch < self.partition_epoch
        ):
            raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH)
        new_epoch = state.leader_epoch > self.leader_epoch
        if new_epoch or state.partition_epoch > self.partition_epoch:
            self.isr_state.apply_decision(state.replicas, state.isr)
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
            self.isr_state.become_follower()
            self._stand()
        self.is_follower = not self.is_leader
        return self.is_leader != was_leader or (new_epoch and self.is_leader)

    def _lead(self, *, new_epoch: bool) -> None:
        now = self._isr_manager.now()
        if new_epoch:
            # What a coordinator has told this broker concerns its earlier leadership.
            self.log.producers.forget_expected()
            self.log.assign_leader_epoch(self.leader_epoch)
            self.isr_state.begin_epoch(self.log.log_end_offset, now)
        else:
            self.isr_state.become_leader(now)
        self.config_changed()
        self._log_grew()
        if self.lacks_replicas:
            # The decision may have voided a proposal. A quiet follower does not cause another.
            self._isr_manager.maybe_expand(self)

    def resign(self) -> None:
        """Stop serving: fail the waiters with NOT_LEADER_OR_FOLLOWER and wake the fetches."""
        self.is_leader = self.is_follower = False
        self.isr_state.become_follower()
        self._stand()
        error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.committed.fail(error)
        self.flushed.fail(error)
        self.deleted.fail(error)
        self._wake_fetches()
        self._wake_followers()

    def _stand(self) -> None:
        """Replace the standing, before anything that may append."""
        isr = self.isr_state
        at_once = not (isr.followers or self.flushes_first)
        self.standing = Standing(
            self.leader_epoch,
            self.is_leader,
            len(isr.isr) >= self._min_isr,
            at_once,
            at_once and not self.log.rules.looks_inside,
        )

    def require_replica(self, current_leader_epoch: int) -> None:
        """Check that this replica serves consumers, in the client's leader epoch (KIP-320).

        Raises KafkaError: FENCED_LEADER_EPOCH (the client is behind), UNKNOWN_LEADER_EPOCH (this
        broker is behind) or NOT_LEADER_OR_FOLLOWER.
        """
        if current_leader_epoch not in (NO_EPOCH, self.leader_epoch):
            if current_leader_epoch < self.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        if not (self.is_leader or self.is_follower):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def require_leader(self, current_leader_epoch: int = NO_EPOCH) -> None:
        """Check that this broker leads, in the client's leader epoch; as `require_replica`."""
        self.require_replica(current_leader_epoch)
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # -- writing ---------------------------------------------------------------------------------

    def append(
        self,
        data: Buffer,
        now_ms: int,
        header: HeaderFields | None = None,
        guard: VerificationGuard | None = None,
        origin: Origin = Origin.CLIENT,
        marker: TxnMarker | None = None,
        *,
        required_acks: int = ACKS_ALL,
        validated: Validated | None = None,
    ) -> LogAppendInfo:
        """Append one request's batches as `Log.append` does, and wake the requests whose wait this
        ends.

        Raises KafkaError: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS (acks=all, and too few
        replicas in sync), or what the log refuses.
        """
        standing = self.standing
        if not standing.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if required_acks == ACKS_ALL and not standing.has_min_isr:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"The size of the current ISR {set(self.isr)} is insufficient to satisfy "
                f"the min.isr requirement of {self._min_isr} for partition "
                f"{self.topic}-{self.index}",
            )
        # The usual case: the record is committed at once, and no request waits for it.
        alone = standing.commits_at_once and not (
            self.committed.waiting or self.delayed_fetches or self.follower_watches
        )
        log = self.log
        appended = log.append(
            data,
            standing.leader_epoch,
            now_ms,
            origin,
            header,
            validated,
            guard,
            marker,
        )
        if not alone or log.log_end_offset >= self._flush_messages:
            self._log_grew()
        else:
            log.high_watermark = log.log_end_offset
            log.producers.unreplicated.clear()
        return appended

    def append_as_follower(self, data: Buffer, *, now_ms: int, max_batches: int) -> int:
        """Append the first batches of the leader's records; return their size in bytes.

        Raises KafkaError as `Log.append_as_follower` does.
        """
        size = self.log.append_as_follower(data, now_ms=now_ms, max_batches=max_batches)
        self._log_grew()
        return size

    def begin_verification(self, claim: Claim) -> VerificationGuard | None:
        """Call `ProducerStateManager.begin_verification`; raises NOT_LEADER_OR_FOLLOWER too."""
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.log.producers.begin_verification(claim)

    def expect(self, claim: Claim, coordinator_epoch: int) -> VerificationGuard | None:
        """Call `ProducerStateManager.expect`; None as well if this broker is not the leader."""
        return self.log.producers.expect(claim, coordinator_epoch) if self.is_leader else None

    def _log_grew(self) -> None:
        log = self.log
        # The default of flush.messages is never reached: flushed_offset is not read then.
        end, messages = log.log_end_offset, self._flush_messages
        if end >= messages and end - log.flushed_offset >= messages:
            self._request_flush(self)
        self.advance()
        if self.follower_watches:
            self._wake_followers()

    def flush_soon(self) -> None:
        """Request an fsync that covers the whole log."""
        self._request_flush(self)

    def log_flushed(self) -> None:
        """Acknowledge up to the log's new fsynced end; called by the flusher."""
        self.flushed.reached(self.log.flushed_offset)
        self.advance()

    def log_failed(self, error: KafkaError) -> None:
        """Fail the waiters: the disk under the log has failed."""
        self.committed.fail(error)
        self.flushed.fail(error)

    def follower_fetched(
        self,
        replica_id: int,
        log_end: int,
        *,
        at: LastFetch,
        log_start: int = NO_OFFSET,
        broker_epoch: int = NO_EPOCH,
    ) -> None:
        """Record a follower's Fetch from `log_end` on: it has every record before that.

        Raises KafkaError(NOT_LEADER_OR_FOLLOWER) for a broker that has no replica of this
        partition, and for an older broker epoch than the last one seen (KIP-903).
        """
        follower = self.isr_state.followers.get(replica_id)
        if follower is None or broker_epoch < follower.broker_epoch:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        follower.update_fetch_state(log_end, log_start, broker_epoch, self.log.log_end_offset, at)
        if self.isr_state.may_join(replica_id, self.log.high_watermark):
            self._isr_manager.maybe_expand(self)
        self.advance()
        if self.deleted:
            self.deleted.reached(self.low_watermark)

    def isr_changed(self, isr: Iterable[int], partition_epoch: int) -> None:
        """Take over the controller's decision: the response to a proposal, or its announcement."""
        left = self.isr_state.apply_decision(self.isr_state.replicas, isr)
        self._stand()
        self.partition_epoch = partition_epoch
        self.advance()
        if left:
            # Wake them, even if they have every record: they may rejoin only after a new fetch.
            self.tell_followers()

    def proposal_refused(self, *, ineligible: bool) -> None:
        """Drop the proposal: the controller has refused it, maybe because a follower is
        `ineligible`, and the last decided ISR holds."""
        self.isr_state.drop_proposal(ineligible=ineligible)
        self.advance()

    def replace_log(self, log: Log) -> None:
        """Use the log of another log directory, which has all records of the old one."""
        self.log = log
        self._stand()

    def learn_high_watermark(self, offset: int) -> None:
        """Take over the leader's high watermark, limited to this follower's log end."""
        log = self.log
        before = log.high_watermark
        log.advance_high_watermark(offset)
        if log.high_watermark > before and self.delayed_fetches:
            self._wake_fetches()

    def tell_followers(self) -> None:
        """Notify the followers that the high watermark or the log start has moved."""
        for watch in tuple(self.follower_watches):
            watch.watermark_moved()

    def advance(self) -> None:
        """Advance the high watermark to the end that the whole maximal ISR has."""
        if not self.is_leader:
            return
        log, state = self.log, self.isr_state
        if self.standing.commits_at_once:
            end = log.log_end_offset
        elif state.followers:
            end = committed_end(
                log.high_watermark,
                state.maximal_isr_end(self.durable_end),
                len(state.isr),
                self._min_isr,
            )
        else:
            end = log.flushed_offset
        if end > log.high_watermark:
            log.advance_high_watermark(end)
            if self.committed.waiting:
                self.committed.reached(end)
            if self.delayed_fetches:
                self._wake_fetches()
            if self.follower_watches:
                self.tell_followers()

    def _wake_fetches(self) -> None:
        for fetch in tuple(self.delayed_fetches):
            fetch.wake()

    def _wake_followers(self) -> None:
        watches, self.follower_watches = self.follower_watches, {}
        for watch in watches:
            watch.log_grew()

    # -- state for others -----------------------------------------------------------------------

    @property
    def replicas(self) -> tuple[int, ...]:
        """The brokers that have a replica, the preferred leader first."""
        return self.isr_state.replicas

    @property
    def isr(self) -> tuple[int, ...]:
        """The ISR that the controller last decided."""
        return self.isr_state.isr

    @property
    def durable_end(self) -> int:
        """This replica's log end as the ISR counts it: the fsynced end if `flushes_first`."""
        log = self.log
        return log.flushed_offset if self.flushes_first else log.log_end_offset

    @property
    def high_watermark(self) -> int:
        """The end of the committed records."""
        return self.log.high_watermark

    @property
    def low_watermark(self) -> int:
        """The lowest log start of all replicas that are alive; -1 while one is unknown."""
        return self.isr_state.low_watermark(self.log.log_start_offset)

    @property
    def is_under_min_isr(self) -> bool:
        """Whether too few replicas are in sync for acks=all."""
        return not self.standing.has_min_isr

    @property
    def is_at_min_isr(self) -> bool:
        """Whether acks=all would be refused if one more replica left the ISR."""
        return len(self.isr) == self._min_isr

    @property
    def is_under_replicated(self) -> bool:
        """Whether a replica is missing from the ISR, those that a reassignment adds aside."""
        return len(self.isr) < self._assigned_count

    @property
    def lacks_replicas(self) -> bool:
        """Whether a replica is outside the ISR, one that a reassignment adds included."""
        return len(self.isr) < len(self.replicas)

    @property
    def _assigned_count(self) -> int:
        """The number of replicas without those that a reassignment adds: producers do not wait for
        these."""
        return len(self.replicas) - len(self.adding)

    def config_changed(self) -> None:
        """Read the topic configuration again."""
        config = self.log.config
        self.flushes_first = config.flushes_each_append
        self._flush_messages = config.flush_messages
        self._min_isr = effective_min_isr(config.min_insync_replicas, self._assigned_count)
        self._stand()
        if self.durable_end < self.log.log_end_offset:
            # From now on elections count on fsynced logs: flush the earlier records too.
            self.flush_soon()
        self.advance()

    @property
    def is_catching_up(self) -> bool:
        """Whether a new leader has not yet committed all records it was elected with (KIP-207)."""
        return self.is_leader and self.isr_state.epoch_start > self.log.high_watermark

    def readable_end(self, *, read_committed: bool) -> int:
        """Return the end for consumers: the last stable offset or the high watermark."""
        return self.log.last_stable_offset if read_committed else self.log.high_watermark

    def add_waiter(self, offset: int, waiter: Waiter) -> None:
        """Call `waiter` once the high watermark reaches `offset` (at once if it has already)."""
        if self.log.high_watermark >= offset:
            waiter(None)
        else:
            self.committed.add(offset, waiter)

    def add_flush_waiter(self, offset: int, waiter: Waiter) -> None:
        """Call `waiter` once this replica has fsynced all records before `offset`."""
        if self.log.flushed_offset >= offset:
            waiter(None)
        else:
            self.flushed.add(offset, waiter)
