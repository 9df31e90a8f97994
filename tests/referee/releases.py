"""The changes between releases of Apache Kafka: the referee may be an older one (`jars.py`).

Barnabas is compared with the newest release. Beside an older one the scenarios use the versions
that it has, and what came later is left out. docs/COMPATIBILITY.md prints the table.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from barnabas.protocol.apis import api
from barnabas.protocol.schema import Api
from tests.support.kafka.jars import version
from tests.support.kafka.node import FEATURES_OFF

Release = tuple[int, ...]

WITHOUT_OLD_VERSIONS: Release = (4, 0)
"""The release that dropped the oldest versions of many APIs (KIP-896)."""

API_VERSIONS: dict[Release, dict[int, int]] = {
    (4, 4): {18: 5, 28: 6, 42: 3},
    (4, 3): {35: 5},
    (4, 2): {2: 11, 8: 10, 9: 10, 27: 2},
    (4, 1): {0: 13, 1: 18, 22: 6, 45: 1, 66: 2, 74: 1},
    (4, 0): {0: 12, 2: 10, 3: 13, 15: 6, 26: 5, 28: 5, 57: 2, 60: 2, 68: 1, 69: 1},
}
"""By release, the first version of an API that came with it; earlier ones are older."""

CONFIG_KEYS: dict[Release, tuple[str, ...]] = {
    (4, 4): (
        "errors.deadletterqueue.auto.create.topics.enable",
        "errors.deadletterqueue.group.enable",
        "errors.deadletterqueue.topic.name.prefix",
        "group.consumer.assignor.offload.enable",
        "group.share.assignor.offload.enable",
        "group.streams.assignor.offload.enable",
        "log.remote.copy.lag.bytes",
        "log.remote.copy.lag.ms",
        "max.decompressed.message.bytes",
        "remote.copy.lag.bytes",
        "remote.copy.lag.ms",
        "sasl.oauthbearer.allow.unverified.audience",
        "sasl.oauthbearer.allow.unverified.issuer",
    ),
}
"""By release, the keys of topics and brokers that came with it."""

REMOVED_KEYS: dict[Release, tuple[str, ...]] = {
    (4, 0): (
        "message.downconversion.enable",
        "message.format.version",
        "message.timestamp.difference.max.ms",
    ),
}
"""By release, the keys of topics that went with it."""

NEW_DEFAULTS: dict[Release, tuple[str, ...]] = {(4, 0): ("message.timestamp.after.max.ms",)}
"""By release, the keys of topics whose default is another one since then."""

LEVELS_SINCE: Release = (4, 0)
"""The release in which transaction.version may be above 0 (KIP-890)."""

FEATURES: dict[Release, tuple[str, ...]] = {
    (4, 0): (
        "eligible.leader.replicas.version",
        "group.version",
        "share.version",
        "streams.version",
    ),
}
"""By release, the features that came with it or later: an older one refuses to format with them."""


@dataclass(frozen=True, slots=True)
class Change:
    """An answer that differs in older releases.

    Attributes:
        since: the release from which on Kafka answers as described.
        scenarios: titles of scenarios (`Api/name`, `*` for any) that show it.
        path: the field, as `Api.field[0].field`, `*` for any. If empty, the scenarios are left
            out beside an older release.
        what: the behaviour since then, in words.
    """

    since: Release
    scenarios: tuple[str, ...]
    path: str
    what: str


CHANGES: tuple[Change, ...] = (
    Change(
        since=(4, 4),
        scenarios=("ConsumerGroupHeartbeat/*", "ConsumerGroupDescribe/*"),
        path="",
        what="consumer groups begin at epoch 1, and commits of earlier epochs count (KIP-1251)",
    ),
    Change(
        since=(4, 4),
        scenarios=("IncrementalAlterConfigs/assignment_in_the_loop_of_a_group",),
        path="",
        what="a group has consumer.assignor.offload.enable",
    ),
    Change(
        since=(4, 4),
        scenarios=("TxnOffsetCommit/the_record_has_the_topics_id",),
        path="Fetch*.has_id",
        what="TxnOffsetCommit stores the topic's id, whatever its version",
    ),
    Change(
        since=(4, 0),
        scenarios=(
            "DescribeConfigs/*group*",
            "IncrementalAlterConfigs/*group*",
            "IncrementalAlterConfigs/a_refused_value_leaves_the_others",
        ),
        path="",
        what="groups have configurations (KIP-848)",
    ),
    Change(
        since=(4, 0),
        scenarios=(
            "JoinGroup/*classic*",
            "JoinGroup/*downgraded",
            "JoinGroup/*static_member_changes_its_protocol*",
            "JoinGroup/*upgrade*",
            "JoinGroup/a_cooperative_member_gives_up_a_part",
            "JoinGroup/a_group_in_its_first_rebalance",
            "JoinGroup/a_group_with_an_id_that_has_not_joined",
            "JoinGroup/owned_partitions_that_are_unknown",
            "JoinGroup/requests_of_members_that_are_wrong",
        ),
        path="",
        what="members of both protocols share a group (KIP-848)",
    ),
    Change(
        since=(4, 0),
        scenarios=("*Acls/*",),
        path="*Acls",
        what="version 0 of DescribeAcls, CreateAcls and DeleteAcls closes the connection",
    ),
    Change(
        since=(4, 0),
        scenarios=("*",),
        path="ApiVersions.api_keys*.min_version",
        what="ApiVersions does not announce version 0 of DescribeAcls, CreateAcls and DeleteAcls",
    ),
    Change(
        since=(4, 0),
        scenarios=("*",),
        path="ApiVersions.supported_features*",
        what="ApiVersions announces the feature transaction.version",
    ),
    Change(
        since=(4, 0),
        scenarios=("*",),
        path="Metadata.topics*.partitions*",
        what="Metadata lists partitions by their numbers",
    ),
    Change(
        since=(4, 0),
        scenarios=(
            "DescribeConfigs/values_that_are_written_in_other_ways",
            "IncrementalAlterConfigs/items_of_a_list_with_blanks_and_a_list_with_a_repetition",
        ),
        path="DescribeConfigs.results*.configs*value",
        what="a list of a configuration has each item once",
    ),
    Change(
        since=(4, 0),
        scenarios=("*/a_group_through_its_states",),
        path="DescribeGroups.groups*.member_assignment",
        what="DescribeGroups shows assignments during a rebalance",
    ),
    Change(
        since=(4, 0),
        scenarios=("ListOffsets/the_same_partition_twice",),
        path="ListOffsets.topics*.partitions",
        what="ListOffsets answers a partition once that is asked for twice",
    ),
    Change(
        since=(4, 0),
        scenarios=("DescribeGroups/authorized_operations_without_an_authorizer",),
        path="DescribeGroups.groups*.authorized_operations",
        what="a group has the operations DescribeConfigs and AlterConfigs",
    ),
    Change(
        since=(4, 0),
        scenarios=("*",),
        path="DescribeTransactions*.transaction_start_time_ms",
        what="a transactional id without a transaction has no start time",
    ),
    Change(
        since=(4, 0),
        scenarios=("IncrementalAlterConfigs/unknown_keys_of_groups_and_client_metrics",),
        path="IncrementalAlterConfigs.responses*.error_code",
        what="unknown keys of groups get INVALID_CONFIG",
    ),
    Change(
        since=(4, 0),
        scenarios=("Add*ToTxn/while_a*_is_under_way",),
        path="Add*ToTxn*error_code",
        what="while a transaction ends, CONCURRENT_TRANSACTIONS goes before errors of the epoch",
    ),
    Change(
        since=(4, 0),
        scenarios=("ApiVersions/removed_versions_of_other_apis",),
        path="",
        what="the oldest versions of many APIs close the connection (KIP-896)",
    ),
    Change(
        since=(4, 0),
        scenarios=("UpdateFeatures/*",),
        path="",
        what="UpdateFeatures changes transaction.version",
    ),
    Change(
        since=(4, 0),
        scenarios=("OffsetFetch/of_no_group",),
        path="",
        what="OffsetFetch for no group is answered",
    ),
    Change(
        since=(4, 0),
        scenarios=("OffsetFetch/the_same_partition_twice",),
        path="",
        what="OffsetFetch answers a partition as often as it is asked for",
    ),
    Change(
        since=(4, 0),
        scenarios=("*/worn_and_its_last_epochs",),
        path="",
        what="a transactional id whose epochs are used up goes on with another producer id",
    ),
    Change(
        since=(4, 0),
        scenarios=("ListOffsets/no_topics_and_no_partitions",),
        path="ListOffsets.topics*",
        what="ListOffsets leaves out a topic without partitions",
    ),
    Change(
        since=(4, 0),
        scenarios=("Produce/negative_timestamps",),
        path="ListOffsets.topics*.partitions",
        what="ListOffsets answers one of two questions about a partition",
    ),
    Change(
        since=(4, 0),
        scenarios=("OffsetCommit/a_generation_of_an_unknown_group",),
        path="OffsetCommit*error_code",
        what="OffsetCommit 9 of an unknown group gets GROUP_ID_NOT_FOUND",
    ),
    Change(
        since=(4, 0),
        scenarios=("OffsetCommit/the_same_partition_twice",),
        path="OffsetCommit.topics",
        what="OffsetCommit answers a topic as often as it is named",
    ),
    Change(
        since=(4, 0),
        scenarios=("OffsetDelete/the_last_offset_ends_the_group",),
        path="OffsetDelete.*",
        what="a group without offsets is found until it is removed",
    ),
    Change(
        since=(4, 0),
        scenarios=("Produce/*", "WriteTxnMarkers/*"),
        path="Produce*.log_start_offset",
        what="Produce names the log's start for an invalid batch, not for one of an older epoch",
    ),
    Change(
        since=(4, 0),
        scenarios=("TxnOffsetCommit/an_older_epoch_of_an_open_transaction",),
        path="OffsetFetch*",
        what="offsets of a fenced producer's transaction are discarded later",
    ),
    Change(
        since=(4, 0),
        scenarios=("TxnOffsetCommit/a_generation_of_an_unknown_group",),
        path="TxnOffsetCommit*error_code",
        what="TxnOffsetCommit of an unknown group gets ILLEGAL_GENERATION",
    ),
)


def referee() -> Release:
    """Return the release that the tests run beside."""
    return tuple(map(int, version().split(".")[:2]))


def last_version(of: Api) -> int:
    """Return the highest version of an API that both Barnabas and the referee have."""
    later = [
        versions[of.key] - 1
        for release, versions in API_VERSIONS.items()
        if release > referee() and of.key in versions
    ]
    return min([of.versions[-1], *later])


def features_off() -> dict[str, int]:
    """Return the levels of a cluster whose operator has enabled none of the newer protocols."""
    return {
        name: level
        for name, level in FEATURES_OFF.items()
        if not any(release > referee() and name in later for release, later in FEATURES.items())
    }


def levels_of(levels: tuple[int, ...]) -> tuple[int, ...]:
    """Return those levels of transaction.version that the referee has."""
    return levels if referee() >= LEVELS_SINCE else levels[:1]


def is_left_out(title: str) -> bool:
    """Return whether the referee cannot play a scenario."""
    return any(
        change.since > referee() and not change.path and fnmatchcase(title, name)
        for change in CHANGES
        for name in change.scenarios
    )


def is_later(key: str) -> bool:
    """Return whether a key of the configuration came, went or got another default after the
    referee's release."""
    changed = [*CONFIG_KEYS.items(), *REMOVED_KEYS.items(), *NEW_DEFAULTS.items()]
    return any(release > referee() and key in keys for release, keys in changed)


def rows() -> Iterator[tuple[str, str]]:
    """Yield the rows of the published table: the release, and what came with it."""
    for release in API_VERSIONS:
        name = ".".join(map(str, release))
        for key, first in sorted(API_VERSIONS[release].items()):
            yield name, f"{api(key).name}, version {first}"
        for each in CONFIG_KEYS.get(release, ()):
            yield name, f"`{each}`"
        for each in REMOVED_KEYS.get(release, ()):
            yield name, f"`{each}` is gone"
        for each in NEW_DEFAULTS.get(release, ()):
            yield name, f"`{each}` has another default"
        for each in FEATURES.get(release, ()):
            yield name, f"feature {each}"
        if release == LEVELS_SINCE:
            yield name, "transaction.version 1 and 2"
        for change in CHANGES:
            if change.since == release:
                yield name, change.what
