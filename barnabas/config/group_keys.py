"""Keys of group coordination and of idempotent producers."""

from collections.abc import Mapping

from barnabas.config.declare import boolean, integer, long, short
from barnabas.config.key import INT_MAX, Update
from barnabas.config.table import Table, require_known


class GroupKeys(Table):
    """Broker keys of classic groups, the offsets topic and producer ids."""

    group_initial_rebalance_delay_ms = integer(
        3000, "Time that the first rebalance of an empty group waits for more members."
    )
    group_lag_counted_batches = integer(
        20_000,
        "Record batches that a broker looks at to count the records behind the committed offsets "
        "of groups: every 10 s for its metrics, and again for each ListOffsets request that asks "
        "for counts with tagged field 10000. 0 switches both off. A key of Barnabas that Kafka "
        "does not have.",
        at_least=0,
        update=Update.CLUSTER_WIDE,
    )
    group_max_session_timeout_ms = integer(
        1_800_000, "Maximum session timeout that a member may request."
    )
    group_max_size = integer(INT_MAX, "Maximum number of members of one group.", at_least=1)
    group_members_max_bytes = long(
        128 << 20,
        "Memory of the members of all groups that a broker coordinates, with their metadata. "
        "A member beyond it gets COORDINATOR_NOT_AVAILABLE. A key of Barnabas that Kafka does not "
        "have.",
        at_least=1 << 20,
    )
    group_min_session_timeout_ms = integer(
        6000, "Minimum session timeout that a member may request."
    )
    group_unstable_offsets_block_old_clients = boolean(
        True,
        "Clients that are too old to request stable offsets (OffsetFetch before version 7) "
        "wait for the open transactions of their group, as while the group is being loaded. "
        "If false, they get the offsets before those transactions, and may process records "
        "twice.",
        update=Update.CLUSTER_WIDE,
    )
    max_producer_ids_per_principal = integer(
        500_000,
        "Producer ids that one principal may bring to this broker at once, and once more in each "
        "`producer.id.expiration.ms`. An id counts where the broker gives it out, for idempotent "
        "writes or for a new transactional id, and in each partition that it is new to, where it "
        "takes 0.4 to 1.2 KB. Beyond it InitProducerId and Produce answer POLICY_VIOLATION. Super "
        "users have no limit. A key of Barnabas that Kafka does not have.",
        at_least=1,
        update=Update.CLUSTER_WIDE,
    )
    offset_metadata_max_bytes = integer(
        4096, "Maximum size of the metadata of one committed offset."
    )
    offsets_commit_timeout_ms = integer(
        5000, "Maximum time that a coordinator waits until its write is replicated.", at_least=1
    )
    offsets_load_buffer_size = integer(
        5 << 20, "Bytes per read when a coordinator loads its partition.", at_least=1
    )
    offsets_retention_check_interval_ms = long(
        600_000, "Interval of the check for expired offsets.", at_least=1
    )
    offsets_retention_minutes = integer(
        10_080, "Time that offsets are kept after their group has become empty.", at_least=1
    )
    offsets_topic_compression_codec = integer(
        0,
        "Codec of the offsets topic: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
        at_least=0,
        at_most=4,
    )
    offsets_topic_num_partitions = integer(
        50, "Partitions of the offsets topic; must not be changed once it exists.", at_least=1
    )
    offsets_topic_replication_factor = short(
        3,
        "Replication factor of the offsets topic. A broker on the embedded metadata store, "
        "which is alone, creates it with 1; `serve --processes` without ZooKeeper sets 1.",
        at_least=1,
    )
    offsets_topic_segment_bytes = integer(
        104_857_600,
        "Segment size of the offsets topic; small segments load faster.",
        at_least=1 << 20,
    )
    producer_id_expiration_check_interval_ms = integer(
        600_000, "Interval of the check for expired producer ids.", at_least=1
    )
    producer_id_expiration_ms = integer(
        86_400_000,
        "Time that a partition remembers an unused producer id.",
        at_least=1,
        update=Update.CLUSTER_WIDE,
    )


class GroupConfig(Table):
    """The configuration of one group, without any key yet.

    Every group key of Kafka 4.4 sets a value for the consumer protocol of KIP-848, for share groups
    or for streams groups. Classic groups have none: their members send their own timeouts. Until
    those protocols are served, a key would have no effect, so none is accepted.
    """


def validate_group_overrides(overrides: Mapping[str, str]) -> None:
    """Raise ConfigError if AlterConfigs may not set these values for a group."""
    require_known(GroupConfig, overrides, "group")
    GroupConfig.parse(overrides)
