"""Values and their texts: Java's notation, and the default of every key."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.config.broker import BrokerConfig
from barnabas.config.key import ConfigError, Type, java_text
from barnabas.config.topic import BROKER_SYNONYMS, TopicConfig

KEYS = [*BrokerConfig.KEYS.values(), *TopicConfig.KEYS.values()]


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_default_is_a_valid_value_of_its_key(key):
    if key.default is not None:
        assert key.parse(key.text(key.default)) == key.default


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_number_of_thousands_of_digits_is_parsed_or_refused(key):
    if key.type in (Type.INT, Type.SHORT, Type.LONG, Type.DOUBLE):
        with suppress(ConfigError):
            key.parse("1" * 5000)


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_every_key_has_documentation(key):
    assert key.doc.endswith(".")
    assert key.attribute == key.name.replace(".", "_")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (0.5, "0.5"),
        (1.0, "1.0"),
        (1e7, "1.0E7"),
        (0.00012, "1.2E-4"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (-12345678.9, "-1.23456789E7"),
        (("a", "b"), "[a, b]"),
        (-1, "-1"),
    ],
)
def test_values_are_written_as_java_writes_them(value, text):
    assert java_text(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_round_trip_through_their_text(value):
    assert float(java_text(value)) == value


def test_every_topic_key_inherits_from_broker_keys_or_from_none():
    without = set(TopicConfig.KEYS) - set(BROKER_SYNONYMS)
    assert without == {
        "errors.deadletterqueue.group.enable",
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
    }
    for name, synonyms in BROKER_SYNONYMS.items():
        assert name in TopicConfig.KEYS
        assert set(synonyms) <= set(BrokerConfig.KEYS)


def test_topic_defaults_of_a_default_broker_equal_the_topic_tables():
    assert TopicConfig.resolve({}, BrokerConfig()) == TopicConfig()
