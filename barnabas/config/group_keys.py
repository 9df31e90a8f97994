"""Keys of group coordination and of idempotent producers."""

from collections.abc import Mapping
from typing import Final, Self

from barnabas.config.declare import boolean, integer, long, names, short, string
from barnabas.config.key import INT_MAX, ConfigError, Update
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


class ConsumerGroupKeys(Table):
    """Broker keys of consumer groups (KIP-848): the values that groups have, and their bounds."""

    group_consumer_assignment_interval_ms = integer(
        1000,
        "Interval between assignments of a consumer group: changes within it are assigned at once.",
        at_least=0,
        update=Update.CLUSTER_WIDE,
    )
    group_consumer_assignor_offload_enable = boolean(
        True,
        "Compute the assignments of consumer groups outside of the event loop.",
        update=Update.CLUSTER_WIDE,
    )
    group_consumer_assignors = names(
        ("uniform", "range"),
        "Assignors that the members of a consumer group may choose. The first one is taken for "
        "members that choose none.",
        one_of=("uniform", "range"),
        may_be_empty=False,
    )
    group_consumer_heartbeat_interval_ms = integer(
        5000, "Heartbeat interval of the members of a consumer group.", at_least=1
    )
    group_consumer_max_assignment_interval_ms = integer(
        15_000, "Maximum of `consumer.assignment.interval.ms` of a group.", at_least=0
    )
    group_consumer_max_heartbeat_interval_ms = integer(
        15_000, "Maximum of `consumer.heartbeat.interval.ms` of a group.", at_least=1
    )
    group_consumer_max_session_timeout_ms = integer(
        60_000, "Maximum of `consumer.session.timeout.ms` of a group.", at_least=1
    )
    group_consumer_max_size = integer(
        INT_MAX, "Maximum number of members of one consumer group.", at_least=1
    )
    group_consumer_migration_policy = string(
        "bidirectional",
        "Conversions of groups that have members: `upgrade` from the classic to the consumer "
        "protocol, `downgrade` back, `bidirectional` both, `disabled` none. A group without "
        "members is always converted.",
        one_of=("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"),
        any_case=True,
    )
    group_consumer_min_assignment_interval_ms = integer(
        0, "Minimum of `consumer.assignment.interval.ms` of a group.", at_least=0
    )
    group_consumer_min_heartbeat_interval_ms = integer(
        5000, "Minimum of `consumer.heartbeat.interval.ms` of a group.", at_least=1
    )
    group_consumer_min_session_timeout_ms = integer(
        45_000, "Minimum of `consumer.session.timeout.ms` of a group.", at_least=1
    )
    group_consumer_regex_refresh_interval_ms = integer(
        600_000,
        "Interval after which expressions of subscriptions are resolved again, also if no topic "
        "has changed: rights may have.",
        at_least=10_000,
    )
    group_consumer_session_timeout_ms = integer(
        45_000,
        "Time after its last heartbeat in which a member of a consumer group is removed.",
        at_least=1,
    )

    def require_consistent_groups(self) -> None:
        """Raise ConfigError, with Kafka's text, if values contradict each other."""
        for name in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms"):
            key = f"group.consumer.{name}"
            low, high = f"group.consumer.min.{name}", f"group.consumer.max.{name}"
            self._require_order(low, high, high, f"greater than or equal to {low}")
            self._require_order(low, key, key, f"greater than or equal to {low}")
            self._require_order(key, high, key, f"less than or equal to {high}")
        heartbeat = "group.consumer.heartbeat.interval.ms"
        session = "group.consumer.session.timeout.ms"
        if _number(self, heartbeat) >= _number(self, session):
            raise ConfigError(f"{heartbeat} must be less than {session}")

    def _require_order(self, lower: str, higher: str, name: str, bound: str) -> None:
        if _number(self, lower) > _number(self, higher):
            raise ConfigError(f"{name} must be {bound}")


_BOUNDED: Final = (
    "consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms",
    "consumer.assignment.interval.ms",
)
"""Keys of a group between two keys of the broker, in the order in which Kafka checks them."""


class GroupConfig(Table):
    """The configuration of one consumer group; `resolve` creates it.

    Classic groups have none: their members send their own timeouts. The keys of Kafka for share
    and streams groups would have no effect, and are refused.
    """

    consumer_assignment_interval_ms = integer(
        1000, ConsumerGroupKeys.group_consumer_assignment_interval_ms.doc, at_least=0
    )
    consumer_assignor_offload_enable = boolean(
        True, ConsumerGroupKeys.group_consumer_assignor_offload_enable.doc
    )
    consumer_heartbeat_interval_ms = integer(
        5000, ConsumerGroupKeys.group_consumer_heartbeat_interval_ms.doc, at_least=1
    )
    consumer_session_timeout_ms = integer(
        45_000, ConsumerGroupKeys.group_consumer_session_timeout_ms.doc, at_least=1
    )

    @classmethod
    def resolve(cls, overrides: Mapping[str, str], broker: ConsumerGroupKeys) -> Self:
        """Return the configuration of a group; raise ConfigError for an unknown or invalid
        override.

        A value beyond the broker's bounds counts as the bound: they may have changed since it was
        set.
        """
        require_known(cls, overrides, "group")
        attributes = [key.attribute for key in cls.KEYS.values()]
        group = cls(**{each: getattr(broker, f"group_{each}") for each in attributes})
        group = group.replace(**cls.parse(overrides))
        return group.replace(
            **{
                cls.KEYS[name].attribute: min(max(_number(group, name), low), high)
                for name in _BOUNDED
                for low, high in [_bounds(name, broker)]
            }
        )


def validate_group_overrides(overrides: Mapping[str, str], broker: ConsumerGroupKeys) -> None:
    """Raise ConfigError if AlterConfigs may not set these values for a group."""
    require_known(GroupConfig, overrides, "group")
    given = GroupConfig(**GroupConfig.parse(overrides))
    for name in _BOUNDED:
        low, high = _bounds(name, broker)
        if name in overrides and not low <= _number(given, name) <= high:
            raise ConfigError(f"{name} must be in the range {low} to {high} inclusive.")
    heartbeat, session, _ = _BOUNDED
    group = GroupConfig.resolve(overrides, broker)
    if {heartbeat, session} & overrides.keys() and (
        group.consumer_session_timeout_ms <= group.consumer_heartbeat_interval_ms
    ):
        raise ConfigError(f"{session} must be greater than {heartbeat}")


def readable_group_overrides(stored: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the stored overrides that are valid, and why others are not.

    Kafka or another version may have written them: keys that are unknown here are dropped.
    """
    overrides, refusals = {}, []
    for name, text in stored.items():
        if (key := GroupConfig.KEYS.get(name)) is not None:
            try:
                key.parse(text)
                overrides[name] = text
            except ConfigError as error:
                refusals.append(str(error))
    return overrides, refusals


def _bounds(name: str, broker: ConsumerGroupKeys) -> tuple[int, int]:
    kind, _, rest = name.partition(".")
    low, high = (_number(broker, f"group.{kind}.{side}.{rest}") for side in ("min", "max"))
    return low, high


def _number(table: Table, name: str) -> int:
    value = getattr(table, table.KEYS[name].attribute)
    assert isinstance(value, int)
    return value
