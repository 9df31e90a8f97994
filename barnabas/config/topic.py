"""Topic keys: all of Kafka 4.4's, except those of tiered storage."""

import re
from collections.abc import Mapping
from typing import Final, Protocol, Self

from barnabas.config.declare import boolean, double, integer, long, names, string
from barnabas.config.inert_keys import InertTopicKeys
from barnabas.config.key import ARRAY_MAX, LONG_MAX, ConfigError
from barnabas.config.table import require_known

COMPRESSION_TYPES: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")
CLEANUP_POLICIES: Final = ("compact", "delete")
_DAY_MS: Final = 24 * 60 * 60 * 1000


def check_gzip_level(key: str, level: int) -> None:
    """Raise ConfigError unless zlib supports the level; -1 is zlib's default (KIP-390)."""
    if level != -1 and not 1 <= level <= 9:
        raise ConfigError.invalid(key, level, "Value must be between 1 and 9 or equal to -1")


_REPLICA: Final = re.compile("[0-9]+:[0-9]+")


def _check_throttled_replicas(key: str, replicas: tuple[str, ...]) -> None:
    if replicas not in ((), ("*",)) and not all(map(_REPLICA.fullmatch, replicas)):
        raise ConfigError.invalid(
            key,
            replicas,
            f"{key} must be the literal '*' or a list of replicas in the following format: "
            "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
        )


class TopicDefaults(Protocol):
    """The source of the values that a topic without overrides gets: a broker's configuration."""

    def topic_defaults(self) -> dict[str, object]:
        """Return the values by attribute of `TopicConfig`."""
        ...


class TopicConfig(InertTopicKeys):
    """The configuration of one topic: its own overrides over the broker's defaults."""

    cleanup_policy = names(
        ("delete",),
        "Cleanup of old segments: `delete` deletes them by age and size, `compact` keeps the "
        "last record of each key, both together do both. Empty keeps everything.",
        one_of=CLEANUP_POLICIES,
    )
    compression_gzip_level = integer(
        -1, "Level for records that the broker compresses with gzip.", check=check_gzip_level
    )
    compression_lz4_level = integer(
        9, "Level for records that the broker compresses with lz4.", at_least=1, at_most=17
    )
    compression_type = string(
        "producer",
        "Codec of the batches on disk; `producer` keeps what the producer chose.",
        one_of=COMPRESSION_TYPES,
    )
    compression_zstd_level = integer(
        3, "Level for records that the broker compresses with zstd.", at_least=-131072, at_most=22
    )
    delete_retention_ms = long(
        _DAY_MS,
        "Time that compaction keeps a tombstone, so that a consumer that starts at the "
        "beginning within this time reads the deletion.",
        at_least=0,
    )
    file_delete_delay_ms = long(
        60_000, "Time that a deleted file is kept for readers that still use it.", at_least=0
    )
    flush_messages = long(
        LONG_MAX,
        "Number of records appended since the last fsync after which one is due. With 1, "
        "records are acknowledged only after an fsync; concurrent producers share one.",
        at_least=1,
    )
    flush_ms = long(LONG_MAX, "Time that a record may wait until an fsync is due.", at_least=0)
    follower_replication_throttled_replicas = names(
        (),
        "Replicas whose fetches are throttled on the follower, as `partition:broker` pairs or `*`.",
        check=_check_throttled_replicas,
    )
    index_interval_bytes = integer(
        4096, "Bytes appended between two entries of the offset index.", at_least=0
    )
    leader_replication_throttled_replicas = names(
        (),
        "Replicas to which leaders throttle what they send, as `partition:broker` pairs or `*`.",
        check=_check_throttled_replicas,
    )
    max_compaction_lag_ms = long(LONG_MAX, "Maximum time until a record is compacted.", at_least=1)
    max_decompressed_message_bytes = integer(
        ARRAY_MAX,
        "Maximum size of one record of a compressed batch, once it is decompressed. A lower limit "
        "than the default has every compressed batch of a producer decompressed before it is "
        "appended, and searches by time refuse a larger stored record. How large a whole batch may "
        "become is bounded besides, by 32 times `max.message.bytes` and at least 32 MiB.",
        at_least=1,
        at_most=ARRAY_MAX,
    )
    max_message_bytes = integer(
        1_048_588, "Maximum size of a record batch, compressed.", at_least=0
    )
    message_records_validation_enable = boolean(
        False,
        "Read every record of a batch before it is appended, and refuse a batch with a record that "
        "consumers could not read. A key of Barnabas alone.",
    )
    message_timestamp_after_max_ms = long(
        3_600_000,
        "Maximum time that a record's timestamp may be ahead of the broker's clock.",
        at_least=0,
    )
    message_timestamp_before_max_ms = long(
        LONG_MAX,
        "Maximum time that a record's timestamp may be behind the broker's clock.",
        at_least=0,
    )
    message_timestamp_type = string(
        "CreateTime",
        "Origin of the timestamps: the producer's clock, or the broker's at the append.",
        one_of=TIMESTAMP_TYPES,
    )
    min_cleanable_dirty_ratio = double(
        0.5,
        "Minimum share of the log that is not compacted yet for compaction to start.",
        at_least=0,
        at_most=1,
    )
    min_compaction_lag_ms = long(0, "Minimum time that a record stays uncompacted.", at_least=0)
    min_insync_replicas = integer(
        1,
        "Minimum number of in-sync replicas for a write with acks=all to be accepted.",
        at_least=1,
    )
    preallocate = boolean(False, "Reserve the space of a new segment on disk when it is created.")
    retention_bytes = long(
        -1, "Size of a partition above which its oldest segments are deleted; -1 is no limit."
    )
    retention_ms = long(
        7 * _DAY_MS, "Age at which a segment is deleted; -1 is no limit.", at_least=-1
    )
    segment_bytes = integer(1 << 30, "Size at which a segment is closed.", at_least=1 << 20)
    segment_index_bytes = integer(10 << 20, "Maximum size of an offset index.", at_least=4)
    segment_jitter_ms = long(
        0,
        "Maximum random reduction of `segment.ms`, so that segments do not all roll at the "
        "same time.",
        at_least=0,
    )
    segment_ms = long(7 * _DAY_MS, "Age at which a segment is closed.", at_least=1)
    unclean_leader_election_enable = boolean(
        False,
        "Allow an out-of-sync replica to become leader if no in-sync replica is left (may "
        "lose data).",
    )

    @classmethod
    def resolve(cls, overrides: Mapping[str, str], broker: TopicDefaults) -> Self:
        """Return the configuration of a topic; raise ConfigError for an unknown or invalid
        override.

        Values that contradict each other are accepted: a default of the broker may have changed
        since the override was set.
        """
        require_known(cls, overrides, "topic", _OF_BROKERS)
        return cls(**{**broker.topic_defaults(), **cls.parse(overrides)})

    def require_consistent(self) -> None:
        """Raise ConfigError if values that are valid on their own contradict each other."""
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise ConfigError(
                "conflict topic config setting "
                f"min.compaction.lag.ms ({self.min_compaction_lag_ms}) > "
                f"max.compaction.lag.ms ({self.max_compaction_lag_ms})"
            )

    @property
    def compacted(self) -> bool:
        """Whether the topic is compacted, so that every record needs a key."""
        return "compact" in self.cleanup_policy

    @property
    def deleted(self) -> bool:
        """Whether segments are deleted by age and size."""
        return "delete" in self.cleanup_policy

    @property
    def flushes_each_append(self) -> bool:
        """Whether a record is acknowledged only after an fsync that covers it."""
        return self.flush_messages == 1


SAFE_VALUES: Final[Mapping[str, str]] = {
    "cleanup.policy": "",
    "retention.bytes": "-1",
    "retention.ms": "-1",
    "unclean.leader.election.enable": "false",
}
"""Values for a topic whose overrides cannot be read: they delete no records and lose none."""


def readable_overrides(
    stored: Mapping[str, str], before: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """Return the stored overrides that are valid, and why the others are not.

    Another version may have written them: keys that are unknown here are dropped. An invalid value
    is replaced by the one before, or, without one, by a value that deletes no records.
    """
    overrides, refusals = {}, []
    for name, text in stored.items():
        key = TopicConfig.KEYS.get(name)
        if key is None:
            continue
        try:
            key.parse(text)
            overrides[name] = text
        except ConfigError as error:
            refusals.append(str(error))
            if name in before or name in SAFE_VALUES:
                overrides[name] = before[name] if name in before else SAFE_VALUES[name]
    return overrides, refusals


def validate_topic_overrides(overrides: Mapping[str, str], broker: TopicDefaults) -> None:
    """Raise ConfigError if CreateTopics or AlterConfigs may not set these values together."""
    TopicConfig.resolve(overrides, broker).require_consistent()


BROKER_SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    "cleanup.policy": ("log.cleanup.policy",),
    "compression.gzip.level": ("compression.gzip.level",),
    "compression.lz4.level": ("compression.lz4.level",),
    "compression.type": ("compression.type",),
    "compression.zstd.level": ("compression.zstd.level",),
    "delete.retention.ms": ("log.cleaner.delete.retention.ms",),
    "file.delete.delay.ms": ("log.segment.delete.delay.ms",),
    "flush.messages": ("log.flush.interval.messages",),
    "flush.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    "index.interval.bytes": ("log.index.interval.bytes",),
    "max.compaction.lag.ms": ("log.cleaner.max.compaction.lag.ms",),
    "max.decompressed.message.bytes": ("max.decompressed.message.bytes",),
    "max.message.bytes": ("message.max.bytes",),
    "message.records.validation.enable": ("log.message.records.validation.enable",),
    "message.timestamp.after.max.ms": ("log.message.timestamp.after.max.ms",),
    "message.timestamp.before.max.ms": ("log.message.timestamp.before.max.ms",),
    "message.timestamp.type": ("log.message.timestamp.type",),
    "min.cleanable.dirty.ratio": ("log.cleaner.min.cleanable.ratio",),
    "min.compaction.lag.ms": ("log.cleaner.min.compaction.lag.ms",),
    "min.insync.replicas": ("min.insync.replicas",),
    "preallocate": ("log.preallocate",),
    "remote.copy.lag.bytes": ("log.remote.copy.lag.bytes",),
    "remote.copy.lag.ms": ("log.remote.copy.lag.ms",),
    "retention.bytes": ("log.retention.bytes",),
    "retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "segment.bytes": ("log.segment.bytes",),
    "segment.index.bytes": ("log.index.size.max.bytes",),
    "segment.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "segment.ms": ("log.roll.ms", "log.roll.hours"),
    "unclean.leader.election.enable": ("unclean.leader.election.enable",),
}
"""The broker keys that a topic key inherits from; the first one that is set counts."""
_OF_BROKERS: Final = {each: name for name, of in BROKER_SYNONYMS.items() for each in of}
