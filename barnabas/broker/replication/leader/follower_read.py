"""One Fetch of a follower: it reads up to the end of the leader's log, committed or not.

The fetch offset acknowledges all records before it. It counts only from a broker that has a replica
of the partition, in its newest broker epoch (KIP-903), and not where the follower's log diverges
from the leader's (KAFKA-13141).
"""

from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from barnabas.broker.replication.leader.fetch_lookup import FetchLookup, diverges
from barnabas.broker.replication.leader.fetch_session import (
    MANY,
    FetchContext,
    FetchedPartition,
)
from barnabas.broker.replication.leader.follower_session import (
    DelayedFollowerFetch,
    FollowerPartition,
    FollowerSession,
)
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.quota import ReplicationQuota
from barnabas.broker.server.context import RequestContext
from barnabas.metrics.catalogue import ReplicationMetrics
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.messages.fetch import FetchRequest, PartitionData
from barnabas.storage.log.log_slice import LogSlice

IsPresent = Callable[[int, int], bool | Coroutine[Any, Any, bool]]
"""Returns whether a broker, by its id, is registered with this broker epoch."""


class FollowerServices:
    """The collaborators that the fetches of all followers share."""

    def __init__(
        self,
        lookup: FetchLookup,
        quota: ReplicationQuota,
        metrics: ReplicationMetrics,
        monotonic: Callable[[], float],
        is_present: IsPresent,
    ) -> None:
        self.lookup = lookup
        self.quota = quota
        self.monotonic = monotonic
        self.is_present = is_present
        self.bytes_out = metrics.bytes_out.cell()
        self.reassignment_bytes_out = metrics.reassignment_bytes_out.cell()


class FollowerRead:
    """The state of one follower Fetch; reads the session's unread partitions."""

    __slots__ = (
        "_found",
        "_limit",
        "_now",
        "_positions_taken",
        "_services",
        "_state",
        "context",
        "failed",
        "hurries",
        "request",
        "session",
        "size",
    )

    def __init__(
        self,
        services: FollowerServices,
        request: FetchRequest,
        context: RequestContext,
        max_bytes: int,
        session: FetchContext,
    ) -> None:
        state = session.owner
        assert isinstance(state, FollowerSession)
        self._services = services
        self._state: FollowerSession = state
        self.request = request
        self.context = context
        self.session = session
        self._limit = min(request.max_bytes, max_bytes)
        self._now = services.monotonic()
        """The arrival time of the request, in monotonic seconds."""
        self._found: dict[FollowerPartition, PartitionData] = {}
        self._positions_taken: set[FollowerPartition] = set()
        """Partitions whose position this request has already updated."""
        self.size = 0
        self.failed = False
        self.hurries = False
        broker_epoch = request.replica_state.replica_epoch
        same = (
            broker_epoch == state.broker_epoch
            and context.connection_id == state.last_fetch.connection_id
        )
        state.broker_epoch = broker_epoch
        state.last_fetch.record(self._now, context.connection_id)
        if not same:
            # A new broker epoch or connection: every partition records the follower again.
            for fetched in session.partitions.values():
                assert isinstance(fetched, FollowerPartition)
                fetched.update(fetched.wanted)

    def is_complete(self) -> bool:
        """Whether to answer now: enough bytes, no partitions, an error or a divergence."""
        size = self.size
        enough = size >= self.request.min_bytes or size >= self._limit
        return enough or self.hurries or not self.session.partitions

    @property
    def has_news(self) -> bool:
        """Whether the response has a new high watermark or log start for a session to remember."""
        return self.session.is_kept and any(
            answer.high_watermark != fetched.high_watermark
            or answer.log_start_offset != fetched.log_start_offset
            for fetched, answer in self._found.items()
        )

    def watch(self, delayed_fetch: DelayedFollowerFetch) -> None:
        """Have `delayed_fetch` woken by every change of the partitions."""
        self._state.delayed_fetch = delayed_fetch
        if self.has_news:
            delayed_fetch.wake_soon()

    def unwatch(self, delayed_fetch: DelayedFollowerFetch) -> None:
        """Stop waking `delayed_fetch`."""
        if self._state.delayed_fetch is delayed_fetch:
            self._state.delayed_fetch = None

    @property
    def is_large(self) -> bool:
        """Whether to read in slices."""
        return len(self._state.unread) > MANY

    def has_changed(self) -> bool:
        """Whether a partition may have changed since it was read."""
        return bool(self._state.unread)

    def collect(self) -> None:
        """Read every unread partition, up to max_bytes in total."""
        for _ in self.collecting():
            pass

    def collecting(self) -> Iterator[None]:
        """Do what `collect` does, in a step for each partition."""
        found, services = self._found, self._services
        for fetched in tuple(self._state.unread):
            before = found.get(fetched)
            if before is not None and before.records:
                self.size -= len(before.records)
            try:
                answer = self._look(fetched, services.lookup.find(fetched))
            except KafkaError as error:
                answer = services.lookup.refuse(fetched, error, self.context.api_version)
                self.failed = self.hurries = True
            if answer.records:
                self.size += len(answer.records)
            found[fetched] = answer
            yield None

    def _look(self, fetched: FollowerPartition, partition: Partition) -> PartitionData:
        wanted, log = fetched.wanted, partition.log
        partition.require_leader(wanted.current_leader_epoch)
        answer = PartitionData(
            partition_index=wanted.partition,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=None,
            records=b"",
        )
        if wanted.last_fetched_epoch >= 0 and diverges(partition, wanted, answer):
            self.hurries = True
            return answer
        records: LogSlice | bytes = b""
        at_end = wanted.fetch_offset == log.log_end_offset
        if not at_end:
            size = min(wanted.partition_max_bytes, max(0, self._limit - self.size))
            records = log.read(
                wanted.fetch_offset, size, limit=log.log_end_offset, min_one=self.size == 0
            )
        self._take_position(fetched, partition)
        answer.high_watermark = log.high_watermark
        answer.last_stable_offset = log.last_stable_offset
        fetched.watch(partition)
        if at_end and not self._must_fetch_again(partition):
            fetched.mark_read()
        elif records and not self._is_throttled(partition):
            answer.records = records
            fetched.mark_served()
        return answer

    def _take_position(self, fetched: FollowerPartition, partition: Partition) -> None:
        """Record the follower's position, once per request: it is as old as the request."""
        if fetched in self._positions_taken:
            return
        self._positions_taken.add(fetched)
        state = self._state
        partition.follower_fetched(
            state.replica_id,
            fetched.wanted.fetch_offset,
            at=state.last_fetch,
            log_start=fetched.wanted.log_start_offset,
            broker_epoch=state.broker_epoch,
        )

    def _must_fetch_again(self, partition: Partition) -> bool:
        """Whether the follower has left the ISR since this request took its position.

        The partition then stays unread: the next request of the session takes the position again,
        although the follower has no new position to name.
        """
        follower = partition.isr_state.followers.get(self._state.replica_id)
        return follower is None or not follower.asked

    def _is_throttled(self, partition: Partition) -> bool:
        """Whether the leader's quota throttles this follower, which is out of sync (KIP-73)."""
        quota = self._services.quota
        return (
            self._state.replica_id not in partition.isr_state.isr
            and quota.is_throttled(partition.topic, partition.index)
            and quota.exceeded(self._now)
        )

    def close(self) -> list[tuple[FetchedPartition, PartitionData]]:
        """Return the responses, by partition; count their bytes as sent."""
        services, throttled = self._services, 0
        for fetched, answer in self._found.items():
            partition = fetched.replica
            if not answer.records or partition is None:
                continue
            size = len(answer.records)
            partition.cells.fetches.value += 1
            services.bytes_out.value += size
            if self._state.replica_id in partition.adding:
                services.reassignment_bytes_out.value += size
            if services.quota.is_throttled(partition.topic, partition.index):
                throttled += size
        if throttled:
            services.quota.record(throttled, self._now)
        return list(self._found.items())
