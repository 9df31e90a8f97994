"""Members of a group whose client is of a later version, or writes what cannot be read."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.connection import Connection
from barnabas.client.consumer import Consumer
from barnabas.client.group import GroupMember
from barnabas.client.groups import classic
from barnabas.client.groups.assignors import Subscription
from barnabas.client.groups.protocol import write_assignment, write_subscription
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import join_group, sync_group
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.testing import Broker
from tests.support.command_line import Cli

LATER = b"\x00\x09"
"""A version that no client has today."""
BEHIND = b"\0\x05later"
JUNK = b"\x00\x01\x00\x00\x00\x03\x00"


def later_subscription(*topics: str) -> bytes:
    return LATER + write_subscription(Subscription(topics), 3)[2:] + BEHIND


def later_assignment(topic: str, *partitions: int) -> bytes:
    share = [TopicPartition(topic, each) for each in partitions]
    return LATER + write_assignment(share)[2:] + BEHIND


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    # Apache Kafka 4.3 refuses a subscription that it cannot read (UNKNOWN_SERVER_ERROR).
    with Broker() as broker:
        yield broker.bootstrap_servers


class Foreign:
    """A member that sends its subscription as it is given."""

    def __init__(self, connection: Connection, name: str, subscription: bytes) -> None:
        self._connection = connection
        self._group = name
        self._subscription = subscription
        self.joined = join_group.JoinGroupResponse(
            protocol_name=None, leader="", member_id="", members=[]
        )

    async def join(self, members: int = 0) -> None:
        """Join, as the leader again until so many members have joined."""
        while True:
            request = join_group.JoinGroupRequest(
                group_id=self._group,
                session_timeout_ms=30_000,
                rebalance_timeout_ms=30_000,
                member_id=self.joined.member_id,
                protocol_type="consumer",
                protocols=[
                    join_group.JoinGroupRequestProtocol(name="range", metadata=self._subscription)
                ],
            )
            self.joined = await self._connection.request(join_group.API, request, timeout=30)
            if self.joined.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                assert self.joined.error_code == 0
                if len(self.joined.members) >= members:
                    return

    async def sync(self, assignments: dict[str, bytes]) -> bytes:
        """Return the own assignment; a leader gives those of all members."""
        request = sync_group.SyncGroupRequest(
            group_id=self._group,
            generation_id=self.joined.generation_id,
            member_id=self.joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                sync_group.SyncGroupRequestAssignment(member_id=member, assignment=share)
                for member, share in assignments.items()
            ],
        )
        answer = await self._connection.request(sync_group.API, request, timeout=30)
        assert answer.error_code == 0
        return bytes(answer.assignment)


@asynccontextmanager
async def foreign(cluster: Cluster, name: str, subscription: bytes) -> AsyncIterator[Foreign]:
    await cluster.retrying(lambda: cluster.coordinator(name))
    node = cluster.nodes[await cluster.coordinator(name)]
    connection = await Connection.open(node.host, node.port, timeout=10)
    try:
        yield Foreign(connection, name, subscription)
    finally:
        await connection.close()


async def test_our_leader_goes_on_with_foreign_members(
    cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classic, "HEARTBEAT_INTERVAL", 0.05)
    consumer = Consumer(cluster)
    async with (
        GroupMember(cluster, consumer, topic, [topic], assignors=["range"]) as leader,
        foreign(cluster, topic, later_subscription(topic)) as later,
        foreign(cluster, topic, JUNK) as unreadable,
    ):
        await leader.ensure_joined()
        joins = asyncio.gather(later.join(), unreadable.join())
        while not joins.done():
            await leader.ensure_joined()
            await asyncio.sleep(0.02)
        assert later.joined.generation_id == unreadable.joined.generation_id
        shares = asyncio.gather(later.sync({}), unreadable.sync({}))
        while not shares.done():
            await leader.ensure_joined()
            await asyncio.sleep(0.02)
        its, none = shares.result()
        ours = sorted(partition for _, partition in consumer.positions)
    (other,) = {0, 1} - set(ours)
    assert its == write_assignment([TopicPartition(topic, other)])
    assert none == write_assignment([])


async def test_assignment_of_a_later_leader_is_read(cluster: Cluster, topic: str) -> None:
    consumer = Consumer(cluster)
    async with foreign(cluster, topic, later_subscription(topic)) as leader:
        await leader.join()
        await leader.sync({leader.joined.member_id: later_assignment(topic, 0, 1)})
        async with GroupMember(cluster, consumer, topic, [topic], assignors=["range"]) as ours:
            joining = asyncio.create_task(ours.ensure_joined())
            await leader.join(members=2)
            mine = leader.joined.member_id
            (other,) = {each.member_id for each in leader.joined.members} - {mine}
            shares = {mine: JUNK, other: later_assignment(topic, 1)}
            assert await leader.sync(shares) == JUNK
            await joining
            assert list(consumer.positions) == [TopicPartition(topic, 1)]


def test_commands_show_what_they_can_read_of_foreign_members(cli: Cli, servers: str) -> None:
    name = "foreign"

    async def join() -> tuple[str, str]:
        """Join a later member, and one of which nothing can be read; return their ids."""
        async with Cluster(servers) as cluster, asyncio.timeout(30):
            await Admin(cluster).create_topic(name, partitions=2)
            async with (
                foreign(cluster, name, later_subscription(name)) as later,
                foreign(cluster, name, JUNK) as unreadable,
            ):
                await later.join()
                joining = asyncio.create_task(unreadable.join())
                await later.join(members=2)
                await joining
                ids = later.joined.member_id, unreadable.joined.member_id
                shares = dict(zip(ids, (later_assignment(name, 0, 1), JUNK), strict=True))
                await asyncio.gather(later.sync(shares), unreadable.sync({}))
                return ids

    later, unreadable = asyncio.run(join())
    cli("topics", "create", "understood")
    cli("produce", "understood", stdin=b"a\n")
    cli("groups", "reset-offsets", "understood", "-t", "understood", "--to-earliest")
    one = cli.json("groups", "describe", name)
    everything = {each["group"]: each for each in cli.json("groups", "describe", "--all")}
    assert everything.keys() >= {name, "understood"}
    assert everything[name]["members"] == one["members"]
    members = {each["member"]: each for each in one["members"]}
    assert members[later]["assigned"] == [f"{name}:0", f"{name}:1"]
    assert members[later]["error"] is None
    assert members[unreadable]["assigned"] is None
    assert "ConsumerProtocolAssignment" in members[unreadable]["error"]
    assert {row["member"] for row in one["partitions"]} == {later}
    shown = cli("groups", "describe", name).decode()
    assert "members\t2\n" in shown
    (line,) = (line for line in shown.splitlines() if line.startswith(unreadable))
    assert line.endswith("\tcannot be read")
    _decoded(cli, later, unreadable)


def _decoded(cli: Cli, later: str, unreadable: str) -> None:
    """Check the records of the group, and that the reading goes on behind them."""
    lines = cli("consume", "__consumer_offsets", "--decode", "-o", "beginning", "-e").splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row for row in rows if row["key"] == {"group": "understood"} or row["kind"] == "offset"]
    (stored,) = (
        {each["member"]: each for each in row["value"]["members"]}
        for row in rows
        if row["kind"] == "group"
        and row["key"]["group"] == "foreign"
        and len(row["value"]["members"]) == 2
    )
    assert stored[later]["topics"] == ["foreign"]
    assert stored[later]["assigned"] == ["foreign:0", "foreign:1"]
    assert (stored[unreadable]["topics"], stored[unreadable]["assigned"]) == (None, None)
    assert "ConsumerProtocolSubscription" in stored[unreadable]["error"]
