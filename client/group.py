"""Membership in a classic consumer group: join, sync, heartbeat, commit, leave.

Assignors are Kafka's `range` and `roundrobin`, so that members of other clients may share a group.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from barnabas.client.cluster import Cluster, check
from barnabas.client.consumer import Consumer
from barnabas.client.group_metadata import GroupMetadata
from barnabas.client.group_offsets import commit_offsets, fetch_offsets
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.errors import ErrorCode, KafkaError, ProtocolError
from barnabas.protocol.internal.consumer_protocol import (
    AssignedPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from barnabas.protocol.messages import (
    heartbeat,
    join_group,
    leave_group,
    sync_group,
)
from barnabas.protocol.topic_partition import TopicPartition, by_topic

_REJOIN = {
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
}

HEARTBEAT_INTERVAL = 3.0

Assignment = dict[str, list[TopicPartition]]


def assign_range(members: Mapping[str, Sequence[str]], counts: Mapping[str, int]) -> Assignment:
    """Consecutive partitions of each topic to its subscribers in order of member id."""
    out: Assignment = {member: [] for member in members}
    for topic, count in sorted(counts.items()):
        readers = sorted(m for m, topics in members.items() if topic in topics)
        share, extra = divmod(count, len(readers)) if readers else (0, 0)
        start = 0
        for index, member in enumerate(readers):
            end = start + share + (index < extra)
            out[member] += [(topic, partition) for partition in range(start, end)]
            start = end
    return out


def assign_round_robin(
    members: Mapping[str, Sequence[str]], counts: Mapping[str, int]
) -> Assignment:
    """All partitions in turn over the members that subscribe to their topic."""
    out: Assignment = {member: [] for member in members}
    ring = sorted(members)
    turn = 0
    for topic, count in sorted(counts.items()):
        if not any(topic in topics for topics in members.values()):
            continue
        for partition in range(count):
            while topic not in members[ring[turn % len(ring)]]:
                turn += 1
            out[ring[turn % len(ring)]].append((topic, partition))
            turn += 1
    return out


_ASSIGNORS = {"range": assign_range, "roundrobin": assign_round_robin}


def read_consumer_protocol(cls: type, data: bytes) -> object:
    """A subscription or assignment in the version its first two bytes tell (at most our 3)."""
    if len(data) < 2:
        raise ProtocolError("a consumer's metadata is cut off")
    version = min(int.from_bytes(data[:2], "big"), 3)
    return decode(cls, version, data, 2)


def _write_consumer_protocol(value: object) -> bytes:
    return b"\x00\x00" + encode(value, 0)


class GroupMember:
    """Keeps `consumer` reading what the group assigns it; use as an async context manager.

    Each member needs a cluster of its own: while one waits in JoinGroup for the others, the
    connection to the coordinator takes nothing else.
    """

    def __init__(
        self,
        cluster: Cluster,
        consumer: Consumer,
        group: str,
        topics: Iterable[str],
        *,
        instance_id: str | None = None,
        session_timeout: float = 45.0,
    ) -> None:
        self._cluster = cluster
        self._consumer = consumer
        self._group = group
        self._topics = sorted(topics)
        self._instance_id = instance_id
        self._session_timeout = session_timeout
        self._member_id = ""
        self._generation = -1
        self._heartbeats: asyncio.Task[None] | None = None
        self._must_join = True

    async def __aenter__(self) -> "GroupMember":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.leave()

    @property
    def metadata(self) -> GroupMetadata:
        """Who this member is now: what a transaction tells with the offsets (KIP-447)."""
        return GroupMetadata(self._group, self._generation, self._member_id, self._instance_id)

    async def ensure_joined(self) -> None:
        """Joins, or joins again after a rebalance; call it before each poll."""
        while self._must_join:
            self._must_join = False
            try:
                await self._cluster.retrying(self._join)
            except KafkaError as error:
                if error.code not in _REJOIN:
                    raise
                if error.code is ErrorCode.UNKNOWN_MEMBER_ID:
                    self._member_id = ""
                self._must_join = True
        if self._heartbeats is not None and self._heartbeats.done():
            self._heartbeats.result()

    async def commit(self) -> None:
        """Commits the consumer's positions; a rebalance meanwhile only means to join again."""
        offsets = {tp: offset for tp, offset in self._consumer.positions.items() if offset >= 0}
        if not offsets or self._generation < 0:
            return
        try:
            await commit_offsets(
                self._cluster,
                self._group,
                offsets,
                generation=self._generation,
                member_id=self._member_id,
                instance_id=self._instance_id,
            )
        except KafkaError as error:
            if error.code not in _REJOIN:
                raise
            self._must_join = True

    async def rewind(self) -> None:
        """Goes back to what the group has committed, as after a transaction that was aborted."""
        await self._start_from_committed(list(self._consumer.positions))

    async def leave(self) -> None:
        """Leaves the group at once, so that the others need not wait for the session to end."""
        await self._stop_heartbeats()
        if not self._member_id or self._instance_id is not None:
            return
        connection = await self._cluster.coordinator_connection(self._group)
        request = leave_group.LeaveGroupRequest(group_id=self._group, member_id=self._member_id)
        if connection.version_for(leave_group.API) >= 3:
            member = leave_group.MemberIdentity(member_id=self._member_id)
            request = leave_group.LeaveGroupRequest(group_id=self._group, members=[member])
        await connection.request(leave_group.API, request, timeout=self._cluster.timeout)
        self._member_id = ""

    async def _stop_heartbeats(self) -> None:
        if self._heartbeats is not None:
            self._heartbeats.cancel()
            await asyncio.wait([self._heartbeats])
            self._heartbeats = None

    async def _join(self) -> None:
        await self._stop_heartbeats()
        response = await self._ask_join()
        assignments: list[sync_group.SyncGroupRequestAssignment] = []
        if response.leader == response.member_id and not response.skip_assignment:
            assignments = await self._share_out(response)
        answer = await self._cluster.ask_coordinator(
            sync_group.API,
            sync_group.SyncGroupRequest(
                group_id=self._group,
                generation_id=response.generation_id,
                member_id=response.member_id,
                group_instance_id=self._instance_id,
                protocol_type="consumer",
                protocol_name=response.protocol_name,
                assignments=assignments,
            ),
            self._group,
        )
        check(answer.error_code)
        self._generation = response.generation_id
        await self._take_over(answer.assignment)
        self._heartbeats = asyncio.create_task(self._beat())

    async def _ask_join(self) -> join_group.JoinGroupResponse:
        subscription = ConsumerProtocolSubscription(topics=self._topics)
        metadata = _write_consumer_protocol(subscription)
        while True:
            request = join_group.JoinGroupRequest(
                group_id=self._group,
                session_timeout_ms=int(self._session_timeout * 1000),
                rebalance_timeout_ms=300_000,
                member_id=self._member_id,
                group_instance_id=self._instance_id,
                protocol_type="consumer",
                protocols=[
                    join_group.JoinGroupRequestProtocol(name=name, metadata=metadata)
                    for name in _ASSIGNORS
                ],
            )
            connection = await self._cluster.coordinator_connection(self._group)
            response: join_group.JoinGroupResponse = await connection.request(
                join_group.API, request, timeout=305.0
            )
            if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self._member_id = response.member_id
                continue
            check(response.error_code)
            self._member_id = response.member_id
            return response

    async def _share_out(
        self, response: join_group.JoinGroupResponse
    ) -> list[sync_group.SyncGroupRequestAssignment]:
        members: dict[str, Sequence[str]] = {}
        for member in response.members:
            subscription = read_consumer_protocol(ConsumerProtocolSubscription, member.metadata)
            assert isinstance(subscription, ConsumerProtocolSubscription)
            members[member.member_id] = subscription.topics
        wanted = sorted({topic for topics in members.values() for topic in topics})
        await self._cluster.refresh(wanted)
        counts = {
            name: len(self._cluster.topics[name].leaders)
            for name in wanted
            if name in self._cluster.topics
        }
        shares = _ASSIGNORS[response.protocol_name or "range"](members, counts)
        return [
            sync_group.SyncGroupRequestAssignment(
                member_id=member, assignment=_write_consumer_protocol(_assignment(share))
            )
            for member, share in shares.items()
        ]

    async def _take_over(self, data: bytes) -> None:
        mine: list[TopicPartition] = []
        if data:
            assignment = read_consumer_protocol(ConsumerProtocolAssignment, data)
            assert isinstance(assignment, ConsumerProtocolAssignment)
            mine = [(r.topic, p) for r in assignment.assigned_partitions for p in r.partitions]
        await self._cluster.refresh({topic for topic, _ in mine})
        await self._start_from_committed(mine)

    async def _start_from_committed(self, mine: list[TopicPartition]) -> None:
        committed = await fetch_offsets(self._cluster, self._group, mine, require_stable=True)
        reset = self._consumer.settings.offset_reset
        if reset is None and len(committed) < len(mine):
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, "no offset is committed")
        self._consumer.assign({tp: committed.get(tp, reset or 0) for tp in mine})

    async def _beat(self) -> None:
        request = heartbeat.HeartbeatRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
        )

        async def attempt() -> int:
            response = await self._cluster.ask_coordinator(heartbeat.API, request, self._group)
            if response.error_code not in _REJOIN:
                check(response.error_code)
            return int(response.error_code)

        while True:
            await asyncio.sleep(min(HEARTBEAT_INTERVAL, self._session_timeout / 3))
            if code := await self._cluster.retrying(attempt, timeout=self._session_timeout):
                if code == ErrorCode.UNKNOWN_MEMBER_ID:
                    self._member_id = ""
                self._must_join = True
                return


def _assignment(share: Iterable[TopicPartition]) -> ConsumerProtocolAssignment:
    return ConsumerProtocolAssignment(
        assigned_partitions=[
            AssignedPartitions(topic=topic, partitions=partitions)
            for topic, partitions in by_topic(share).items()
        ]
    )
