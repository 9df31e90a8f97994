"""One Fetch of a consumer: it reads committed records, from the leader or a follower near it."""

from collections.abc import Iterator

from barnabas.broker.replication.leader.fetch_lookup import FetchLookup, diverges
from barnabas.broker.replication.leader.fetch_session import (
    MANY,
    FetchContext,
    FetchedPartition,
)
from barnabas.broker.replication.leader.replica_selector import ReplicaSelector
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.purgatory import DelayedFetch
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.fetch import AbortedTransaction, FetchRequest, PartitionData
from barnabas.security.acl.rules import AclOperation, ResourceType

READ_UNCOMMITTED, READ_COMMITTED = range(2)
_FROM_FOLLOWERS_SINCE = 11


class ConsumerRead:
    """The state of one consumer Fetch; `collect` reads again after each change."""

    __slots__ = (
        "_limit",
        "_lookup",
        "_read_committed",
        "_selector",
        "_wanted",
        "answers",
        "context",
        "failed",
        "hurries",
        "partitions",
        "request",
        "session",
        "size",
    )

    def __init__(
        self,
        lookup: FetchLookup,
        selector: ReplicaSelector,
        request: FetchRequest,
        context: RequestContext,
        max_bytes: int,
        session: FetchContext,
    ) -> None:
        self._lookup = lookup
        self._selector = selector
        self.request = request
        self.context = context
        self.session = session
        self._wanted = list(session.partitions.values())
        self._limit = min(request.max_bytes, max_bytes)
        self._read_committed = request.isolation_level == READ_COMMITTED
        self.answers: list[tuple[FetchedPartition, PartitionData]] = []
        self.partitions: list[Partition] = []
        self.size = 0
        self.failed = False
        self.hurries = False

    def is_complete(self) -> bool:
        """Whether to answer now: enough bytes, no partitions, or an error or a redirection."""
        size = self.size
        enough = size >= self.request.min_bytes or size >= self._limit
        return enough or self.hurries or not self._wanted

    def watch(self, fetch: DelayedFetch) -> None:
        """Have `fetch` woken by every change of its partitions."""
        for partition in self.partitions:
            partition.delayed_fetches[fetch] = None

    def unwatch(self, fetch: DelayedFetch) -> None:
        """Stop waking `fetch`."""
        for partition in self.partitions:
            partition.delayed_fetches.pop(fetch, None)

    def close(self) -> list[tuple[FetchedPartition, PartitionData]]:
        """Return the responses, by partition."""
        return self.answers

    @property
    def is_large(self) -> bool:
        """Whether to read in slices."""
        return len(self._wanted) > MANY

    def collect(self) -> None:
        """Read every partition, in the session's order, up to max_bytes in total."""
        for _ in self.collecting():
            pass

    def has_changed(self) -> bool:
        """Whether a partition has changed since it was read; all of them could be read."""
        return any(
            (partition.log.high_watermark, partition.log.last_stable_offset)
            != (answer.high_watermark, answer.last_stable_offset)
            for partition, (_, answer) in zip(self.partitions, self.answers, strict=True)
        )

    def collecting(self) -> Iterator[None]:
        """Do what `collect` does, in a step for each partition."""
        self.answers = []
        self.size = 0
        remaining = self._limit
        partitions = []
        for fetched in self._wanted:
            try:
                if self.context.asker is not None:
                    # Each time, because rules may change while the Fetch is delayed.
                    self._authorize(fetched)
                partition = self._lookup.find(fetched)
                partitions.append(partition)
                answer = self._look(fetched, partition, remaining)
            except KafkaError as error:
                answer = self._lookup.refuse(fetched, error, self.context.api_version)
                self.failed = self.hurries = True
            if answer.records:
                size = len(answer.records)
                self.size += size
                remaining = max(0, remaining - size)
            self.answers.append((fetched, answer))
            yield None
        if not self.partitions:
            self.partitions = partitions

    def _authorize(self, fetched: FetchedPartition) -> None:
        """Raise KafkaError unless the consumer may read the topic."""
        name = self._lookup.topic_name(fetched)
        if not self.context.allows(AclOperation.READ, ResourceType.TOPIC, name):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def _look(
        self, fetched: FetchedPartition, partition: Partition, remaining: int
    ) -> PartitionData:
        wanted, version = fetched.wanted, self.context.api_version
        if version < _FROM_FOLLOWERS_SINCE:
            partition.require_leader(wanted.current_leader_epoch)
        else:
            partition.require_replica(wanted.current_leader_epoch)
        log = partition.log
        high_watermark, last_stable = log.high_watermark, log.last_stable_offset
        answer = PartitionData(
            partition_index=wanted.partition,
            high_watermark=high_watermark,
            last_stable_offset=last_stable,
            log_start_offset=log.log_start_offset,
            aborted_transactions=[] if self._read_committed else None,
            records=b"",
        )
        if self.request.rack_id and self._is_elsewhere(partition, wanted.fetch_offset, answer):
            return answer
        if wanted.last_fetched_epoch >= 0 and diverges(partition, wanted, answer):
            self.hurries = True
            return answer
        end = last_stable if self._read_committed else high_watermark
        size = min(wanted.partition_max_bytes, remaining)
        found = log.read(wanted.fetch_offset, size, limit=end, min_one=self.size == 0)
        partition.cells.fetches.value += 1
        if found:
            partition.cells.bytes_out.value += len(found)
            answer.records = found
            if self._read_committed:
                answer.aborted_transactions = [
                    AbortedTransaction(producer_id=txn.producer_id, first_offset=txn.first_offset)
                    for txn in log.aborted_transactions(wanted.fetch_offset, found.end_offset)
                ]
        return answer

    def _is_elsewhere(self, partition: Partition, offset: int, answer: PartitionData) -> bool:
        """Whether the consumer is redirected to a follower near it; the response names it then."""
        if not partition.is_leader:
            return False
        preferred = self._selector.preferred(
            partition, offset, self.request.rack_id, self.context.listener
        )
        if preferred is None:
            return False
        answer.preferred_read_replica = preferred
        self.hurries = True
        return True
