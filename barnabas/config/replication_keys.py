"""Broker keys of replication: the ISR, fetching, throttles and moves between directories."""

from typing import Final

from barnabas.config.declare import integer, long, optional_integer, optional_string
from barnabas.config.key import LONG_MAX, Update
from barnabas.config.table import Table

LEADER_SELECTOR: Final = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
_CLUSTER: Final = Update.CLUSTER_WIDE


class ReplicationKeys(Table):
    """Keys of replication between brokers, and between the directories of one broker."""

    alter_log_dirs_replication_quota_window_num = integer(
        11,
        "Number of windows over which `replica.alter.log.dirs.io.max.bytes.per.second` is "
        "measured.",
        at_least=1,
    )
    alter_log_dirs_replication_quota_window_size_seconds = integer(
        1, "Length of one of these windows.", at_least=1
    )
    num_replica_alter_log_dirs_threads = optional_integer(
        "Number of replicas that move between log directories at a time, each with a thread "
        "of its own. Unset: the number of log directories.",
        at_least=1,
    )
    replica_alter_log_dirs_io_max_bytes_per_second = long(
        LONG_MAX,
        "Maximum bytes per second that are copied between the log directories of this broker.",
        at_least=0,
        update=_CLUSTER,
    )
    follower_replication_throttled_rate = long(
        LONG_MAX,
        "Maximum bytes per second that this broker fetches for out-of-sync replicas which "
        "`follower.replication.throttled.replicas` of their topic lists.",
        at_least=0,
        update=_CLUSTER,
    )
    leader_replication_throttled_rate = long(
        LONG_MAX,
        "Maximum bytes per second that this broker sends to out-of-sync followers of replicas"
        " which `leader.replication.throttled.replicas` of their topic lists.",
        at_least=0,
        update=_CLUSTER,
    )
    replica_lag_time_max_ms = long(
        30_000,
        "Maximum time that a follower may be behind the leader's log end before it leaves the"
        " ISR. A follower that closes its connections and does not reconnect leaves it at "
        "once.",
        at_least=1,
    )
    replica_selector_class = optional_string(
        "Selection of the replica that a consumer reads from (KIP-392): "
        f"`{RACK_AWARE_SELECTOR}` prefers one in the consumer's rack; otherwise it is the leader.",
        one_of=(LEADER_SELECTOR, RACK_AWARE_SELECTOR),
    )
    num_replica_fetchers = integer(
        1,
        "Number of connections over which this broker fetches from each leader; partitions "
        "are spread over them.",
        at_least=1,
        update=_CLUSTER,
    )
    replica_fetch_backoff_ms = integer(
        1000,
        "Maximum pause before a partition is fetched again after an error. The first pauses "
        "are shorter; in Kafka all have this length.",
        at_least=0,
    )
    replica_fetch_max_bytes = integer(
        1 << 20, "Maximum bytes of records fetched from one partition at a time.", at_least=0
    )
    replica_fetch_min_bytes = integer(
        1,
        "Minimum bytes of records that a leader collects before it answers a follower.",
        at_least=0,
    )
    replica_fetch_response_max_bytes = integer(
        10 << 20, "Maximum bytes of records in one response to a follower.", at_least=0
    )
    replica_fetch_wait_max_ms = integer(
        500,
        "Maximum time that a leader waits for records before it answers a follower.",
        at_least=0,
    )
    replica_socket_timeout_ms = integer(
        30_000,
        "Time after which a fetch that a leader does not answer is repeated. Must exceed "
        "`replica.fetch.wait.max.ms`.",
        at_least=1,
    )
    replication_quota_window_num = integer(
        11, "Number of windows over which the two throttled rates are measured.", at_least=1
    )
    replication_quota_window_size_seconds = integer(
        1, "Length of one of these windows.", at_least=1
    )
