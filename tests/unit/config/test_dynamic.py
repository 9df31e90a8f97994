"""Dynamic layers, and their description in DescribeConfigs."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.config.broker import BrokerConfig
from barnabas.config.describe import (
    Source,
    Synonym,
    describe_broker,
    describe_cluster_defaults,
    describe_topic,
)
from barnabas.config.dynamic import DynamicConfig, LocksOut
from barnabas.config.group_keys import validate_group_overrides
from barnabas.config.key import ConfigError, Type
from barnabas.config.topic import validate_topic_overrides
from tests.support.machine import bound


def dynamic(**properties: str) -> DynamicConfig:
    return DynamicConfig(
        BrokerConfig.from_properties({k.replace("_", "."): v for k, v in properties.items()})
    )


def entry(entries, name):
    (found,) = [entry for entry in entries if entry.name == name]
    return found


def test_a_brokers_override_wins_over_the_clusters_default_over_the_file():
    config = dynamic(log_retention_ms="1")

    config.apply(cluster_defaults={"log.retention.ms": "2"}, overrides={})
    assert config.current.log_retention_ms == 2
    config.apply(cluster_defaults={"log.retention.ms": "2"}, overrides={"log.retention.ms": "3"})
    assert config.current.log_retention_ms == 3
    config.apply(cluster_defaults={}, overrides={})
    assert config.current.log_retention_ms == 1


def test_subscribers_are_called_after_changes_only():
    config, heard = dynamic(), []
    config.subscribe(lambda current: heard.append(current.max_connections))

    config.apply(cluster_defaults={"max.connections": "5"}, overrides={})
    config.apply(cluster_defaults={}, overrides={"max.connections": "5"})

    assert heard == [5]


def test_value_that_keeps_all_clients_out_is_refused_also_in_the_file():
    with pytest.raises(LocksOut, match="no client could connect"):
        dynamic().apply(cluster_defaults={"max.connections": "0"}, overrides={})
    with pytest.raises(ConfigError, match=r"max.connections=0 lets no client in"):
        dynamic(max_connections="0")
    with pytest.raises(ConfigError, match="needs an address with a limit of 1 or more"):
        dynamic(max_connections_per_ip="0", max_connections_per_ip_overrides="127.0.0.1:0")
    with pytest.raises(ConfigError, match="can be set to zero only if"):
        dynamic(max_connections_per_ip="0")


def test_dedupe_buffer_has_room_for_a_cleaner():
    with pytest.raises(ConfigError, match="must be at least 1MB per cleaner thread"):
        dynamic(log_cleaner_dedupe_buffer_size=str(1 << 20))


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (
            {"num.partitions": "2", "broker.id": "1"},
            r"Cannot update these configs dynamically: \[broker.id, num.partitions\]",
        ),
        ({"no.such.key": "2"}, "Unknown broker config name: no.such.key"),
        ({"max.connections": "-1"}, "Value must be at least 0"),
        (
            {"log.cleaner.min.compaction.lag.ms": "2", "log.cleaner.max.compaction.lag.ms": "1"},
            "conflict",
        ),
    ],
)
def test_a_refused_change_leaves_everything_as_it_was(texts, message):
    config = dynamic()
    with pytest.raises(ConfigError, match=message):
        config.apply(cluster_defaults=texts, overrides={})
    assert config.current is config.static
    assert not config.cluster_defaults


def test_a_broker_key_lists_its_layers_and_its_less_precise_synonyms():
    config = dynamic(log_retention_minutes="4")
    config.apply(cluster_defaults={"log.retention.ms": "2"}, overrides={"log.retention.ms": "3"})

    retention = entry(describe_broker(config), "log.retention.ms")

    assert retention.value == "3"
    assert retention.source is Source.DYNAMIC_BROKER_CONFIG
    assert not retention.read_only
    assert retention.type is Type.LONG
    assert retention.synonyms == (
        Synonym("log.retention.ms", "3", Source.DYNAMIC_BROKER_CONFIG),
        Synonym("log.retention.ms", "2", Source.DYNAMIC_DEFAULT_BROKER_CONFIG),
        Synonym("log.retention.minutes", "4", Source.STATIC_BROKER_CONFIG),
    )


def test_an_unset_key_has_no_value_and_a_fixed_one_is_read_only():
    entries = describe_broker(dynamic(log_dirs="/a,/b"))

    assert entry(entries, "broker.rack").value is None
    assert entry(entries, "broker.rack").source is Source.DEFAULT_CONFIG
    directories = entry(entries, "log.dirs")
    assert (directories.value, directories.source) == ("/a,/b", Source.STATIC_BROKER_CONFIG)
    assert directories.read_only


def test_the_resource_without_a_name_shows_only_the_clusters_defaults():
    config = dynamic(max_connections="9")
    config.apply(cluster_defaults={"max.connections": "5"}, overrides={"max.connections": "6"})

    (only,) = describe_cluster_defaults(config)

    assert (only.name, only.value) == ("max.connections", "5")
    assert only.source is Source.DYNAMIC_DEFAULT_BROKER_CONFIG


def test_topic_key_overrides_the_broker_keys():
    config = dynamic(log_retention_hours="1")

    inherited = entry(describe_topic({}, config), "retention.ms")
    overridden = entry(describe_topic({"retention.ms": "7"}, config), "retention.ms")

    assert (inherited.value, inherited.source) == ("3600000", Source.STATIC_BROKER_CONFIG)
    assert inherited.synonyms[0].name == "log.retention.hours"
    assert (overridden.value, overridden.source) == ("7", Source.DYNAMIC_TOPIC_CONFIG)
    assert overridden.synonyms[0] == Synonym("retention.ms", "7", Source.DYNAMIC_TOPIC_CONFIG)


LIMITS = ("max.connections", "max.connections.per.ip", "log.cleaner.backoff.ms")
layer = st.dictionaries(st.sampled_from(LIMITS), st.integers(1, 99).map(str))


@given(file=layer, cluster=layer, broker=layer)
def test_first_synonym_is_the_source_of_the_value(file, cluster, broker):
    config = DynamicConfig(BrokerConfig.from_properties(file))
    config.apply(cluster_defaults=cluster, overrides=broker)

    for name in LIMITS:
        described = entry(describe_broker(config), name)
        strongest = next((texts[name] for texts in (broker, cluster, file) if name in texts), None)
        assert described.value == described.synonyms[0].value
        assert described.source is described.synonyms[0].source
        assert strongest in (None, described.value)


def test_key_of_a_listener_is_described_above_the_broker_key():
    own, key = "listener.name.plaintext.max.connections", "max.connections"
    config = DynamicConfig(BrokerConfig.from_properties({key: "9", own: "5"}))
    config.apply(cluster_defaults={own: "4"}, overrides={own: "3"})
    assert config.current.max_connections_of("PLAINTEXT") == 3
    (entry,) = [entry for entry in describe_broker(config) if entry.name == own]
    assert (entry.value, entry.source) == ("3", Source.DYNAMIC_BROKER_CONFIG)
    assert [(each.name, each.value) for each in entry.synonyms] == [
        (own, "3"),
        (own, "4"),
        (own, "5"),
        (key, "9"),
        (key, "2147483647"),
    ]
    assert [entry.name for entry in describe_cluster_defaults(config)] == [own]
    with pytest.raises(ConfigError, match="Unknown broker config name"):
        config.apply(cluster_defaults={}, overrides={"listener.name.other.max.connections": "1"})


MANY = range(99_000)
"""The names that one request may have. Judged one by one, those of a broker took 0.6 to 1.1 s."""


@pytest.mark.parametrize("prefix", ["x", "listener.name.plaintext.x", "sasl.kerberos."])
def test_unknown_one_of_many_names_of_a_broker_is_found_soon(prefix):
    config, texts = dynamic(), {f"{prefix}{number}": "1" for number in MANY}
    for layers in (
        {"cluster_defaults": {}, "overrides": texts},
        {"cluster_defaults": texts, "overrides": {}},
    ):
        began = time.thread_time()
        with pytest.raises(ConfigError, match=f"Unknown broker config name: {prefix}"):
            config.apply(**layers)
        assert time.thread_time() - began < bound(0.03)


def test_unknown_one_of_many_names_of_a_topic_or_group_is_found_soon():
    texts = {f"x{number}": "1" for number in MANY}
    began = time.thread_time()
    with pytest.raises(ConfigError, match="Unknown topic config name: x"):
        validate_topic_overrides(texts, BrokerConfig())
    with pytest.raises(ConfigError, match="Unknown group config name: x"):
        validate_group_overrides(texts, BrokerConfig())
    assert time.thread_time() - began < bound(0.01)


def test_first_unknown_name_of_few_is_reported_after_names_that_are_not_the_clusters():
    with pytest.raises(ConfigError, match=r"Unknown broker config name: a$"):
        dynamic().apply(cluster_defaults={}, overrides={"b": "1", "a": "1"})
    with pytest.raises(ConfigError, match="only per-listener"):
        dynamic().apply(cluster_defaults={"ssl.keystore.location": "/k", "a": "1"}, overrides={})
