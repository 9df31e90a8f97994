"""The cluster that client libraries use while its brokers are killed."""

from pathlib import Path

from tests.support.brokers.cluster import ProcessCluster
from tests.support.zookeeper import ZooKeeperServer

KEYS = {
    "group.initial.rebalance.delay.ms": "0",
    "num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
    # A restarted broker leads its share again soon: every kill hits a broker that leads.
    "leader.imbalance.check.interval.seconds": "1",
    "leader.imbalance.per.broker.percentage": "0",
}


def cluster_on(
    directory: Path, zookeeper: ZooKeeperServer, *, session_timeout_ms: int = 6000
) -> ProcessCluster:
    """Return a cluster that a `with` block starts and ends."""
    session = {"zookeeper.session.timeout.ms": str(session_timeout_ms)}
    return ProcessCluster(directory, zookeeper, KEYS | session)
