"""The group coordinator: finds the partition of a group and asks its shard through the runtime."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar, cast

from barnabas.coordinator.decision import Decide, Decision
from barnabas.coordinator.group.joining import Client
from barnabas.coordinator.group.offsets import CommittedOffset
from barnabas.coordinator.group.records import OffsetAndMetadata
from barnabas.coordinator.group.shard import GroupShard
from barnabas.coordinator.hosted import Mode
from barnabas.coordinator.ports import Timers
from barnabas.coordinator.runtime import CoordinatorRuntime
from barnabas.coordinator.soon import Soon, settled
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.java_hash import partition_for
from barnabas.protocol.messages.describe_groups import DescribedGroup
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from barnabas.protocol.messages.list_groups import ListedGroup
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from barnabas.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from barnabas.protocol.records.batch import NO_SEQUENCE
from barnabas.protocol.records.claim import Claim

T = TypeVar("T")

_GROUPS_PER_SLICE = 50
"""Groups that a sweep looks at before others have their turn."""


class GroupCoordinator:
    """What the handlers of group APIs ask. Answers come at once or as futures; errors are
    KafkaError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE (a write
    that was refused, or not committed in time), and those of each decision."""

    def __init__(
        self, runtime: CoordinatorRuntime[GroupShard], timers: Timers, partitions: Callable[[], int]
    ) -> None:
        """`partitions` tells how many `__consumer_offsets` has, or will have."""
        self._runtime = runtime
        self._timers = timers
        self._partitions = partitions

    def partition_of(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` whose leader coordinates the group."""
        return partition_for(group_id, self._partitions())

    def _shard(self, group_id: str) -> GroupShard:
        return self._runtime.read(self.partition_of(group_id), lambda shard: shard)

    def _write(self, group_id: str, decide: Decide, mode: Mode = Mode.EXCLUSIVE) -> Any:
        return self._runtime.write(self.partition_of(group_id), group_id, decide, mode)

    # -- members ---------------------------------------------------------------------------------

    def join(self, request: JoinGroupRequest, client: Client) -> Soon[JoinGroupResponse]:
        """Answered when the next generation begins."""
        _require_id(request.group_id)
        decide = partial(self._shard(request.group_id).join, request, client)
        return cast(Soon[JoinGroupResponse], self._write(request.group_id, decide))

    def sync(self, request: SyncGroupRequest) -> Soon[SyncGroupResponse]:
        """Answered when the leader's assignment is committed."""
        _require_id(request.group_id)
        decide = partial(self._shard(request.group_id).sync, request)
        return cast(Soon[SyncGroupResponse], self._write(request.group_id, decide))

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """Answered at once; while the group is being loaded everybody is taken to be alive."""
        _require_id(request.group_id)
        try:
            shard = self._shard(request.group_id)
        except KafkaError as error:
            if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                return HeartbeatResponse()
            raise
        decide = partial(shard.heartbeat, request)
        return cast(HeartbeatResponse, self._write(request.group_id, decide, Mode.IMMEDIATE))

    def leave(self, request: LeaveGroupRequest) -> Soon[LeaveGroupResponse]:
        """One result for each member that is named."""
        _require_id(request.group_id)
        shard = self._shard(request.group_id)
        return cast(
            LeaveGroupResponse, self._write(request.group_id, partial(shard.leave, request))
        )

    # -- offsets ---------------------------------------------------------------------------------

    def commit(self, request: OffsetCommitRequest) -> Soon[OffsetCommitResponse]:
        """Topics must come by name, with their ids where they are known."""
        shard = self._shard(request.group_id)
        decide = partial(shard.commit, request)
        return cast(
            Soon[OffsetCommitResponse], self._write(request.group_id, decide, Mode.PIPELINED)
        )

    def begin_verification(
        self, request: TxnOffsetCommitRequest, *, epoch_per_transaction: bool
    ) -> object | None:
        """The guard that a producer needs to commit its first offsets for the group, None where
        its transaction is open in the group's partition already. INVALID_PRODUCER_EPOCH too, and
        INVALID_PRODUCER_ID_MAPPING where that one is of another transactional id."""
        _require_id(request.group_id)
        claim = Claim(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            NO_SEQUENCE,
            epoch_per_transaction,
        )
        return self._runtime.begin_verification(self.partition_of(request.group_id), claim)

    def commit_transactional(
        self, request: TxnOffsetCommitRequest, guard: object | None
    ) -> Soon[TxnOffsetCommitResponse]:
        """Offsets that count when the producer's transaction is committed."""
        _require_id(request.group_id)
        shard = self._shard(request.group_id)
        decide = partial(shard.commit_transactional, request, guard)
        return cast(
            Soon[TxnOffsetCommitResponse], self._write(request.group_id, decide, Mode.PIPELINED)
        )

    def look(self, group_id: str, look: Callable[[], T]) -> T:
        """Look at the group's offsets as they are committed now."""
        self._shard(group_id)
        return look()

    def look_when_settled(self, group_id: str, look: Callable[[], T]) -> Soon[T]:
        """Look at the group's offsets when no commit of it is on its way (KIP-447).

        One that was allowed in the generation before may be: a member that took over on the
        offsets before it would do its work a second time.
        """
        self._shard(group_id)
        return cast(Soon[T], self._write(group_id, lambda _: Decision(response=look())))

    def has_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction has committed an offset of the partition."""
        return self._shard(group_id).offsets.pending.has(group_id, topic, partition)

    def has_any_pending(self, group_id: str) -> bool:
        """Whether an open transaction has committed offsets of the group."""
        return group_id in self._shard(group_id).offsets.pending

    def committed(
        self, group_id: str, topic: str, partition: int, topic_id: bytes
    ) -> OffsetAndMetadata | None:
        """A committed offset."""
        return self._shard(group_id).offsets.find(group_id, topic, partition, topic_id)

    def committed_topics(self, group_id: str) -> dict[str, list[int]]:
        """Every topic and partition for which the group has committed an offset."""
        topics = self._shard(group_id).offsets.of_group(group_id)
        return {topic: list(partitions) for topic, partitions in topics.items()}

    def delete_offsets(self, request: OffsetDeleteRequest) -> Soon[OffsetDeleteResponse]:
        """Forget offsets of topics that no member reads."""
        _require_id(request.group_id)
        shard = self._shard(request.group_id)
        decide = partial(shard.delete_offsets, request)
        return cast(Soon[OffsetDeleteResponse], self._write(request.group_id, decide))

    # -- groups ----------------------------------------------------------------------------------

    async def delete(self, group_id: str) -> None:
        """Delete an empty group; returns when that is committed."""
        shard = self._shard(group_id)
        await settled(self._write(group_id, partial(shard.delete, group_id)))

    def describe(self, group_id: str) -> DescribedGroup:
        """Raises GROUP_ID_NOT_FOUND too."""
        return self._shard(group_id).describe(group_id)

    def listing(self, states: Iterable[str], types: Iterable[str]) -> list[ListedGroup]:
        """The groups that this broker coordinates, filtered without regard to case."""
        if self._runtime.loading:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        wanted_states = frozenset(each.lower() for each in states)
        wanted_types = frozenset(each.lower() for each in types)
        return [
            group
            for _, shard in self._runtime.shards()
            for group in shard.listing(wanted_states, wanted_types)
        ]

    # -- sweeps ----------------------------------------------------------------------------------

    async def expire(self) -> None:
        """Forget expired offsets, and groups of which nothing is left (KIP-211)."""
        async for shard, group_id in self._each_group():
            await self._sweep(group_id, partial(shard.expire, group_id))

    async def topics_deleted(self, topics: Mapping[str, bytes]) -> None:
        """Forget what was committed for topics that are no more, by name and id."""
        async for shard, group_id in self._each_group():
            if not topics.keys().isdisjoint(shard.offsets.topics_of(group_id)):
                await self._sweep(group_id, partial(shard.topics_deleted, group_id, topics))

    async def _sweep(self, group_id: str, decide: Decide) -> None:
        try:
            await settled(self._write(group_id, decide))
        except KafkaError:
            # Refused or not committed in time: the next sweep finds it again.
            return

    async def _each_group(self) -> AsyncIterator[tuple[GroupShard, str]]:
        looked = 0
        for index, shard in list(self._runtime.shards()):
            for group_id in list(shard.groups):
                looked += 1
                if looked % _GROUPS_PER_SLICE == 0:
                    await self._timers.pause()
                if (index, shard) in self._runtime.shards():
                    yield shard, group_id

    # -- for metrics -----------------------------------------------------------------------------

    def states(self) -> Counter[str]:
        """How many groups that are coordinated here are in each state."""
        return sum((shard.states() for _, shard in self._runtime.shards()), Counter())

    def count_offsets(self) -> int:
        """How many committed offsets are kept here."""
        return sum(shard.offsets.count for _, shard in self._runtime.shards())

    def offsets(self) -> Iterator[CommittedOffset]:
        """Every committed offset that is kept here."""
        for _, shard in self._runtime.shards():
            yield from shard.offsets


def _require_id(group_id: str) -> None:
    """Groups with members need a name; offsets alone may be kept under the empty one."""
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
