"""Finalized features: the feature levels of the whole cluster (KIP-584).

One node of the metadata store has them. Every broker caches them. A change checks first which
levels the registered brokers support. A feature with a level below 1 is absent.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple

from barnabas.broker.cluster import znodes
from barnabas.broker.cluster.znodes import FeatureRange
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.store.metadata_store import BadVersion, MetadataStore, NoNode, WatchHandle
from barnabas.protocol.errors import ErrorCode, KafkaError

TRANSACTION_VERSION = "transaction.version"
"""0: as before KIP-890; 1: `__transaction_state` has flexible records; 2: each transaction has an
epoch of its own, and the first write to a partition adds it."""
TRANSACTION_REGISTRATION = "barnabas.transaction.registration"
"""1: the tags of KIP-609 in AddPartitionsToTxn and EndTxn are supported. A feature of Barnabas."""
GROUP_VERSION = "group.version"
"""1: consumer groups are served, and `__consumer_offsets` has their records (KIP-848)."""

SUPPORTED: Mapping[str, FeatureRange] = MappingProxyType(
    {
        TRANSACTION_VERSION: FeatureRange(0, 2),
        GROUP_VERSION: FeatureRange(0, 1),
        TRANSACTION_REGISTRATION: FeatureRange(0, 1),
    }
)
"""The levels that this broker supports."""
NEW_CLUSTER: Mapping[str, int] = MappingProxyType(
    {name: supported.max_version for name, supported in SUPPORTED.items()}
)
"""The levels of a new cluster."""
UNKNOWN_EPOCH = -1

_NONE = FeatureRange(0, 0)
_TOLD_OF_A_NAME = 100
"""Characters of a feature name that an error message repeats; a client may send a very long one."""
_log = get_logger(__name__)


class FeatureNotSupported(Exception):
    """The cluster has a finalized level that this broker does not support, so the broker must not
    run."""


class UpgradeType(IntEnum):
    """The direction of changes that a request allows."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureChange(NamedTuple):
    """The new level of a feature. `upgrade_type` is the value on the wire and may be no
    UpgradeType."""

    feature: str
    level: int
    upgrade_type: int = UpgradeType.UPGRADE


class Features:
    """The finalized features in this broker's cache."""

    def __init__(
        self, store: MetadataStore, supported: Mapping[str, FeatureRange] = SUPPORTED
    ) -> None:
        self._store = store
        self.supported = supported
        self._finalized: Mapping[str, int] = {}
        self.transaction_version = 0
        self._epoch = UNKNOWN_EPOCH
        self._watching: WatchHandle | None = None

    async def start(self, on_change: Callable[[], None]) -> None:
        """Read the finalized features. `on_change` is called when `catch_up` should be awaited.

        Raises FeatureNotSupported, and ZnodeError if the node is damaged.
        """
        self._watching = self._store.watch_data(znodes.FEATURE, lambda _path: on_change())
        await self.catch_up()

    def stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()

    @property
    def finalized(self) -> Mapping[str, int]:
        """Levels by feature, each at least 1."""
        return self._finalized

    @property
    def epoch(self) -> int:
        """The zxid of the last change, added to that of an earlier store. Clients trust the highest
        epoch, so it must grow even if the node was recreated or the metadata were copied."""
        return self._epoch

    @property
    def has_consumer_groups(self) -> bool:
        """Whether consumer groups are served."""
        return self._finalized.get(GROUP_VERSION, 0) > 0

    async def catch_up(self) -> None:
        """Read the changes of other brokers. Raises the errors of `start`."""
        try:
            data, stat = await self._store.get(znodes.FEATURE)
        except NoNode:
            _log.error("finalized features missing in the metadata store", kept=self._epoch)
            return
        self._take_over(znodes.decode_features(data), epoch_of(data, stat.mzxid))

    async def update(self, changes: Iterable[FeatureChange], *, validate_only: bool) -> None:
        """Make all changes or none; with `validate_only` make none.

        Raises INVALID_UPDATE_VERSION if a change is impossible, and StoreError.
        """
        wanted = list(changes)
        while True:
            data, stat = await self._store.get(znodes.FEATURE)
            before = znodes.decode_features(data)
            after = changed(before, wanted, await self._supporters())
            if validate_only:
                return
            if after != before:
                with suppress(BadVersion):
                    stat = await self._store.set(
                        znodes.FEATURE,
                        znodes.encode_features(after, znodes.decode_epochs_before(data)),
                        stat.version,
                    )
                    before = after
            if after == before:
                self._take_over(after, epoch_of(data, stat.mzxid))
                return

    async def _supporters(self) -> dict[str, Mapping[str, FeatureRange]]:
        """Return the supported levels of all brokers that count, by the names that a refusal gives
        them."""
        supporters = {"This broker": self.supported}
        for broker_id in znodes.broker_ids(await self._store.children(znodes.BROKER_IDS)):
            with suppress(NoNode):
                data, stat = await self._store.get(znodes.broker_path(broker_id))
                broker = znodes.decode_broker(broker_id, data, stat.czxid)
                supporters[f"Broker {broker_id}"] = broker.features
        return supporters

    def _take_over(self, finalized: Mapping[str, int], epoch: int) -> None:
        for feature, level in finalized.items():
            reason = _unsupported(level, "This broker", self.supported.get(feature, _NONE))
            if reason is not None:
                raise FeatureNotSupported(
                    f"{feature} is finalized at {level}. {reason} Start a newer version."
                )
        if epoch > self._epoch:
            self._finalized, self._epoch = finalized, epoch
            self.transaction_version = finalized.get(TRANSACTION_VERSION, 0)
            _log.info("finalized features", epoch=epoch, levels=dict(finalized))


def epoch_of(data: bytes, zxid: int) -> int:
    """Return the epoch of levels that were written at a zxid."""
    return znodes.decode_epochs_before(data) + zxid


def changed(
    finalized: Mapping[str, int],
    changes: Iterable[FeatureChange],
    supporters: Mapping[str, Mapping[str, FeatureRange]],
) -> dict[str, int]:
    """Return the levels after all changes; the last change of a feature counts. Raises
    INVALID_UPDATE_VERSION."""
    after = dict(finalized)
    for change in {each.feature: each for each in changes}.values():
        reason = _refusal(change, finalized.get(change.feature, 0), supporters)
        if reason is not None:
            raise KafkaError(
                ErrorCode.INVALID_UPDATE_VERSION,
                "The update failed for all features: invalid update version "
                f"{change.level} for feature {change.feature[:_TOLD_OF_A_NAME]}. {reason}",
            )
        after.pop(change.feature, None)
        if change.level > 0:
            after[change.feature] = change.level
    return after


def _refusal(
    change: FeatureChange, current: int, supporters: Mapping[str, Mapping[str, FeatureRange]]
) -> str | None:
    """Return the reason why a change is impossible; the first in Kafka's order."""
    if change.upgrade_type not in tuple(UpgradeType):
        return "The controller does not support the given upgrade type."
    if change.level < 0:
        return "A feature version cannot be less than 0."
    if not any(change.feature in supported for supported in supporters.values()):
        return "No broker supports this feature."
    for who, supported in supporters.items():
        reason = _unsupported(change.level, who, supported.get(change.feature, _NONE))
        if reason is not None:
            return reason
    raises = change.upgrade_type == UpgradeType.UPGRADE
    if change.level < current and raises:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to "
            "either safe or unsafe downgrade."
        )
    if change.level > current and not raises:
        return "Can't downgrade to a newer version."
    return None


def _unsupported(level: int, who: str, supported: FeatureRange) -> str | None:
    if supported.min_version <= level <= supported.max_version:
        return None
    if supported.max_version == 0:
        return f"{who} does not support this feature."
    return f"{who} only supports versions {supported.min_version}-{supported.max_version}"
