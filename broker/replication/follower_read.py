"""What one Fetch of a follower finds: records up to the end of the leader's log, committed or not.

It also tells the leader how far the follower's log goes, and that is as good as an acknowledgement:
only from a broker that the partition is assigned to, in its newest incarnation (KIP-903), and not
where its log turns out to be another than the leader's (KAFKA-13141).
"""

from barnabas.broker.replication.fetch_lookup import FetchLookup, diverges
from barnabas.broker.replication.fetch_session import FetchContext, FetchedPartition
from barnabas.broker.replication.follower_session import (
    FollowedPartition,
    FollowerSession,
    Parked,
)
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.quota import ReplicationQuota
from barnabas.broker.server.context import RequestContext
from barnabas.metrics.catalogue import ReplicationMetrics
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.messages.fetch import FetchRequest, PartitionData
from barnabas.storage.log_slice import LogSlice


class FollowerServices:
    """What the reads of all followers share."""

    def __init__(
        self, lookup: FetchLookup, quota: ReplicationQuota, metrics: ReplicationMetrics
    ) -> None:
        self.lookup = lookup
        self.quota = quota
        self.bytes_out = metrics.bytes_out.cell()
        self.reassignment_bytes_out = metrics.reassignment_bytes_out.cell()


class FollowerRead:
    """Looks at the partitions that have changed since the session last did."""

    __slots__ = (
        "_found",
        "_limit",
        "_now",
        "_services",
        "_state",
        "_taken",
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
        session: FetchContext,
        max_bytes: int,
        now: float,
    ) -> None:
        """`now` is monotonic time in seconds; the request arrived then."""
        state = session.owner
        assert isinstance(state, FollowerSession)
        self._services = services
        self._state: FollowerSession = state
        self.request = request
        self.context = context
        self.session = session
        self._limit = min(request.max_bytes, max_bytes)
        self._now = now
        self._found: dict[FollowedPartition, PartitionData] = {}
        self._taken: set[FollowedPartition] = set()
        """Those whose position has been taken over from this request."""
        self.size = 0
        self.failed = False
        self.hurries = False
        broker_epoch = request.replica_state.replica_epoch
        same = (
            broker_epoch == state.broker_epoch
            and context.connection_id == state.attendance.connection_id
        )
        state.broker_epoch = broker_epoch
        state.attendance.asked(now, context.connection_id)
        if not same:
            # Registered anew, or thought to be gone: every partition is to know.
            for fetched in session.partitions.values():
                assert isinstance(fetched, FollowedPartition)
                fetched.ask(fetched.wanted)

    def is_complete(self) -> bool:
        """Whether the answer need not wait: enough bytes, nothing to read, or news that is bad."""
        size = self.size
        enough = size >= self.request.min_bytes or size >= self._limit
        return enough or self.hurries or not self.session.partitions

    @property
    def has_news(self) -> bool:
        """Whether there is something to tell, if not records, that will not be told again."""
        return self.session.is_kept and any(
            answer.high_watermark != fetched.high_watermark
            or answer.log_start_offset != fetched.log_start_offset
            for fetched, answer in self._found.items()
        )

    def watch(self, parked: Parked) -> None:
        """Have `parked` woken by everything that may change what is found."""
        self._state.parked = parked
        if self.has_news:
            parked.woken_soon()

    def unwatch(self, parked: Parked) -> None:
        """Let `parked` sleep."""
        if self._state.parked is parked:
            self._state.parked = None

    def collect(self) -> None:
        """Look at every partition that may have changed, until max_bytes are found."""
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

    def _look(self, fetched: FollowedPartition, partition: Partition) -> PartitionData:
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
        if at_end:
            fetched.is_read()
        elif records and not self._is_held_up(partition):
            answer.records = records
            fetched.is_served()
        return answer

    def _take_position(self, fetched: FollowedPartition, partition: Partition) -> None:
        """Once per request: the position is as old as that."""
        if fetched in self._taken:
            return
        self._taken.add(fetched)
        state = self._state
        partition.follower_fetched(
            state.replica_id,
            fetched.wanted.fetch_offset,
            at=state.attendance,
            log_start=fetched.wanted.log_start_offset,
            broker_epoch=state.broker_epoch,
        )

    def _is_held_up(self, partition: Partition) -> bool:
        """Whether a follower that is not in sync has had its share of the network."""
        quota = self._services.quota
        return (
            self._state.replica_id not in partition.in_sync.isr
            and quota.is_throttled(partition.topic, partition.index)
            and quota.exceeded(self._now)
        )

    def close(self) -> list[tuple[FetchedPartition, PartitionData]]:
        """What was found, by partition; the bytes of it count as sent."""
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
