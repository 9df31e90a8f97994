"""ListPartitionReassignments where nothing moves."""

from barnabas.protocol.messages.list_partition_reassignments import (
    API,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.referee import given
from tests.referee.scenario import Peer, Scenarios

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
