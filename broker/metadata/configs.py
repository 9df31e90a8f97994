"""Dynamic configuration: what stands under /config, and whom on this broker it concerns.

An alteration is one transaction: the values, and a sequential node under /config/changes that makes
every broker read them anew. The broker that alters answers after it has applied them itself.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType

from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.cluster import catch_up_with_all
from barnabas.broker.metadata.store import (
    BadVersion,
    Create,
    Delete,
    MetadataStore,
    NodeExists,
    NoNode,
    Op,
    SetData,
    Watching,
)
from barnabas.broker.metadata.znodes import ZnodeError
from barnabas.broker.observability.logging import get_logger
from barnabas.config.dynamic import DynamicConfig
from barnabas.config.key import ConfigError
from barnabas.config.topic import CAUTIOUS, TopicConfig, readable_overrides

KEPT_CHANGES = 100
"""Notifications that stay for brokers that are slow to read them; one that missed more has been
away and reads everything anew when it comes back."""

Change = Callable[[dict[str, str]], dict[str, str]]
TopicFollower = Callable[[str, TopicConfig], None]
_NOTHING: Mapping[str, str] = MappingProxyType({})
_log = get_logger(__name__)


class Configs:
    """The configurations that this broker works with: its own, and those of its topics."""

    def __init__(self, store: MetadataStore, broker: DynamicConfig, broker_id: int) -> None:
        self._store = store
        self._broker_id = broker_id
        self.broker = broker
        self._overrides: dict[str, Mapping[str, str]] = {}
        self._topics: dict[str, TopicConfig] = {}
        self._refusals: dict[str, list[str]] = {}
        self._followers: list[TopicFollower] = []
        self._watching: Watching | None = None
        self._newest_change = ""
        broker.follow(lambda _config: self._broker_changed())

    async def start(self, soon: Callable[[], None]) -> None:
        """Read what concerns the broker. `soon` is called when `catch_up` should be awaited."""
        self._watching = self._store.watch_children(znodes.CONFIG_CHANGES, lambda _path: soon())
        self._newest_change = max(await self._changes(), default="")
        await self._apply("brokers", str(self._broker_id))

    def stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()

    def topic(self, name: str) -> TopicConfig:
        """What holds for a topic of which this broker has a replica."""
        config = self._topics.get(name)
        if config is None:
            overrides = self._overrides.get(name, _NOTHING)
            config = self._topics[name] = TopicConfig.resolve(overrides, self.broker.current)
        return config

    def follow_topics(self, follower: TopicFollower) -> None:
        """Call back with the topic's name after its configuration has changed."""
        self._followers.append(follower)

    async def load_topics(self, names: Iterable[str]) -> None:
        """Read the configurations of topics whose replicas come to this broker.

        A controller may tell of a topic before this session's reads show it, and no notice of a
        change follows a creation: what was read too early would hold until the next start.
        """
        await catch_up_with_all(self._store)
        for name in names:
            self._overrides.setdefault(name, _NOTHING)
            await self._apply("topics", name)

    def forget_topics(self, names: Iterable[str]) -> None:
        """The replicas of these topics were deleted."""
        for name in names:
            self._overrides.pop(name, None)
            self._topics.pop(name, None)
            self._refusals.pop(name, None)

    async def overrides(self, name: str) -> Mapping[str, str]:
        """What holds of what is stored for a topic, which need not have a replica here.

        Where that cannot be read, what held before; where nothing did, what loses no records.
        """
        try:
            stored = await self.read("topics", name)
        except ZnodeError as error:
            before = self._overrides.get(name, _NOTHING)
            self._complain(name, [str(error)])
            return CAUTIOUS if before is _NOTHING else before
        known, refusals = readable_overrides(stored, self._overrides.get(name, _NOTHING))
        self._complain(name, refusals)
        return known

    async def read(self, kind: str, name: str) -> dict[str, str]:
        """What is stored for an entity; empty where nothing is. Raises ZnodeError."""
        try:
            data, _ = await self._store.get(znodes.config_path(kind, name))
        except NoNode:
            return {}
        return znodes.decode_config(data)

    async def names(self, kind: str) -> list[str]:
        """The entities of a kind for which something is stored."""
        nodes = await self._store.children(f"{znodes.CONFIG}/{kind}")
        names = [znodes.config_name(node) for node in nodes]
        return [name for name in names if await self._is_stored(kind, name)]

    async def alter(self, kind: str, name: str, change: Change) -> None:
        """Replace what is stored by what `change` makes of it, and apply it on this broker.

        Raises what `change` raises, NoNode where the topic has gone, and ZnodeError.
        """
        path = znodes.config_path(kind, name)
        notice = Create(
            znodes.CONFIG_CHANGE, znodes.encode_config_change(kind, name), sequence=True
        )
        while True:
            try:
                data, stat = await self._store.get(path)
                values = change(znodes.decode_config(data))
                write: Op = SetData(path, znodes.encode_config(values), stat.version)
            except NoNode:
                if kind == "topics":
                    raise
                write = Create(path, znodes.encode_config(change({})))
            with suppress(BadVersion, NodeExists):
                await self._store.multi([write, notice])
                break
        await self._apply(kind, name)

    async def catch_up(self) -> None:
        """Apply what other brokers have altered since the last time.

        Can be done again where it was interrupted, as by the loss of the store.
        """
        changes = await self._changes()
        known = self._newest_change
        if known not in changes if known else len(changes) >= KEPT_CHANGES:
            # Away for longer than changes are kept: nobody knows what was missed.
            await self._apply_all()
        for change in changes:
            if change > self._newest_change:
                await self._apply_change(f"{znodes.CONFIG_CHANGES}/{change}")
                self._newest_change = change
        for change in changes[:-KEPT_CHANGES]:
            with suppress(NoNode):
                await self._store.multi([Delete(f"{znodes.CONFIG_CHANGES}/{change}")])

    async def _changes(self) -> list[str]:
        """The names of the notifications, in order; of whatever else stands there, none."""
        prefix = znodes.CONFIG_CHANGE.rpartition("/")[2]
        nodes = await self._store.children(znodes.CONFIG_CHANGES)
        return [node for node in nodes if node.startswith(prefix)]

    async def _is_stored(self, kind: str, name: str) -> bool:
        try:
            return bool(await self.read(kind, name))
        except ZnodeError:
            return True

    async def _apply_change(self, path: str) -> None:
        try:
            data, _ = await self._store.get(path)
            changed = znodes.decode_config_change(data)
        except NoNode:
            return
        except ZnodeError as error:
            # Something has changed, in the words of another version.
            _log.error("change of a configuration cannot be read", path=path, reason=str(error))
            await self._apply_all()
            return
        await self._apply(*changed)

    def _complain(self, name: str, refusals: list[str]) -> None:
        """Once, however often it is read."""
        if refusals and refusals != self._refusals.get(name):
            _log.error("topic configuration cannot be taken", topic=name, reasons=refusals)
        if refusals:
            self._refusals[name] = refusals
        else:
            self._refusals.pop(name, None)

    async def _apply_all(self) -> None:
        await self._apply("brokers", str(self._broker_id))
        for name in {*self._topics, *self._overrides}:
            await self._apply("topics", name)

    async def _apply(self, kind: str, name: str) -> None:
        if kind == "brokers" and name in (str(self._broker_id), znodes.DEFAULT_ENTITY):
            try:
                self.broker.apply(
                    cluster_defaults=await self.read(kind, znodes.DEFAULT_ENTITY),
                    overrides=await self.read(kind, str(self._broker_id)),
                )
            except (ConfigError, ZnodeError) as error:
                # Written by another version of the broker: what held before goes on to hold.
                _log.error("dynamic broker configuration refused", reason=str(error))
        elif kind == "topics":
            self._topic_changed(name, await self.overrides(name))

    def _topic_changed(self, name: str, overrides: Mapping[str, str]) -> None:
        before = self._overrides.get(name, _NOTHING)
        self._overrides[name] = overrides
        if overrides != before:
            self._topics.pop(name, None)
            self._tell(name)

    def _broker_changed(self) -> None:
        names = list(self._topics)
        self._topics.clear()
        for name in names:
            self._tell(name)

    def _tell(self, name: str) -> None:
        config = self.topic(name)
        for follower in self._followers:
            follower(name, config)
