"""Keys of Kafka without effect: stored, named in a warning, or refused; misspelt keys."""

import pytest

from barnabas.config.broker import BrokerConfig
from barnabas.config.describe import Source, describe_broker, describe_cluster_defaults
from barnabas.config.dynamic import DynamicConfig
from barnabas.config.key import ConfigError
from barnabas.config.topic import validate_topic_overrides

LOAD = "log.cleaner.io.buffer.load.factor"
NONE = "These configuration keys have no effect here: "


def test_key_that_means_nothing_here_is_stored_and_described_as_kafka_does():
    config = DynamicConfig(BrokerConfig())
    config.apply(cluster_defaults={LOAD: "0.90"}, overrides={"num.io.threads": " 016"})

    entries = {entry.name: entry for entry in describe_broker(config)}

    assert (entries[LOAD].value, entries[LOAD].source) == (
        "0.9",
        Source.DYNAMIC_DEFAULT_BROKER_CONFIG,
    )
    assert [each.value for each in entries[LOAD].synonyms] == ["0.90", "0.9"]
    assert (entries["num.io.threads"].value, entries["num.io.threads"].read_only) == ("16", False)
    assert "num.network.threads" not in entries
    (default,) = describe_cluster_defaults(config)
    assert (default.name, default.value) == (LOAD, "0.90")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("num.io.threads", "0", "Invalid value 0 for configuration num.io.threads"),
        ("num.io.threads", "many", "Not a number of type INT"),
        ("queued.max.requests", "7", r"Cannot update these configs dynamically: \[queued.max.req"),
        ("controller.quorum.voters", "1@a:1", "Cannot update these configs dynamically"),
        ("log.retention.mss", "1", r"name: log.retention.mss \(did you mean log.retention.ms\?\)$"),
        ("retention.ms", "1", r"name: retention.ms \(did you mean log.retention.ms\?\)$"),
        ("cordoned.log.dirs", "/data", "Unknown broker config name: cordoned.log.dirs$"),
    ],
)
def test_key_that_cannot_be_stored_is_refused(name, text, message):
    with pytest.raises(ConfigError, match=message):
        DynamicConfig(BrokerConfig()).apply(cluster_defaults={}, overrides={name: text})


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("log.retension.ms", "log.retension.ms (did you mean log.retention.ms?)"),
        ("retention.ms", "retention.ms (did you mean log.retention.ms?)"),
        ("confluent.support.metrics.enable", "confluent.support.metrics.enable"),
        (
            "listener.name.plaintext.max.conections",
            "listener.name.plaintext.max.conections (did you mean "
            "listener.name.plaintext.max.connections?)",
        ),
        ("listener.name.elsewhere.max.connections", "listener.name.elsewhere.max.connections"),
        ("x" * 100_000, "x" * 100_000),
    ],
)
def test_warning_asks_for_the_key_that_is_meant(name, shown):
    assert BrokerConfig.from_properties({name: "1"}).warnings == (f"{NONE}{shown}",)
    with pytest.raises(ConfigError) as refusal:
        BrokerConfig.from_properties({name: "1"}, strict=True)
    assert str(refusal.value) == f"Unknown configuration keys: {shown}"


@pytest.mark.parametrize("name", ["num.network.threads", "group.share.session.timeout.ms"])
def test_key_of_kafka_without_effect_is_named_and_taken_where_unknown_keys_are_refused(name):
    assert BrokerConfig.from_properties({name: "1"}, strict=True).warnings == (f"{NONE}{name}",)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("sasl.enabled.mechanism", "sasl.enabled.mechanisms"),
        ("ssl.keystore.locaton", "ssl.keystore.location"),
    ],
)
def test_misspelt_key_of_security_is_refused_with_the_key_that_is_meant(name, meant):
    with pytest.raises(ConfigError, match=rf"{name} \(did you mean {meant}\?\)"):
        BrokerConfig.from_properties({name: "x"})


def test_misspelt_key_of_a_topic_or_group_is_refused_with_the_key_that_is_meant():
    for name, meant in (("cleanup.polcy", "cleanup.policy"), ("log.segment.ms", "segment.ms")):
        with pytest.raises(ConfigError, match=rf"name: {name} \(did you mean {meant}\?\)$"):
            validate_topic_overrides({name: "1"}, BrokerConfig())
    with pytest.raises(ConfigError, match=r"did you mean retention.ms\?"):
        validate_topic_overrides({"log.retention.hours": "1"}, BrokerConfig())
    with pytest.raises(ConfigError, match=r"name: zzz$"):
        validate_topic_overrides({"zzz": "1"}, BrokerConfig())


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"port": "9092"}, "port has no effect here: Kafka 3.0 has removed it. Set listeners"),
        ({"host.name": "kafka"}, "host.name has no effect here"),
        (
            {"advertised.host.name": "10.1.2.3", "advertised.port": "9095"},
            "advertised.host.name has .* Set advertised.listeners, such as PLAINTEXT://10.1.2.3:9095",
        ),
        ({"advertised.port": "9095"}, "advertised.port .*PLAINTEXT://localhost:9095"),
        ({"create.topic.policy.class.name": "a.B"}, "classes of Java cannot be loaded"),
        ({"remote.log.storage.system.enable": "true"}, "there is no tiered storage"),
        ({"cordoned.log.dirs": "/data"}, "take the directory out of log.dirs"),
        ({"zookeeper.metadata.migration.enable": "true"}, "there is no KRaft to migrate to"),
        ({"client.users": "alice"}, "client.users is no key of Kafka, but a variable of another"),
        ({"inter.broker.password": "hunter2"}, "inter.broker.password is no key of Kafka"),
        ({"tls.client.auth": "required"}, "tls.client.auth is no key of Kafka"),
        ({"process.roles": "controller"}, "Barnabas has no KRaft: .* Leave this node out"),
        (
            {"process.roles": "broker,controller", "controller.quorum.voters": "1@a:1,2@b:1"},
            "controller.quorum.voters names other nodes, and this broker would be alone",
        ),
        (
            {"process.roles": "broker", "controller.quorum.bootstrap.servers": "a:1"},
            "For a single broker remove controller.quorum.bootstrap.servers",
        ),
    ],
)
def test_key_that_must_not_be_ignored_is_refused_with_a_remedy(properties, message):
    with pytest.raises(ConfigError, match=message) as refusal:
        BrokerConfig.from_properties(properties)
    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize(
    "properties",
    [
        {"remote.log.storage.system.enable": "false", "zookeeper.protocol": "PLAINTEXT"},
        {"tls.type": "", "create.topic.policy.class.name": ""},
        {"advertised.host.name": "a", "advertised.listeners": "PLAINTEXT://a:1"},
        {"process.roles": "broker,controller", "controller.quorum.voters": "1@localhost:9093"},
        {"process.roles": "broker"},
    ],
)
def test_harmless_value_of_such_a_key_is_named_in_a_warning(properties):
    (warning,) = BrokerConfig.from_properties(properties).warnings
    unknown = sorted(properties.keys() - {"advertised.listeners"})
    assert warning == NONE + ", ".join(unknown)
