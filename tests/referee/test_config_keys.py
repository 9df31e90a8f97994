"""Every key of Kafka's brokers is supported, named in a warning, or refused for a reason."""

import subprocess
from typing import NamedTuple

import pytest

from barnabas.config.broker import BrokerConfig, resolve_aliases
from barnabas.config.group_keys import GroupConfig
from barnabas.config.inert_keys import InertKeys, is_of_kafka
from barnabas.config.key import ConfigError, Type
from tests.support.kafka import jvm

PER_LISTENER = {
    *("ssl.cipher.suites", "ssl.client.auth", "ssl.enabled.protocols", "ssl.protocol"),
    "ssl.endpoint.identification.algorithm",
}
"""Keys that Kafka takes while a broker runs, and that need a restart here."""
AT_A_RESTART = PER_LISTENER | {"listeners", "listener.security.protocol.map"}
NOT_STORED = {
    "config.providers",
    "cordoned.log.dirs",
    "metric.reporters",
    "principal.builder.class",
}
"""Keys that Kafka takes while a broker runs, and that are refused: none of them is harmless."""


class KafkaKey(NamedTuple):
    """A key of Kafka's brokers."""

    name: str
    type: str
    update: str


@pytest.fixture(scope="module")
def keys() -> list[list[str]]:
    printed = subprocess.run(jvm.program("ConfigKeys"), check=True, capture_output=True, text=True)
    return [line.split() for line in printed.stdout.splitlines()]


@pytest.fixture(scope="module")
def of_brokers(keys: list[list[str]]) -> list[KafkaKey]:
    return [KafkaKey(*rest) for side, *rest in keys if side == "broker"]


def test_every_key_of_kafkas_brokers_is_known(of_brokers: list[KafkaKey]) -> None:
    assert len(of_brokers) > 300
    for name, kind, _ in of_brokers:
        own, *_ = resolve_aliases({name: ""})
        if own in BrokerConfig.KEYS:
            # Kafka's map of listeners is a text with commas.
            ours = BrokerConfig.KEYS[own].type.name
            assert ours == kind or name == "listener.security.protocol.map", name
        elif not is_of_kafka(name):
            with pytest.raises(ConfigError, match=name):
                BrokerConfig.from_properties({name: "com.example.Value"})


def test_dynamic_keys_of_kafka_are_dynamic_or_stored_or_refused(
    of_brokers: list[KafkaKey],
) -> None:
    dynamic = {each.name: each for each in of_brokers if each.update != "read-only"}
    for name, key in dynamic.items():
        if name in InertKeys.KEYS:
            ours = InertKeys.KEYS[name]
            assert (ours.type.name, ours.update.value) == (key.type, key.update), name
        elif name in BrokerConfig.KEYS and name not in AT_A_RESTART:
            assert BrokerConfig.KEYS[name].update.value == key.update, name
    stored = {*InertKeys.KEYS, *BrokerConfig.KEYS, *NOT_STORED}
    assert {each for each in dynamic.keys() - stored if not each.startswith("ssl.")} == set()
    assert InertKeys.KEYS.keys() <= dynamic.keys() | {
        each for each in InertKeys.KEYS if each.startswith("sasl.")
    }


def test_numbers_of_consumer_groups_are_those_of_kafka(keys: list[list[str]]) -> None:
    for side, table, start in (
        ("numbers", BrokerConfig, "group.consumer."),
        ("group", GroupConfig, "consumer."),
    ):
        theirs = {
            name: (default, valid)
            for found, name, default, valid in (row for row in keys if len(row) == 4)
            if found == side and name.startswith(start)
        }
        ours = {
            name: (str(key.default), key.valid)
            for name, key in table.KEYS.items()
            if name.startswith(start) and key.type is Type.INT
        }
        assert ours == theirs
