"""A member in the classic protocol: join, sync, heartbeat, commit, leave.

The assignors are those of Kafka, so members of other clients can be in the same group.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence

from barnabas.client.cluster import Cluster, check
from barnabas.client.consumer import Consumer
from barnabas.client.groups.assignors import (
    COOPERATIVE_STICKY,
    EAGER,
    Assignment,
    Subscription,
    assign_cooperative_sticky,
)
from barnabas.client.groups.listener import RebalanceListener
from barnabas.client.groups.metadata import GroupMetadata
from barnabas.client.groups.offsets import commit_offsets, fetch_offsets
from barnabas.client.groups.protocol import (
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from barnabas.protocol.errors import ErrorCode, KafkaError, ProtocolError
from barnabas.protocol.messages import (
    heartbeat,
    join_group,
    leave_group,
    sync_group,
)
from barnabas.protocol.topic_partition import TopicPartition

_log = logging.getLogger(__name__)

_REJOIN = {
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
}

_FENCED = {
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
}
"""Errors of a member that the group has removed: its partitions belong to other members."""

HEARTBEAT_INTERVAL = 3.0


class ClassicMember:
    """The implementation of `GroupMember` in the classic protocol."""

    def __init__(
        self,
        cluster: Cluster,
        consumer: Consumer,
        group: str,
        topics: Iterable[str],
        *,
        instance_id: str | None,
        session_timeout: float,
        assignors: Sequence[str],
        listener: RebalanceListener,
    ) -> None:
        self._cooperative = list(assignors) == [COOPERATIVE_STICKY]
        if not self._cooperative and not (assignors and EAGER.keys() >= set(assignors)):
            known = ", ".join(EAGER)
            raise ValueError(f"assignors are some of {known}, or {COOPERATIVE_STICKY} alone")
        self._assignors = assignors
        self._listener = listener
        self._cluster = cluster
        self._consumer = consumer
        self._group = group
        self._topics = sorted(topics)
        self._instance_id = instance_id
        self._session_timeout = session_timeout
        self._member_id = ""
        self._generation = -1
        self._heartbeats: asyncio.Task[None] | None = None
        self._joining: asyncio.Task[list[TopicPartition]] | None = None
        self._must_join = True
        self._lost = False
        self._deferred: dict[TopicPartition, int] = {}
        """Offsets of a commit that waits for the end of a rebalance."""

    @property
    def metadata(self) -> GroupMetadata:
        """The current metadata of this member, for offsets in a transaction (KIP-447)."""
        return GroupMetadata(self._group, self._generation, self._member_id, self._instance_id)

    async def ensure_joined(self) -> None:
        """Join the group, or join again for a rebalance; call it before each poll.

        A cooperative member with partitions does not wait for the other members here: it joins in
        the background, and a later call revokes and assigns partitions.
        """
        while self._must_join or self._joining is not None:
            if self._joining is None:
                await self._begin_join()
            elif self._cooperative and self._consumer.positions and not self._joining.done():
                return
            else:
                await self._end_join(self._joining)
        if self._heartbeats is not None and self._heartbeats.done():
            if self._lost:
                await self._stop_reading()
            ended, self._heartbeats = self._heartbeats, None
            self._must_join = True
            ended.result()

    async def commit(self) -> None:
        """Commit the positions of the consumer; if a rebalance has begun, join again later.

        The commit of a cooperative member that is rejoining is sent when the rebalance ends.
        """
        offsets = {tp: offset for tp, offset in self._consumer.positions.items() if offset >= 0}
        if not offsets or self._generation < 0:
            return
        self._deferred = offsets if self._joining is not None else {}
        if not self._deferred:
            await self._commit(offsets)

    async def _commit(self, offsets: Mapping[TopicPartition, int]) -> None:
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
            self._deferred = dict(offsets)
            self._rejoin_after(error.code)

    async def rewind(self) -> None:
        """Seek to the committed offsets of the group, e.g. after an aborted transaction."""
        self._consumer.assign(await self._committed(list(self._consumer.positions)))

    async def leave(self) -> None:
        """Leave the group at once, so that the others need not wait for the session timeout."""
        if self._joining is not None and self._deferred:
            await self._end_join(self._joining)
        await self._stop_joining()
        await self._stop_reading()
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

    async def abandon(self) -> None:
        await self._stop_joining()
        await self._stop_heartbeats()

    async def _stop_joining(self) -> None:
        joining, self._joining = self._joining, None
        if joining is not None:
            joining.cancel()
            await asyncio.wait([joining])

    async def _stop_heartbeats(self) -> None:
        heartbeats, self._heartbeats = self._heartbeats, None
        if heartbeats is not None:
            heartbeats.cancel()
            await asyncio.wait([heartbeats])

    async def _begin_join(self) -> None:
        self._must_join = False
        if self._lost or not self._cooperative:
            await self._stop_reading()
        self._joining = asyncio.create_task(self._cluster.retrying(self._join))

    async def _end_join(self, joining: asyncio.Task[list[TopicPartition]]) -> None:
        # Do not await the task itself: if the caller is cancelled, the join must continue.
        await asyncio.wait([joining])
        self._joining = None
        try:
            await self._apply_assignment(joining.result())
        except KafkaError as error:
            self._rejoin_after(error.code)
            if error.code not in _REJOIN:
                if self._lost:
                    await self._stop_reading()
                raise
        except BaseException:
            self._must_join = True
            raise

    def _rejoin_after(self, code: ErrorCode) -> None:
        self._must_join = True
        self._lost |= code in _FENCED
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""

    async def _stop_reading(self) -> None:
        """Stop reading all partitions, revoked or lost."""
        owned = list(self._consumer.positions)
        if not self._lost:
            await self._revoke(owned)
            return
        self._lost = False
        self._deferred = {}
        self._consumer.assign({})
        if owned:
            await self._listener.on_lost(owned)

    async def _revoke(self, partitions: Sequence[TopicPartition]) -> None:
        if not partitions:
            return
        await self._listener.on_revoked(partitions)
        positions = self._consumer.positions.items()
        self._consumer.assign({tp: offset for tp, offset in positions if tp not in partitions})

    async def _join(self) -> list[TopicPartition]:
        await self._stop_heartbeats()
        response = await self._ask_join()
        assignments: list[sync_group.SyncGroupRequestAssignment] = []
        if response.leader == response.member_id and not response.skip_assignment:
            assignments = await self._compute_assignments(response)
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
        self._heartbeats = asyncio.create_task(self._send_heartbeats())
        return read_assignment(answer.assignment)

    async def _ask_join(self) -> join_group.JoinGroupResponse:
        while True:
            metadata = self._subscription()
            request = join_group.JoinGroupRequest(
                group_id=self._group,
                session_timeout_ms=int(self._session_timeout * 1000),
                rebalance_timeout_ms=300_000,
                member_id=self._member_id,
                group_instance_id=self._instance_id,
                protocol_type="consumer",
                protocols=[
                    join_group.JoinGroupRequestProtocol(name=name, metadata=metadata)
                    for name in self._assignors
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

    def _subscription(self) -> bytes:
        if not self._cooperative:
            return write_subscription(Subscription(self._topics))
        owned = tuple(self._consumer.positions)
        return write_subscription(Subscription(self._topics, owned, self._generation), version=3)

    async def _compute_assignments(
        self, response: join_group.JoinGroupResponse
    ) -> list[sync_group.SyncGroupRequestAssignment]:
        members = {row.member_id: _subscription_of(row) for row in response.members}
        wanted = sorted({topic for row in members.values() for topic in row.topics})
        await self._cluster.refresh(wanted)
        counts = {
            name: len(self._cluster.topics[name].leaders)
            for name in wanted
            if name in self._cluster.topics
        }
        shares = self._assign(response.protocol_name or "", members, counts)
        return [
            sync_group.SyncGroupRequestAssignment(
                member_id=member, assignment=write_assignment(share)
            )
            for member, share in shares.items()
        ]

    def _assign(
        self, name: str, members: Mapping[str, Subscription], counts: Mapping[str, int]
    ) -> Assignment:
        if self._cooperative:
            return assign_cooperative_sticky(members, counts)
        return EAGER[name]({member: row.topics for member, row in members.items()}, counts)

    async def _apply_assignment(self, mine: Sequence[TopicPartition]) -> None:
        owned = self._consumer.positions
        deferred = {tp: at for tp, at in self._deferred.items() if tp in owned}
        self._deferred = {}
        if deferred:
            await self._commit(deferred)
            if self._lost:
                return
        if revoked := [tp for tp in owned if tp not in mine]:
            await self._revoke(revoked)
            self._must_join = True
        added = [tp for tp in mine if tp not in self._consumer.positions]
        if not added:
            return
        await self._cluster.retrying(lambda: self._cluster.refresh({topic for topic, _ in added}))
        found = await self._committed(added)
        self._consumer.assign({**self._consumer.positions, **found})
        await self._listener.on_assigned(added)

    async def _committed(self, mine: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the position in each partition: the committed offset, or the reset policy."""
        committed = await fetch_offsets(self._cluster, self._group, mine, require_stable=True)
        reset = self._consumer.settings.offset_reset
        if reset is None and len(committed) < len(mine):
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, "no offset is committed")
        return {tp: committed.get(tp, reset or 0) for tp in mine}

    async def _send_heartbeats(self) -> None:
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
            try:
                code = await self._cluster.retrying(attempt, timeout=self._session_timeout)
            except Exception:
                self._lost = True
                raise
            if code:
                self._rejoin_after(ErrorCode.of(code))
                return


def _subscription_of(member: join_group.JoinGroupResponseMember) -> Subscription:
    """Return the subscription of a member; an empty one if it cannot be read, because the other
    members must continue."""
    try:
        return read_subscription(member.metadata)
    except ProtocolError as error:
        _log.warning("member %s gets no partitions: %s", member.member_id, error)
        return Subscription(())
