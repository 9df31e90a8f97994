"""A member in the consumer protocol (KIP-848): one request, the heartbeat, joins, lives and leaves.

The coordinator answers with the partitions that the member may use now. The member gives up those
that are not among them, and says in its next heartbeat which ones it uses: only then another member
gets the others.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeVar
from uuid import uuid4

from barnabas.client.cluster import Cluster, check
from barnabas.client.connection import BrokerUnreachable
from barnabas.client.consumer import Consumer
from barnabas.client.groups.listener import RebalanceListener
from barnabas.client.groups.metadata import GroupMetadata
from barnabas.client.groups.offsets import commit_offsets, fetch_offsets
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.consumer_group_heartbeat import (
    API,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from barnabas.protocol.topic_partition import TopicPartition

T = TypeVar("T")

JOIN, LEAVE, LEAVE_FOR_A_WHILE = 0, -1, -2
"""Member epochs of requests. A static member that leaves for a while keeps its partitions."""

REBALANCE_TIMEOUT_MS: Final = 300_000
"""The time in which a member gives up partitions; the coordinator removes it then."""

_FENCED = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)
"""Errors of a member that the group has removed: its partitions belong to other members."""

Partitions = Mapping[TopicPartition, bytes]
"""Partitions with the ids of their topics."""


class ModernMember:
    """The implementation of `GroupMember` in the consumer protocol."""

    def __init__(
        self,
        cluster: Cluster,
        consumer: Consumer,
        group: str,
        topics: Iterable[str],
        *,
        expression: str | None,
        instance_id: str | None,
        assignor: str | None,
        listener: RebalanceListener,
    ) -> None:
        self._cluster = cluster
        self._consumer = consumer
        self._group = group
        self._topics = sorted(topics)
        self._expression = expression
        self._instance_id = instance_id
        self._assignor = assignor
        self._listener = listener
        self._member_id = str(uuid4())
        self._epoch = JOIN
        self._target: dict[bytes, list[int]] = {}
        """The partitions that this member may use, as of the last response that had them."""
        self._owned: Partitions = {}
        """The partitions that it uses."""
        self._reported: Partitions | None = None
        """The partitions in the last heartbeat that told them and was answered; None if the
        coordinator has to be told."""
        self._settled = self._target
        """The last target of which all partitions, and no others, were in use."""
        self._uncertain = True
        """Whether the coordinator may have missed, or answered, a request unseen."""
        self._interval = 0.0
        self._lost = False
        self._heartbeats: asyncio.Task[None] | None = None
        self._due = asyncio.Event()
        """Set to send the next heartbeat at once."""
        self._answered = asyncio.Event()

    @property
    def metadata(self) -> GroupMetadata:
        return GroupMetadata(self._group, self._epoch, self._member_id, self._instance_id)

    # -- joining ---------------------------------------------------------------------------------

    async def ensure_joined(self) -> None:
        if self._heartbeats is None:
            self._epoch, self._uncertain = JOIN, True
            self._heartbeats = asyncio.create_task(self._send_heartbeats())
        if self._lost:
            await self._lose()
        while self._epoch == JOIN and not self._heartbeats.done():
            await self._next_answer()
        if self._heartbeats.done():
            ended, self._heartbeats = self._heartbeats, None
            self._fence()
            await self._lose()
            ended.result()
        await self._reconcile()

    async def _next_answer(self) -> None:
        self._answered.clear()
        await self._answered.wait()

    async def _lose(self) -> None:
        """Stop reading all partitions, without a commit: other members may read them."""
        owned = list(self._consumer.positions)
        self._lost = False
        self._consumer.assign({})
        if owned:
            await self._listener.on_lost(owned)

    async def _reconcile(self) -> None:
        """Revoke and assign partitions until those of the last response are in use."""
        while not self._lost:
            target = self._target
            wanted, owned = await self._wanted(), self._owned
            if wanted == owned:
                self._settle(target)
                return
            if revoked := [tp for tp in owned if wanted.get(tp) != owned[tp]]:
                await self._revoke(revoked)
                continue
            added = {tp: topic for tp, topic in wanted.items() if tp not in owned}
            found = await self._committed(list(added))
            # Others may have got them while the offsets were fetched.
            if found is not None and not self._lost and self._target is target:
                self._consumer.assign({**self._consumer.positions, **found})
                self._own({**owned, **added})
                await self._listener.on_assigned(list(added))

    def _settle(self, target: dict[bytes, list[int]]) -> None:
        """Tell the coordinator which partitions are in use, once for each target: it may wait for
        one that came and went between two calls, and was never used."""
        if target is not self._settled:
            self._settled, self._reported = target, None
            self._due.set()

    async def _wanted(self) -> Partitions:
        """Return the partitions of the last response, without topics that are not known yet."""
        target = self._target
        names = self._names()
        if not names.keys() >= target.keys():
            topics = None if self._expression is not None else self._topics
            await self._cluster.retrying(lambda: self._cluster.refresh(topics))
            names = self._names()
        return {
            TopicPartition(names[topic], partition): topic
            for topic, partitions in target.items()
            if topic in names
            for partition in partitions
        }

    def _names(self) -> dict[bytes, str]:
        return {topic.topic_id: name for name, topic in self._cluster.topics.items()}

    async def _revoke(self, partitions: Sequence[TopicPartition]) -> None:
        await self._listener.on_revoked(partitions)
        gone = set(partitions)
        positions = self._consumer.positions.items()
        self._consumer.assign({tp: offset for tp, offset in positions if tp not in gone})
        self._own({tp: topic for tp, topic in self._owned.items() if tp not in gone})

    def _own(self, partitions: Partitions) -> None:
        self._owned = partitions
        self._due.set()

    # -- offsets ---------------------------------------------------------------------------------

    async def commit(self) -> None:
        positions = self._consumer.positions.items()
        offsets = {tp: offset for tp, offset in positions if offset >= 0 and tp in self._owned}
        if not offsets or self._lost:
            return

        async def commit() -> None:
            await commit_offsets(
                self._cluster,
                self._group,
                offsets,
                generation=self._epoch,
                member_id=self._member_id,
                instance_id=self._instance_id,
            )

        await self._as_member(commit)

    async def rewind(self) -> None:
        found = await self._committed(list(self._consumer.positions))
        if found is not None:
            self._consumer.assign(found)

    async def _committed(
        self, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, int] | None:
        """Return the position in each partition: the committed offset, or the reset policy.

        None if the group has removed this member.
        """

        async def fetch() -> dict[TopicPartition, int]:
            return await fetch_offsets(
                self._cluster,
                self._group,
                partitions,
                require_stable=True,
                member_id=self._member_id,
                member_epoch=self._epoch,
            )

        committed = await self._as_member(fetch)
        if committed is None:
            return None
        reset = self._consumer.settings.offset_reset
        if reset is None and len(committed) < len(partitions):
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, "no offset is committed")
        return {tp: committed.get(tp, reset or 0) for tp in partitions}

    async def _as_member(self, attempt: Callable[[], Awaitable[T]]) -> T | None:
        """Run `attempt`, again if the next heartbeat brings another epoch; None if this member has
        been removed."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._cluster.timeout
        while True:
            epoch = self._epoch
            try:
                return await attempt()
            except KafkaError as error:
                if error.code in _FENCED:
                    self._fence()
                    return None
                if error.code is not ErrorCode.STALE_MEMBER_EPOCH or loop.time() > deadline:
                    raise
            if self._lost:
                return None
            if self._epoch == epoch:
                if self._heartbeats is None or self._heartbeats.done():
                    return None
                self._due.set()
                await self._next_answer()

    # -- heartbeats ------------------------------------------------------------------------------

    async def _send_heartbeats(self) -> None:
        try:
            while True:
                self._due.clear()
                epoch, response = await self._cluster.retrying(self._heartbeat)
                # A commit may have found out meanwhile that the group has removed this member.
                if epoch == self._epoch:
                    self._take(response)
                self._answered.set()
                if self._epoch != JOIN:
                    with suppress(TimeoutError):
                        # Python 3.11's wait_for() forgets a cancellation if the event is set too.
                        async with asyncio.timeout(self._interval):
                            await self._due.wait()
        finally:
            self._answered.set()

    async def _heartbeat(self) -> tuple[int, ConsumerGroupHeartbeatResponse]:
        """Send a heartbeat; return the epoch that it had, and the response."""
        connection = await self._cluster.coordinator_connection(self._group)
        if self._expression is not None and connection.version_for(API) < 1:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, "a subscription by expression needs Kafka 4.0"
            )
        epoch, owned = self._epoch, self._owned
        request = self._request()
        self._uncertain = True
        response: ConsumerGroupHeartbeatResponse = await connection.request(
            API, request, timeout=self._cluster.request_timeout
        )
        if ErrorCode.of(response.error_code).retriable:
            check(response.error_code, response.error_message)
        self._uncertain = bool(response.error_code)
        if request.topic_partitions is not None:
            self._reported = owned
        return epoch, response

    def _request(self) -> ConsumerGroupHeartbeatRequest:
        """Return the next heartbeat, with what has changed since the last one.

        After a response that may be lost it is complete: the coordinator accepts an epoch before
        the last one only together with the partitions.
        """
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self._member_id,
            member_epoch=self._epoch,
            instance_id=self._instance_id,
        )
        if self._uncertain or self._epoch == JOIN:
            request.rebalance_timeout_ms = REBALANCE_TIMEOUT_MS
            request.subscribed_topic_names = self._topics
            request.subscribed_topic_regex = self._expression
            request.server_assignor = self._assignor
        if self._uncertain or self._epoch == JOIN or self._owned != self._reported:
            request.topic_partitions = _rows(self._owned)
        return request

    def _take(self, response: ConsumerGroupHeartbeatResponse) -> None:
        code = ErrorCode.of(response.error_code)
        if code in _FENCED and self._epoch != JOIN:
            self._fence()
            return
        check(code, response.error_message)
        self._member_id = response.member_id or self._member_id
        self._epoch = response.member_epoch
        self._interval = response.heartbeat_interval_ms / 1000
        if response.assignment is not None:
            self._target = {
                row.topic_id: row.partitions for row in response.assignment.topic_partitions
            }

    def _fence(self) -> None:
        """Join again: the group has removed this member."""
        self._epoch = JOIN
        self._target, self._owned = {}, {}
        self._lost = True
        self._due.set()

    # -- leaving ---------------------------------------------------------------------------------

    async def leave(self) -> None:
        if self._lost:
            await self._lose()
        if self._owned:
            await self._revoke(list(self._owned))
        joins = self._epoch == JOIN and self._heartbeats is not None
        await self.abandon()
        if joins:
            # The coordinator may have taken it in, or may be out of reach.
            with suppress(KafkaError, BrokerUnreachable, TimeoutError):
                await self._say_goodbye()
        elif self._epoch != JOIN:
            await self._say_goodbye()

    async def _say_goodbye(self) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self._member_id,
            # Another member may take the place of a static one at once, with its partitions.
            member_epoch=LEAVE if self._instance_id is None else LEAVE_FOR_A_WHILE,
            instance_id=self._instance_id,
        )
        self._epoch, self._target = JOIN, {}
        response = await self._cluster.ask_coordinator(API, request, self._group)
        if ErrorCode.of(response.error_code) not in _FENCED:
            check(response.error_code, response.error_message)

    async def abandon(self) -> None:
        heartbeats, self._heartbeats = self._heartbeats, None
        if heartbeats is not None:
            heartbeats.cancel()
            await asyncio.wait([heartbeats])


def _rows(partitions: Partitions) -> list[TopicPartitions]:
    by_topic: dict[bytes, list[int]] = defaultdict(list)
    for (_, partition), topic in partitions.items():
        by_topic[topic].append(partition)
    return [TopicPartitions(topic_id=each, partitions=rows) for each, rows in by_topic.items()]
