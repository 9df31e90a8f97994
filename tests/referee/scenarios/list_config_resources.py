"""ListConfigResources: version 0 lists client metrics, version 1 any kind."""

from typing import Any

from barnabas.protocol.messages.list_config_resources import API, ListConfigResourcesRequest
from tests.referee import given
from tests.referee.scenario import Peer, Scenarios
from tests.referee.scenarios.incremental_alter_configs import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
)

scenario = Scenarios(API)


def mine(s: Peer) -> Any:
    """Select the resources of this scenario."""

    def pick(answer: Any) -> Any:
        kept = [
            resource
            for resource in answer.config_resources
            if resource.resource_type != TOPIC or resource.resource_name.startswith(s.name(""))
        ]
        answer.config_resources = [r for r in kept if r.resource_type != GROUP]
        return answer

    return pick


@scenario
def asked_without_kinds(s: Peer) -> None:
    s.ask(ListConfigResourcesRequest(), pick=mine(s))


@scenario
def asked_without_kinds_after_topics_were_made(s: Peer) -> None:
    given.topic(s, "a")
    given.topic(s, "b")
    s.ask(ListConfigResourcesRequest(), pick=mine(s))


@scenario(since=1)
def topics(s: Peer) -> None:
    given.topic(s, "a", configs={"retention.ms": "1"})
    given.topic(s, "b")
    s.ask(ListConfigResourcesRequest(resource_types=[TOPIC]), pick=mine(s))


@scenario(since=1)
def brokers_and_their_loggers(s: Peer) -> None:
    s.ask(ListConfigResourcesRequest(resource_types=[BROKER]))
    s.ask(ListConfigResourcesRequest(resource_types=[BROKER_LOGGER]))
    s.ask(ListConfigResourcesRequest(resource_types=[BROKER, BROKER_LOGGER]))


@scenario(since=1)
def client_metrics_and_groups(s: Peer) -> None:
    s.ask(ListConfigResourcesRequest(resource_types=[CLIENT_METRICS]))
    s.ask(ListConfigResourcesRequest(resource_types=[GROUP]), pick=mine(s))


@scenario(since=1)
def unknown_kinds(s: Peer) -> None:
    s.ask(ListConfigResourcesRequest(resource_types=[1]))
    s.ask(ListConfigResourcesRequest(resource_types=[99, TOPIC]))


@scenario(since=1)
def the_same_kind_twice(s: Peer) -> None:
    s.ask(ListConfigResourcesRequest(resource_types=[BROKER, BROKER]))
