"""Configurations of groups, which need not exist: IncrementalAlterConfigs, and what is shown."""

from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from barnabas.protocol.messages.incremental_alter_configs import API
from barnabas.protocol.messages.list_config_resources import ListConfigResourcesRequest
from tests.referee.scenario import Peer, Scenarios
from tests.referee.scenarios.incremental_alter_configs import (
    APPEND,
    DELETE,
    GROUP,
    SET,
    SUBTRACT,
    alter,
    alter_all,
    is_now,
)

scenario = Scenarios(API)

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
INTERVAL, OFFLOAD = "consumer.assignment.interval.ms", "consumer.assignor.offload.enable"


def show(s: Peer, *keys: str, synonyms: bool = True) -> None:
    wanted = DescribeConfigsResource(
        resource_type=GROUP, resource_name=s.name(), configuration_keys=list(keys)
    )
    s.ask(DescribeConfigsRequest(resources=[wanted], include_synonyms=synonyms))


def refused(s: Peer, *changes: tuple[str, int, str | None]) -> None:
    s.ask(alter(GROUP, s.name(), *changes))


@scenario
def defaults_of_a_group(s: Peer) -> None:
    show(s, SESSION)
    show(s, HEARTBEAT)
    show(s, INTERVAL)
    show(s, SESSION, synonyms=False)


@scenario
def a_session_timeout_of_a_group(s: Peer) -> None:
    s.ask(alter(GROUP, s.name(), (SESSION, SET, "50000")))
    is_now(s, GROUP, s.name(), SESSION, "50000")
    s.ask(alter(GROUP, s.name(), (SESSION, DELETE, None)))
    is_now(s, GROUP, s.name(), SESSION, "45000")


@scenario
def a_heartbeat_interval_of_a_group(s: Peer) -> None:
    s.ask(alter(GROUP, s.name(), (HEARTBEAT, SET, "15000")))
    is_now(s, GROUP, s.name(), HEARTBEAT, "15000")
    s.ask(alter(GROUP, s.name(), (HEARTBEAT, SET, "5000")))
    is_now(s, GROUP, s.name(), HEARTBEAT, "5000")


@scenario
def an_assignment_interval_of_a_group(s: Peer) -> None:
    s.ask(alter(GROUP, s.name(), (INTERVAL, SET, "15000")))
    is_now(s, GROUP, s.name(), INTERVAL, "15000")
    # Not first: it is also the broker's own value here, which is there at once.
    s.ask(alter(GROUP, s.name(), (INTERVAL, SET, "0")))
    is_now(s, GROUP, s.name(), INTERVAL, "0")


@scenario
def assignment_in_the_loop_of_a_group(s: Peer) -> None:
    s.ask(alter(GROUP, s.name(), (OFFLOAD, SET, "false")))
    is_now(s, GROUP, s.name(), OFFLOAD, "false")


@scenario
def values_of_a_group_that_are_written_in_other_ways(s: Peer) -> None:
    s.ask(alter(GROUP, s.name(), (SESSION, SET, " 050000 ")))
    is_now(s, GROUP, s.name(), SESSION, "50000")


@scenario
def values_of_a_group_beyond_the_bounds_of_the_broker(s: Peer) -> None:
    for key, values in (
        (SESSION, ("44999", "60001", "2147483647")),
        (HEARTBEAT, ("4999", "15001")),
        (INTERVAL, ("15001",)),
    ):
        for value in values:
            refused(s, (key, SET, value))


@scenario
def values_of_a_group_below_what_a_key_may_have(s: Peer) -> None:
    for key in (SESSION, HEARTBEAT):
        refused(s, (key, SET, "0"))
        refused(s, (key, SET, "-1"))
    refused(s, (INTERVAL, SET, "-1"))


@scenario
def values_of_a_group_that_are_no_numbers(s: Peer) -> None:
    for key in (SESSION, HEARTBEAT, INTERVAL):
        for value in ("x", "", "1.5", "2147483648"):
            refused(s, (key, SET, value))
    refused(s, (OFFLOAD, SET, "maybe"))
    refused(s, (OFFLOAD, SET, ""))


@scenario
def a_null_value_of_a_group(s: Peer) -> None:
    refused(s, (SESSION, SET, None))


@scenario
def two_errors_in_one_group(s: Peer) -> None:
    refused(s, (SESSION, SET, "1"), (HEARTBEAT, SET, "1"))
    refused(s, (INTERVAL, SET, "99999"), (SESSION, SET, "1"))


@scenario
def lists_of_a_group(s: Peer) -> None:
    refused(s, (SESSION, APPEND, "1"))
    refused(s, (SESSION, SUBTRACT, "1"))
    refused(s, ("no.such.key", APPEND, "1"))


@scenario
def keys_of_brokers_for_a_group(s: Peer) -> None:
    refused(s, ("group.consumer.session.timeout.ms", SET, "50000"))
    refused(s, ("consumer.max.size", SET, "5"))
    refused(s, ("consumer.regex.refresh.interval.ms", SET, "10000"))


@scenario
def a_key_of_a_group_twice(s: Peer) -> None:
    refused(s, (SESSION, SET, "50000"), (SESSION, SET, "51000"))


@scenario
def a_key_of_a_group_that_was_not_set_is_deleted(s: Peer) -> None:
    s.ask(alter(GROUP, s.name(), (SESSION, DELETE, None)))
    s.ask(alter(GROUP, s.name(), ("no.such.key", DELETE, None)))


@scenario
def a_refused_value_leaves_the_others(s: Peer) -> None:
    s.ask(alter(GROUP, s.name(), (SESSION, SET, "50000")))
    refused(s, (SESSION, SET, "51000"), (HEARTBEAT, SET, "1"))
    is_now(s, GROUP, s.name(), SESSION, "50000")
    show(s, HEARTBEAT)


@scenario
def values_of_a_group_are_only_checked(s: Peer) -> None:
    s.ask(alter(GROUP, s.name(), (SESSION, SET, "50000"), validate_only=True))
    s.ask(alter(GROUP, s.name(), (SESSION, SET, "1"), validate_only=True))
    show(s, SESSION)


@scenario
def two_groups_in_one_request(s: Peer) -> None:
    one = alter(GROUP, s.name("a"), (SESSION, SET, "50000"))
    two = alter(GROUP, s.name("b"), (SESSION, SET, "1"))
    s.ask(alter_all(*one.resources, *two.resources))
    is_now(s, GROUP, s.name("a"), SESSION, "50000")


@scenario
def groups_with_values_are_listed(s: Peer) -> None:
    def named(answer):  # type: ignore[no-untyped-def]
        return [r.resource_name for r in answer.config_resources if r.resource_name == s.name()]

    def mine(answer):  # type: ignore[no-untyped-def]
        answer.config_resources = [
            r for r in answer.config_resources if r.resource_name == s.name()
        ]
        return answer

    listing = ListConfigResourcesRequest(resource_types=[GROUP])
    s.do(alter(GROUP, s.name(), (SESSION, SET, "50000")))
    s.ask(listing, pick=mine, until=lambda r: bool(named(r)))
    s.do(alter(GROUP, s.name(), (SESSION, DELETE, None)))
    s.ask(listing, pick=mine, until=lambda r: not named(r))


@scenario
def a_group_with_a_name_of_other_letters(s: Peer) -> None:
    name = s.name("ä/ö %s")
    s.ask(alter(GROUP, name, (SESSION, SET, "50000")))
    is_now(s, GROUP, name, SESSION, "50000")
