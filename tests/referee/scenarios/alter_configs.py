"""AlterConfigs: keys that are not in the request go back to their defaults."""

from barnabas.protocol.messages.alter_configs import (
    API,
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from tests.referee import given
from tests.referee.scenario import Peer, Scenarios
from tests.referee.scenarios.incremental_alter_configs import (
    BROKER,
    BROKER_LOGGER,
    TOPIC,
    is_now,
)

scenario = Scenarios(API)


def replace(
    kind: int, name: str, *, validate_only: bool = False, **configs: str | None
) -> AlterConfigsRequest:
    entries = [
        AlterableConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
    ]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=entries)
    return AlterConfigsRequest(resources=[resource], validate_only=validate_only)


def alter_all(*resources: AlterConfigsResource) -> AlterConfigsRequest:
    return AlterConfigsRequest(resources=list(resources), validate_only=False)


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
def an_unknown_kind(s: Peer) -> None:
    s.ask(replace(99, "what", key="1"))


@scenario
def levels_of_loggers(s: Peer) -> None:
    s.ask(replace(BROKER_LOGGER, "1", root="ERROR"))
    s.ask(replace(BROKER_LOGGER, "2", root="ERROR"))
    s.ask(replace(BROKER_LOGGER, "", root="LOUD"))
    is_now(s, BROKER_LOGGER, "1", "root", "WARN")


@scenario
def brokers_that_are_not_asked(s: Peer) -> None:
    for name in ("2", "one"):
        s.ask(replace(BROKER, name, log_cleaner_backoff_ms="13000"))
    s.ask(replace(BROKER, "1", log_cleaner_backoff_ms="soon"))
    s.ask(replace(BROKER, "1", num_partitions="3"))


@scenario
def a_topic_without_a_name(s: Peer) -> None:
    s.ask(replace(TOPIC, "", retention_ms="1"))
    s.ask(replace(TOPIC, "no/slash", retention_ms="1"))


@scenario
def several_resources_and_an_unknown_one(s: Peer) -> None:
    to = given.topic(s, configs={"retention.ms": "1000"})
    one, two = replace(TOPIC, s.name("unknown"), retention_ms="1"), replace(TOPIC, to.name)
    s.ask(alter_all(*one.resources, *two.resources))
    is_now(s, TOPIC, to.name, "retention.ms", "604800000")
    s.ask(alter_all())
