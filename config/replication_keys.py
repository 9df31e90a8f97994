"""Broker keys of replication: what replicas may use of the network while they move."""

from typing import Final

from barnabas.config.declare import integer, long
from barnabas.config.key import LONG_MAX, Update
from barnabas.config.table import Table

_CLUSTER: Final = Update.CLUSTER_WIDE


class ReplicationKeys(Table):
    """Between the brokers."""

    follower_replication_throttled_rate = long(
        LONG_MAX,
        "Bytes per second that this broker fetches for replicas that are out of sync and that "
        "`follower.replication.throttled.replicas` of their topic names.",
        at_least=0,
        update=_CLUSTER,
    )
    leader_replication_throttled_rate = long(
        LONG_MAX,
        "Bytes per second that this broker sends to followers that are out of sync of partitions "
        "that `leader.replication.throttled.replicas` of their topic names.",
        at_least=0,
        update=_CLUSTER,
    )
    replication_quota_window_num = integer(
        11, "Windows over which the two rates are measured.", at_least=1
    )
    replication_quota_window_size_seconds = integer(
        1, "Length of one of these windows.", at_least=1
    )
