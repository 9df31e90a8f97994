"""ElectLeaders: present leaders, impossible ones, and invalid election types."""

from barnabas.protocol.messages.elect_leaders import (
    API,
    PREFERRED,
    UNCLEAN,
    ElectLeadersRequest,
    TopicPartitions,
)
from tests.referee import given
from tests.referee.scenario import Peer, Scenarios

scenario = Scenarios(API)


def request(*named: tuple[str, list[int]], kind: int = PREFERRED) -> ElectLeadersRequest:
    return ElectLeadersRequest(
        election_type=kind,
        topic_partitions=[
            TopicPartitions(topic=name, partitions=partitions) for name, partitions in named
        ],
        timeout_ms=10_000,
    )


@scenario
def the_preferred_leader_leads_already(s: Peer) -> None:
    to = given.topic(s, partitions=2)
    s.ask(request((to.name, [0, 1])))
    s.ask(request((to.name, [1])))


@scenario
def partitions_and_topics_that_do_not_exist(s: Peer) -> None:
    to = given.topic(s)
    s.ask(request((to.name, [0, 7, -1])))
    s.ask(request((s.name("unknown"), [0])))


@scenario
def a_partition_that_is_named_twice(s: Peer) -> None:
    to = given.topic(s)
    s.ask(request((to.name, [0, 0])))


@scenario
def nothing_at_all(s: Peer) -> None:
    s.ask(request())
    s.ask(request((given.topic(s).name, [])))


@scenario
def an_unclean_election_with_a_live_leader(s: Peer) -> None:
    to = given.topic(s)
    if s.version >= 1:
        s.ask(request((to.name, [0]), kind=UNCLEAN))


@scenario
def an_invalid_election_type(s: Peer) -> None:
    to = given.topic(s)
    if s.version >= 1:
        s.ask(request((to.name, [0]), kind=2))
        s.ask(request((to.name, [0]), kind=-1))
