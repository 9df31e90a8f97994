"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments as clients use them."""

from collections.abc import AsyncIterator

import pytest

from barnabas.broker.controller.replica_admin import ReplicaAdmin
from barnabas.broker.controller.topics import NewTopic
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
    """Broker 1, which answers, and broker 2; the topics are on the first."""
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
    """Ask this broker from now on."""
    admin = ReplicaAdmin(plane.cluster.brokers[broker].controller)
    for module, handler in (
        (elect_leaders, elect_leaders.ElectLeadersHandler(admin)),
        (
            alter_partition_reassignments,
            alter_partition_reassignments.AlterPartitionReassignmentsHandler(admin),
        ),
        (
            list_partition_reassignments,
            list_partition_reassignments.ListPartitionReassignmentsHandler(admin),
        ),
    ):
        plane.handlers[module.API.request] = (module, handler.handle)


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


async def test_each_partition_is_answered_for_itself(plane: ControlPlane) -> None:
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


async def test_what_goes_on_is_listed_until_it_is_cancelled(plane: ControlPlane) -> None:
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


async def test_the_number_of_replicas_can_be_made_to_stay(plane: ControlPlane) -> None:
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


async def test_an_election_that_is_not_needed_is_told_only_to_who_names_it(
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


async def test_a_kind_of_election_that_nobody_knows_is_refused(plane: ControlPlane) -> None:
    answer = await plane.ask(ElectLeadersRequest(election_type=7, topic_partitions=None))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    answer = await plane.ask(ElectLeadersRequest(election_type=UNCLEAN, topic_partitions=None))
    assert answer.error_code == 0


async def test_who_is_not_the_controller_says_so(plane: ControlPlane) -> None:
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
