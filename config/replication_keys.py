"""Broker keys of replication: who is in sync, who is read from, what may be used to move."""

from typing import Final

from barnabas.config.declare import integer, long, optional_integer, optional_string
from barnabas.config.key import LONG_MAX, Update
from barnabas.config.table import Table

LEADER_SELECTOR: Final = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
_CLUSTER: Final = Update.CLUSTER_WIDE


class ReplicationKeys(Table):
    """Between the brokers, and between the directories of one."""

    alter_log_dirs_replication_quota_window_num = integer(
        11,
        "Windows over which the rate of `replica.alter.log.dirs.io.max.bytes.per.second` is "
        "measured.",
        at_least=1,
    )
    alter_log_dirs_replication_quota_window_size_seconds = integer(
        1, "Length of one of these windows.", at_least=1
    )
    num_replica_alter_log_dirs_threads = optional_integer(
        "How many replicas move between log directories at a time, each with a thread of its own; "
        "unset, as many as there are directories.",
        at_least=1,
    )
    replica_alter_log_dirs_io_max_bytes_per_second = long(
        LONG_MAX,
        "Bytes per second that may be copied between the log directories of this broker.",
        at_least=0,
        update=_CLUSTER,
    )
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
    replica_lag_time_max_ms = long(
        30_000,
        "A follower that has not had everything for so long leaves the in-sync set. One that "
        "closes its connections and does not come back leaves it at once.",
        at_least=1,
    )
    replica_selector_class = optional_string(
        "Who chooses the replica that a consumer reads from (KIP-392): "
        f"`{RACK_AWARE_SELECTOR}` prefers one in the consumer's rack, the leader serves otherwise.",
        one_of=(LEADER_SELECTOR, RACK_AWARE_SELECTOR),
    )
    num_replica_fetchers = integer(
        1,
        "Connections over which this broker fetches from each leader; partitions are spread over "
        "them.",
        at_least=1,
        update=_CLUSTER,
    )
    replica_fetch_backoff_ms = integer(
        1000,
        "Longest pause before a partition is fetched again after an error. The first pauses are "
        "shorter; Kafka's are all of this length.",
        at_least=0,
    )
    replica_fetch_max_bytes = integer(
        1 << 20, "Bytes of records that are fetched from one partition at a time.", at_least=0
    )
    replica_fetch_min_bytes = integer(
        1, "Bytes that a leader waits for before it answers a follower.", at_least=0
    )
    replica_fetch_response_max_bytes = integer(
        10 << 20, "Bytes of records in one answer to a follower.", at_least=0
    )
    replica_fetch_wait_max_ms = integer(
        500, "Longest time that a leader waits for news before it answers a follower.", at_least=0
    )
    replica_socket_timeout_ms = integer(
        30_000,
        "Time after which a leader that does not answer is asked anew. Above "
        "`replica.fetch.wait.max.ms`.",
        at_least=1,
    )
    replication_quota_window_num = integer(
        11, "Windows over which the two rates are measured.", at_least=1
    )
    replication_quota_window_size_seconds = integer(
        1, "Length of one of these windows.", at_least=1
    )
