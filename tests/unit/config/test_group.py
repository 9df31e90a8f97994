"""Configurations of consumer groups, and the keys of the broker that bound them."""

import pytest

from barnabas.config.broker import BrokerConfig
from barnabas.config.describe import describe_group
from barnabas.config.dynamic import DynamicConfig
from barnabas.config.group_keys import (
    GroupConfig,
    readable_group_overrides,
    validate_group_overrides,
)
from barnabas.config.key import ConfigError
from barnabas.coordinator.group.consumer.assignors import ASSIGNORS

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def test_values_of_a_group_come_from_the_broker_unless_it_has_its_own():
    broker = BrokerConfig.from_properties({"group.consumer.session.timeout.ms": "50000"})
    group = GroupConfig.resolve({HEARTBEAT: "7000"}, broker)
    assert group.consumer_session_timeout_ms == 50_000
    assert group.consumer_heartbeat_interval_ms == 7_000
    assert GroupConfig.resolve({}, BrokerConfig()) == GroupConfig()


def test_values_beyond_bounds_that_the_broker_has_now_count_as_the_bounds():
    broker = BrokerConfig.from_properties(
        {
            "group.consumer.min.session.timeout.ms": "48000",
            "group.consumer.session.timeout.ms": "50000",
            "group.consumer.max.heartbeat.interval.ms": "6000",
        }
    )
    overrides = {SESSION: "46000", HEARTBEAT: "9000"}
    group = GroupConfig.resolve(overrides, broker)
    assert group.consumer_session_timeout_ms == 48_000
    assert group.consumer_heartbeat_interval_ms == 6_000
    shown = {each.name: each.value for each in describe_group(overrides, DynamicConfig(broker))}
    assert (shown[SESSION], shown[HEARTBEAT]) == ("48000", "6000")


def test_session_timeout_must_be_longer_than_the_heartbeat_interval():
    low = {
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.min.heartbeat.interval.ms": "100",
    }
    broker = BrokerConfig.from_properties(low)
    with pytest.raises(
        ConfigError, match=r"must be greater than consumer\.heartbeat\.interval\.ms"
    ):
        validate_group_overrides({SESSION: "5000"}, broker)
    with pytest.raises(
        ConfigError, match=r"must be greater than consumer\.heartbeat\.interval\.ms"
    ):
        validate_group_overrides({SESSION: "7000", HEARTBEAT: "7000"}, broker)
    validate_group_overrides({SESSION: "5001"}, broker)
    validate_group_overrides({SESSION: "5000", HEARTBEAT: "4999"}, broker)


def test_keys_of_other_protocols_are_refused_and_dropped_where_kafka_stored_them():
    with pytest.raises(ConfigError, match="Unknown group config name"):
        validate_group_overrides({"share.auto.offset.reset": "earliest"}, BrokerConfig())
    stored = {"share.auto.offset.reset": "earliest", SESSION: "50000", HEARTBEAT: "soon"}
    valid, refusals = readable_group_overrides(stored)
    assert valid == {SESSION: "50000"}
    assert len(refusals) == 1


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        (
            {"session.timeout.ms": "1"},
            "session.timeout.ms must be greater than or equal to "
            "group.consumer.min.session.timeout.ms",
        ),
        (
            {"heartbeat.interval.ms": "16000"},
            "heartbeat.interval.ms must be less than or equal to "
            "group.consumer.max.heartbeat.interval.ms",
        ),
        (
            {"min.session.timeout.ms": "60001"},
            "max.session.timeout.ms must be greater than or equal to "
            "group.consumer.min.session.timeout.ms",
        ),
        (
            {"min.assignment.interval.ms": "2000"},
            "assignment.interval.ms must be greater than or equal to "
            "group.consumer.min.assignment.interval.ms",
        ),
        (
            {"min.session.timeout.ms": "100", "session.timeout.ms": "5000"},
            "heartbeat.interval.ms must be less than group.consumer.session.timeout.ms",
        ),
        (
            {"migration.policy": "sideways"},
            "String must be one of (case insensitive): DISABLED, DOWNGRADE, UPGRADE, BIDIRECTIONAL",
        ),
        ({"assignors": "org.example.Assignor"}, "String must be one of: uniform, range"),
        ({"assignors": ""}, "must not be empty"),
        ({"regex.refresh.interval.ms": "9999"}, "Value must be at least 10000"),
    ],
)
def test_keys_that_contradict_each_other_are_refused_with_the_text_of_kafka(properties, text):
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.from_properties(
            {f"group.consumer.{name}": value for name, value in properties.items()}
        )
    assert text in str(caught.value)


def test_every_assignor_may_be_configured():
    names = ",".join(ASSIGNORS)
    config = BrokerConfig.from_properties({"group.consumer.assignors": names})
    assert config.group_consumer_assignors == tuple(ASSIGNORS)
    assert BrokerConfig.group_consumer_assignors.valid == f"[{', '.join(ASSIGNORS)}]"


def test_migration_policy_is_taken_in_any_case():
    config = BrokerConfig.from_properties({"group.consumer.migration.policy": "UpGrade"})
    assert config.group_consumer_migration_policy == "UpGrade"
