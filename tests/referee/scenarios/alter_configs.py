"""AlterConfigs: what is not in the request goes back to its default."""

from barnabas.protocol.messages.alter_configs import (
    API,
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from tests.referee import given
from tests.referee.scenario import Peer, Scenarios
from tests.referee.scenarios.incremental_alter_configs import BROKER, TOPIC, is_now

scenario = Scenarios(API)


def replace(
    kind: int, name: str, *, validate_only: bool = False, **configs: str | None
) -> AlterConfigsRequest:
    entries = [
        AlterableConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
    ]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=entries)
    return AlterConfigsRequest(resources=[resource], validate_only=validate_only)


@scenario
def the_rest_goes_back_to_its_default(s: Peer) -> None:
    to = given.topic(s, configs={"retention.ms": "1000"})
    s.ask(replace(TOPIC, to.name, segment_bytes="2000000"))
    is_now(s, TOPIC, to.name, "segment.bytes", "2000000")
    is_now(s, TOPIC, to.name, "retention.ms", "604800000")


@scenario
def no_keys_at_all(s: Peer) -> None:
    to = given.topic(s, configs={"retention.ms": "1000"})
    s.ask(replace(TOPIC, to.name))
    is_now(s, TOPIC, to.name, "retention.ms", "604800000")


@scenario
def validate_only_changes_nothing(s: Peer) -> None:
    to = given.topic(s, configs={"retention.ms": "1000"})
    s.ask(replace(TOPIC, to.name, segment_bytes="2000000", validate_only=True))
    s.ask(replace(TOPIC, to.name, segment_bytes="big", validate_only=True))
    is_now(s, TOPIC, to.name, "retention.ms", "1000")


@scenario
def keys_and_values_that_do_not_fit(s: Peer) -> None:
    to = given.topic(s)
    s.ask(replace(TOPIC, to.name, no_such_key="1"))
    s.ask(replace(TOPIC, to.name, retention_ms="soon"))
    s.ask(replace(TOPIC, to.name, retention_ms=None))


@scenario
def an_unknown_topic(s: Peer) -> None:
    s.ask(replace(TOPIC, s.name(), retention_ms="1"))


@scenario
def a_dynamic_key_of_one_broker(s: Peer) -> None:
    s.ask(replace(BROKER, "1", log_cleaner_backoff_ms="12000"))
    is_now(s, BROKER, "1", "log.cleaner.backoff.ms", "12000")
    s.ask(replace(BROKER, "1"))
    is_now(s, BROKER, "1", "log.cleaner.backoff.ms", "15000")


@scenario
def a_kind_that_nobody_knows(s: Peer) -> None:
    s.ask(replace(99, "what", key="1"))
