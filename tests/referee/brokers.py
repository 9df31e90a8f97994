"""How both brokers are set up for a comparison."""

from typing import NamedTuple

from barnabas.protocol.messages.api_versions import API, ApiVersionsRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from barnabas.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.referee.scenario import Peer

SHARED = {
    "log.segment.bytes": "1073741824",
    "auto.create.topics.enable": "true",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "6000",
}
"""Properties that Kafka and Barnabas are both given."""

OURS = SHARED | {"broker.id": "1", "group.unstable.offsets.block.old.clients": "false"}
"""Barnabas besides does nothing that Kafka does not."""


SAFE_DOWNGRADE = 2
"""UpgradeType of UpdateFeatures."""


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int


def warm_up(broker: Address) -> None:
    """Returns when the broker hands out producer ids and coordinates groups of each partition.

    Transactions are those of before KIP-890, as `kafka.FEATURES_OFF` has them.
    """
    with Peer(*broker, API, 0, "warm-up") as peer:
        older = FeatureUpdateKey(
            feature="transaction.version", max_version_level=0, upgrade_type=SAFE_DOWNGRADE
        )
        peer.do(UpdateFeaturesRequest(feature_updates=[older]), until=lambda r: r.error_code == 0)
        peer.do(ApiVersionsRequest())
        peer.do(
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1),
            until=lambda r: r.error_code == 0,
        )
        for group in "abcdefgh":
            peer.do(
                FindCoordinatorRequest(coordinator_keys=[group]),
                until=lambda r: r.coordinators[0].error_code == 0,
            )
            asked = OffsetFetchRequestGroup(group_id=group, topics=None)
            peer.do(
                OffsetFetchRequest(groups=[asked]),
                until=lambda r: r.groups[0].error_code == 0,
            )


def warm_up_transactions(broker: Address) -> None:
    """Returns when the broker coordinates transactions of each partition."""
    with Peer(*broker, API, 0, "warm-up") as peer:
        for id in "abcdefgh":
            finding = FindCoordinatorRequest(coordinator_keys=[id], key_type=1)
            peer.do(finding, until=lambda r: r.coordinators[0].error_code == 0)
            asked = InitProducerIdRequest(transactional_id=id, transaction_timeout_ms=60_000)
            peer.do(asked, until=lambda r: r.error_code == 0)
