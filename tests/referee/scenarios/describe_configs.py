"""DescribeConfigs of topics, brokers and groups."""

from typing import Any

from barnabas.protocol.messages.describe_configs import (
    API,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from tests.referee import given
from tests.referee.scenario import Peer, Scenarios
from tests.referee.scenarios.incremental_alter_configs import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    DELETE,
    GROUP,
    SET,
    TOPIC,
    alter,
)

scenario = Scenarios(API)


def describe(kind: int, name: str, *keys: str, synonyms: bool = False) -> DescribeConfigsRequest:
    wanted = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) if keys else None
    )
    return DescribeConfigsRequest(resources=[wanted], include_synonyms=synonyms)


@scenario
def defaults_of_a_topic(s: Peer) -> None:
    to = given.topic(s)
    s.ask(describe(TOPIC, to.name, "retention.ms", "cleanup.policy", "max.message.bytes"))


@scenario
def every_key_of_a_topic(s: Peer) -> None:
    to = given.topic(s, configs={"retention.ms": "1000"})
    s.ask(describe(TOPIC, to.name))


@scenario
def synonyms_of_a_topics_key(s: Peer) -> None:
    to = given.topic(s, configs={"segment.bytes": "2000000"})
    keys = ("segment.bytes", "retention.ms", "segment.ms", "min.insync.replicas")
    s.ask(describe(TOPIC, to.name, *keys, synonyms=True))


@scenario
def values_that_are_written_in_other_ways(s: Peer) -> None:
    written = {
        "cleanup.policy": "compact,compact",
        "follower.replication.throttled.replicas": " 0:1 , 0:1",
        "min.cleanable.dirty.ratio": "1",
        "preallocate": " TRUE",
        "retention.ms": " 0100 ",
    }
    to = given.topic(s, configs=written)
    s.ask(describe(TOPIC, to.name, *written, synonyms=True))
    s.do(alter(TOPIC, to.name, ("cleanup.policy", SET, " delete , compact")))
    both = lambda r: "delete" in r.results[0].configs[0].value  # noqa: E731
    s.ask(describe(TOPIC, to.name, "cleanup.policy", synonyms=True), until=both)


@scenario
def values_of_the_broker_that_are_written_in_other_ways(s: Peer) -> None:
    written = {
        "log.cleanup.policy": " delete , compact",
        "log.cleaner.min.cleanable.ratio": "0.50",
        "log.preallocate": " FALSE",
        "log.cleaner.io.buffer.load.factor": "0.90",
    }
    changes = [(key, SET, value) for key, value in written.items()]
    s.ask(alter(BROKER, "1", *changes))
    there = lambda r: "delete,compact" in {each.value for each in r.results[0].configs}  # noqa: E731
    request = describe(BROKER, "1", "log.cleanup.policy", *written, synonyms=True)
    s.ask(request, until=there)
    s.do(alter(BROKER, "1", *((key, DELETE, None) for key in written)))


@scenario(since=3)
def keys_are_explained(s: Peer) -> None:
    to = given.topic(s)
    request = describe(TOPIC, to.name, "retention.ms", "cleanup.policy")
    request.include_documentation = True
    s.ask(request)


@scenario
def a_topic_config_is_changed(s: Peer) -> None:
    to = given.topic(s, configs={"retention.ms": "1000"})
    s.ask(describe(TOPIC, to.name, "retention.ms"))
    s.do(alter(TOPIC, to.name, ("retention.ms", SET, "2000")))
    two = lambda r: r.results[0].configs[0].value == "2000"  # noqa: E731
    s.ask(describe(TOPIC, to.name, "retention.ms"), until=two)


@scenario
def an_unknown_topic(s: Peer) -> None:
    s.ask(describe(TOPIC, s.name()))


@scenario
def a_name_that_no_topic_may_have(s: Peer) -> None:
    s.ask(describe(TOPIC, "no/slash"))


@scenario
def an_unknown_key(s: Peer) -> None:
    to = given.topic(s)
    s.ask(describe(TOPIC, to.name, "no.such.key", "retention.ms"))


@scenario
def keys_of_the_broker(s: Peer) -> None:
    keys = ("num.partitions", "log.segment.bytes", "message.max.bytes", "compression.type")
    s.ask(describe(BROKER, "1", *keys))
    s.ask(describe(BROKER, "1", "log.retention.ms", "log.retention.hours", synonyms=True))


@scenario
def defaults_of_all_brokers(s: Peer) -> None:
    s.ask(describe(BROKER, "", "num.partitions", "log.cleaner.threads"))


@scenario
def another_broker_and_no_broker(s: Peer) -> None:
    s.ask(describe(BROKER, "2"))
    s.ask(describe(BROKER, "one"))


@scenario
def every_key_of_a_group(s: Peer) -> None:
    s.ask(describe(GROUP, s.name()))


@scenario
def keys_of_a_group(s: Peer) -> None:
    s.ask(describe(GROUP, s.name(), "consumer.session.timeout.ms"))
    s.ask(describe(GROUP, "", "consumer.session.timeout.ms"))


@scenario
def an_unknown_kind(s: Peer) -> None:
    s.ask(describe(1, "what"))
    s.ask(describe(99, "what"))


@scenario
def no_resources(s: Peer) -> None:
    s.ask(DescribeConfigsRequest(resources=[]))


@scenario
def two_topics_and_a_broker(s: Peer) -> None:
    a, b = given.topic(s, "a"), given.topic(s, "b", configs={"retention.ms": "7"})
    resources = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=[key])
        for kind, name, key in (
            (TOPIC, a.name, "retention.ms"),
            (TOPIC, b.name, "retention.ms"),
            (BROKER, "1", "num.partitions"),
        )
    ]
    s.ask(DescribeConfigsRequest(resources=resources))


def loggers(name: str, *keys: str) -> DescribeConfigsRequest:
    return describe(BROKER_LOGGER, name, *keys, synonyms=True)


@scenario
def the_root_logger(s: Peer) -> None:
    s.ask(loggers("1", "root"))
    s.ask(loggers("1", "root", "no.such.logger"))
    s.ask(loggers("1", "no.such.logger"))


@scenario
def every_logger(s: Peer) -> None:
    """Ask for all loggers; the brokers have the root logger in common and no other."""

    def root(answer: Any) -> Any:
        (result,) = answer.results
        assert len(result.configs) > 1
        result.configs = [config for config in result.configs if config.name == "root"]
        return answer

    s.ask(loggers("1"), pick=root)


@scenario
def loggers_of_another_broker_and_of_none(s: Peer) -> None:
    for name in ("2", "one", "", "-1", " 1"):
        s.ask(loggers(name, "root"))


@scenario
def client_metrics(s: Peer) -> None:
    s.ask(describe(CLIENT_METRICS, ""))


@scenario
def a_level_that_was_changed(s: Peer) -> None:
    s.do(alter(BROKER_LOGGER, "1", ("root", SET, "ERROR")))
    s.ask(loggers("1", "root"))
    s.do(alter(BROKER_LOGGER, "1", ("root", SET, "WARN")))
    s.ask(loggers("1", "root"))


@scenario
def the_same_resource_twice(s: Peer) -> None:
    to = given.topic(s)
    resources = [
        DescribeConfigsResource(
            resource_type=TOPIC, resource_name=to.name, configuration_keys=["retention.ms"]
        )
        for _ in range(2)
    ]
    s.ask(DescribeConfigsRequest(resources=resources))


@scenario
def an_empty_list_of_keys(s: Peer) -> None:
    to = given.topic(s)
    wanted = DescribeConfigsResource(
        resource_type=TOPIC, resource_name=to.name, configuration_keys=[]
    )
    s.ask(DescribeConfigsRequest(resources=[wanted]))
