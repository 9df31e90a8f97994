"""The group coordinator, and its state machine for a partition of `__consumer_offsets`."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from barnabas.coordinator.decision import Decision, Instant
from barnabas.coordinator.group import admin, joining, membership
from barnabas.coordinator.group.client import Client
from barnabas.coordinator.group.committing import CommitOffsets, commit_offsets
from barnabas.coordinator.group.consumer import describe as consumer_describe
from barnabas.coordinator.group.consumer import sessions
from barnabas.coordinator.group.consumer.heartbeat import (
    ConsumerClient,
    heartbeat,
    steady,
    tells_about_itself,
)
from barnabas.coordinator.group.consumer.records import GROUP, ConsumerGroupRecord
from barnabas.coordinator.group.consumer.replay import replay
from barnabas.coordinator.group.consumer.states import ConsumerGroupState
from barnabas.coordinator.group.draft import Draft
from barnabas.coordinator.group.group import Group
from barnabas.coordinator.group.offsets import CommittedOffset
from barnabas.coordinator.group.rebalance import resume_sessions
from barnabas.coordinator.group.records import (
    GroupCoordinatorRecord,
    GroupRecord,
    decode_record,
    encode_record,
    restored,
)
from barnabas.coordinator.group.states import GroupState
from barnabas.coordinator.group.table import GroupDecision, GroupTable
from barnabas.coordinator.hosted_shard import Mode
from barnabas.coordinator.ports import Timers
from barnabas.coordinator.runtime import CoordinatorRuntime
from barnabas.coordinator.soon import Soon, at_hand, wait
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.consumer_group_describe import (
    DescribedGroup as DescribedConsumerGroup,
)
from barnabas.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas.protocol.messages.describe_groups import DescribedGroup
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.protocol.messages.leave_group import MemberIdentity
from barnabas.protocol.messages.list_groups import ListedGroup
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from barnabas.protocol.records.claim import Claim
from barnabas.protocol.steps import Steps

A = TypeVar("A")
T = TypeVar("T")
Decide = Callable[[GroupTable, Instant], GroupDecision[A]]
GroupRuntime = CoordinatorRuntime[GroupTable, GroupCoordinatorRecord]

_GROUPS_PER_SLICE = 50
"""Groups that a sweep looks at before the event loop runs other tasks."""


class GroupCoordinator:
    """The interface of the coordinator for the handlers. Answers come at once or as futures.

    Errors are KafkaError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE
    (a write that was refused, or not committed in time), and those of each decision.
    """

    def __init__(
        self,
        runtime: GroupRuntime,
        timers: Timers,
        partition_of: Callable[[str], int],
    ) -> None:
        """`partition_of` returns the partition of `__consumer_offsets` whose leader coordinates a
        group."""
        self._runtime = runtime
        self._timers = timers
        self.partition_of = partition_of

    def look(self, group_id: str, look: Callable[[GroupTable], T]) -> T:
        """Return the result of `look` on the committed state of the group's partition."""
        return self._runtime.read(self.partition_of(group_id), look)

    def _write(
        self,
        group_id: str,
        decide: Decide[A],
        mode: Mode = Mode.EXCLUSIVE,
        index: int | None = None,
    ) -> Soon[A]:
        """Write a decision; `index` is the partition of the group, if the caller knows it."""
        if index is None:
            index = self.partition_of(group_id)
        return self._runtime.write(index, group_id, decide, mode)

    def _write_nothing(self, group_id: str, decide: Decide[A], index: int | None = None) -> A:
        """Carry out a decision without records, beside the writes that are on their way."""
        return at_hand(self._write(group_id, decide, Mode.IMMEDIATE, index))

    # -- members ---------------------------------------------------------------------------------

    def join(self, request: JoinGroupRequest, client: Client) -> Soon[JoinGroupResponse]:
        """Let a member join; answered when the next generation begins."""
        _require_id(request.group_id)
        return self._write(
            request.group_id, lambda table, now: joining.join(table, request, client, now)
        )

    def sync(self, request: SyncGroupRequest) -> Soon[SyncGroupResponse]:
        """Return a member's assignment, once the leader's assignments are committed."""
        _require_id(request.group_id)
        return self._write(
            request.group_id, lambda table, now: membership.sync(table, request, now)
        )

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """Extend a session; while the group is being loaded, every member counts as alive."""
        _require_id(request.group_id)
        try:
            return self._write_nothing(
                request.group_id, lambda table, now: membership.heartbeat(table, request, now)
            )
        except KafkaError as error:
            if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                return HeartbeatResponse()
            raise

    def leave(self, group_id: str, members: Sequence[MemberIdentity]) -> Soon[list[ErrorCode]]:
        """Remove members, with one code for each of them."""
        _require_id(group_id)
        return self._write(
            group_id, lambda table, now: membership.leave(table, group_id, members, now)
        )

    # -- members of consumer groups --------------------------------------------------------------

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, client: ConsumerClient
    ) -> Soon[ConsumerGroupHeartbeatResponse]:
        """Answer a member of a consumer group: it joins, lives or leaves (KIP-848).

        One for which nothing has changed does not wait for other members.
        """
        group_id = request.group_id
        index = self.partition_of(group_id)
        if self._runtime.is_writing(index, group_id) and not tells_about_itself(request):
            answer = self.steady_heartbeat(request, client, index)
            if answer is not None:
                return answer
        return self._write(
            group_id, lambda table, now: heartbeat(table, request, client, now), index=index
        )

    def steady_heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        client: ConsumerClient,
        index: int | None = None,
    ) -> ConsumerGroupHeartbeatResponse | None:
        """Extend the session of a member that tells nothing about itself, and for which nothing has
        changed; None otherwise, and nothing has changed then."""
        return self._write_nothing(
            request.group_id, lambda table, now: steady(table, request, client, now), index
        )

    def describe_consumers(self, group_id: str) -> Steps[DescribedConsumerGroup]:
        """Describe a consumer group as it is now. Raises GROUP_ID_NOT_FOUND too."""
        return self.look(group_id, lambda table: consumer_describe.describe(table, group_id))

    # -- offsets ---------------------------------------------------------------------------------

    def commit_offsets(
        self, request: CommitOffsets, index: int | None = None
    ) -> Soon[list[ErrorCode]]:
        """Commit offsets, with one code for each of them; `index` is the partition of the group, if
        the caller knows it."""
        if request.producer is not None:
            _require_id(request.group_id)
        return self._write(
            request.group_id,
            lambda table, now: commit_offsets(table, request, now),
            Mode.PIPELINED,
            index,
        )

    def commits_at_once(self, index: int) -> bool:
        """Return whether `commit_offsets` of few offsets of a partition of `__consumer_offsets`
        answers, or raises, in the same call."""
        return self._runtime.lands_at_once(index)

    def begin_verification(self, group_id: str, claim: Claim, index: int) -> object | None:
        """Return the guard that a producer needs to commit its first offsets for the group, of
        partition `index`.

        None if its transaction is open in the group's partition already. Raises
        INVALID_PRODUCER_EPOCH too, and INVALID_PRODUCER_ID_MAPPING if the open transaction belongs
        to another transactional id.
        """
        _require_id(group_id)
        return self._runtime.begin_verification(index, claim)

    def look_when_committed(self, group_id: str, look: Callable[[GroupTable], T]) -> Soon[T]:
        """Return the result of `look` once no commit of the group is being written (KIP-447).

        A commit that the previous generation was allowed to make may still be in flight. A member
        that started from the offsets before it would process the same records again.
        """
        return self._write(group_id, lambda table, _: Decision(look(table)))

    def delete_offsets(
        self, group_id: str, topics: Mapping[str, Iterable[int]]
    ) -> Soon[frozenset[str]]:
        """Delete offsets of partitions by topic; answered with the topics that keep theirs,
        because a member subscribes to them."""
        _require_id(group_id)
        return self._write(
            group_id, lambda table, now: admin.delete_offsets(table, group_id, topics, now)
        )

    # -- groups ----------------------------------------------------------------------------------

    def delete(self, group_id: str) -> Soon[None]:
        """Delete an empty group; answered when that is committed."""
        return self._write(group_id, lambda table, now: admin.delete(table, group_id, now))

    def describe(self, group_id: str) -> Steps[DescribedGroup]:
        """Describe a group as it is now. Raises GROUP_ID_NOT_FOUND too."""
        return self.look(group_id, lambda table: admin.describe(table, group_id))

    def listing(self, states: Iterable[str], types: Iterable[str]) -> Steps[list[ListedGroup]]:
        """List the groups that this broker coordinates, filtered without regard to case."""
        if self._runtime.loading:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        wanted_states = frozenset(each.lower() for each in states)
        wanted_types = frozenset(each.lower() for each in types)
        known = [group for _, table in self._runtime.served() for group in table.every_group()]
        return (yield from admin.listing(known, wanted_states, wanted_types))

    # -- sweeps ----------------------------------------------------------------------------------

    async def expire(self) -> None:
        """Delete expired offsets, and groups that have nothing left (KIP-211)."""
        async for _, group_id in self._each_group():
            await self._sweep(group_id, _expire(group_id))

    async def topics_deleted(self, topics: Mapping[str, bytes]) -> None:
        """Delete the offsets of deleted topics, given by name and id."""
        async for table, group_id in self._each_group():
            if not topics.keys().isdisjoint(table.offsets.topics_of(group_id)):
                await self._sweep(group_id, _topics_deleted(group_id, topics))

    async def _sweep(self, group_id: str, decide: Decide[None]) -> None:
        try:
            await wait(self._write(group_id, decide))
        except KafkaError:
            # The log refused the write, or did not commit it in time: the next sweep finds the
            # group again.
            return

    async def _each_group(self) -> AsyncIterator[tuple[GroupTable, str]]:
        looked = 0
        for index, table in list(self._runtime.served()):
            for group_id in [group.group_id for group in table.every_group()]:
                looked += 1
                if looked % _GROUPS_PER_SLICE == 0:
                    await self._timers.pause()
                if (index, table) in self._runtime.served():
                    yield table, group_id

    # -- for metrics -----------------------------------------------------------------------------

    def states(self) -> Counter[GroupState | ConsumerGroupState]:
        """Count the groups that are coordinated here by state, which says their type too."""
        return Counter(
            group.state for _, table in self._runtime.served() for group in table.every_group()
        )

    def count_offsets(self) -> int:
        """Count the committed offsets in memory."""
        return sum(table.offsets.count for _, table in self._runtime.served())

    def offsets(self) -> Iterator[CommittedOffset]:
        """Yield every committed offset in memory."""
        for _, table in self._runtime.served():
            yield from table.offsets

    def offsets_by_group(self) -> Iterator[list[CommittedOffset]]:
        """Yield the committed offsets of each group, which may change between two groups."""
        for table in [table for _, table in self._runtime.served()]:
            for group_id in table.offsets.groups():
                topics = table.offsets.of_group(group_id)
                yield [
                    CommittedOffset(group_id, topic, partition, committed)
                    for topic, partitions in topics.items()
                    for partition, committed in partitions.items()
                ]


def _expire(group_id: str) -> Decide[None]:
    return lambda table, now: admin.expire(table, group_id, now)


def _topics_deleted(group_id: str, topics: Mapping[str, bytes]) -> Decide[None]:
    return lambda table, now: admin.topics_deleted(table, group_id, topics, now)


def _require_id(group_id: str) -> None:
    """Raise INVALID_GROUP_ID for an empty id. Only offsets may be kept under an empty group id."""
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)


class GroupShard:
    """The log's side of a `GroupTable`. The runtime replays records into it."""

    def __init__(self, table: GroupTable) -> None:
        self.state = table
        self._live = False

    encode = staticmethod(encode_record)
    decode = staticmethod(decode_record)

    def replay(self, record: GroupCoordinatorRecord, producer_id: int) -> None:
        """Apply a committed record, live and after a fail-over alike."""
        if isinstance(record, ConsumerGroupRecord):
            self._replay_consumers(record)
            return
        if isinstance(record, GroupRecord):
            self._replay_group(record)
            return
        groups, group_id = self.state.groups, record.group_id
        known = group_id in groups or group_id in self.state.consumers
        if record.committed is not None and not known:
            # A simple consumer's group exists through its offsets alone.
            groups[group_id] = Group(group_id, record.committed.commit_timestamp)
        self.state.offsets.replay(record, producer_id)

    def replay_marker(
        self,
        producer_id: int,
        producer_epoch: int,  # noqa: ARG002
        committed: bool,
    ) -> Iterable[None]:
        """End a transaction: the offsets that it committed count, or are forgotten."""
        return self.state.offsets.replay_marker(producer_id, committed)

    def _replay_consumers(self, record: ConsumerGroupRecord) -> None:
        table, group_id = self.state, record.group_id
        replay(table.consumers, record)
        if record.value is not None:
            # What had offsets only, or no members, is a consumer group now.
            table.groups.pop(group_id, None)
        elif (
            record.kind == GROUP
            and group_id not in table.groups
            and table.offsets.of_group(group_id)
        ):
            table.groups[group_id] = Group(group_id, -1)

    def _replay_group(self, record: GroupRecord) -> None:
        groups, group_id, value = self.state.groups, record.group_id, record.value
        group = groups.get(group_id)
        if value is None:
            if group is not None:
                group.transition(GroupState.DEAD, group.state_timestamp_ms)
                del groups[group_id]
            return
        # A load during a compaction may miss the deletions of the consumer group (KAFKA-21117).
        self.state.consumers.pop(group_id, None)
        if (
            group is not None
            and self._live
            and not (
                # One that was a consumer group, and had its offsets alone in between.
                group.state is GroupState.EMPTY and value.members
            )
        ):
            assignments = {each.member_id: each.assignment for each in value.members}
            group.adopt(value.generation, assignments, value.current_state_timestamp)
        else:
            groups[group_id] = restored(group_id, value, self.state.memory)

    def loaded(self, now: Instant) -> GroupDecision[None]:
        """Give every member a whole session."""
        self._live = True
        draft = Draft(self.state, now)
        for group in self.state.consumers.values():
            group.forget_versions()
            sessions.resume(draft, group)
        resumed = resume_sessions(self.state, now)
        return resumed._replace(effects=[*resumed.effects, *draft.effects])
