"""AlterPartitionReassignments with one broker: refusals, and requests that move nothing."""

from barnabas.protocol.messages.alter_partition_reassignments import (
    API,
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from tests.referee import given
from tests.referee.scenario import Peer, Scenarios

scenario = Scenarios(API)


def request(
    name: str, *partitions: tuple[int, list[int] | None], factor_may_change: bool = True
) -> AlterPartitionReassignmentsRequest:
    return AlterPartitionReassignmentsRequest(
        timeout_ms=10_000,
        allow_replication_factor_change=factor_may_change,
        topics=[
            ReassignableTopic(
                name=name,
                partitions=[
                    ReassignablePartition(partition_index=index, replicas=replicas)
                    for index, replicas in partitions
                ],
            )
        ],
    )


@scenario
def to_the_present_replicas(s: Peer) -> None:
    to = given.topic(s, partitions=2)
    s.ask(request(to.name, (0, [1]), (1, [1])))
    s.ask(ListPartitionReassignmentsRequest())


@scenario
def impossible_replicas(s: Peer) -> None:
    to = given.topic(s)
    for replicas in ([], [1, 1], [9], [1, 9], [-1]):
        s.ask(request(to.name, (0, replicas)))
    s.ask(ListPartitionReassignmentsRequest())


@scenario
def partitions_and_topics_that_do_not_exist(s: Peer) -> None:
    to = given.topic(s)
    s.ask(request(to.name, (5, [1]), (0, [1]), (-1, [1])))
    s.ask(request(s.name("unknown"), (0, [1])))
    s.ask(request(s.name("unknown"), (0, None)))


@scenario
def nothing_to_cancel(s: Peer) -> None:
    to = given.topic(s)
    s.ask(request(to.name, (0, None)))


@scenario
def nothing_at_all(s: Peer) -> None:
    s.ask(AlterPartitionReassignmentsRequest(timeout_ms=10_000, topics=[]))
    s.ask(request(given.topic(s).name))


@scenario
def another_replication_factor_without_permission(s: Peer) -> None:
    to = given.topic(s)
    if s.version >= 1:
        s.ask(request(to.name, (0, [1]), factor_may_change=False))
        s.ask(request(to.name, (0, [1, 9]), factor_may_change=False))
        s.ask(request(to.name, (0, []), factor_may_change=False))
