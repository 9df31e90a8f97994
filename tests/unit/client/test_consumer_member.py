"""A member in the consumer protocol beside a coordinator that follows a script."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.client.cluster import Cluster
from barnabas.client.connection import BrokerUnreachable
from barnabas.client.consumer import Consumer, FetchSettings
from barnabas.client.group import GroupMember, RebalanceListener
from barnabas.client.offsets import EARLIEST
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import (
    consumer_group_heartbeat,
    metadata,
    offset_commit,
    offset_fetch,
)
from barnabas.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from barnabas.protocol.topic_partition import TopicPartition
from tests.support.waiting import eventually

A, A_AGAIN, B = b"a" * 16, b"A" * 16, b"b" * 16
Answer = ConsumerGroupHeartbeatResponse | BaseException
Key = tuple[str, int]


def given(epoch: int, partitions: dict[bytes, list[int]] | None = None) -> Answer:
    """Return a response with an epoch, and with partitions if they are given."""
    rows = None
    if partitions is not None:
        rows = Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=t, partitions=p) for t, p in partitions.items()
            ]
        )
    return ConsumerGroupHeartbeatResponse(
        member_epoch=epoch, member_id="m", heartbeat_interval_ms=10, assignment=rows
    )


def refused(code: ErrorCode, message: str | None = None) -> Answer:
    return ConsumerGroupHeartbeatResponse(error_code=code, error_message=message)


@dataclass
class Coordinator:
    """A connection to a cluster of one broker: it answers heartbeats as the script says, and the
    ones after it as the last one, without an assignment."""

    script: list[Answer]
    version: int = 1
    heartbeats: list[ConsumerGroupHeartbeatRequest] = field(default_factory=list)
    committed: list[tuple[int, dict[Key, int]]] = field(default_factory=list)
    commit_codes: list[ErrorCode] = field(default_factory=list)
    fetch_codes: list[ErrorCode] = field(default_factory=list)
    topics: dict[str, bytes] = field(default_factory=lambda: {"a": A, "b": B})
    offsets: dict[Key, int] = field(default_factory=dict)
    last_epoch: int = 0
    held: asyncio.Event | None = None

    def version_for(self, api: Any) -> int:
        return self.version if api is consumer_group_heartbeat.API else 9

    async def request(self, api: Any, request: Any, **_: Any) -> Any:
        await asyncio.sleep(0)
        match api:
            case consumer_group_heartbeat.API:
                return await self._heartbeat(request)
            case metadata.API:
                return self._metadata()
            case offset_fetch.API:
                return self._offsets(request)
            case offset_commit.API:
                return self._commit(request)
        raise AssertionError(api)

    async def _heartbeat(self, request: ConsumerGroupHeartbeatRequest) -> Any:
        self.heartbeats.append(request)
        if self.held is not None:
            await self.held.wait()
        answer = self.script.pop(0) if self.script else given(max(self.last_epoch, 1))
        if isinstance(answer, BaseException):
            raise answer
        self.last_epoch = answer.member_epoch
        return answer

    def _metadata(self) -> Any:
        return metadata.MetadataResponse(
            brokers=[],
            cluster_id="c",
            controller_id=1,
            topics=[
                metadata.MetadataResponseTopic(
                    error_code=0, name=name, topic_id=topic, is_internal=False, partitions=[]
                )
                for name, topic in self.topics.items()
            ],
        )

    def _offsets(self, request: Any) -> Any:
        (group,) = request.groups
        topics = [
            SimpleNamespace(
                name=topic.name,
                partitions=[
                    SimpleNamespace(
                        partition_index=p,
                        error_code=0,
                        committed_offset=self.offsets.get((topic.name, p), -1),
                    )
                    for p in topic.partition_indexes
                ],
            )
            for topic in group.topics
        ]
        code = self.fetch_codes.pop(0) if self.fetch_codes else 0
        answer = SimpleNamespace(group_id=group.group_id, error_code=code, topics=topics)
        return SimpleNamespace(groups=[answer])

    def _commit(self, request: Any) -> Any:
        code = self.commit_codes.pop(0) if self.commit_codes else 0
        rows = {
            (topic.name, row.partition_index): row.committed_offset
            for topic in request.topics
            for row in topic.partitions
        }
        self.committed.append((request.generation_id_or_member_epoch, rows))
        topics = [
            SimpleNamespace(
                name=topic.name,
                partitions=[
                    SimpleNamespace(partition_index=row.partition_index, error_code=code)
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return SimpleNamespace(topics=topics)


class Listener(RebalanceListener):
    """Notes the calls; commits before partitions are revoked."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[Key]]] = []
        self.commit: Callable[[], Any] | None = None

    async def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.calls.append(("assigned", sorted(partitions)))

    async def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.calls.append(("revoked", sorted(partitions)))
        if self.commit is not None:
            await self.commit()

    async def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.calls.append(("lost", sorted(partitions)))


class Group:
    """A member with its coordinator."""

    def __init__(self, coordinator: Coordinator, **options: Any) -> None:
        self.coordinator = coordinator
        self.cluster = Cluster("nowhere:1", timeout=5)
        self.cluster.coordinator_connection = self._connection  # type: ignore[method-assign]
        self.cluster.any_connection = self._connection  # type: ignore[method-assign]
        self.listener = Listener()
        self.consumer = Consumer(self.cluster, FetchSettings(offset_reset=EARLIEST))
        options = {"topics": ["a"], **options}
        self.member = GroupMember(
            self.cluster,
            self.consumer,
            "g",
            options.pop("topics"),
            protocol="consumer",
            listener=self.listener,
            **options,
        )

    async def _connection(self, *_: Any) -> Any:
        return self.coordinator

    async def __aenter__(self) -> "Group":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.member.abandon()

    async def until(self, condition: Callable[[], object]) -> None:
        """Poll as an application does, until a condition holds."""
        async with asyncio.timeout(5):
            while not condition():
                await self.member.ensure_joined()
                await asyncio.sleep(0.002)

    @property
    def positions(self) -> dict[Key, int]:
        return dict(self.consumer.positions)


def _partitions(request: ConsumerGroupHeartbeatRequest) -> dict[bytes, list[int]] | None:
    rows = request.topic_partitions
    return None if rows is None else {row.topic_id: sorted(row.partitions) for row in rows}


async def test_first_heartbeat_is_complete_and_later_ones_have_what_changed() -> None:
    coordinator = Coordinator([given(3, {A: [0, 1]})])
    async with Group(coordinator, assignors=["range"], instance_id="i") as group:
        await group.until(lambda: len(coordinator.heartbeats) >= 4)
        first, second, third, _ = coordinator.heartbeats[:4]
        assert (first.member_epoch, first.subscribed_topic_names) == (0, ["a"])
        assert (first.server_assignor, first.rebalance_timeout_ms) == ("range", 300_000)
        assert _partitions(first) == {}
        assert first.member_id
        assert (second.member_id, second.member_epoch, second.instance_id) == ("m", 3, "i")
        assert (second.subscribed_topic_names, second.server_assignor) == (None, None)
        assert second.rebalance_timeout_ms == -1
        assert _partitions(second) == {A: [0, 1]}
        assert _partitions(third) is None
        assert group.listener.calls == [("assigned", [("a", 0), ("a", 1)])]


async def test_assigned_partitions_begin_at_committed_offsets_or_are_reset() -> None:
    coordinator = Coordinator([given(1, {A: [0, 1]})], offsets={("a", 1): 7})
    async with Group(coordinator) as group:
        await group.until(lambda: group.positions)
        assert group.positions == {("a", 0): EARLIEST, ("a", 1): 7}


async def test_partitions_are_revoked_committed_and_then_reported() -> None:
    coordinator = Coordinator([given(1, {A: [0, 1, 2]}), given(1), given(2, {A: [0], B: [5]})])
    async with Group(coordinator, topics=["a", "b"]) as group:
        group.listener.commit = group.member.commit
        await group.until(lambda: len(group.positions) == 3)
        for partition in (0, 1, 2):
            group.consumer.seek(TopicPartition("a", partition), 10 + partition)
        await group.until(lambda: ("b", 5) in group.positions)
        assert group.listener.calls[1:] == [
            ("revoked", [("a", 1), ("a", 2)]),
            ("assigned", [("b", 5)]),
        ]
        assert coordinator.committed == [(2, {("a", 0): 10, ("a", 1): 11, ("a", 2): 12})]
        await eventually(lambda: _partitions(coordinator.heartbeats[-1]) is None)
        reports = [found for each in coordinator.heartbeats if (found := _partitions(each))]
        assert reports[-1] == {A: [0], B: [5]}


async def test_heartbeat_after_a_lost_response_is_complete() -> None:
    """The coordinator accepts an epoch before the last one only with the partitions."""
    lost = BrokerUnreachable("gone")
    coordinator = Coordinator([given(1, {A: [0]}), given(1), lost, given(2)])
    async with Group(coordinator) as group:
        await group.until(lambda: len(coordinator.heartbeats) >= 5)
        again = coordinator.heartbeats[3]
        assert (again.member_epoch, again.subscribed_topic_names) == (1, ["a"])
        assert _partitions(again) == {A: [0]}
        assert coordinator.heartbeats[4].subscribed_topic_names is None
        assert len(group.listener.calls) == 1


@pytest.mark.parametrize(
    "code",
    [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND],
)
async def test_member_that_was_removed_loses_its_partitions_and_joins_again(
    code: ErrorCode,
) -> None:
    script = [given(4, {A: [0, 1]}), given(4), refused(code), given(9, {A: [1]})]
    coordinator = Coordinator(script)
    async with Group(coordinator) as group:
        await group.until(lambda: len(group.listener.calls) == 3)
        assert group.listener.calls[1:] == [
            ("lost", [("a", 0), ("a", 1)]),
            ("assigned", [("a", 1)]),
        ]
        again = coordinator.heartbeats[3]
        assert (again.member_id, again.member_epoch, _partitions(again)) == ("m", 0, {})
        assert again.subscribed_topic_names == ["a"]
        assert group.member.metadata.generation == 9


async def test_commit_with_a_stale_epoch_is_repeated_with_the_next_one() -> None:
    coordinator = Coordinator([given(1, {A: [0]})])
    async with Group(coordinator) as group:
        await group.until(lambda: group.positions)
        group.consumer.seek(TopicPartition("a", 0), 5)
        coordinator.script.append(given(2))
        coordinator.commit_codes = [ErrorCode.STALE_MEMBER_EPOCH]
        await group.member.commit()
        assert [rows for _, rows in coordinator.committed] == [{("a", 0): 5}] * 2
        assert coordinator.committed[-1][0] == 2


async def test_commit_of_a_member_that_was_removed_loses_its_partitions() -> None:
    coordinator = Coordinator([given(1, {A: [0]})])
    async with Group(coordinator) as group:
        await group.until(lambda: group.positions)
        group.consumer.seek(TopicPartition("a", 0), 5)
        # A heartbeat is on its way while the commit learns of the removal: its response is stale.
        coordinator.held = asyncio.Event()
        sent = len(coordinator.heartbeats)
        await eventually(lambda: len(coordinator.heartbeats) > sent)
        coordinator.commit_codes = [ErrorCode.UNKNOWN_MEMBER_ID]
        await group.member.commit()
        assert group.member.metadata.generation == 0
        await group.member.commit()
        assert len(coordinator.committed) == 1
        coordinator.script = [given(1), given(7, {A: [2]})]
        coordinator.held.set()
        await group.until(lambda: ("a", 2) in group.positions)
        assert group.listener.calls[1:] == [("lost", [("a", 0)]), ("assigned", [("a", 2)])]


async def test_topic_that_is_not_known_yet_is_assigned_later() -> None:
    coordinator = Coordinator([given(1, {A: [0], B: [1]})], topics={"a": A})
    async with Group(coordinator, topics=[], expression="a|b") as group:
        await group.until(lambda: group.positions)
        assert group.positions == {("a", 0): EARLIEST}
        assert coordinator.heartbeats[0].subscribed_topic_regex == "a|b"
        assert coordinator.heartbeats[0].subscribed_topic_names == []
        coordinator.topics["b"] = B
        await group.until(lambda: len(group.positions) == 2)


async def test_topic_that_was_created_again_is_read_from_its_beginning() -> None:
    coordinator = Coordinator([given(1, {A: [0]})], offsets={("a", 0): 50})
    async with Group(coordinator) as group:
        await group.until(lambda: group.positions)
        coordinator.topics["a"] = A_AGAIN
        coordinator.offsets.clear()
        coordinator.script.append(given(2, {A_AGAIN: [0]}))
        await group.until(lambda: group.positions == {("a", 0): EARLIEST})
        assert [call for call, _ in group.listener.calls] == ["assigned", "revoked", "assigned"]


async def test_error_is_raised_with_the_text_of_the_coordinator_and_the_next_call_joins() -> None:
    bad = refused(ErrorCode.INVALID_REGULAR_EXPRESSION, "`(` is not valid")
    coordinator = Coordinator([bad, given(1, {A: [0]})])
    async with Group(coordinator, expression="(") as group:
        with pytest.raises(KafkaError) as caught:
            await group.member.ensure_joined()
        assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
        assert caught.value.message == "`(` is not valid"
        await group.until(lambda: group.positions)


async def test_partitions_are_lost_when_heartbeats_end_with_an_error() -> None:
    script = [given(1, {A: [0]}), given(1), refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)]
    coordinator = Coordinator(script)
    async with Group(coordinator) as group:
        with pytest.raises(KafkaError):
            await group.until(lambda: False)
        assert group.listener.calls[-1] == ("lost", [("a", 0)])
        assert group.positions == {}


async def test_member_whose_heartbeats_ended_with_an_error_reads_again() -> None:
    failed = refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    coordinator = Coordinator([given(1, {A: [0]}), given(1), failed, given(2, {A: [0]})])
    async with Group(coordinator) as group:
        with pytest.raises(KafkaError):
            await group.until(lambda: False)
        await group.until(lambda: group.positions)
        again = coordinator.heartbeats[3]
        # A coordinator refuses a member that joins and has partitions.
        assert (again.member_epoch, _partitions(again)) == (0, {})


async def test_partition_that_was_taken_back_before_it_was_used_is_given_up() -> None:
    """The coordinator waits until the member tells what it uses, and no other gets it before."""
    coordinator = Coordinator([given(1, {A: [0]})])
    async with Group(coordinator) as group:
        await group.until(lambda: group.positions)
        await group.until(lambda: len(coordinator.heartbeats) > 2)
        await eventually(lambda: _partitions(coordinator.heartbeats[-1]) is None)
        coordinator.script += [given(2, {A: [0, 1]}), given(2, {A: [0]})]
        await eventually(lambda: not coordinator.script)
        sent = len(coordinator.heartbeats)
        await group.until(lambda: any(map(_partitions, coordinator.heartbeats[sent:])))
        assert {A: [0]} in [_partitions(each) for each in coordinator.heartbeats[sent:]]
        assert len(group.listener.calls) == 1
        await eventually(lambda: _partitions(coordinator.heartbeats[-1]) is None)


async def test_partition_that_is_taken_back_while_its_offset_is_fetched_is_never_used() -> None:
    coordinator = Coordinator([given(1, {A: [0]})])
    async with Group(coordinator) as group:
        await group.until(lambda: group.positions)
        coordinator.script.append(given(2, {A: [0, 1]}))
        await eventually(lambda: not coordinator.script)
        coordinator.fetch_codes = [ErrorCode.STALE_MEMBER_EPOCH]
        coordinator.script.append(given(3, {A: [0]}))
        await group.until(lambda: not coordinator.script and not coordinator.fetch_codes)
        assert group.listener.calls == [("assigned", [("a", 0)])]


async def test_member_that_leaves_while_it_joins_says_so() -> None:
    """The coordinator has taken it in, and would keep partitions for it as long as a session."""
    coordinator = Coordinator([given(1, {A: [0]})], held=asyncio.Event())
    async with Group(coordinator) as group:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(group.member.ensure_joined(), 0.05)
        assert coordinator.held is not None
        coordinator.held.set()
        coordinator.script = [refused(ErrorCode.UNKNOWN_MEMBER_ID)]
        await group.member.leave()
        assert [each.member_epoch for each in coordinator.heartbeats] == [0, -1]


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("i", -2)])
async def test_leaving_member_revokes_and_says_so(instance_id: str | None, epoch: int) -> None:
    coordinator = Coordinator([given(1, {A: [0]})])
    async with Group(coordinator, instance_id=instance_id) as group:
        group.listener.commit = group.member.commit
        await group.until(lambda: group.positions)
        group.consumer.seek(TopicPartition("a", 0), 5)
        await group.member.leave()
        assert coordinator.committed == [(1, {("a", 0): 5})]
        assert group.listener.calls[-1] == ("revoked", [("a", 0)])
        last = coordinator.heartbeats[-1]
        assert (last.member_epoch, last.instance_id) == (epoch, instance_id)
        assert group.positions == {}
        sent = len(coordinator.heartbeats)
        await group.member.leave()
        await asyncio.sleep(0.03)
        assert len(coordinator.heartbeats) == sent


async def test_expression_needs_a_broker_that_takes_it() -> None:
    async with Group(Coordinator([], version=0), expression="a.*") as group:
        with pytest.raises(KafkaError, match=r"needs Kafka 4\.0"):
            await group.member.ensure_joined()


def test_options_of_the_other_protocol_are_refused() -> None:
    cluster = Cluster("nowhere:1")
    consumer = Consumer(cluster)
    with pytest.raises(ValueError, match="one assignor"):
        GroupMember(cluster, consumer, "g", ["a"], protocol="consumer", assignors=["a", "b"])
    with pytest.raises(ValueError, match="needs protocol='consumer'"):
        GroupMember(cluster, consumer, "g", ["a"], expression="a.*")
