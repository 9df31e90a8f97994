"""The settings of internal topics, in a cluster and on a single broker.

One replica is enough on a single broker. In a cluster a coordinator waits until as many brokers are
registered as its replication factor needs.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from barnabas.broker.cluster.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.config.broker import BrokerConfig


class InternalTopic(NamedTuple):
    """The settings of an internal topic."""

    num_partitions: int
    replication_factor: int
    configs: dict[str, str]


_ALONE = {"min.insync.replicas": "1"}
"""Override for a single broker, whatever the default of other topics is."""


def internal_topics(
    config: Callable[[], BrokerConfig],
) -> Mapping[str, Callable[[], InternalTopic]]:
    """Return functions that make the settings of each internal topic, by name."""
    return {
        CONSUMER_OFFSETS: lambda: _offsets(config()),
        TRANSACTION_STATE: lambda: _transactions(config()),
    }


def in_cluster(topic: str, overrides: Mapping[str, str], config: BrokerConfig) -> dict[str, str]:
    """Return the overrides of an internal topic when its single broker becomes part of a cluster.
    `config` has the keys of the broker in the cluster.

    A partition with one replica still accepts writes: a leader never asks for more in-sync
    replicas than the partition has.
    """
    wanted = internal_topics(lambda: config).get(topic)
    values = dict(overrides)
    if wanted is not None and _ALONE.items() <= values.items():
        for key in _ALONE:
            del values[key]
        values |= {key: text for key, text in wanted().configs.items() if key in _ALONE}
    return values


def _offsets(config: BrokerConfig) -> InternalTopic:
    configs = {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(config.offsets_topic_segment_bytes),
    }
    if not config.in_cluster:
        return InternalTopic(config.offsets_topic_num_partitions, 1, configs | _ALONE)
    return InternalTopic(
        config.offsets_topic_num_partitions, config.offsets_topic_replication_factor, configs
    )


def _transactions(config: BrokerConfig) -> InternalTopic:
    configs = {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "segment.bytes": str(config.transaction_state_log_segment_bytes),
        "unclean.leader.election.enable": "false",
    }
    if not config.in_cluster:
        return InternalTopic(config.transaction_state_log_num_partitions, 1, configs | _ALONE)
    return InternalTopic(
        config.transaction_state_log_num_partitions,
        config.transaction_state_log_replication_factor,
        configs | {"min.insync.replicas": str(config.transaction_state_log_min_isr)},
    )
