"""Members of the one group that speak the classic protocol, and behave as clients do."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from barnabas.coordinator.group.consumer.embedded import (
    by_id,
    read_assignment,
    read_subscription,
    write_assignment,
)
from barnabas.protocol.codec import encode
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.internal.consumer_protocol import (
    ConsumerProtocolSubscription,
    OwnedPartitions,
)
from barnabas.protocol.messages.join_group import JoinGroupResponse
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.support.coordinator.consumers import Consumers, Owned
from tests.support.coordinator.harness import GROUP


@dataclass
class ClassicMember:
    """A member that gives up all partitions before it joins again, or only those that it has to."""

    host: Consumers
    member_id: str = ""
    generation: int = 0
    topics: tuple[str, ...] = ("t",)
    instance_id: str | None = None
    cooperative: bool = False
    version: int = 9
    owned: Owned = field(default_factory=dict)
    codes: list[ErrorCode] = field(default_factory=list)
    """The errors that it was answered with."""
    _waits: tuple[asyncio.Future[Any], Callable[[Any], None]] | None = None

    @property
    def partitions(self) -> int:
        return sum(map(len, self.owned.values()))

    @property
    def alive(self) -> bool:
        """Whether it believes to be in the group, or wants to be."""
        return bool(self.generation or self._waits)

    @property
    def protocols(self) -> tuple[tuple[str, bytes], ...]:
        names = {each.topic_id: each.name for each in self.host.topics.topics.values()}
        value = ConsumerProtocolSubscription(
            topics=list(self.topics),
            owned_partitions=[
                OwnedPartitions(topic=names[topic_id], partitions=indexes)
                for topic_id, indexes in self.owned.items()
            ],
        )
        data = b"\0\1" + encode(value, 1)
        if self.cooperative:
            return (("cooperative-sticky", data),)
        return (("range", data), ("roundrobin", data))

    def join(self) -> None:
        """Join, and ask for the assignment once the answer is there."""
        if not self.cooperative:
            self.owned = {}
        self._ask(
            lambda: self.host.join(
                self.member_id,
                version=self.version,
                instance=self.instance_id,
                protocols=self.protocols,
            ),
            self._joined,
        )

    def beat(self) -> None:
        """Look whether an answer is there; otherwise send a heartbeat, and join if it is asked."""
        if self._waits is not None:
            future, then = self._waits
            if future.done():
                self._waits = None
                self._ask(future.result, then)
        elif not self.generation:
            self.join()
        else:
            self._ask(
                lambda: self.host.heartbeat(self.member_id, self.generation, self.instance_id),
                self._beaten,
            )

    def rejoin(self) -> None:
        """Join again, unless an answer is awaited."""
        if self._waits is None:
            self.join()

    def leave(self) -> None:
        self.host.leave(self.member_id, instance=self.instance_id)
        self.stop()

    def stop(self) -> None:
        """Use nothing, and forget the group."""
        if self._waits is not None:
            self._waits[0].add_done_callback(lambda done: done.cancelled() or done.exception())
        self.member_id, self.generation, self.owned, self._waits = "", 0, {}, None

    def _ask(self, request: Callable[[], Any], then: Callable[[Any], None]) -> None:
        try:
            answer = request()
        except KafkaError as error:
            self.codes.append(error.code)
            if error.code is ErrorCode.REBALANCE_IN_PROGRESS:
                self.generation = 0
            else:
                known = "" if error.code is ErrorCode.UNKNOWN_MEMBER_ID else self.member_id
                self.stop()
                self.member_id = known
            return
        if isinstance(answer, asyncio.Future):
            self._waits = (answer, then)
            if answer.done():
                self.beat()
        else:
            then(answer)

    def _beaten(self, code: int) -> None:
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.join()

    def _joined(self, response: JoinGroupResponse) -> None:
        self.member_id = response.member_id
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.join()
            return
        self.generation = response.generation_id
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=response.protocol_type,
            protocol_name=response.protocol_name,
            assignments=self._assignments(response),
        )
        self._ask(lambda: self.host.coordinator.sync(request), self._synced)

    def _assignments(self, response: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        """Return the assignments of all members, if it leads; they take turns."""
        topics = {
            each.member_id: read_subscription(each.metadata).topics for each in response.members
        }
        shares: dict[str, Owned] = {member_id: {} for member_id in topics}
        for topic in self.host.topics.topics.values():
            readers = sorted(each for each in topics if topic.name in topics[each])
            for index in range(topic.partitions if readers else 0):
                share = shares[readers[index % len(readers)]]
                share.setdefault(topic.topic_id, []).append(index)
        return [
            SyncGroupRequestAssignment(
                member_id=member_id,
                assignment=write_assignment(self.host.topics, share, b"\0\0"),
            )
            for member_id, share in shares.items()
        ]

    def _synced(self, response: Any) -> None:
        told = read_assignment(response.assignment).assigned_partitions
        new = by_id(self.host.topics, told)
        revokes = any(set(self.owned[each]) - set(new.get(each, ())) for each in self.owned)
        self.owned = new
        if self.cooperative and revokes:
            self.join()
