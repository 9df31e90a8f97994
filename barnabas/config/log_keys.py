"""Broker keys of the log: directories, topic defaults, flushing, retention, compaction."""

from typing import Final

from barnabas.config.declare import (
    boolean,
    double,
    integer,
    long,
    names,
    optional_integer,
    optional_long,
    optional_names,
    string,
)
from barnabas.config.key import ARRAY_MAX, DOUBLE_MAX, LONG_MAX, Update
from barnabas.config.table import Table
from barnabas.config.topic import (
    CLEANUP_POLICIES,
    COMPRESSION_TYPES,
    TIMESTAMP_TYPES,
    check_gzip_level,
)

_CLUSTER: Final = Update.CLUSTER_WIDE
_DAY_MS: Final = 24 * 60 * 60 * 1000


class TopicDefaultKeys(Table):
    """Keys that topics inherit unless they override them."""

    compression_gzip_level = integer(
        -1,
        "Level for records that the broker compresses with gzip.",
        check=check_gzip_level,
        update=_CLUSTER,
    )
    compression_lz4_level = integer(
        9,
        "Level for records that the broker compresses with lz4.",
        at_least=1,
        at_most=17,
        update=_CLUSTER,
    )
    compression_type = string(
        "producer",
        "Codec of the batches on disk; `producer` keeps what the producer chose.",
        one_of=COMPRESSION_TYPES,
        update=_CLUSTER,
    )
    compression_zstd_level = integer(
        3,
        "Level for records that the broker compresses with zstd.",
        at_least=-131072,
        at_most=22,
        update=_CLUSTER,
    )
    log_cleaner_delete_retention_ms = long(
        _DAY_MS, "Time that compaction keeps a tombstone.", at_least=0, update=_CLUSTER
    )
    log_cleaner_max_compaction_lag_ms = long(
        LONG_MAX, "Maximum time until a record is compacted.", at_least=1, update=_CLUSTER
    )
    log_cleaner_min_cleanable_ratio = double(
        0.5,
        "Minimum share of the log that is not compacted yet for compaction to start.",
        at_least=0,
        at_most=1,
        update=_CLUSTER,
    )
    log_cleaner_min_compaction_lag_ms = long(
        0, "Minimum time that a record stays uncompacted.", at_least=0, update=_CLUSTER
    )
    log_cleanup_policy = names(
        ("delete",),
        "Cleanup of old segments: `delete`, `compact`, or both.",
        one_of=CLEANUP_POLICIES,
        update=_CLUSTER,
    )
    log_flush_interval_messages = long(
        LONG_MAX,
        "Number of records of a partition without an fsync after which one is due. With 1, "
        "records are acknowledged only after an fsync; concurrent producers share one.",
        at_least=1,
        update=_CLUSTER,
    )
    log_flush_interval_ms = optional_long(
        "Time that a record may wait until an fsync is due. Unset: "
        "`log.flush.scheduler.interval.ms`.",
        update=_CLUSTER,
    )
    log_index_interval_bytes = integer(
        4096, "Bytes appended between two entries of the offset index.", at_least=0, update=_CLUSTER
    )
    log_index_size_max_bytes = integer(
        10 << 20, "Maximum size of an offset index.", at_least=4, update=_CLUSTER
    )
    log_message_records_validation_enable = boolean(
        False,
        "Read every record of a batch before it is appended, and refuse a batch with a record that "
        "consumers could not read. A key of Barnabas alone.",
        update=_CLUSTER,
    )
    log_message_timestamp_after_max_ms = long(
        3_600_000,
        "Maximum time that a record's timestamp may be ahead of the broker's clock.",
        at_least=0,
        update=_CLUSTER,
    )
    log_message_timestamp_before_max_ms = long(
        LONG_MAX,
        "Maximum time that a record's timestamp may be behind the broker's clock.",
        at_least=0,
        update=_CLUSTER,
    )
    log_message_timestamp_type = string(
        "CreateTime",
        "Origin of the timestamps: the producer's clock, or the broker's at the append.",
        one_of=TIMESTAMP_TYPES,
        update=_CLUSTER,
    )
    log_preallocate = boolean(
        False, "Reserve the space of a new segment on disk when it is created.", update=_CLUSTER
    )
    log_retention_bytes = long(
        -1,
        "Size of a partition above which its oldest segments are deleted; -1 is no limit.",
        update=_CLUSTER,
    )
    log_retention_hours = integer(168, "Age in hours at which a segment is deleted.")
    log_retention_minutes = optional_integer(
        "Age in minutes at which a segment is deleted. Unset: `log.retention.hours`."
    )
    log_retention_ms = optional_long(
        "Age at which a segment is deleted; -1 is no limit. Unset: `log.retention.minutes`.",
        update=_CLUSTER,
    )
    log_roll_hours = integer(168, "Age in hours at which a segment is closed.", at_least=1)
    log_roll_jitter_hours = integer(
        0, "Maximum random reduction of that age, in hours.", at_least=0
    )
    log_roll_jitter_ms = optional_long(
        "Maximum random reduction of the age at which a segment is closed. Unset: "
        "`log.roll.jitter.hours`.",
        update=_CLUSTER,
    )
    log_roll_ms = optional_long(
        "Age at which a segment is closed. Unset: `log.roll.hours`.", update=_CLUSTER
    )
    log_segment_bytes = integer(
        1 << 30, "Size at which a segment is closed.", at_least=1 << 20, update=_CLUSTER
    )
    log_segment_delete_delay_ms = long(
        60_000,
        "Time that a deleted file is kept for readers that still use it.",
        at_least=0,
        update=_CLUSTER,
    )
    max_decompressed_message_bytes = integer(
        ARRAY_MAX,
        "Maximum size of one record of a compressed batch, once it is decompressed. A lower limit "
        "than the default has every compressed batch of a producer decompressed before it is "
        "appended.",
        at_least=1,
        at_most=ARRAY_MAX,
        update=_CLUSTER,
    )
    message_max_bytes = integer(
        1_048_588,
        "Maximum size of a record batch, compressed.",
        at_least=0,
        update=_CLUSTER,
    )
    min_insync_replicas = integer(
        1,
        "Minimum number of in-sync replicas for a write with acks=all to be accepted.",
        at_least=1,
        update=_CLUSTER,
    )
    unclean_leader_election_enable = boolean(
        False,
        "Allow an out-of-sync replica to become leader if no in-sync replica is left (may "
        "lose data).",
        update=_CLUSTER,
    )


class LogKeys(Table):
    """Keys of directories, checkpoints, retention checks and the cleaner."""

    log_cleaner_backoff_ms = long(
        15_000, "Pause of the cleaner if no log needs cleaning.", at_least=0, update=_CLUSTER
    )
    log_cleaner_dedupe_buffer_size = long(
        128 << 20, "Memory for the cleaner's offset map.", update=_CLUSTER
    )
    log_cleaner_enable = boolean(True, "Compact the logs of topics with `cleanup.policy=compact`.")
    log_cleaner_io_max_bytes_per_second = double(
        DOUBLE_MAX,
        "Maximum bytes per second that the cleaner reads and writes.",
        at_least=0,
        update=_CLUSTER,
    )
    log_dir = names(
        ("barnabas-data",),
        "Directory of the partitions if `log.dirs` is unset.",
        may_be_empty=False,
    )
    log_dirs = optional_names(
        "Directories of the partitions, comma-separated; a new partition is created in the "
        "one with the fewest. Unset: `log.dir`. If neither is set, `barnabas serve` uses "
        "`barnabas` in the user's state directory (`$XDG_STATE_HOME`, else `~/.local/state`)."
    )
    log_flush_offset_checkpoint_interval_ms = integer(
        60_000, "Interval at which the recovery points are checkpointed.", at_least=0
    )
    log_flush_scheduler_interval_ms = long(
        LONG_MAX,
        "Interval of the check for records that are due for an fsync; at most one second.",
    )
    log_flush_start_offset_checkpoint_interval_ms = integer(
        60_000, "Interval at which the log start offsets are checkpointed.", at_least=0
    )
    log_retention_check_interval_ms = long(
        300_000, "Interval of the check for segments to delete.", at_least=1
    )
