"""IncrementalAlterConfigs: set, delete, append, subtract."""

from typing import Any

from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from barnabas.protocol.messages.incremental_alter_configs import (
    API,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.referee import given
from tests.referee.scenario import Peer, Play, Scenarios

scenario = Scenarios(API)

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


def alter(
    kind: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> IncrementalAlterConfigsRequest:
    configs = [AlterableConfig(name=k, config_operation=op, value=v) for k, op, v in changes]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)


def alter_all(*resources: AlterConfigsResource) -> IncrementalAlterConfigsRequest:
    return IncrementalAlterConfigsRequest(resources=list(resources), validate_only=False)


def is_now(s: Peer, kind: int, name: str, key: str, value: str) -> None:
    """Record the described config, once it has the value."""
    wanted = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=[key]
    )
    s.ask(
        DescribeConfigsRequest(resources=[wanted], include_synonyms=True),
        until=lambda r: [config.value for config in r.results[0].configs] == [value],
    )


@scenario
def a_topics_key_is_set_and_deleted(s: Peer) -> None:
    to = given.topic(s)
    s.ask(alter(TOPIC, to.name, ("retention.ms", SET, "12345")))
    is_now(s, TOPIC, to.name, "retention.ms", "12345")
    s.ask(alter(TOPIC, to.name, ("retention.ms", DELETE, None)))
    is_now(s, TOPIC, to.name, "retention.ms", "604800000")


@scenario
def a_list_is_appended_to_and_subtracted_from(s: Peer) -> None:
    to = given.topic(s)
    s.ask(alter(TOPIC, to.name, ("cleanup.policy", APPEND, "compact")))
    is_now(s, TOPIC, to.name, "cleanup.policy", "delete,compact")
    s.ask(alter(TOPIC, to.name, ("cleanup.policy", SUBTRACT, "delete")))
    is_now(s, TOPIC, to.name, "cleanup.policy", "compact")


@scenario
def append_to_what_is_not_a_list(s: Peer) -> None:
    to = given.topic(s)
    s.ask(alter(TOPIC, to.name, ("retention.ms", APPEND, "1")))
    s.ask(alter(TOPIC, to.name, ("retention.ms", SUBTRACT, "1")))


@scenario
def the_limit_holds_at_once(s: Peer) -> None:
    to = given.topic(s)
    s.ask(alter(TOPIC, to.name, ("max.message.bytes", SET, "200")))
    is_now(s, TOPIC, to.name, "max.message.bytes", "200")
    s.ask(
        given.produce(to, given.batch(b"x" * 300)),
        until=lambda r: r.responses[0].partition_responses[0].error_code != 0,
    )


@scenario
def validate_only_changes_nothing(s: Peer) -> None:
    to = given.topic(s)
    s.ask(alter(TOPIC, to.name, ("retention.ms", SET, "5"), validate_only=True))
    s.ask(alter(TOPIC, to.name, ("retention.ms", SET, "soon"), validate_only=True))
    is_now(s, TOPIC, to.name, "retention.ms", "604800000")


@scenario
def keys_and_values_that_do_not_fit(s: Peer) -> None:
    to = given.topic(s)
    s.ask(alter(TOPIC, to.name, ("no.such.key", SET, "1")))
    s.ask(alter(TOPIC, to.name, ("retention.ms", SET, "soon")))
    s.ask(alter(TOPIC, to.name, ("retention.ms", SET, None)))
    s.ask(alter(TOPIC, to.name, ("cleanup.policy", SET, "burn")))
    s.ask(alter(TOPIC, to.name, ("min.insync.replicas", SET, "0")))


@scenario
def an_operation_that_does_not_exist(s: Peer) -> None:
    to = given.topic(s)
    s.ask(alter(TOPIC, to.name, ("retention.ms", 9, "1")))


@scenario
def one_of_two_keys_is_wrong_and_none_changes(s: Peer) -> None:
    to = given.topic(s)
    s.ask(alter(TOPIC, to.name, ("segment.bytes", SET, "2000000"), ("retention.ms", SET, "x")))
    is_now(s, TOPIC, to.name, "segment.bytes", "1073741824")


@scenario
def the_same_key_twice(s: Peer) -> None:
    to = given.topic(s)
    s.ask(alter(TOPIC, to.name, ("retention.ms", SET, "1"), ("retention.ms", SET, "2")))


@scenario
def an_unknown_topic(s: Peer) -> None:
    s.ask(alter(TOPIC, s.name(), ("retention.ms", SET, "1")))


@scenario
def a_name_that_no_topic_may_have(s: Peer) -> None:
    s.ask(alter(TOPIC, "no/slash", ("retention.ms", SET, "1")))


@scenario
def a_dynamic_key_of_all_brokers(s: Peer) -> None:
    s.ask(alter(BROKER, "", ("log.cleaner.backoff.ms", SET, "14000")))
    is_now(s, BROKER, "", "log.cleaner.backoff.ms", "14000")
    is_now(s, BROKER, "1", "log.cleaner.backoff.ms", "14000")
    s.ask(alter(BROKER, "", ("log.cleaner.backoff.ms", DELETE, None)))
    is_now(s, BROKER, "1", "log.cleaner.backoff.ms", "15000")


@scenario
def a_dynamic_key_of_one_broker(s: Peer) -> None:
    s.ask(alter(BROKER, "1", ("log.cleaner.backoff.ms", SET, "13000")))
    is_now(s, BROKER, "1", "log.cleaner.backoff.ms", "13000")
    s.ask(alter(BROKER, "1", ("log.cleaner.backoff.ms", DELETE, None)))
    is_now(s, BROKER, "1", "log.cleaner.backoff.ms", "15000")


@scenario
def a_brokers_key_that_needs_a_restart(s: Peer) -> None:
    s.ask(alter(BROKER, "1", ("num.partitions", SET, "3")))
    s.ask(alter(BROKER, "", ("broker.rack", SET, "a")))


@scenario
def an_unknown_kind(s: Peer) -> None:
    s.ask(alter(99, "what", ("key", SET, "1")))


@scenario
def the_level_of_the_root_logger(s: Peer) -> None:
    s.ask(alter(BROKER_LOGGER, "1", ("root", SET, "ERROR")))
    is_now(s, BROKER_LOGGER, "1", "root", "ERROR")
    s.ask(alter(BROKER_LOGGER, "1", ("root", SET, "WARN")))
    is_now(s, BROKER_LOGGER, "1", "root", "WARN")


@scenario
def the_level_of_a_logger_is_set_and_inherited_again(s: Peer) -> None:
    every = DescribeConfigsResource(
        resource_type=BROKER_LOGGER, resource_name="1", configuration_keys=None
    )
    described = s.do(DescribeConfigsRequest(resources=[every])).results[0].configs
    name = next(config.name for config in described if config.name.count(".") > 1)

    def anonymous(answer: Any) -> Any:
        assert [config.name for config in answer.results[0].configs] == [name]
        answer.results[0].configs[0].name = "the logger"
        return answer

    it = DescribeConfigsResource(
        resource_type=BROKER_LOGGER, resource_name="1", configuration_keys=[name]
    )
    for operation, level in ((SET, "ERROR"), (SET, "FATAL"), (DELETE, "ERROR")):
        s.ask(alter(BROKER_LOGGER, "1", (name, operation, level)))
        s.ask(DescribeConfigsRequest(resources=[it]), pick=anonymous)
    s.ask(alter(BROKER_LOGGER, "1", (name, DELETE, None)))


@scenario
def invalid_levels(s: Peer) -> None:
    for level in ("LOUD", "", "warn", "OFF", "ALL", "WARNING", None):
        s.ask(alter(BROKER_LOGGER, "1", ("root", SET, level)))
    is_now(s, BROKER_LOGGER, "1", "root", "WARN")


@scenario
def invalid_operations_on_a_logger(s: Peer) -> None:
    s.ask(alter(BROKER_LOGGER, "1", ("root", DELETE, None)))
    s.ask(alter(BROKER_LOGGER, "1", ("root", APPEND, "ERROR")))
    s.ask(alter(BROKER_LOGGER, "1", ("root", SUBTRACT, "ERROR")))
    s.ask(alter(BROKER_LOGGER, "1", ("root", SET, "ERROR"), ("root", SET, "INFO")))
    is_now(s, BROKER_LOGGER, "1", "root", "WARN")


@scenario
def an_unknown_logger(s: Peer) -> None:
    s.ask(alter(BROKER_LOGGER, "1", ("no.such.logger", SET, "ERROR")))
    s.ask(alter(BROKER_LOGGER, "1", ("no.such.logger", DELETE, None)))
    s.ask(alter(BROKER_LOGGER, "1", ("", SET, "ERROR")))


@scenario
def loggers_of_another_broker_and_of_none(s: Peer) -> None:
    for name in ("2", "one", ""):
        s.ask(alter(BROKER_LOGGER, name, ("root", SET, "ERROR")))
    is_now(s, BROKER_LOGGER, "1", "root", "WARN")


@scenario
def one_of_two_levels_is_wrong_and_none_changes(s: Peer) -> None:
    s.ask(alter(BROKER_LOGGER, "1", ("root", SET, "ERROR"), ("no.such.logger", SET, "ERROR")))
    is_now(s, BROKER_LOGGER, "1", "root", "WARN")


@scenario
def a_level_that_is_only_validated(s: Peer) -> None:
    s.ask(alter(BROKER_LOGGER, "1", ("root", SET, "ERROR"), validate_only=True))
    s.ask(alter(BROKER_LOGGER, "1", ("root", SET, "LOUD"), validate_only=True))
    is_now(s, BROKER_LOGGER, "1", "root", "WARN")


@scenario
def brokers_that_are_not_asked(s: Peer) -> None:
    for name in ("2", "one"):
        s.ask(alter(BROKER, name, ("log.cleaner.backoff.ms", SET, "13000")))
    s.ask(alter(BROKER, "1", ("log.cleaner.backoff.ms", SET, "soon")))
    s.ask(alter(BROKER, "1", ("log.cleaner.backoff.ms", SET, "-1")))


@scenario
def unknown_keys_of_groups_and_client_metrics(s: Peer) -> None:
    s.ask(alter(GROUP, s.name(), ("no.such.key", SET, "1")))
    s.ask(alter(GROUP, "", ("consumer.session.timeout.ms", SET, "45000")))
    s.ask(alter(CLIENT_METRICS, s.name(), ("no.such.key", SET, "1")))
    s.ask(alter(CLIENT_METRICS, "", ("interval.ms", SET, "1000")))


@scenario
def nothing_is_altered(s: Peer) -> None:
    to = given.topic(s)
    s.ask(alter(TOPIC, to.name))
    s.ask(alter(BROKER_LOGGER, "1"))
    s.ask(alter_all())


@scenario
def a_topic_without_a_name(s: Peer) -> None:
    s.ask(alter(TOPIC, "", ("retention.ms", SET, "1")))


@scenario
def a_resource_that_is_named_twice(s: Peer) -> None:
    to = given.topic(s)
    one = alter(TOPIC, to.name, ("retention.ms", SET, "1"))
    two = alter(TOPIC, to.name, ("segment.bytes", SET, "2000000"))
    s.ask(alter_all(*one.resources, *two.resources))
    is_now(s, TOPIC, to.name, "retention.ms", "604800000")


NEW_TOPIC_KEYS = {
    "errors.deadletterqueue.group.enable": ("true", "maybe"),
    "max.decompressed.message.bytes": ("1", "0"),
    "remote.copy.lag.bytes": ("0", "-2"),
    "remote.copy.lag.ms": ("-1", "-2"),
}
"""Keys of Kafka 4.4 with a value that is valid and not the default, and one that is not valid."""

NEW_BROKER_KEYS = {
    "errors.deadletterqueue.auto.create.topics.enable": ("true", "maybe"),
    "errors.deadletterqueue.topic.name.prefix": ("dead.", ""),
    "group.consumer.assignor.offload.enable": ("false", "maybe"),
    "group.share.assignor.offload.enable": ("false", "maybe"),
    "group.streams.assignor.offload.enable": ("false", "maybe"),
    "log.remote.copy.lag.bytes": ("-1", "-2"),
    "log.remote.copy.lag.ms": ("-1", "-2"),
    "max.decompressed.message.bytes": ("2147483639", "2147483640"),
}


def _of_a_topic(key: str, valid: str, invalid: str) -> Play:
    def play(s: Peer) -> None:
        to = given.topic(s)
        s.ask(alter(TOPIC, to.name, (key, SET, invalid)))
        s.ask(alter(TOPIC, to.name, (key, SET, valid)))
        is_now(s, TOPIC, to.name, key, valid)
        s.ask(alter(TOPIC, to.name, (key, DELETE, None)))

    return play


def _of_a_broker(key: str, valid: str, invalid: str) -> Play:
    def play(s: Peer) -> None:
        for name in ("1", ""):
            s.ask(alter(BROKER, name, (key, SET, invalid)))
            s.ask(alter(BROKER, name, (key, SET, valid)))
            s.ask(alter(BROKER, name, (key, DELETE, None)))

    return play


for _kind, _keys, _make in (
    ("topic", NEW_TOPIC_KEYS, _of_a_topic),
    ("broker", NEW_BROKER_KEYS, _of_a_broker),
):
    for _key, _values in _keys.items():
        _play = _make(_key, *_values)
        _play.__name__ = f"{_key.replace('.', '_')}_of_a_{_kind}"
        scenario(key=_key)(_play)


@scenario
def items_of_a_list_with_blanks_and_a_list_with_a_repetition(s: Peer) -> None:
    for suffix, written, left in (
        ("blanks", " delete , compact", "delete,compact"),
        ("twice", "compact,compact", "compact,delete"),
        ("plain", "delete,compact", "delete,compact"),
    ):
        to = given.topic(s, suffix, configs={"cleanup.policy": written})
        s.ask(alter(TOPIC, to.name, ("cleanup.policy", SUBTRACT, "compact")))
        s.ask(alter(TOPIC, to.name, ("cleanup.policy", APPEND, "delete")))
        s.ask(alter(TOPIC, to.name, ("cleanup.policy", APPEND, " compact ")))
        is_now(s, TOPIC, to.name, "cleanup.policy", left)
