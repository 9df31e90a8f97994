"""Topic overrides: precedence and refusals."""

import pytest

from barnabas.config.broker import BrokerConfig
from barnabas.config.key import ConfigError
from barnabas.config.topic import TopicConfig, validate_topic_overrides


def test_an_override_wins_over_the_brokers_default():
    broker = BrokerConfig.from_properties({"log.segment.bytes": "2000000", "log.roll.hours": "1"})

    topic = TopicConfig.resolve({"segment.bytes": "3000000"}, broker)

    assert topic.segment_bytes == 3_000_000
    assert topic.segment_ms == 3_600_000


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"no.such": "1"}, "Unknown topic config name: no.such"),
        ({"remote.storage.enable": "true"}, "Unknown topic config name: remote.storage.enable"),
        (
            {"retention.ms": "-2"},
            "Invalid value -2 for configuration retention.ms: Value must be at least -1",
        ),
        (
            {"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "5"},
            "conflict topic config setting min.compaction.lag.ms (9) > max.compaction.lag.ms (5)",
        ),
        (
            {"leader.replication.throttled.replicas": "0"},
            "Invalid value [0] for configuration leader.replication.throttled.replicas: "
            "leader.replication.throttled.replicas must be the literal '*' or a list of replicas "
            "in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],...",
        ),
    ],
)
def test_invalid_override_is_refused(overrides, message):
    with pytest.raises(ConfigError) as refused:
        validate_topic_overrides(overrides, BrokerConfig())
    assert str(refused.value) == message


def test_the_conflict_of_lags_counts_the_brokers_default():
    broker = BrokerConfig.from_properties({"log.cleaner.max.compaction.lag.ms": "5"})
    with pytest.raises(ConfigError, match="conflict"):
        validate_topic_overrides({"min.compaction.lag.ms": "9"}, broker)


def test_a_default_that_changes_under_an_override_leaves_the_topic_usable():
    broker = BrokerConfig.from_properties({"log.cleaner.min.compaction.lag.ms": "9"})
    topic = TopicConfig.resolve({"max.compaction.lag.ms": "5"}, broker)
    assert (topic.min_compaction_lag_ms, topic.max_compaction_lag_ms) == (9, 5)


@pytest.mark.parametrize(
    ("policy", "compacted", "deleted"),
    [
        ("delete", False, True),
        ("compact", True, False),
        ("compact, delete", True, True),
        ("", False, False),
    ],
)
def test_cleanup_policies_combine(policy, compacted, deleted):
    topic = TopicConfig.resolve({"cleanup.policy": policy}, BrokerConfig())
    assert (topic.compacted, topic.deleted) == (compacted, deleted)


def test_throttled_replica_list_is_accepted():
    for replicas in ("*", "0:1,1:2", ""):
        validate_topic_overrides(
            {"follower.replication.throttled.replicas": replicas}, BrokerConfig()
        )
