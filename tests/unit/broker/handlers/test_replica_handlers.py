"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments as clients use them."""

from collections.abc import AsyncIterator

import pytest

from barnabas.broker.cluster.new_topics import NewTopic
from barnabas.broker.controller.replica_admin import ReplicaAdmin
from barnabas.broker.handlers import (
    alter_partition_reassignments,
    elect_leaders,
    list_partition_reassignments,
)
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
)
from barnabas.protocol.messages.elect_leaders import (
    UNCLEAN,
    ElectLeadersRequest,
    PartitionResult,
    TopicPartitions,
)
from barnabas.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
)
from tests.unit.broker.handlers.control_plane import ControlPlane, control_plane


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    """Provide broker 1, which answers and has the topics, and broker 2."""
    async with control_plane() as plane:
        await plane.cluster.start(2)
        use(plane, 1)
        await plane.broker.controller.create_topics(
            [
                NewTopic("t", assignments=[(0, [1]), (1, [1])]),
                NewTopic("u", assignments=[(0, [1])]),
            ],
            timeout=5,
        )
        yield plane


def use(plane: ControlPlane, broker: int) -> None:
    """Send the next requests to this broker."""
    admin = ReplicaAdmin(plane.cluster.brokers[broker].controller)
    for module in (elect_leaders, alter_partition_reassignments, list_partition_reassignments):
        plane.serve(module, admin)


def move(*partitions: tuple[int, list[int] | None]) -> list[ReassignableTopic]:
    return [
        ReassignableTopic(
            name="t",
            partitions=[
                ReassignablePartition(partition_index=index, replicas=replicas)
                for index, replicas in partitions
            ],
        )
    ]


async def test_each_reassignment_is_answered_on_its_own(plane: ControlPlane) -> None:
    answer = await plane.ask(
        AlterPartitionReassignmentsRequest(topics=move((0, [1, 2]), (1, [7]), (9, [1])))
    )
    assert (answer.error_code, answer.allow_replication_factor_change) == (0, True)
    good, bad, unknown = answer.responses[0].partitions
    assert good == ReassignablePartitionResponse(partition_index=0)
    assert (bad.partition_index, bad.error_code, bad.error_message) == (
        1,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "The manual partition assignment includes broker 7, but no such broker is registered.",
    )
    assert (unknown.error_code, unknown.error_message) == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "Unable to find partition t:9.",
    )


async def test_reassignment_is_listed_until_cancelled(plane: ControlPlane) -> None:
    await plane.ask(AlterPartitionReassignmentsRequest(topics=move((0, [2]))))
    going = OngoingPartitionReassignment(
        partition_index=0, replicas=[2, 1], adding_replicas=[2], removing_replicas=[1]
    )
    listed = await plane.ask(ListPartitionReassignmentsRequest())
    assert [(topic.name, topic.partitions) for topic in listed.topics] == [("t", [going])]
    elsewhere = ListPartitionReassignmentsTopics(name="t", partition_indexes=[1])
    listed = await plane.ask(ListPartitionReassignmentsRequest(topics=[elsewhere]))
    assert listed.topics == []
    answer = await plane.ask(AlterPartitionReassignmentsRequest(topics=move((0, None), (1, None))))
    codes = [each.error_code for each in answer.responses[0].partitions]
    assert codes == [0, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS]
    assert (await plane.ask(ListPartitionReassignmentsRequest())).topics == []


async def test_reassignment_can_forbid_new_replication_factor(plane: ControlPlane) -> None:
    answer = await plane.ask(
        AlterPartitionReassignmentsRequest(
            topics=move((0, [1, 2])), allow_replication_factor_change=False
        )
    )
    row = answer.responses[0].partitions[0]
    assert (row.error_code, row.error_message) == (
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "The replication factor is changed from 1 to 2",
    )
    assert not answer.allow_replication_factor_change


async def test_election_not_needed_is_reported_only_for_named_partitions(
    plane: ControlPlane,
) -> None:
    named = [TopicPartitions(topic="t", partitions=[0, 5])]
    answer = await plane.ask(ElectLeadersRequest(topic_partitions=named))
    assert answer.replica_election_results[0].partition_result == [
        PartitionResult(
            partition_id=0,
            error_code=ErrorCode.ELECTION_NOT_NEEDED,
            error_message=ErrorCode.ELECTION_NOT_NEEDED.text,
        ),
        PartitionResult(
            partition_id=5,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message="No such partition as t-5",
        ),
    ]
    answer = await plane.ask(ElectLeadersRequest(topic_partitions=None))
    found = {each.topic: each.partition_result for each in answer.replica_election_results}
    assert found == {"t": [], "u": []}


async def test_unknown_election_type_is_refused(plane: ControlPlane) -> None:
    answer = await plane.ask(ElectLeadersRequest(election_type=7, topic_partitions=None))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    answer = await plane.ask(ElectLeadersRequest(election_type=UNCLEAN, topic_partitions=None))
    assert answer.error_code == 0


async def test_broker_that_is_not_controller_refuses(plane: ControlPlane) -> None:
    use(plane, 2)
    named = [TopicPartitions(topic="t", partitions=[0])]
    for answer in (
        await plane.ask(ElectLeadersRequest(topic_partitions=named)),
        await plane.ask(AlterPartitionReassignmentsRequest(topics=move((0, [1])))),
        await plane.ask(ListPartitionReassignmentsRequest()),
    ):
        assert answer.error_code == ErrorCode.NOT_CONTROLLER
    # v0 has no room for it but beside each partition.
    answer = await plane.ask(ElectLeadersRequest(topic_partitions=named), 0)
    row = answer.replica_election_results[0].partition_result[0]
    assert row.error_code == ErrorCode.NOT_CONTROLLER
