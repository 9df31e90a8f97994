"""The topics that brokers keep for themselves, as a cluster makes them, and a broker alone.

One replica has to do where there is one broker only; in a cluster nobody is coordinated until as
many brokers are alive as the keys ask for.
"""

from collections.abc import Callable, Mapping

from barnabas.broker.controller.topic_creator import InternalTopic
from barnabas.broker.metadata.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.config.broker import BrokerConfig

_ALONE = {"min.insync.replicas": "1"}
"""Whatever holds for other topics."""


def internal_topics(
    config: Callable[[], BrokerConfig],
) -> Mapping[str, Callable[[], InternalTopic]]:
    """How to make each of them, by name."""
    return {
        CONSUMER_OFFSETS: lambda: _offsets(config()),
        TRANSACTION_STATE: lambda: _transactions(config()),
    }


def in_cluster(topic: str, overrides: Mapping[str, str], config: BrokerConfig) -> dict[str, str]:
    """The overrides of a broker's topic when others join the broker; `config` has the keys it will
    run with then.

    A partition that has one replica still takes writes: it never needs more than it has.
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
