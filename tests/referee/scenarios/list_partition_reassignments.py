"""ListPartitionReassignments without reassignments."""

from barnabas.protocol.messages.list_partition_reassignments import (
    API,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.referee import given
from tests.referee.scenario import Peer, Scenarios
from tests.referee.scenarios.alter_partition_reassignments import request as move

scenario = Scenarios(API)


@scenario
def everything(s: Peer) -> None:
    s.ask(ListPartitionReassignmentsRequest())


@scenario
def partitions_that_stay_and_that_do_not_exist(s: Peer) -> None:
    to = given.topic(s)
    for name, indexes in ((to.name, [0, 9]), (to.name, []), (s.name("unknown"), [0])):
        named = ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes)
        s.ask(ListPartitionReassignmentsRequest(topics=[named]))
    s.ask(ListPartitionReassignmentsRequest(topics=[]))


@scenario
def without_time_to_wait(s: Peer) -> None:
    s.ask(ListPartitionReassignmentsRequest(timeout_ms=0))
    s.ask(ListPartitionReassignmentsRequest(timeout_ms=-1))


@scenario
def a_partition_that_is_named_twice(s: Peer) -> None:
    to = given.topic(s)
    named = ListPartitionReassignmentsTopics(name=to.name, partition_indexes=[0, 0])
    s.ask(ListPartitionReassignmentsRequest(topics=[named, named]))


@scenario
def after_a_move_that_was_refused(s: Peer) -> None:
    to = given.topic(s)
    s.ask(move(to.name, (0, [1, 9])))
    s.ask(ListPartitionReassignmentsRequest())


@scenario
def of_a_topic_that_was_deleted(s: Peer) -> None:
    to = given.topic(s)
    given.delete(s, to)
    named = ListPartitionReassignmentsTopics(name=to.name, partition_indexes=[0])
    s.ask(ListPartitionReassignmentsRequest(topics=[named]))
