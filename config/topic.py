"""Topic keys: everything Kafka 4.3 knows of a topic, except tiered storage."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Self

from barnabas.config.declare import boolean, double, integer, long, names, string
from barnabas.config.key import LONG_MAX, ConfigError
from barnabas.config.table import Table, require_known

if TYPE_CHECKING:
    from barnabas.config.broker import BrokerConfig

COMPRESSION_TYPES: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")
CLEANUP_POLICIES: Final = ("compact", "delete")
_DAY_MS: Final = 24 * 60 * 60 * 1000


def check_gzip_level(key: str, level: int) -> None:
    """Levels that zlib takes; -1 is its own default (KIP-390)."""
    if level != -1 and not 1 <= level <= 9:
        raise ConfigError.invalid(key, level, "Value must be between 1 and 9 or equal to -1")


def _check_throttled_replicas(key: str, replicas: tuple[str, ...]) -> None:
    if replicas not in ((), ("*",)) and not all(
        re.fullmatch(r"[0-9]+:[0-9]+", replica) for replica in replicas
    ):
        raise ConfigError.invalid(
            key,
            replicas,
            f"{key} must be the literal '*' or a list of replicas in the following format: "
            "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
        )


class TopicConfig(Table):
    """What holds for one topic: its own overrides over the broker's defaults."""

    cleanup_policy = names(
        ("delete",),
        "What happens to old segments: `delete` drops them by age and size, `compact` keeps the "
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
        "How long compaction keeps a tombstone, so that a reader that starts at the beginning "
        "within this time sees the deletion.",
        at_least=0,
    )
    file_delete_delay_ms = long(
        60_000, "How long a deleted file is kept for readers that still hold it.", at_least=0
    )
    flush_messages = long(
        LONG_MAX,
        "An fsync is due when this many records were appended since the last one. At 1 records "
        "are acknowledged only after fsync, which producers share.",
        at_least=1,
    )
    flush_ms = long(
        LONG_MAX, "An fsync is due when a record has waited this long for one.", at_least=0
    )
    follower_replication_throttled_replicas = names(
        (),
        "Replicas whose fetching is throttled, as `partition:broker` pairs or `*`.",
        check=_check_throttled_replicas,
    )
    index_interval_bytes = integer(
        4096, "Bytes appended between two entries of the offset index.", at_least=0
    )
    leader_replication_throttled_replicas = names(
        (),
        "Replicas whose leaders throttle what they send, as `partition:broker` pairs or `*`.",
        check=_check_throttled_replicas,
    )
    max_compaction_lag_ms = long(
        LONG_MAX, "Longest time a record may wait before it is compacted.", at_least=1
    )
    max_message_bytes = integer(
        1_048_588, "Largest record batch, compressed, that is accepted.", at_least=0
    )
    message_timestamp_after_max_ms = long(
        3_600_000, "How far a record's timestamp may be ahead of the broker's clock.", at_least=0
    )
    message_timestamp_before_max_ms = long(
        LONG_MAX, "How far a record's timestamp may be behind the broker's clock.", at_least=0
    )
    message_timestamp_type = string(
        "CreateTime",
        "Whose clock stamps records: the producer's or, at the append, the broker's.",
        one_of=TIMESTAMP_TYPES,
    )
    min_cleanable_dirty_ratio = double(
        0.5,
        "Compaction starts when this share of the log is not compacted yet.",
        at_least=0,
        at_most=1,
    )
    min_compaction_lag_ms = long(
        0, "Shortest time a record stays as it was written before it is compacted.", at_least=0
    )
    min_insync_replicas = integer(
        1,
        "Replicas that must be in sync for a write with acks=all to be accepted.",
        at_least=1,
    )
    preallocate = boolean(False, "Reserve the space of a new segment on disk when it is created.")
    retention_bytes = long(
        -1, "Size of a partition above which its oldest segments are deleted; -1 is no limit."
    )
    retention_ms = long(
        7 * _DAY_MS, "Age at which a segment is deleted; -1 keeps it for ever.", at_least=-1
    )
    segment_bytes = integer(1 << 30, "Size at which a segment is closed.", at_least=1 << 20)
    segment_index_bytes = integer(10 << 20, "Largest size of an offset index.", at_least=4)
    segment_jitter_ms = long(
        0, "Random part of `segment.ms`, so that segments do not all roll at once.", at_least=0
    )
    segment_ms = long(7 * _DAY_MS, "Age at which a segment is closed.", at_least=1)
    unclean_leader_election_enable = boolean(
        False,
        "Whether a replica that is not in sync may lead when no other is left; it loses data.",
    )

    @classmethod
    def resolve(cls, overrides: Mapping[str, str], broker: "BrokerConfig") -> Self:
        """The configuration of a topic; ConfigError where an override is unknown or refused.

        Values that contradict each other are taken: a broker's default may have changed since the
        override was set.
        """
        require_known(cls, overrides, "topic")
        return cls(**{**broker.topic_defaults(), **cls.parse(overrides)})

    def require_consistent(self) -> None:
        """ConfigError where values that are well by themselves contradict each other."""
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise ConfigError(
                "conflict topic config setting "
                f"min.compaction.lag.ms ({self.min_compaction_lag_ms}) > "
                f"max.compaction.lag.ms ({self.max_compaction_lag_ms})"
            )

    @property
    def compacted(self) -> bool:
        """Whether records replace earlier ones of the same key, so that each needs a key."""
        return "compact" in self.cleanup_policy

    @property
    def deleted(self) -> bool:
        """Whether segments are dropped by age and size."""
        return "delete" in self.cleanup_policy

    @property
    def flushes_each_append(self) -> bool:
        """Whether a record is acknowledged only after an fsync covers it."""
        return self.flush_messages == 1


CAUTIOUS: Final[Mapping[str, str]] = {
    "cleanup.policy": "",
    "retention.bytes": "-1",
    "retention.ms": "-1",
    "unclean.leader.election.enable": "false",
}
"""For a topic whose overrides nobody can read: no record goes for what they do not say."""


def readable_overrides(
    stored: Mapping[str, str], before: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """What holds of stored overrides, and why the rest does not.

    Another version may have written them. Its keys are nothing here. A value that is refused here
    is what it was before; where nothing was, what deletes no records.
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
            if name in before or name in CAUTIOUS:
                overrides[name] = before[name] if name in before else CAUTIOUS[name]
    return overrides, refusals


def validate_topic_overrides(overrides: Mapping[str, str], broker: "BrokerConfig") -> None:
    """ConfigError where CreateTopics or AlterConfigs may not set these values together."""
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
    "max.message.bytes": ("message.max.bytes",),
    "message.timestamp.after.max.ms": ("log.message.timestamp.after.max.ms",),
    "message.timestamp.before.max.ms": ("log.message.timestamp.before.max.ms",),
    "message.timestamp.type": ("log.message.timestamp.type",),
    "min.cleanable.dirty.ratio": ("log.cleaner.min.cleanable.ratio",),
    "min.compaction.lag.ms": ("log.cleaner.min.compaction.lag.ms",),
    "min.insync.replicas": ("min.insync.replicas",),
    "preallocate": ("log.preallocate",),
    "retention.bytes": ("log.retention.bytes",),
    "retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "segment.bytes": ("log.segment.bytes",),
    "segment.index.bytes": ("log.index.size.max.bytes",),
    "segment.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "segment.ms": ("log.roll.ms", "log.roll.hours"),
    "unclean.leader.election.enable": ("unclean.leader.election.enable",),
}
"""The broker keys a topic key inherits from: the first that is set holds."""
