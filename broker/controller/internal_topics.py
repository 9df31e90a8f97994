"""The topics that brokers keep for themselves, as a broker that is alone makes them.

One replica, and one in sync is enough: the keys about several brokers wait for a cluster.
"""

from collections.abc import Callable, Mapping

from barnabas.broker.controller.topic_creator import InternalTopic
from barnabas.broker.metadata.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.config.broker import BrokerConfig

_REPLICAS = 1


def internal_topics(
    config: Callable[[], BrokerConfig],
) -> Mapping[str, Callable[[], InternalTopic]]:
    """How to make each of them, by name."""
    return {
        CONSUMER_OFFSETS: lambda: _offsets(config()),
        TRANSACTION_STATE: lambda: _transactions(config()),
    }


def _offsets(config: BrokerConfig) -> InternalTopic:
    return InternalTopic(
        config.offsets_topic_num_partitions,
        _REPLICAS,
        {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "min.insync.replicas": "1",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        },
    )


def _transactions(config: BrokerConfig) -> InternalTopic:
    return InternalTopic(
        config.transaction_state_log_num_partitions,
        _REPLICAS,
        {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": "1",
            "segment.bytes": str(config.transaction_state_log_segment_bytes),
            "unclean.leader.election.enable": "false",
        },
    )
