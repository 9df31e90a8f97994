"""The changes between releases of Apache Kafka: the referee may be an older one (`jars.py`).

Barnabas is compared with the newest release. Beside an older one the scenarios use the versions
that it has, and what came later is left out. docs/COMPATIBILITY.md prints the table.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from barnabas.protocol.schema import Api, api
from tests.support.kafka.jars import version

Release = tuple[int, ...]

WITHOUT_OLD_VERSIONS: Release = (4, 0)
"""The release that dropped the oldest versions of many APIs (KIP-896)."""

API_VERSIONS: dict[Release, dict[int, int]] = {
    (4, 4): {18: 5, 28: 6, 42: 3},
    (4, 3): {35: 5},
    (4, 2): {2: 11, 8: 10, 9: 10, 27: 2},
    (4, 1): {0: 13, 1: 18, 22: 6, 45: 1, 66: 2, 74: 1},
    (4, 0): {0: 12, 2: 10, 3: 13, 15: 6, 26: 5, 28: 5, 57: 2, 60: 2},
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


@dataclass(frozen=True, slots=True)
class Change:
    """An answer that differs in older releases.

    Attributes:
        since: the release from which on Kafka answers as described.
        scenarios: titles of scenarios (`Api/name`, `*` for any) that show it.
        path: the field, as `Api.field[0].field`, `*` for any.
        what: the behaviour since then, in words.
    """

    since: Release
    scenarios: tuple[str, ...]
    path: str
    what: str


CHANGES: tuple[Change, ...] = (
    Change(
        since=(4, 4),
        scenarios=("TxnOffsetCommit/the_record_has_the_topics_id",),
        path="Fetch*.has_id",
        what="TxnOffsetCommit stores the topic's id, whatever its version",
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


def is_later(key: str) -> bool:
    """Return whether a key of the configuration came after the referee's release."""
    return any(release > referee() and key in keys for release, keys in CONFIG_KEYS.items())


def rows() -> Iterator[tuple[str, str]]:
    """Yield the rows of the published table: the release, and what came with it."""
    for release in API_VERSIONS:
        name = ".".join(map(str, release))
        for key, first in sorted(API_VERSIONS[release].items()):
            yield name, f"{api(key).name}, version {first}"
        for each in CONFIG_KEYS.get(release, ()):
            yield name, f"`{each}`"
        for change in CHANGES:
            if change.since == release:
                yield name, change.what
