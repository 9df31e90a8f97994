"""The brokers of a comparison, and their setup."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from barnabas.protocol.messages.api_versions import API, ApiVersionsRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from barnabas.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from barnabas.testing.broker import Broker
from tests.referee.releases import features_off
from tests.referee.scenario import Peer, Scenario
from tests.referee.worn import wear_out
from tests.support.kafka.node import Kafka

SHARED = {
    "log.segment.bytes": "1073741824",
    "auto.create.topics.enable": "true",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "6000",
    "group.consumer.assignment.interval.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
    "transaction.two.phase.commit.enable": "true",
}
"""The properties of both brokers."""

KAFKAS = SHARED | {"unstable.api.versions.enable": "true"}
"""The properties of Apache Kafka: its InitProducerId v6 is not stable yet (KIP-939)."""

OURS = SHARED | {
    "broker.id": "1",
    "group.unstable.offsets.block.old.clients": "false",
    "transaction.blocking.max.wait.ms": "0",
    "transaction.fence.older.connections": "false",
}
"""The properties of Barnabas: features that Kafka lacks are switched off."""

TRANSACTIONS = "transaction.version"

UPGRADE, SAFE_DOWNGRADE = 1, 2
"""UpgradeType of UpdateFeatures."""


class Address(NamedTuple):
    """The address of a broker's listener."""

    host: str
    port: int


_levels: dict[Address, int] = {}
"""The levels that `set_level` has set."""


def set_level(broker: Address, level: int) -> None:
    """Set the broker's transaction.version, at first 0, to `level`; return when it is in force."""
    before = _levels.get(broker, 0)
    if level == before:
        return
    kind = SAFE_DOWNGRADE if level < before else UPGRADE
    change = FeatureUpdateKey(feature=TRANSACTIONS, max_version_level=level, upgrade_type=kind)
    hello = ApiVersionsRequest(client_software_name="referee", client_software_version="1")
    wanted = [(TRANSACTIONS, level)] if level else []
    with Peer(*broker, API, 0, "level") as peer:
        answer = peer.do(UpdateFeaturesRequest(feature_updates=[change]))
        assert answer.error_code == 0, answer
        peer.do(hello, until=lambda r: _finalized(r) == wanted)
    _levels[broker] = level


def _finalized(answer: Any) -> list[tuple[str, int]]:
    return [
        (each.name, each.max_version_level)
        for each in answer.finalized_features
        if each.name == TRANSACTIONS
    ]


def play(scenario: Scenario, broker: Address, number: int = 1) -> Peer:
    """Play a scenario against a broker, for the first time or a later one."""
    set_level(broker, scenario.level)
    with scenario.peer(broker, number) as peer:
        scenario.play(peer)
    return peer


class PlayOnce:
    """The plays of one broker: each is played once, for whichever test asks for it first."""

    def __init__(self, broker: Address) -> None:
        self._broker = broker
        self._played: dict[tuple[str, int], Peer] = {}

    def __call__(self, scenario: Scenario, number: int = 1) -> Peer:
        key = str(scenario), number
        if key not in self._played:
            self._played[key] = play(scenario, self._broker, number)
        return self._played[key]


@contextmanager
def barnabas() -> Iterator[Address]:
    """Run Barnabas with the properties of the comparison, ready for every scenario."""
    with tempfile.TemporaryDirectory(prefix="referee-") as directory:
        with Broker(OURS, data_dir=directory) as broker:
            warm_up_transactions(_address(broker))
        wear_out(Path(directory))
        with Broker(OURS, data_dir=directory) as broker:
            warm_up(_address(broker))
            warm_up_transactions(_address(broker))
            yield _address(broker)


@contextmanager
def kafka(directory: Path) -> Iterator[Address]:
    """Run Apache Kafka with the features of newer protocols switched off, ready as well."""
    with Kafka(directory, features=features_off(), properties=KAFKAS) as broker:
        address = Address("127.0.0.1", broker.port)
        warm_up_transactions(address)
        broker.stop()
        wear_out(broker.data)
        broker.start()
        warm_up(address)
        warm_up_transactions(address)
        yield address


def _address(broker: Broker) -> Address:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return Address(host, int(port))


def warm_up(broker: Address) -> None:
    """Return when the broker assigns producer ids and coordinates the groups of each partition.

    The transaction.version is 0, as in `features_off()`: the protocol before KIP-890.
    """
    with Peer(*broker, API, 0, "warm-up") as peer:
        older = FeatureUpdateKey(
            feature="transaction.version", max_version_level=0, upgrade_type=SAFE_DOWNGRADE
        )
        peer.do(UpdateFeaturesRequest(feature_updates=[older]), until=lambda r: r.error_code == 0)
        _levels[broker] = 0
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
    """Return when the broker coordinates the transactions of each partition."""
    with Peer(*broker, API, 0, "warm-up") as peer:
        for id in "abcdefgh":
            finding = FindCoordinatorRequest(coordinator_keys=[id], key_type=1)
            peer.do(finding, until=lambda r: r.coordinators[0].error_code == 0)
            asked = InitProducerIdRequest(transactional_id=id, transaction_timeout_ms=60_000)
            peer.do(asked, until=lambda r: r.error_code == 0)
