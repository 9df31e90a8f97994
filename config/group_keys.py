"""Broker keys of group coordination and of idempotent producers."""

from barnabas.config.declare import boolean, integer, long, short
from barnabas.config.key import INT_MAX, Update
from barnabas.config.table import Table


class GroupKeys(Table):
    """Classic consumer groups, the offsets topic, and what the broker remembers of producers."""

    group_initial_rebalance_delay_ms = integer(
        3000, "How long the first member of an empty group waits for others to join."
    )
    group_max_session_timeout_ms = integer(
        1_800_000, "Longest session timeout that a member may ask for."
    )
    group_max_size = integer(INT_MAX, "Members that one group may have.", at_least=1)
    group_min_session_timeout_ms = integer(
        6000, "Shortest session timeout that a member may ask for."
    )
    group_unstable_offsets_block_old_clients = boolean(
        True,
        "Whether clients that are too old to ask for stable offsets (OffsetFetch before version 7) "
        "wait for the open transactions of their group, as if it were still being loaded. "
        "Otherwise they get the offsets before those transactions, and may do work twice.",
        update=Update.CLUSTER_WIDE,
    )
    offset_metadata_max_bytes = integer(4096, "Largest metadata text of one committed offset.")
    offsets_commit_timeout_ms = integer(
        5000, "How long a coordinator waits for its write to be replicated.", at_least=1
    )
    offsets_load_buffer_size = integer(
        5 << 20, "Bytes read at a time when a coordinator loads its partition.", at_least=1
    )
    offsets_retention_check_interval_ms = long(
        600_000, "How often expired offsets are looked for.", at_least=1
    )
    offsets_retention_minutes = integer(
        10_080, "How long offsets outlive a group that has become empty.", at_least=1
    )
    offsets_topic_compression_codec = integer(
        0,
        "Codec of the offsets topic: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
        at_least=0,
        at_most=4,
    )
    offsets_topic_num_partitions = integer(
        50, "Partitions of the offsets topic; not to be changed once it exists.", at_least=1
    )
    offsets_topic_replication_factor = short(
        3,
        "Replicas of the offsets topic. A broker on the embedded metadata store, which is alone, "
        "makes one.",
        at_least=1,
    )
    offsets_topic_segment_bytes = integer(
        104_857_600,
        "Segment size of the offsets topic; small ones load faster.",
        at_least=1 << 20,
    )
    producer_id_expiration_check_interval_ms = integer(
        600_000, "How often expired producer ids are looked for.", at_least=1
    )
    producer_id_expiration_ms = integer(
        86_400_000,
        "How long a partition remembers a producer id that is not used.",
        at_least=1,
        update=Update.CLUSTER_WIDE,
    )
